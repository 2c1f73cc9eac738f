"""Discrete time against the flow: first order in the step, the same milestones, the same files and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import gflow
from gflow.errors import InputError, OutputError
from gflow.losses.chain import ChainLoss
from gflow.training import FreshBatches, Outcome, descend, distance_to_flow, optimizer


@pytest.fixture(scope="module")
def problem() -> gflow.InductionProblem:
    return gflow.InductionProblem(L=40, alpha_star=1.0, w_star=0.49)


def test_gradient_descent_is_first_order_on_the_chain() -> None:
    found = distance_to_flow(ChainLoss(2), 1e-2, "gd", [0.04, 0.02, 0.01, 0.005], 10.0)
    assert found.order == pytest.approx(1.0, abs=0.1)
    assert found.order_error < 0.01
    # one of the distances again, with the closed form w/sqrt(1-w^2) = C e^t and a loop
    w, h = 1e-2, 0.04
    start = w / np.sqrt(1 - w**2)
    worst = 0.0
    for k in range(251):
        growth = start * np.exp(k * h)
        worst = max(worst, abs(w - growth / np.sqrt(1 + growth**2)))
        w = w + h * (1 - w**2) * w
    assert found.distances[0] == pytest.approx(worst, rel=1e-6)


def test_momentum_is_first_order_to_a_faster_flow() -> None:
    found = distance_to_flow(ChainLoss(2), 1e-2, optimizer("momentum", momentum=0.5), [0.01, 0.005, 0.0025], 5.0)
    assert found.order == pytest.approx(1.0, abs=0.1)


def test_gradient_descent_is_first_order_on_the_induction_loss(problem: gflow.InductionProblem) -> None:
    found = distance_to_flow(problem.population_loss(), problem.initial_params(1e-2), "gd", [1.0, 0.5, 0.25], 3500.0)
    assert found.order == pytest.approx(1.0, abs=0.1)
    assert np.all(np.diff(found.distances) < 0)
    assert found.lrs.tolist() == [1.0, 0.5, 0.25]


def test_what_distance_to_flow_refuses() -> None:
    with pytest.raises(InputError, match="adam does not discretise"):
        distance_to_flow(ChainLoss(2), 0.1, "adam", [0.1, 0.2], 1.0)
    with pytest.raises(InputError, match="at least two"):
        distance_to_flow(ChainLoss(2), 0.1, "gd", [0.1], 1.0)
    with pytest.raises(InputError, match=r"in \(0, t1 = 1\]"):
        distance_to_flow(ChainLoss(2), 0.1, "gd", [0.1, 2.0], 1.0)


def test_milestones_of_the_induction_head_step_by_step(problem: gflow.InductionProblem) -> None:
    """The same loss stepped in a plain loop, its milestones read off the list of all states."""
    lr, steps, loss = 0.5, 500, problem.population_loss()
    start = problem.initial_params(1e-2)
    run = descend(loss, start, "gd", steps, lr=lr, milestones=problem.milestones())

    @jax.jit
    def step(p: Any) -> Any:
        return jax.tree.map(lambda x, g: x - lr * g, p, jax.grad(loss)(p)), loss.parts(p)

    parts, p = [], start
    for _ in range(steps + 1):
        p, values = step(p)
        parts.append((float(values["fourgram"]), float(values["induction"])))
    fourgram, induction = np.array(parts).T
    plateau = float(problem.plateau())
    levels = {
        "T_I": (fourgram, 0.01 * fourgram[0]),
        "T_o": (induction, plateau + 0.01 * (induction[0] - plateau)),
        "T_II_of_initial": (induction, 0.99 * induction[0]),
    }
    for name, (values, level) in levels.items():
        first = int(np.argmax(values <= level))
        share = (values[first - 1] - level) / (values[first - 1] - values[first])
        assert run.milestones[name].first == first, name
        assert run.milestones[name].step == pytest.approx(first - 1 + share, rel=1e-7), name
    assert np.min(induction) > 0.99 * plateau
    assert run.milestones["T_II"].step is None
    np.testing.assert_allclose(run.losses["fourgram"], fourgram[run.steps], rtol=1e-9)
    np.testing.assert_allclose(run.losses["induction"], induction[run.steps], rtol=1e-9)


def test_a_table_grows_when_a_step_leaves_it(problem: gflow.InductionProblem) -> None:
    """From near the table's edge, with v2 too small, w grows out of it."""
    loss = problem.population_loss()
    edge = float(np.sqrt(loss.induction.table.hi))
    start = gflow.UntiedParams(p21=1.0, v1=0.5, v2=0.2, wK=0.9 * edge, wQ=0.9 * edge)
    run = descend(loss, start, "gd", 100, lr=100.0, save=None, trainable=lambda p: (p.wK, p.wQ))
    assert run.status is Outcome.reached_steps
    assert run.final.wK > 1.05 * edge
    assert np.all(np.isfinite(run.losses["total"]))
    assert not bool(loss.domain(run.final))
    larger = loss.grow(run.final)
    step = jax.jit(lambda w: w - 100.0 * jax.grad(lambda x: larger(gflow.UntiedParams(1.0, 0.5, 0.2, x, x)))(w) / 2)
    w = run.params.wK[0]
    for k in range(101):
        assert run.params.wK[k] == pytest.approx(float(w), rel=1e-7)
        w = step(w)


