"""A flow's own clock, and a run that ends at one milestone."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above
from gflow.flows import Block, GradientFlow, LogClock, PlainClock, ScaledChart, ScaledClock, Status, integrate, solve
from gflow.losses.chain import ChainLoss

RATE = 1e-9


def slow(p):
    """`dp/dt = k e^{-p}`, so `p = log(e^{p0} + k t)`."""
    return RATE * jnp.exp(-p)


def slow_time(p, p0):
    return (math.exp(p) - math.exp(p0)) / RATE


def chain_time(level, start):
    return float(ChainLoss(2).time(jnp.asarray(level), jnp.asarray(start)))


def test_a_clock_of_the_flows_own_spans_fourteen_decades():
    levels = {str(x): Above(lambda p: p, x) for x in (0.5, 3.0, 9.0, 11.0)}
    run = solve(GradientFlow(slow, clock=LogClock(1.0)), jnp.asarray(0.0), milestones=levels, t1=1e14)
    assert run.status is Status.reached_t1
    assert run.stats["accepted"] < 200
    times = [m.time for m in run.milestones.values()]
    np.testing.assert_allclose(times, [slow_time(float(x), 0.0) for x in levels], rtol=1e-8)
    ts = np.geomspace(1e-3, 1e14, 100)
    # the interpolant between large steps is of lower order than the steps
    np.testing.assert_allclose(run.at(ts), np.log1p(RATE * ts), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(run.params, np.log1p(RATE * run.ts), rtol=1e-8, atol=1e-8)


def test_a_clock_under_integrate_and_with_a_chart():
    flow = GradientFlow(slow, clock=LogClock(1.0))
    end = jax.jit(lambda p: integrate(flow, p, t1=1e14, milestones={"m": Above(lambda q: q, 9.0)}))(jnp.asarray(0.5))
    assert float(end.params) == pytest.approx(math.log(math.exp(0.5) + RATE * 1e14), rel=1e-8)
    assert float(end.times["m"]) == pytest.approx(slow_time(9.0, 0.5), rel=1e-8)
    chart = ScaledChart(2.0)
    run = solve(GradientFlow(slow, chart=chart, clock=LogClock(1.0)), jnp.asarray(0.5), t1=1e14)
    assert float(run.final) == pytest.approx(math.log(math.exp(0.5) + RATE * 1e14), rel=1e-8)


class Split(eqx.Module):
    """Two wells that never meet, declared as blocks on plain clocks."""

    def fast(self, p):
        return (p["f"] - 1) ** 2 / 2

    def slow(self, p):
        return slow(p["s"])

    def __call__(self, p):
        return self.fast(p) + self.slow(p)

    def blocks(self):
        return (
            Block("fast", lambda p: (p["f"],), self.fast, PlainClock()),
            Block("slow", lambda p: (p["s"],), self.slow, ScaledClock(1.0)),
        )


class Reads(eqx.Module):
    """A leaf by name; says which block it reads where it has one."""

    name: str = eqx.field(static=True)
    block: str | None = eqx.field(static=True, default=None)

    def __call__(self, p):
        return p[self.name]


def test_a_clock_of_the_flows_own_replaces_those_of_the_blocks():
    run = solve(GradientFlow(Split(), clock=LogClock(1.0)), {"f": 0.0, "s": 0.0}, t1=1e12)
    assert run.stats["accepted"] < 2000
    np.testing.assert_allclose(run.final["s"], math.log1p(1e3), rtol=1e-8)


@pytest.mark.parametrize("block", ["slow", None], ids=["of a block", "of several blocks"])
def test_until_ends_every_block_exactly_there(block):
    """The others' later milestones are not reached, whoever has stepped over them."""
    marks = {
        "first": Above(Reads("f", "fast"), 0.5),
        "end": Above(Reads("s", block), 1.0),
        "later": Above(Reads("f", "fast"), 1 - 1e-12),
        "later too": Above(Reads("s", "slow"), 1.5),
    }
    loss = Split()
    run = solve(loss, {"f": 0.0, "s": 1 - 1e-9}, milestones=marks, until="end", t1=1e9)
    # e^1 - e^{1 - 1e-9} = e 1e-9 (1 - 5e-10)
    end = math.e * 1e-9 / RATE * (1 - 5e-10)
    assert run.status is Status.milestones_reached
    assert run.milestones["end"].time == run.t1_reached == run.ts[-1]
    assert run.t1_reached == pytest.approx(end, rel=1e-6)
    assert run.milestones["first"].time == pytest.approx(math.log(2), rel=1e-8)
    assert [run.milestones[n].time for n in ("later", "later too")] == [None, None]
    assert float(run.final["f"]) == pytest.approx(-math.expm1(-run.t1_reached), rel=1e-8)
    assert float(run.final["s"]) == pytest.approx(1.0, rel=1e-12)


def test_until_or_t1_whichever_comes_first():
    marks = {"half": Above(lambda w: w, 0.5), "most": Above(lambda w: w, 0.9)}
    early = solve(ChainLoss(2), jnp.asarray(1e-3), milestones=marks, until="most", t1=1.0)
    assert early.status is Status.reached_t1
    assert early.t1_reached == 1.0
    assert early.milestones["most"].status == "not_reached_by_t1"
    late = solve(ChainLoss(2), jnp.asarray(1e-3), milestones=marks, until="half", t1=100.0, estimate_error=True)
    assert late.t1_reached == late.milestones["half"].time == pytest.approx(chain_time(0.5, 1e-3), rel=1e-8)
    assert late.milestones["half"].error_kind == "reintegration"
    assert late.milestones["most"].time is None
    rest = solve(ChainLoss(2), jnp.asarray(1e-3), milestones={"never": Above(lambda w: w, 2.0)}, until="never")
    assert rest.status is Status.converged
    assert "never" in rest.message
