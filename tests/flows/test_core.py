"""The pure core under jit, vmap and differentiation; compilations and memory (CASES 12, 13)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above, Below
from gflow.errors import InputError
from gflow.flows import Block, GradientFlow, LogClock, ScaledClock, integrate, solve
from gflow.losses.chain import ChainLoss

CHAIN = ChainLoss(2)
HALF = {"half": Above(lambda w: w, 0.5)}


def half_time(start):
    return integrate(GradientFlow(CHAIN), start, t1=100.0, milestones=HALF, stop_when_found=True).times["half"]


def closed(start):
    return CHAIN.time(jnp.asarray(0.5), start)


def test_vmapped_lanes_equal_the_closed_form_and_its_derivative():
    starts = jnp.geomspace(1e-8, 1e-1, 32)
    times, slopes = jax.jit(jax.vmap(lambda s: jax.jvp(half_time, (s,), (jnp.ones_like(s),))))(starts)
    np.testing.assert_allclose(times, jax.vmap(closed)(starts), rtol=1e-8)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(closed))(starts), rtol=1e-7)


def test_traced_and_driven_runs_agree():
    end = eqx.filter_jit(lambda s: integrate(GradientFlow(CHAIN), s, t1=20.0, milestones=HALF))(jnp.asarray(1e-8))
    driven = solve(CHAIN, jnp.asarray(1e-8), t1=20.0, milestones=HALF, solver="dopri8")
    assert bool(end.ok)
    assert float(end.params) == pytest.approx(float(driven.final), rel=1e-9)
    assert float(end.times["half"]) == pytest.approx(driven.milestones["half"].time, rel=1e-9)


def test_a_lane_that_runs_out_of_steps_says_so():
    run = jax.jit(jax.vmap(lambda s: integrate(GradientFlow(CHAIN), s, t1=100.0, milestones=HALF, max_steps=40)))
    end = run(jnp.asarray([1e-8, 0.9]))
    assert end.ok.tolist() == [False, False]
    assert end.reached["half"].tolist() == [False, True]


def test_case_12_memory_does_not_grow_with_max_steps_or_exceed_a_few_megabytes():
    """1024 lanes, 2^20 steps allowed: what the compiled program allocates is the same as for 16 steps."""

    def bytes_needed(max_steps):
        lanes = jax.jit(
            jax.vmap(lambda s: integrate(GradientFlow(CHAIN), s, t1=100.0, milestones=HALF, max_steps=max_steps))
        )
        memory = lanes.lower(jnp.full(1024, 1e-3)).compile().memory_analysis()
        return memory.temp_size_in_bytes + memory.output_size_in_bytes

    large = bytes_needed(2**20)
    assert large == bytes_needed(16)
    assert large < 8e6


TRACES: list[int] = []


class Counted(eqx.Module):
    """A loss that counts how often it is traced or run."""

    depth: jax.Array

    def __call__(self, p):
        TRACES.append(1)
        return self.depth * p**2 / 2


def test_case_13_new_numbers_do_not_compile_anew():
    def run(start, depth, level, t1):
        loss = Counted(jnp.asarray(depth))
        return solve(loss, start, milestones={"m": Below(loss, level)}, t1=t1, rtol=1e-8)

    run(0.1, 100.0, 1e-4, 1.0)
    before = len(TRACES)
    for start, depth, level, t1 in ((0.2, 101.0, 1e-4, 2.0), (0.3, 102.0, 2e-4, 3.0)):
        run(start, depth, level, t1)
    # per run: one evaluation for its shape, one for the milestone's level, both on the host; the rest is compiled
    assert len(TRACES) - before <= 2 * 2


class Split(eqx.Module):
    """Two independent wells with clocks 1 and n; the parts watch one block each."""

    n: jax.Array

    def slow(self, p):
        return (1 - p["s"] ** 2) ** 2 / (4 * self.n)

    def fast(self, p):
        return (p["f"] - 1) ** 2 / 2

    def __call__(self, p):
        return self.slow(p) + self.fast(p)

    def parts(self, p):
        return {"slow": self.slow(p), "fast": self.fast(p)}

    def blocks(self):
        return (
            Block("fast", lambda p: (p["f"],), self.fast, LogClock(jnp.asarray(1.0))),
            Block("slow", lambda p: (p["s"],), self.slow, ScaledClock(self.n), curved=lambda p: (p["s"],)),
        )


class Watching(eqx.Module):
    """A function of the parameters that says which block it reads."""

    name: str = eqx.field(static=True)
    block: str = eqx.field(static=True)

    def __call__(self, p):
        return p[self.name]


SPLIT_START = {"f": 0.0, "s": 1e-6}
SPLIT_MARKS = {
    "fast": Above(Watching("f", "fast"), 0.9),
    "slow": Above(Watching("s", "slow"), 0.5),
    "both": Above(lambda p: p["s"] + p["f"], 1.7),
}


def test_independent_blocks_on_their_own_clocks():
    """At n = 1e6 one clock would need 1e7 explicit steps; each block on its own takes tens."""
    n = 1e6
    loss = Split(jnp.asarray(n))
    trajectory = solve(loss, SPLIT_START, milestones={k: SPLIT_MARKS[k] for k in ("fast", "slow")})
    assert trajectory.milestones["fast"].time == pytest.approx(np.log(10), rel=1e-8)
    slow = n * float(CHAIN.time(jnp.asarray(0.5), jnp.asarray(1e-6)))
    assert trajectory.milestones["slow"].time == pytest.approx(slow, rel=1e-7)
    assert trajectory.stats["accepted"] < 500
    middle = trajectory.at(slow / 2)
    assert float(middle["f"]) == pytest.approx(1.0, abs=1e-6)
    assert float(CHAIN.time(jnp.asarray(middle["s"]), jnp.asarray(1e-6))) * n == pytest.approx(slow / 2, rel=1e-6)
    np.testing.assert_allclose(
        trajectory.losses["total"], trajectory.losses["slow"] + trajectory.losses["fast"], rtol=1e-12
    )


def test_a_milestone_over_both_blocks_equals_the_unsplit_run():
    loss = Split(jnp.asarray(3.0))
    split = solve(loss, SPLIT_START, milestones=SPLIT_MARKS, t1=100.0)
    whole = solve(lambda p: loss(p), SPLIT_START, milestones=SPLIT_MARKS, t1=100.0)
    for name in SPLIT_MARKS:
        assert split.milestones[name].time == pytest.approx(whole.milestones[name].time, rel=1e-7)
    np.testing.assert_allclose(split.at(20.0)["s"], whole.at(20.0)["s"], rtol=1e-6)
    ends = solve(loss, SPLIT_START, milestones=SPLIT_MARKS)
    assert ends.milestones["both"].time == pytest.approx(whole.milestones["both"].time, rel=1e-7)
    with pytest.raises(InputError, match="several blocks"):
        integrate(GradientFlow(loss), SPLIT_START, t1=1.0, milestones=SPLIT_MARKS)


def test_the_machines_pace_does_not_change_the_result(monkeypatch):
    """Segments of 1, 7 or 256 steps: the same steps, bit for bit, through a change of solver."""

    def stiff(p):
        return p[0] ** 2 / 2 + 1e4 * p[1] ** 2 / 2

    def run(budget):
        monkeypatch.setattr("gflow.flows._pace.Pace.budget", lambda self, most: min(budget, most))
        return solve(stiff, jnp.asarray([1.0, 1.0]), milestones={"e": Below(lambda p: p[0], 0.1)}, t1=3.0)

    runs = [run(budget) for budget in (256, 7)]
    assert runs[0].stats == runs[1].stats
    assert runs[0].stats["solvers"]["all"] == ["Dopri8", "Rodas5P"]
    np.testing.assert_array_equal(runs[0].ts, runs[1].ts)
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    assert runs[0].milestones == runs[1].milestones