def test_fresh_batches_are_unbiased(problem: gflow.InductionProblem) -> None:
    params, loss = problem.initial_params(0.3), problem.population_loss()
    batches = FreshBatches.of(problem, 512)
    draw = jax.jit(lambda key: (batches(key)(params), jax.grad(batches(key))(params)))
    values, gradients = jax.lax.map(draw, jax.random.split(jax.random.key(5), 64))
    drawn, exactly = (values, gradients), (loss(params), jax.grad(loss)(params))
    for got, exact in zip(jax.tree.leaves(drawn), jax.tree.leaves(exactly), strict=True):
        error = np.std(got) / 8
        assert abs(np.mean(got) - exact) < 4 * error
        assert error < 0.2 * abs(float(loss(params)))


@pytest.mark.parametrize("law", ["gaussian", "rademacher", "uniform", "finite"])
def test_tokens_of_a_batch_have_their_law(law: str) -> None:
    tokens = gflow.tokens.finite([-1.0, 0.0, 3.0], [0.5, 0.25, 0.25]) if law == "finite" else law
    problem = gflow.InductionProblem(L=8, alpha_star=1.0, w_star=0.5, tokens=tokens)
    x = np.asarray(FreshBatches.of(problem, 20_000).draw(jax.random.key(1)))
    assert x.shape == (20_000, 8, 1)
    moments = np.array([np.mean(x**k) for k in (1, 2, 4)])
    exact = np.array([float(np.sum(problem.tokens.weights * problem.tokens.nodes**k)) for k in (1, 2, 4)])
    np.testing.assert_allclose(moments, exact, atol=0.02 * max(exact[2], 1.0))
    assert abs(np.mean(x[:, 0] * x[:, 1]) - exact[0] ** 2) < 0.02


def test_batches_that_cannot_be_drawn(problem: gflow.InductionProblem) -> None:
    with pytest.raises(InputError, match="batch = 0"):
        FreshBatches.of(problem, 0)
    with pytest.raises(InputError, match="give at most 6710886"):
        FreshBatches.of(problem, 10**7)
    with pytest.raises(InputError, match=r"L = 40.5"):
        FreshBatches.of(gflow.InductionProblem(L=40.5, alpha_star=1.0, w_star=0.5), 4)


def test_a_file_gives_back_the_run(tmp_path: Path) -> None:
    conditions = {"half": gflow.Above(lambda p: p["w"], 0.5), "never": gflow.Above(lambda p: p["w"], 2.0)}

    def loss(p: dict[str, Any]) -> jax.Array:
        return ChainLoss(2)(p["w"]) + 0.5 * (p["m"] ** 2).sum()

    run = descend(loss, {"w": 0.1, "m": np.ones((2, 3))}, "adam", 200, lr=0.01, milestones=conditions)
    path = run.save(tmp_path / "run.nc")
    again = gflow.load(path)
    assert repr(again) == repr(run)
    assert isinstance(again, gflow.Descent)
    assert again.milestones == run.milestones
    assert again.status is run.status
    for name in ("steps", "ts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))
    for name in ("w", "m"):
        np.testing.assert_array_equal(again.params[name], run.params[name])
    np.testing.assert_array_equal(again.losses["total"], run.losses["total"])
    assert run.to_xarray()["m"].shape == (len(run.ts), 2, 3)
    with pytest.raises(OutputError, match="exists"):
        run.save(path)
    with pytest.raises(InputError, match=r"holds a descent.*gflow.load"):
        gflow.flows.load(path)


def test_flow_and_descent_are_drawn_alike(problem: gflow.InductionProblem) -> None:
    start, loss = problem.initial_params(1e-2), problem.population_loss()
    run = descend(loss, start, "gd", 1500, lr=0.1, milestones=problem.milestones())
    figure = gflow.plots.flagship(run)
    assert "sum of the learning rates" in figure.axes[1].get_xlabel()
    flow = gflow.solve(loss, start, t1=run.t1_reached)
    curves = flow.losses_at(run.ts)
    for name in ("fourgram", "induction"):
        np.testing.assert_allclose(run.losses[name], curves[name], rtol=0.05)
