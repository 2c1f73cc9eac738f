"""Discrete-time training against closed forms, a hand-written Adam, and stepping by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gflow
from gflow.errors import InputError, SolveError
from gflow.losses.chain import ChainLoss
from gflow.training import Outcome, descend, optimizer

CURVATURES = np.array([2.0, 0.5, 0.01])
START = np.array([1.0, -2.0, 3.0])


def quadratic(x: jax.Array) -> jax.Array:
    """1/2 sum_i lam_i x_i^2."""
    return 0.5 * jnp.sum(jnp.asarray(CURVATURES) * x**2)


def bent(p: dict[str, Any]) -> jax.Array:
    """Neither quadratic nor separable; two leaves."""
    return (p["a"] * jnp.sum(p["b"]) - 1.0) ** 2 + 0.1 * jnp.sum(jnp.cos(p["b"]))


def bent_start() -> dict[str, Any]:
    return {"a": jnp.asarray(0.3), "b": jnp.asarray([0.2, -0.1, 0.5])}


@pytest.mark.parametrize("name", ["gd", "sgd"])
def test_gradient_descent_on_a_quadratic_is_geometric(name: str) -> None:
    lr, steps = 0.3, 400
    run = descend(quadratic, START, name, steps, lr=lr, save=None)
    k = np.arange(steps + 1)[:, None]
    expected = START * (1 - lr * CURVATURES) ** k
    assert run.status is Outcome.reached_steps
    np.testing.assert_array_equal(run.steps, k[:, 0])
    np.testing.assert_allclose(run.params, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(run.losses["total"], 0.5 * np.sum(CURVATURES * expected**2, axis=1), rtol=1e-12)
    np.testing.assert_allclose(run.ts, lr * k[:, 0], rtol=1e-15)


def test_momentum_on_a_quadratic_is_a_linear_recurrence() -> None:
    lr, m, steps = 0.1, 0.8, 200
    run = descend(quadratic, START, optimizer("momentum", momentum=m), steps, lr=lr, save=None)
    for i, lam in enumerate(CURVATURES):
        # (x, velocity) -> (x - lr v', v'), v' = m v + lam x, by powers of one matrix
        matrix = np.array([[1 - lr * lam, -lr * m], [lam, m]])
        exact = [np.linalg.matrix_power(matrix, k) @ [START[i], 0.0] for k in range(steps + 1)]
        np.testing.assert_allclose(run.params[:, i], np.array(exact)[:, 0], rtol=1e-11, atol=1e-13)


def adam_by_hand(
    gradient: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    steps: int,
    lr: float,
    b1: float,
    b2: float,
    eps: float,
    decay: float = 0.0,
) -> np.ndarray:
    """Algorithm 1 of Kingma and Ba; `decay` as in Loshchilov and Hutter."""
    m, v, path = np.zeros_like(x), np.zeros_like(x), [x]
    for k in range(1, steps + 1):
        g = gradient(x)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        x = x - lr * ((m / (1 - b1**k)) / (np.sqrt(v / (1 - b2**k)) + eps) + decay * x)
        path.append(x)
    return np.array(path)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("numbers", [{}, {"b1": 0.8, "b2": 0.95, "eps": 1e-3}])
def test_adam_against_its_algorithm(name: str, numbers: dict[str, float]) -> None:
    steps, lr = 300, 0.02
    decay = {"weight_decay": 0.1} if name == "adamw" else {}
    run = descend(quadratic, START, optimizer(name, **numbers, **decay), steps, lr=lr, save=None)
    full = {"b1": 0.9, "b2": 0.999, "eps": 1e-8} | numbers
    expected = adam_by_hand(lambda x: CURVATURES * x, START, steps, lr, **full, decay=decay.get("weight_decay", 0.0))
    np.testing.assert_allclose(run.params, expected, rtol=1e-11, atol=1e-13)


def test_adam_moves_every_parameter_by_the_learning_rate_first() -> None:
    run = descend(quadratic, START, "adam", 1, lr=1e-3, save=None)
    np.testing.assert_allclose(np.diff(run.params, axis=0)[0], -1e-3 * np.sign(START), rtol=1e-5)


def step_by_step(loss: Any, params: Any, lr: float, steps: int) -> list[Any]:
    """Gradient descent in a Python loop."""
    gradient = jax.jit(jax.grad(loss))
    path = [params]
    for _ in range(steps):
        path.append(jax.tree.map(lambda p, g: p - lr * g, path[-1], gradient(path[-1])))
    return path


def test_milestones_are_the_first_steps_that_meet_them() -> None:
    lr, steps = 0.05, 300
    conditions = {
        "third": gflow.Below(bent, fraction=1 / 3),
        "grown": gflow.Above(lambda p: p["a"], 0.7),
        "passed": gflow.Crosses(lambda p: p["b"][1], 0.2),
        "already": gflow.Below(bent, 100.0),
        "never": gflow.Above(bent, 100.0),
    }
    run = descend(bent, bent_start(), "gd", steps, lr=lr, milestones=conditions)
    path = step_by_step(bent, bent_start(), lr, steps)
    for name in ("third", "grown", "passed"):
        values = np.array([conditions[name].f(p) for p in path])
        level = values[0] / 3 if name == "third" else float(conditions[name].level)
        sign = np.sign(level - values[0])
        first = int(np.argmax(sign * (values - level) >= 0))
        assert first > 1, name
        found = run.milestones[name]
        assert found.first == first, name
        share = (level - values[first - 1]) / (values[first] - values[first - 1])
        assert found.step == pytest.approx(first - 1 + share, rel=1e-9), name
        assert found.time == pytest.approx(found.step * lr, rel=1e-12), name
        assert found.status == "reached"
    already, never = run.milestones["already"], run.milestones["never"]
    assert (already.step, already.time, already.first) == (0.0, 0.0, 0)
    assert (never.step, never.time, never.status) == (None, None, "not_reached_by_t1")


def test_saved_rows_are_states_of_the_path() -> None:
    run = descend(bent, bent_start(), "gd", 500, lr=0.02, save=20)
    path = step_by_step(bent, bent_start(), 0.02, 500)
    assert run.steps[0] == 0
    assert run.steps[-1] == 500
    assert 35 < len(run.steps) < 50  # about 20 a decade, every step at first
    for row, step in enumerate(run.steps):
        np.testing.assert_allclose(run.params["b"][row], path[step]["b"], rtol=1e-11)
        assert run.losses["total"][row] == pytest.approx(float(bent(path[step])), rel=1e-11)
    chosen = descend(bent, bent_start(), "gd", 500, lr=0.02, save=np.array([0, 7, 130]))
    assert chosen.steps.tolist() == [0, 7, 130, 500]
    np.testing.assert_array_equal(chosen.params["a"][-1], run.params["a"][-1])


def test_ends_with_the_milestones_and_their_tail() -> None:
    conditions = {"half": gflow.Below(quadratic, fraction=0.5)}
    run = descend(quadratic, START, "gd", lr=0.01, milestones=conditions, tail=0.5)
    first = run.milestones["half"].first
    assert run.status is Outcome.milestones_reached
    assert run.steps[-1] == first + np.ceil(0.5 * first)
    short = descend(quadratic, START, "gd", lr=0.01, milestones=conditions, max_steps=20)
    assert short.status is Outcome.max_steps
    assert not short.status.ok
    assert "max_steps" in short.message
    assert short.steps[-1] == 20
    assert short.milestones["half"].status == "solver_stopped"


def test_no_steps_is_one_row() -> None:
    run = descend(quadratic, START, "gd", 0, lr=0.1)
    assert run.steps.tolist() == [0]
    np.testing.assert_array_equal(run.params, START[None])


def test_a_schedule_tells_time() -> None:
    schedule = optax.cosine_decay_schedule(0.4, 100)
    run = descend(
        quadratic, START, "gd", 120, lr=schedule, save=None, milestones={"low": gflow.Below(quadratic, fraction=0.1)}
    )
    rates = np.array([float(schedule(k)) for k in range(120)])
    np.testing.assert_allclose(run.ts, np.concatenate([[0], np.cumsum(rates)]), rtol=1e-12)
    factors = np.cumprod(1 - rates[:, None] * CURVATURES, axis=0)
    np.testing.assert_allclose(run.params[1:], START * factors, rtol=1e-10)
    low = run.milestones["low"]
    share = low.step - (low.first - 1)
    assert low.time == pytest.approx(run.ts[low.first - 1] + share * rates[low.first - 1], rel=1e-12)


def test_an_optax_transformation_brings_its_own_rate() -> None:
    given = descend(bent, bent_start(), optax.adam(0.01), 50, lr=0.01, save=None)
    named = descend(bent, bent_start(), "adam", 50, lr=0.01, save=None)
    np.testing.assert_allclose(given.params["b"], named.params["b"], rtol=1e-12)
    np.testing.assert_array_equal(given.ts, named.ts)


def test_frozen_leaves_stay() -> None:
    run = descend(bent, bent_start(), "adamw", 30, lr=0.05, trainable=lambda p: p["b"])
    assert np.all(run.params["a"] == 0.3)
    assert run.params["a"].shape == run.steps.shape
    assert np.all(run.params["b"][-1] != run.params["b"][0])


def test_a_learning_rate_beyond_stability_is_named_with_the_stable_one() -> None:
    """On a quadratic everything is known: x_0 grows by |1 - lr lam_0| = 1.2 a step, and lr < 2/lam_0 is stable."""
    lr = 1.1
    run = descend(quadratic, START, "gd", 10_000, lr=lr, explode=100.0)
    paths = START * (1 - lr * CURVATURES) ** np.arange(200)[:, None]
    losses = 0.5 * np.sum(CURVATURES * paths**2, axis=1)
    step = int(np.argmax(losses > 100 * losses[0]))
    assert run.status is Outcome.diverged
    assert run.steps[-1] == step
    assert f"step {step}," in run.message
    assert "above 100 times its start" in run.message
    assert "largest Hessian eigenvalue is 2, so gd is stable below lr = 1" in run.message
    np.testing.assert_allclose(run.params[-1], paths[step], rtol=1e-10)
    with pytest.raises(SolveError) as raised:
        descend(quadratic, START, "gd", 10_000, lr=lr, throw=True)
    assert raised.value.trajectory.status is Outcome.diverged


def test_momentum_is_stable_below_its_own_limit() -> None:
    """Heavy ball on a quadratic: stable for lr < 2 (1 + m) / lam, so 1.4 with m = .5, lam = 2 is stable."""
    rule = optimizer("momentum", momentum=0.5)
    assert descend(quadratic, START, rule, 300, lr=1.4).losses["total"][-1] < 0.1
    run = descend(quadratic, START, rule, 3000, lr=1.6)
    assert run.status is Outcome.diverged
    assert "below lr = 1.5" in run.message


def leaves_the_domain(x: jax.Array) -> jax.Array:
    return jnp.log(x)


def kinked(p: dict[str, Any]) -> jax.Array:
    """The gradient with respect to `edge` is NaN at 0, where the loss is finite."""
    return jnp.sqrt(p["edge"] ** 2) + p["smooth"] ** 2


def test_a_loss_that_is_not_finite_is_named_and_what_came_before_is_kept() -> None:
    # x_{k+1} = x_k - .4/x_k from 1: .6, -.067, so the loss is NaN after two steps
    run = descend(leaves_the_domain, 1.0, "gd", 100, lr=0.4, save=None)
    assert run.status is Outcome.non_finite
    assert "the loss is nan at step 2" in run.message
    np.testing.assert_allclose(run.params, [1.0, 0.6], rtol=1e-15)
    assert np.all(np.isfinite(run.losses["total"]))


def test_a_gradient_that_is_not_finite_is_named() -> None:
    run = descend(kinked, {"smooth": 1.0, "edge": 0.5}, "gd", 100, lr=0.25, save=None)
    assert run.status is Outcome.non_finite
    assert "the gradient of edge is not finite at step 2" in run.message
    assert run.params["edge"].tolist() == [0.5, 0.25, 0.0]


def test_a_parameter_that_overflows_is_named() -> None:
    run = descend(lambda p: -p["up"], {"up": 1e308, "other": 1.0}, "gd", 100, lr=1e308, save=None)
    assert run.status is Outcome.non_finite
    assert "up is not finite after step 1" in run.message
    assert run.params["up"].tolist() == [1e308]


def test_a_batch_that_is_not_finite_is_named() -> None:
    def batches(key: jax.Array) -> Callable[[Any], Any]:
        return lambda x: jnp.where(x[0] < 0.5, jnp.nan, 1.0) * quadratic(x)

    run = descend(quadratic, START, "gd", 100, lr=0.1, batches=batches, key=0, save=None)
    assert run.status is Outcome.non_finite
    assert "the training loss is nan at step 4" in run.message  # .8^4 < .5
    assert run.steps[-1] == 4


def test_the_stable_rate_holds_where_the_failed_run_never_came() -> None:
    """A depth-2 chain: curvature -1 at the start, (3 w^2 - 1) on the way, 2 at the end; gd is stable below lr = 1."""
    run = descend(ChainLoss(2), 1e-3, "gd", 1000, lr=100.0)
    assert run.status is Outcome.diverged
    assert "largest Hessian eigenvalue is 2, so gd is stable below lr = 1" in run.message


def test_many_parameters_are_judged_where_the_run_was() -> None:
    lam = jnp.linspace(0.01, 4.0, 100)
    run = descend(lambda x: 0.5 * jnp.sum(lam * x**2), np.ones(100), "gd", 1000, lr=0.51)
    assert run.status is Outcome.diverged
    assert "stable below lr = 0.5" in run.message


class Noisy:
    """Gradients with noise of zero mean; the same for the same key."""

    def __call__(self, key: jax.Array) -> Callable[[Any], Any]:
        tilt = jax.random.normal(key, (3,))
        return lambda x: quadratic(x) + jnp.sum(tilt * x)


def test_fresh_batches_are_drawn_by_step_and_judged_on_the_loss_itself() -> None:
    lr, steps, noise = 0.1, 40, Noisy()
    run = descend(quadratic, START, "sgd", steps, lr=lr, batches=noise, key=3, save=None)
    x = START
    for k in range(steps):
        tilt = np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(3), k), (3,)))
        x = x - lr * (CURVATURES * x + tilt)
        np.testing.assert_allclose(run.params[k + 1], x, rtol=1e-10, atol=1e-12)
        # no noise in what is reported
        assert run.losses["total"][k + 1] == pytest.approx(0.5 * np.sum(CURVATURES * x**2), rel=1e-9)
    again = descend(quadratic, START, "sgd", steps, lr=lr, batches=noise, key=jax.random.key(3))
    np.testing.assert_array_equal(again.params[-1], run.params[-1])
    other = descend(quadratic, START, "sgd", steps, lr=lr, batches=noise, key=4)
    assert np.all(other.params[-1] != run.params[-1])


def test_single_precision_stays_single() -> None:
    conditions = {"half": gflow.Above(lambda w: w, 0.5)}
    run = descend(ChainLoss(2), jnp.float32(0.01), "adam", 80, lr=0.01, milestones=conditions)
    assert run.params.dtype == np.float32
    assert run.losses["total"].dtype == np.float32
    double = descend(ChainLoss(2), 0.01, "adam", 80, lr=0.01, milestones=conditions)
    assert run.milestones["half"].step == pytest.approx(double.milestones["half"].step, rel=1e-4)


def test_one_compilation_for_all_numbers() -> None:
    from gflow.training import _chunk

    def run(lr: float, momentum: float, start: float) -> None:
        rule = optimizer("momentum", momentum=momentum)
        descend(bent, {"a": start, "b": np.full(3, start)}, rule, 20 + int(100 * lr), lr=lr)

    jitted: Any = _chunk.advance
    run(0.1, 0.9, 0.1)
    before = jitted._cached._cache_size()
    for lr, momentum, start in ((0.2, 0.8, 0.2), (0.3, 0.5, -1.0)):
        run(lr, momentum, start)
    assert jitted._cached._cache_size() == before


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"optimizer": "adamm", "steps": 1}, "did you mean 'adam'"),
        ({"optimizer": 3, "steps": 1}, "expected a name or an optax transformation"),
        ({"lr": 0.0, "steps": 1}, "lr = 0 must be a positive"),
        ({"lr": float("nan"), "steps": 1}, "lr = nan"),
        ({"steps": -1}, "steps = -1"),
        ({}, "give steps, or milestones"),
        ({"steps": 1, "save": 0}, "save = 0"),
        ({"steps": 1, "save": np.array([3, 2])}, "increasing"),
        ({"steps": 1, "explode": 0.5}, "explode = 0.5"),
        ({"steps": 1, "milestones": {"m": 3}}, "milestone 'm'"),
        ({"steps": 1, "batches": Noisy()}, "give key"),
        ({"steps": 1, "loss": lambda x: x}, "one float64 scalar"),
        ({"steps": 1, "loss": lambda x: jnp.sum(x) * jnp.nan}, "not a finite number"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        descend(arguments.pop("loss", quadratic), START, **arguments)


@pytest.mark.parametrize(
    ("name", "numbers", "part"),
    [
        ("gd", {"momentum": 0.9}, "momentum = 0.9 has no meaning for gd"),
        ("adam", {"b1": 1.0}, "b1 = 1.0 is out of range"),
        ("adam", {"eps": -1.0}, "eps = -1.0"),
        ("momentum", {"momentum": float("nan")}, "momentum = nan"),
    ],
)
def test_numbers_of_an_optimiser_are_checked(name: str, numbers: dict[str, float], part: str) -> None:
    with pytest.raises(InputError, match=part):
        optimizer(name, **numbers)
