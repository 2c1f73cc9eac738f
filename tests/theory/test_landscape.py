"""Hessian spectra against closed forms, finite differences, growth measured on runs, and larger tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.losses.chain import ChainLoss
from gflow.losses.deep_linear import DeepLinearLoss, DeepLinearParams
from gflow.losses.induction.build import Resolution, make_table
from gflow.losses.induction.exact import induction_leaves
from gflow.theory import landscape as tools, measured, plateau

# MATH section 5: growth rates of an independent implementation, relative error below 1e-5
TABLE = [
    ({"L": 100.0, "alpha_star": 1.0, "w_star": 1.0}, 1e-6, 2.271529e-3, 1),
    ({"L": 64.0, "alpha_star": 1.0, "w_star": 0.8, "parametrization": "tied"}, 1e-6, 4.819605e-3, 1),
]


def at_saddle(problem: gflow.InductionProblem) -> tools.Spectrum:
    loss = problem.population_loss()
    return tools.spectrum(loss.induction, tools.plateau_saddle(problem).params, trainable=induction_leaves)


@pytest.fixture(scope="module")
def problem() -> gflow.InductionProblem:
    return gflow.InductionProblem(100.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def run(problem: gflow.InductionProblem) -> Any:
    flow = gflow.GradientFlow(problem.population_loss())
    return gflow.solve(flow, problem.initial_params(1e-6), milestones=problem.milestones(), tail=2.0)


@pytest.mark.parametrize(("given", "sigma", "rate", "negative"), TABLE)
def test_the_plateau_saddle_has_one_unstable_direction_with_the_known_rate(
    given: dict[str, Any], sigma: float, rate: float, negative: int
) -> None:
    problem = gflow.InductionProblem(**given)
    found = at_saddle(problem)
    assert found.method == "dense"
    assert found.index == negative
    assert found.gradient_norm < 1e-14
    assert found.eigenvalues[0] == pytest.approx(-rate, rel=1e-6)
    induction = problem.population_loss().induction
    assert found.eigenvalues[0] == pytest.approx(-plateau.growth_rate(induction, problem.parametrization), rel=1e-9)
    K2 = plateau.overlaps(induction).K2
    assert found.eigenvalues[-1] == pytest.approx(K2, rel=1e-9)
    if problem.parametrization == "untied":
        assert found.eigenvalues[1] == pytest.approx(rate, rel=1e-6)
        assert np.abs(found.eigenvectors[:, 0]) == pytest.approx([0.0, 0.5**0.5, 0.5**0.5], abs=1e-9)
        assert found.names == ("v2", "wK", "wQ")
        unstable = found.vector(0)
        assert float(unstable.wK) == pytest.approx(float(unstable.wQ), abs=1e-9)
        assert unstable.p21 is None
    # and as a trajectory that starts at sigma shows it
    flow = gflow.GradientFlow(problem.population_loss())
    wanted = {key: problem.milestones()[key] for key in ("T_o", "T_II")}
    grown = measured.growth_rate(gflow.solve(flow, problem.initial_params(sigma), milestones=wanted))
    assert -found.eigenvalues[0] == pytest.approx(grown, rel=1e-5)


def test_merged_has_no_saddle_there() -> None:
    problem = gflow.InductionProblem(100.0, 1.0, 1.0, parametrization="merged")
    place = tools.plateau_saddle(problem)
    assert not place.stationary
    found = at_saddle(problem)
    rho = plateau.rho(problem.population_loss().induction)
    assert found.gradient == pytest.approx([0.0, -rho], abs=1e-12)
    assert tools.plateau_saddle(gflow.InductionProblem(40.0, 1.0, 1.0)).stationary


@pytest.mark.parametrize("kind", ["untied", "tied", "merged"])
def test_at_the_minimum_the_smallest_eigenvalue_is_half_the_decay_rate(kind: str) -> None:
    problem = gflow.InductionProblem(40.0, 1.0, 0.8, parametrization=kind)
    induction = problem.population_loss().induction
    c = 0.8**2
    leaves = {"untied": (0.8, 0.8), "tied": (0.8,), "merged": (c,)}[kind]
    goal = tuple(jnp.asarray(x) for x in (0.5, *leaves))
    params = eqx.tree_at(induction_leaves, problem.initial_params(0.1), goal)
    found = tools.spectrum(induction, params, trainable=induction_leaves)
    assert found.index == 0
    assert found.flat == (1 if kind == "untied" else 0)  # wK^2 - wQ^2 is conserved
    smallest = found.eigenvalues[found.eigenvalues > found.noise][0]
    assert 2 * smallest == pytest.approx(plateau.final_decay_rate(induction, kind), rel=1e-9)
    assert found.gradient_norm < 1e-10


def test_the_noise_covers_what_a_finer_table_changes(problem: gflow.InductionProblem) -> None:
    loss = problem.population_loss().induction
    finer = make_table(problem.tokens, 100.0, 1.0, 1, resolution=Resolution(nodes=72, refine=1.5))
    other = eqx.tree_at(lambda x: x.table, loss, finer)
    saddle = tools.plateau_saddle(problem).params
    minimum = eqx.tree_at(induction_leaves, saddle, tuple(jnp.asarray(x) for x in (0.5, 1.0, 1.0)))
    for place in (saddle, minimum):
        one, two = (tools.spectrum(f, place, trainable=induction_leaves) for f in (loss, other))
        assert np.max(np.abs(one.eigenvalues - two.eigenvalues)) < one.noise
        assert one.noise < 1e-6 * one.sharpness


def test_along_a_run_index_sharpness_and_the_end(run: Any, problem: gflow.InductionProblem) -> None:
    path = tools.spectrum_along(run)
    assert path.times.shape == (200,)
    assert path.index[0] == 2  # one unstable direction of each part
    plateau_times = (path.times > 1000) & (path.times < 4000)
    assert np.all(path.index[plateau_times] == 1)
    rho = plateau.rho(problem.population_loss().induction)
    assert path.eigenvalues[plateau_times, 0] == pytest.approx(-rho, rel=2e-3)
    # the 4-gram part's smallest eigenvalue vanishes like 1/t: the end is a minimum, not a saddle
    assert path.index[-1] == 0
    assert path.sharpness[-1] == pytest.approx(1.0, abs=0.03)
    assert "200 times" in repr(path)


def test_dloss_dt_and_the_rate_of_the_gradient_on_the_path(run: Any) -> None:
    """dLoss/dt = -|g|^2 and d log|g|/dt = -g.Hg/g.g, by central differences in time."""
    times = np.geomspace(5.0, 5500.0, 9)
    step = 1e-4 * times
    middle, before, after = (tools.spectrum_along(run, times=t) for t in (times, times - step, times + step))
    assert (after.loss - before.loss) / (2 * step) == pytest.approx(-(middle.gradient_norm**2), rel=1e-4)
    growth = (np.log(after.gradient_norm) - np.log(before.gradient_norm)) / (2 * step)
    assert growth == pytest.approx(-middle.rayleigh, rel=1e-3, abs=1e-6)


def test_distance_to_the_saddle(run: Any, problem: gflow.InductionProblem) -> None:
    saddle = tools.plateau_saddle(problem)
    times = np.linspace(0.0, run.milestones["T_II"].time, 400)
    distance = tools.distance_to(saddle, run, times)
    v_p = plateau.v_plateau(problem.population_loss().induction)
    assert distance[0] == pytest.approx(abs(v_p - 1e-6), rel=1e-9)
    assert distance.min() < 1e-4
    # while v2 relaxes it falls at the rate K2(0), while the weights grow it rises at the rate rho
    K = plateau.overlaps(problem.population_loss().induction)
    early, late = (np.abs(times - t).argmin() for t in (300.0, 4000.0))
    slopes = np.gradient(np.log(distance), times)
    assert slopes[early] == pytest.approx(-K.K2, rel=0.01)
    assert slopes[late] == pytest.approx(plateau.rho(problem.population_loss().induction), rel=0.01)
    assert len(tools.distance_to(saddle, run)) == len(run.ts)


def test_a_loaded_run_needs_its_loss(run: Any, problem: gflow.InductionProblem, tmp_path: Any) -> None:
    loaded = gflow.load(run.save(tmp_path / "run.nc"))
    with pytest.raises(gflow.errors.InputError, match="loss="):
        tools.spectrum_along(loaded)
    times = [10.0, 1000.0, 6000.0]
    one = tools.spectrum_along(run, times=times)
    two = tools.spectrum_along(loaded, problem.population_loss(), times)
    np.testing.assert_allclose(one.eigenvalues, two.eigenvalues, rtol=1e-9, atol=1e-15)


def test_a_narrow_table_is_grown_for_the_whole_path() -> None:
    problem = gflow.InductionProblem(100.0, 1.0, 0.5)
    start = eqx.tree_at(induction_leaves, problem.initial_params(0.1), tuple(jnp.asarray(x) for x in (0.5, 1.2, 1.2)))
    loss = problem.population_loss()
    assert not bool(loss.domain(start))
    traj = gflow.solve(gflow.GradientFlow(loss), start, t1=50.0)
    assert np.all(np.isfinite(tools.spectrum_along(traj, loss, times=[0.0, 50.0]).eigenvalues))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_chain_in_closed_form(depth: int) -> None:
    """f' = -(1-w^N) w^(N-1), f'' = (2N-1) w^(2N-2) - (N-1) w^(N-2)."""
    for w in (0.3, 1.0, 1.7):
        found = tools.spectrum(ChainLoss(depth), jnp.asarray(w))
        expected = (2 * depth - 1) * w ** (2 * depth - 2) - (depth - 1) * w ** (depth - 2)
        assert found.eigenvalues == pytest.approx([expected], rel=1e-12)
        assert found.gradient == pytest.approx([-(1 - w**depth) * w ** (depth - 1)], abs=1e-14)


