"""What `solve` does for every relative of the flow: rest, saddles, rates, blocks, tracing, files, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above
from gflow.errors import InputError
from gflow.flows import (
    AdamFlow,
    Block,
    GradientFlow,
    HeavyBallFlow,
    LogClock,
    ScaledChart,
    ScaledClock,
    SignFlow,
    Stage,
    Status,
    integrate,
    load,
    solve,
    solve_stages,
    stationary_point,
)
from gflow.losses.chain import ChainLoss


def bowl(p):
    return p["a"] ** 2 / 2 + jnp.sum(2 * p["b"] ** 2)


START = {"a": 2.0, "b": np.array([1.0, -1.0])}
ALL = {
    "heavy ball": lambda loss, **k: HeavyBallFlow(loss, 0.5, **k),
    "adam": lambda loss, **k: AdamFlow(loss, 0.3, 1.0, **k),
    "sign": lambda loss, **k: SignFlow(loss, 0.05, **k),
}


def swing(t):
    """x of `x'' + x'/2 + x = 0` from x = 1, x' = 0."""
    omega = np.sqrt(15) / 4
    return np.exp(-t / 4) * (np.cos(omega * t) + np.sin(omega * t) / (4 * omega))


@pytest.mark.parametrize("name", ALL)
def test_rest_is_where_gradient_and_loss_say(name):
    run = solve(ALL[name](bowl), START)
    assert run.status is Status.converged
    assert run.stationary["all"].kind == "minimum"
    assert float(bowl(run.final)) < 1e-8 * float(bowl(START))
    np.testing.assert_allclose(run.final["b"], 0.0, atol=2e-5)


def test_a_turning_point_is_not_rest():
    """Hardly any friction: the loss stands still at every turn, high up; rest comes when the energy is gone."""
    run = solve(HeavyBallFlow(lambda p: p**2 / 2, 0.02), jnp.asarray(1.0))
    assert run.status is Status.converged
    energy = float(run.final) ** 2 / 2 + float(run.state_at(run.t1_reached)["velocity"]) ** 2 / 2
    assert energy < 1e-7
    assert run.t1_reached > np.log(0.5 / 1e-7) / 0.02 * 0.9


def test_heavy_ball_leaves_a_saddle_at_its_own_rate():
    """w waits near zero while v relaxes; then it grows at the rate s, s^2 + friction s = 1."""

    def loss(p):
        return (p["v"] - 1) ** 2 / 2 + ChainLoss(2)(p["w"])

    friction = 3.0
    run = solve(
        HeavyBallFlow(loss, friction), {"v": 0.0, "w": 1e-12}, milestones={"half": Above(lambda p: p["w"], 0.5)}
    )
    half = run.milestones["half"].time
    (pause, *_) = run.saddles["all"]
    rate = (-friction + np.sqrt(friction**2 + 4)) / 2
    assert pause.kind == "saddle"
    assert pause.time < half
    assert pause.note == f"unstable rate {rate:.6g}"
    assert pause.escape_time == pytest.approx(half, abs=2 / rate)
    window = np.linspace(0.4, 0.6, 11) * half
    grown = np.polyfit(window, np.log(run.at(window)["w"]), 1)[0]
    assert grown == pytest.approx(rate, rel=1e-6)


def test_adam_crosses_a_plateau_as_if_it_were_none():
    """From 1e-8 the gradient flow waits log(1e8); Adam's step is one per unit of time from the first."""
    run = solve(AdamFlow(ChainLoss(2), 0.1, 0.5), jnp.asarray(1e-8), milestones={"half": Above(lambda w: w, 0.5)})
    assert run.milestones["half"].time < 0.6
    slow = solve(GradientFlow(ChainLoss(2)), jnp.asarray(1e-8), milestones={"half": Above(lambda w: w, 0.5)})
    assert slow.milestones["half"].time > 17


@pytest.mark.parametrize("name", ALL)
def test_saddles_are_named_and_exact_ones_refused(name):
    near = stationary_point(ALL[name](ChainLoss(2)), jnp.asarray(1e-8))
    assert near.kind == "saddle"
    assert not near.stuck
    assert (near.escape_time is None) == (name != "heavy ball")
    exact = solve(ALL[name](ChainLoss(2)), jnp.asarray(0.0))
    assert exact.status is Status.stagnated
    assert "exactly on a saddle" in exact.message
    assert exact.stationary["all"].stuck


@pytest.mark.parametrize("name", ALL)
def test_trainable_and_charts(name):
    make = ALL[name]
    chart = ScaledChart({"a": None, "b": 0.1})
    part = solve(make(bowl, trainable=lambda p: p["b"], chart=chart), START, t1=1.0)
    assert np.all(part.params["a"] == 2.0)
    for values in part.state.values():
        assert values["a"] is None
        assert values["b"].shape == part.params["b"].shape
    # the other leaf makes no difference to these losses
    whole = solve(make(bowl), START, t1=1.0)
    np.testing.assert_allclose(part.final["b"], whole.final["b"], rtol=1e-6)


