"""Rest and unrest: saddles, minima, stagnation, stiffness (CASES 1, 3, 4)."""

import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above
from gflow.flows import GradientFlow, Status, solve, stationary_point
from gflow.losses.chain import ChainLoss


@pytest.mark.parametrize("tolerances", [{}, {"rtol": 1e-3, "atol": 1e-6}])
def test_case_1_a_plateau_is_not_the_end(tolerances):
    trajectory = solve(ChainLoss(3), jnp.asarray(1e-3), **tolerances)
    assert trajectory.status is Status.converged
    assert trajectory.stationary["all"].kind == "minimum"
    assert float(trajectory.final) == pytest.approx(1.0, abs=1e-3)
    assert trajectory.t1_reached > 998


def test_case_1_degenerate_saddle_has_no_escape_time():
    """The linear rate 2s would say 3450; it doubles as w grows, so nothing is predicted."""
    point = stationary_point(ChainLoss(3), jnp.asarray(1e-3))
    assert point.kind == "degenerate saddle"
    assert point.escape_time is None
    np.testing.assert_allclose(point.eigenvalues, [-2e-3], rtol=1e-5)


def test_escape_time_of_a_linear_saddle():
    """C(2): rate 1, so the displacement s takes log(1/s) to become of order one."""
    point = stationary_point(ChainLoss(2), jnp.asarray(1e-8))
    assert point.kind == "saddle"
    np.testing.assert_allclose(point.eigenvalues, [-1.0], rtol=1e-12)
    assert point.escape_time == pytest.approx(np.log(1e8), abs=1.5)


def test_a_plateau_met_on_the_way_is_reported_and_left():
    """(v - 1)^2/2 relaxes first, then w waits near zero: a saddle in two variables, found by the quiet loss."""

    def loss(p):
        return (p["v"] - 1) ** 2 / 2 + ChainLoss(2)(p["w"])

    trajectory = solve(loss, {"v": 0.0, "w": 1e-12}, milestones={"half": Above(lambda p: p["w"], 0.5)})
    (pause, *_) = trajectory.saddles["all"]
    half = trajectory.milestones["half"].time
    assert pause.kind == "saddle"
    assert pause.time < half
    np.testing.assert_allclose(sorted(pause.eigenvalues), [-1.0, 1.0], atol=1e-6)
    assert pause.escape_time == pytest.approx(half, abs=2.0)
    assert half == pytest.approx(float(ChainLoss(2).time(jnp.asarray(0.5), jnp.asarray(1e-12))), rel=1e-7)


def test_exactly_on_a_saddle():
    trajectory = solve(ChainLoss(2), jnp.asarray(0.0))
    assert trajectory.status is Status.stagnated
    assert "exactly" in trajectory.message
    assert trajectory.stationary["all"].kind == "saddle"


def test_starting_in_the_minimum():
    trajectory = solve(ChainLoss(2), jnp.asarray(1.0))
    assert trajectory.status is Status.converged
    assert trajectory.stationary["all"].kind == "minimum"


def test_case_3_time_that_does_not_move():
    flow = GradientFlow(lambda y: 500 * y**2)
    trajectory = solve(flow, jnp.asarray(1.0, jnp.float32), t0=1e8, t1=2e8)
    assert trajectory.status is Status.stagnated
    assert trajectory.stats["rejected"] < 100
    assert "float64" in trajectory.message
    assert trajectory.ts[0] == 1e8


def test_case_4_no_useless_steps_after_convergence():
    at_rest = solve(lambda y: y**2 / 2, jnp.asarray(1.0))
    assert at_rest.status is Status.converged
    assert at_rest.t1_reached < 100
    assert at_rest.stats["accepted"] < 100
    to_t1 = solve(lambda y: y**2 / 2, jnp.asarray(1.0), t1=1e6)
    assert to_t1.status is Status.reached_t1
    assert to_t1.t1_reached == to_t1.ts[-1] == 1e6
    assert to_t1.stats["accepted"] + to_t1.stats["rejected"] < 1000
    assert abs(float(to_t1.final)) < 1e-9


def test_stiff_flow_changes_solver_and_stays_accurate():
    """Rates 1 and 1e4: the fast mode limits an explicit solver's steps long after it has died."""

    def loss(p):
        return p[0] ** 2 / 2 + 1e4 * p[1] ** 2 / 2

    trajectory = solve(loss, jnp.asarray([1.0, 1.0]), milestones={"e": Above(lambda p: -p[0], -np.exp(-3.0))}, t1=5.0)
    assert trajectory.stats["solvers"]["all"] == ["Dopri8", "Rodas5P"]
    assert trajectory.milestones["e"].time == pytest.approx(3.0, rel=1e-7)
    assert trajectory.stats["accepted"] < 2000
    np.testing.assert_allclose(float(trajectory.at(1.0)[0]), np.exp(-1.0), rtol=1e-6)


def test_many_parameters_use_extreme_eigenvalues():
    """A saddle in 300 dimensions: Lanczos-type eigenvalues instead of a dense Hessian."""
    scale = jnp.linspace(0.5, 2.0, 299)

    def loss(p):
        return jnp.sum(scale * (p[1:] - 1) ** 2) / 2 + ChainLoss(2)(p[0])

    at_saddle = jnp.ones(300).at[0].set(1e-9)
    point = stationary_point(loss, at_saddle)
    assert point.kind == "saddle"
    assert point.eigenvalues[0] == pytest.approx(-1.0, rel=1e-5)
    assert point.eigenvalues[-1] == pytest.approx(2.0, rel=1e-5)