def test_deep_linear_network_at_zero_and_at_the_minimum() -> None:
    """At W = 0 the eigenvalues are +- the target's singular values; at a balanced minimum s_i + s_j, and zeros."""
    loss = DeepLinearLoss(jnp.diag(jnp.asarray([3.0, 1.0])))
    zero = tools.spectrum(loss, DeepLinearParams(jnp.zeros((2, 2)), jnp.zeros((2, 2))))
    assert zero.eigenvalues == pytest.approx([-3, -3, -1, -1, 1, 1, 3, 3], abs=1e-12)
    assert zero.index == 4
    assert zero.names[:3] == ("W1[0,0]", "W1[0,1]", "W1[1,0]")
    root = jnp.diag(jnp.sqrt(jnp.asarray([3.0, 1.0])))
    end = tools.spectrum(loss, DeepLinearParams(root, root))
    assert end.eigenvalues == pytest.approx([0, 0, 0, 0, 2, 4, 4, 6], abs=1e-9)
    assert (end.index, end.flat) == (0, 4)
    assert jax.tree.map(jnp.shape, end.vector(7)) == DeepLinearParams((2, 2), (2, 2))


def test_hessian_against_finite_differences_of_the_gradient() -> None:
    def loss(p: Any) -> Any:
        return jnp.sum(jnp.tanh(p["A"] @ p["b"]) ** 2) + jnp.prod(p["b"])

    params = {"A": jnp.asarray([[0.3, -0.2], [0.5, 0.9]]), "b": jnp.asarray([0.7, -0.4])}
    found = tools.spectrum(loss, params)
    H = found.eigenvectors @ np.diag(found.eigenvalues) @ found.eigenvectors.T
    flat, back = jax.flatten_util.ravel_pytree(params)
    gradient = jax.jit(jax.grad(lambda y: loss(back(y))))
    step = 1e-5
    columns = [(gradient(flat + step * e) - gradient(flat - step * e)) / (2 * step) for e in np.eye(6)]
    np.testing.assert_allclose(H, np.stack(columns, axis=1), atol=1e-9)
    np.testing.assert_allclose(found.gradient, gradient(flat), atol=1e-14)