def test_what_rates_mean():
    """Heavy ball: the force times r, so time runs sqrt(r) times as fast if friction is scaled too. Others: speed."""
    slow = solve(HeavyBallFlow(bowl, 0.5), START, t1=2.0)
    fast = solve(HeavyBallFlow(bowl, 1.0, rates={"a": 4.0, "b": 4.0}), START, t1=1.0)
    np.testing.assert_allclose(fast.final["b"], slow.final["b"], rtol=1e-7)
    fast = solve(SignFlow(bowl, 0.01, rates={"a": 1.0, "b": 3.0}), START, t1=0.2)
    np.testing.assert_allclose([float(fast.final["a"]), fast.final["b"][0]], [1.8, 0.4], atol=1e-4)
    slow = solve(AdamFlow(bowl, 0.3, 1.0), START, t1=0.6)
    fast = solve(AdamFlow(bowl, 0.1, 1 / 3, rates=3.0), START, t1=0.2)
    np.testing.assert_allclose(fast.final["b"], slow.final["b"], rtol=1e-7)


class Split(eqx.Module):
    """Two wells that never meet, on clocks of their own; s grows exponentially."""

    def slow(self, p):
        return (1 - p["s"] ** 2) ** 2 / 12

    def fast(self, p):
        return (p["f"] - 1) ** 2 / 2

    def __call__(self, p):
        return self.slow(p) + self.fast(p)

    def blocks(self):
        return (
            Block("fast", lambda p: (p["f"],), self.fast, LogClock(1.0)),
            Block("slow", lambda p: (p["s"],), self.slow, ScaledClock(3.0), curved=lambda p: (p["s"],)),
        )


@pytest.mark.parametrize("name", ["heavy ball", "adam"])
def test_blocks_on_their_own_clocks_equal_the_whole(name):
    loss, start = Split(), {"f": 0.0, "s": 1e-3}
    split = solve(ALL[name](loss), start, t1=5.0)
    whole = solve(ALL[name](lambda p: loss(p)), start, t1=5.0)
    for leaf in ("f", "s"):
        np.testing.assert_allclose(split.at(3.0)[leaf], whole.at(3.0)[leaf], rtol=2e-6)
    for part, values in split.state_at(3.0).items():
        np.testing.assert_allclose(values["s"], whole.state_at(3.0)[part]["s"], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_traced_runs_agree_with_driven_ones(name):
    flow = ALL[name](ChainLoss(2))
    marks = {"half": Above(lambda w: w, 0.5)}
    starts = jnp.asarray([1e-3, 0.2])
    ends = jax.jit(jax.vmap(lambda w: integrate(flow, w, t1=2.5, milestones=marks)))(starts)
    assert ends.ok.tolist() == [True, True]
    run = solve(flow, starts[1], t1=2.5, milestones=marks)
    assert float(ends.params[1]) == pytest.approx(float(run.final), rel=1e-7)
    assert float(ends.times["half"][1]) == pytest.approx(run.milestones["half"].time, rel=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    run = solve(ALL[name](bowl), START, t1=1.0)
    again = load(run.save(tmp_path / "run.nc"), loss=bowl)
    assert again.stats == run.stats
    assert type(again.flow) is type(run.flow)
    assert again.flow.numbers() == run.flow.numbers()
    np.testing.assert_allclose(again.at(0.37)["b"], run.at(0.37)["b"], rtol=1e-14)
    assert set(again.state) == set(run.state)
    for part, values in run.state.items():
        np.testing.assert_array_equal(again.state[part]["b"], values["b"])
        assert f"{part}.b" in run.to_xarray()


def test_stages_start_without_momentum():
    flow = HeavyBallFlow(lambda p: p**2 / 2, 0.5)
    run = solve_stages([Stage("I", flow, t1=1.0), Stage("II", flow, t1=1.0)], jnp.asarray(1.0))
    first = swing(1.0)
    assert float(run.final) == pytest.approx(first**2, rel=1e-8)
    assert float(run.stages["II"].state_at(0.0)["velocity"]) == 0.0


def test_float32():
    low = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    run = solve(AdamFlow(bowl, 0.3, 1.0), jax.tree.map(low, START), t1=1.0)
    assert run.status is Status.reached_t1
    assert run.state["second"]["b"].dtype == np.float32
    run = solve(HeavyBallFlow(lambda p: p**2 / 2, 0.5), low(1.0), t1=3.0)
    np.testing.assert_allclose(run.params, swing(run.ts), atol=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HeavyBallFlow(bowl, -1.0), "friction=-1"),
        (lambda: HeavyBallFlow(bowl, 1.0, 0.0), "GradientFlow"),
        (lambda: HeavyBallFlow.of_sgd(bowl, 0.1, 1.0), "momentum=1"),
        (lambda: AdamFlow(bowl, 0.0, 1.0), "SignFlow"),
        (lambda: AdamFlow(bowl, 1.0, np.inf), "tau2=inf"),
        (lambda: AdamFlow(bowl, 1.0, 1.0, 0.0), "eps=0"),
        (lambda: AdamFlow.of_adam(bowl, 0.1, b2=1.0), "b2=1"),
        (lambda: SignFlow(bowl, 0.0), "differential inclusion"),
        (lambda: SignFlow(bowl, jnp.ones(2)), "one number"),
        (lambda: solve(AdamFlow(bowl, 0.3, 1.0, rates=-1.0), START, t1=1.0), "rates"),
    ],
)
def test_flows_that_make_no_sense(make, words):
    with pytest.raises(InputError, match=words):
        make()
