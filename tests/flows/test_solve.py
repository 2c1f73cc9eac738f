"""What `solve` promises beyond milestones: any PyTree, masks, rates, ends, partial results, clear refusals."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above, Below
from gflow.errors import InputError, SolveError
from gflow.flows import GradientFlow, LogSpaced, ScaledChart, Status, solve
from gflow.losses.chain import ChainLoss


def bowl(p):
    return p["a"] ** 2 / 2 + jnp.sum(p["b"] ** 2)


START = {"a": 2.0, "b": np.array([1.0, -1.0])}


def test_params_keep_the_callers_pytree():
    class Pair(NamedTuple):
        left: jax.Array
        right: dict

    def loss(p):
        return bowl({"a": p.left, "b": p.right["b"]})

    trajectory = solve(loss, Pair(jnp.asarray(2.0), {"b": jnp.asarray([1.0, -1.0])}), t1=1.0)
    assert isinstance(trajectory.params, Pair)
    n = len(trajectory.ts)
    assert trajectory.params.left.shape == (n,)
    assert trajectory.params.right["b"].shape == (n, 2)
    np.testing.assert_allclose(trajectory.params.left, 2 * np.exp(-trajectory.ts), rtol=1e-7)
    np.testing.assert_allclose(trajectory.params.right["b"][:, 1], -np.exp(-2 * trajectory.ts), rtol=1e-7)
    one = trajectory.at(0.3)
    assert isinstance(one, Pair)
    assert float(one.left) == pytest.approx(2 * np.exp(-0.3), rel=1e-9)
    np.testing.assert_allclose(trajectory.at(np.array([0.3, 0.7])).left, 2 * np.exp([-0.3, -0.7]), rtol=1e-8)


@pytest.mark.parametrize("trainable", [lambda p: (p["b"],), {"a": False, "b": True}])
def test_frozen_leaves_stay(trainable):
    trajectory = solve(GradientFlow(bowl, trainable=trainable), START, t1=1.0)
    assert np.all(trajectory.params["a"] == 2.0)
    np.testing.assert_allclose(trajectory.final["b"], np.array([1, -1]) * np.exp(-2.0), rtol=1e-8)


def test_rates_scale_the_velocity_of_their_leaf():
    trajectory = solve(GradientFlow(bowl, rates={"a": 3.0, "b": 0.5}), START, t1=1.0)
    assert float(trajectory.final["a"]) == pytest.approx(2 * np.exp(-3.0), rel=1e-8)
    np.testing.assert_allclose(trajectory.final["b"], np.array([1, -1]) * np.exp(-1.0), rtol=1e-8)


def test_flow_is_minus_rates_times_gradient():
    flow = GradientFlow(bowl, rates={"a": 3.0, "b": 0.5}, trainable=lambda p: (p["a"],))
    velocity = flow(0.0, {"a": jnp.asarray(2.0), "b": jnp.asarray([1.0, -1.0])})
    assert float(velocity["a"]) == -6.0
    np.testing.assert_array_equal(velocity["b"], [0.0, 0.0])


def test_a_scaled_chart_does_not_change_the_flow():
    chart = ScaledChart({"a": 5.0, "b": 0.1})
    trajectory = solve(GradientFlow(bowl, chart=chart), START, t1=1.0)
    assert float(trajectory.final["a"]) == pytest.approx(2 * np.exp(-1.0), rel=1e-8)


def test_the_run_ends_exactly_at_t1_with_increasing_times():
    trajectory = solve(bowl, START, t1=0.7310585786300049)
    assert trajectory.status is Status.reached_t1
    assert trajectory.ts[-1] == trajectory.t1_reached == 0.7310585786300049
    assert trajectory.ts[0] == 0.0
    assert np.all(np.diff(trajectory.ts) > 0)


def test_loss_never_increases_along_a_run():
    trajectory = solve(ChainLoss(2), jnp.asarray(1e-6), milestones={"x": Above(lambda w: w, 0.99)})
    assert np.all(np.diff(trajectory.losses["total"]) <= 1e-14)
    assert trajectory.stats["loss_rise"] <= 1e-14


def test_case_5_softmax_with_huge_logits_and_an_implicit_solver():
    """Cross entropy with logits of 1e3: the Newton iteration fails on large steps; shorter ones finish."""
    x = 1e3 * jnp.asarray([[1.0, -0.5], [0.3, 0.8], [-0.7, 0.2]])
    labels = jnp.asarray([0, 1, 2])

    def loss(w):
        logits = x @ w
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    start = jnp.asarray([[0.5, -1.0, 0.3], [1.0, 0.2, -0.8]])
    trajectory = solve(loss, start, solver="kvaerno5", t1=1.0, rtol=1e-6)
    assert trajectory.status is Status.reached_t1
    assert np.all(np.diff(trajectory.losses["total"]) <= 1e-6)
    assert trajectory.losses["total"][-1] < 1e-2 * trajectory.losses["total"][0]


def test_case_6_max_steps_keeps_the_partial_run():
    trajectory = solve(ChainLoss(2), jnp.asarray(1e-8), milestones={"x": Above(lambda w: w, 0.5)}, max_steps=20)
    assert trajectory.status is Status.max_steps
    assert trajectory.stats["accepted"] + trajectory.stats["rejected"] == 20
    assert 0 < trajectory.t1_reached < 17.8
    assert trajectory.ts[-1] == trajectory.t1_reached
    assert "max_steps" in trajectory.message
    assert f"{trajectory.t1_reached:.6g}" in trajectory.message
    closed = float(ChainLoss(2).time(jnp.asarray(trajectory.final), jnp.asarray(1e-8)))
    assert closed == pytest.approx(trajectory.t1_reached, rel=1e-7)
    with pytest.raises(SolveError, match="max_steps") as caught:
        solve(ChainLoss(2), jnp.asarray(1e-8), max_steps=20, throw=True)
    assert caught.value.trajectory.status is Status.max_steps


def test_case_10_no_padding_when_the_run_ends_before_the_save_grid():
    trajectory = solve(bowl, START, milestones={"half": Below(bowl, fraction=0.5)}, save=np.linspace(0, 50, 101))
    assert np.all(np.isfinite(trajectory.ts))
    assert trajectory.ts[-1] <= trajectory.t1_reached
    assert len(trajectory.params["a"]) == len(trajectory.ts) == len(trajectory.losses["total"])
    assert np.all(np.isfinite(trajectory.params["b"]))
    np.testing.assert_allclose(trajectory.params["a"], 2 * np.exp(-trajectory.ts), rtol=1e-7)


def test_case_11_t0_equals_t1():
    trajectory = solve(bowl, START, t0=1.5, t1=1.5, milestones={"m": Below(bowl, 100.0), "n": Below(bowl, 0.1)})
    assert trajectory.status is Status.reached_t1
    np.testing.assert_array_equal(trajectory.ts, [1.5])
    np.testing.assert_array_equal(trajectory.params["b"], [[1.0, -1.0]])
    assert trajectory.losses["total"].tolist() == [4.0]
    assert trajectory.milestones["m"].time == 1.5
    assert trajectory.milestones["n"].status == "not_reached_by_t1"


def test_case_14_the_precision_asked_for_is_used_and_recorded():
    params = {"a": jnp.asarray(2.0, jnp.float32), "b": jnp.asarray([1.0, -1.0], jnp.float32)}
    trajectory = solve(bowl, params, t1=1.0)
    assert {leaf.dtype for leaf in jax.tree.leaves(trajectory.params)} == {np.dtype(np.float32)}
    assert trajectory.losses["total"].dtype == np.float32
    assert trajectory.stats["dtype"] == "float32"
    assert trajectory.stats["rtol"] == 1e-5
    with pytest.raises(InputError, match="float32, float64"):
        solve(bowl, {"a": jnp.asarray(2.0), "b": params["b"]}, t1=1.0)
    with pytest.raises(InputError, match="rtol"):
        solve(bowl, params, t1=1.0, rtol=1e-9)


def test_case_15_masked_softmax_entropy_has_a_finite_gradient():
    """A loss that is written safely flows; one that is not is refused by name, not silently NaN."""
    mask = jnp.asarray([True, True, False, True])

    def entropy(p, fill):
        logits = jnp.where(mask, p["a"] * jnp.arange(4.0), fill)
        weights = jax.nn.softmax(logits)
        return -jnp.sum(jnp.where(mask, weights * jnp.log(jnp.where(mask, weights, 1.0)), 0.0))

    trajectory = solve(lambda p: entropy(p, -jnp.inf), {"a": 0.5}, milestones={"low": Below(lambda p: -p["a"], -3.0)})
    assert trajectory.milestones["low"].status == "reached"
    assert np.all(np.isfinite(trajectory.losses["total"]))

    def unsafe(p):
        weights = jax.nn.softmax(jnp.where(mask, p["a"] * jnp.arange(4.0), -jnp.inf))
        return -jnp.sum(weights * jnp.log(weights))

    with pytest.raises(InputError, match=r"initial parameters.*nan"):
        solve(unsafe, {"a": 0.5})


def test_a_loss_that_blows_up_ends_as_non_finite():
    trajectory = solve(lambda p: jnp.sqrt(p), jnp.asarray(1.0), t1=10.0)
    # dp/dt = -1/(2 sqrt p): p^(3/2) = 1 - 3t/4 reaches zero at t = 4/3 with infinite speed
    assert trajectory.status in (Status.non_finite, Status.stagnated)
    assert trajectory.t1_reached == pytest.approx(4 / 3, rel=1e-4)
    assert np.all(np.isfinite(trajectory.params))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"t1": -1.0}, "t1=-1.0"),
        ({"t1": float("nan")}, "finite"),
        ({"t0": float("inf")}, "t0=inf"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"rtol": 1.0}, "rtol=1"),
        ({"rtol": 1e-17}, "rtol=1e-17"),
        ({"atol": -1.0}, "atol=-1.0"),
        ({"tail": -0.5}, "tail=-0.5"),
        ({"solver": "dopri9"}, "did you mean"),
        ({"solver": "rk"}, "choose from"),
        ({"milestones": {"x": 3.0}}, "'x'"),
        ({"save": [2.0, 1.0]}, "increasing"),
        ({"save": [-1.0, 1.0], "t1": 2.0}, "before t0"),
    ],
)
def test_arguments_that_cannot_be_used(change, words):
    with pytest.raises(InputError, match=words) as caught:
        solve(bowl, START, **({"t1": 1.0} | change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "params", "words"),
    [
        (lambda p: p, {"a": jnp.ones(2)}, "scalar"),
        (lambda p: p["a"], {"a": jnp.ones(2)}, "scalar"),
        (lambda p: jnp.log(p["a"]), {"a": -1.0}, "nan"),
        (lambda p: jnp.sqrt(p["a"]), {"a": 0.0}, "gradient"),
        (bowl, {"a": np.nan, "b": np.ones(2)}, "not finite"),
        (bowl, {}, "no floating point"),
        (bowl, {"a": np.arange(3), "b": np.arange(2)}, "no floating point"),
        (bowl, {"a": np.float16(1.0), "b": np.ones(2, np.float16)}, "float16"),
    ],
)
def test_losses_and_params_that_cannot_be_used(loss, params, words):
    with pytest.raises(InputError, match=words):
        solve(loss, params, t1=1.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rates": -1.0}, "rates"),
        ({"rates": {"a": 1.0}}, "prefix"),
        ({"trainable": {"a": True}}, "structure"),
        ({"trainable": lambda p: (p["c"],)}, "trainable"),
        ({"trainable": {"a": False, "b": False}}, "nothing"),
    ],
)
def test_flows_that_make_no_sense(arguments, words):
    with pytest.raises(InputError, match=words):
        solve(GradientFlow(bowl, **arguments), START, t1=1.0)


def test_at_does_not_extrapolate():
    trajectory = solve(bowl, START, t1=1.0)
    for t in (-0.1, 1.1, [0.5, 2.0]):
        with pytest.raises(InputError, match="leaves the run"):
            trajectory.at(t)
    with pytest.raises(InputError, match="no such milestone"):
        trajectory.at("T_IX")


def test_repr_is_a_summary():
    text = repr(solve(bowl, START, milestones={"half": Below(bowl, fraction=0.5)}))
    for word in ("t = 0 ..", "steps", "milestones_reached", "half"):
        assert word in text


def test_tail_goes_on_past_the_last_milestone():
    trajectory = solve(bowl, START, milestones={"half": Below(bowl, fraction=0.5)}, tail=0.5, save=LogSpaced(5))
    assert trajectory.status is Status.milestones_reached
    assert trajectory.t1_reached == pytest.approx(1.5 * trajectory.milestones["half"].time, rel=1e-9)


def test_a_module_loss_carries_its_numbers_as_data():
    class Well(eqx.Module):
        depth: jax.Array

        def __call__(self, p):
            return self.depth * p**2 / 2

    for depth in (1.0, 2.0):
        trajectory = solve(Well(jnp.asarray(depth)), jnp.asarray(1.0), t1=1.0)
        assert float(trajectory.final) == pytest.approx(np.exp(-depth), rel=1e-8)