def test_lanczos_above_the_limit_agrees_with_what_is_known() -> None:
    size = 700
    diagonal = np.concatenate([[-0.5], np.linspace(0.1, 1.0, size - 2), [9.0]])

    def loss(p: Any) -> Any:
        return 0.5 * jnp.sum(jnp.asarray(diagonal) * p["x"] ** 2) + 3.0

    found = tools.spectrum(loss, {"x": jnp.ones(size)})
    assert found.method == "lanczos"
    assert found.eigenvalues == pytest.approx(sorted(diagonal)[:3] + sorted(diagonal)[-3:], abs=1e-9)
    assert found.index == 1
    assert abs(found.eigenvectors[0, 0]) == pytest.approx(1.0, abs=1e-6)
    traj = gflow.solve(gflow.GradientFlow(loss), {"x": jnp.ones(size)}, t1=0.1)
    path = tools.spectrum_along(traj, times=[0.0, 0.1])
    assert path.method == "lanczos"
    assert path.sharpness == pytest.approx([9.0, 9.0])
    assert list(path.index) == [1, 1]


def test_what_cannot_be_used() -> None:
    with pytest.raises(gflow.errors.InputError, match="not finite"):
        tools.spectrum(lambda p: jnp.sqrt(p), jnp.asarray(0.0))
    with pytest.raises(gflow.errors.InputError, match="real"):
        tools.spectrum(lambda p: jnp.abs(p) ** 2, jnp.asarray(1j))
    # whole numbers count as reals
    assert tools.spectrum(lambda p: p["a"] ** 2, {"a": 2}).eigenvalues == pytest.approx([2.0])


def test_the_python_blocks_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "landscape.md").read_text()
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
