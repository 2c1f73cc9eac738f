"""Derivatives of milestone times: against finite differences of `gflow.solve`, other methods, and closed forms."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.flows import integrate
from gflow.theory.exponents import LocalExponents, local_exponents
from gflow.theory.plateau import growth_rate, overlaps

KINDS = ("untied", "tied", "merged")
STEP = 3e-4  # of the differences, in log n, log(1+alpha*), log w*, log sigma
SOLVE = (1e-12, 4e-12, 2e-11, 5e-11)  # rtol of the times that are subtracted: the first that gets to the end


def _draw(number: int) -> tuple[float, float, float, float]:
    rng = np.random.default_rng([20241, number])
    L, alpha, sigma = (
        10.0 ** rng.uniform(*ends) for ends in ((1.0, 4.0), (math.log10(0.3), math.log10(5.0)), (-6, -2))
    )
    return L, alpha, rng.uniform(0.3, 1.2), sigma


def _times(L: float, alpha: float, w: float, sigma: float, **options: Any) -> dict[str, float | None]:
    """Milestone times of a problem of its own: another L or w* has tables of its own."""
    problem = gflow.InductionProblem(L, alpha, w, **options)
    flow = gflow.GradientFlow(problem.population_loss())
    start, wanted = problem.initial_params(sigma), problem.milestones()
    for rtol in SOLVE:
        # close to rounding, steps may be rejected for ever where two cells of the tables meet
        run = gflow.solve(flow, start, milestones=wanted, rtol=rtol, max_steps=5000)
        if run.status.ok:
            return {name: found.time for name, found in run.milestones.items()}
    raise AssertionError(f"no tolerance of {SOLVE} gets to the end")


def _check(point: tuple[float, float, float, float], variables: str = "LAws", **options: Any) -> None:
    """Every derivative of every milestone equals a central difference to 1e-5."""
    L, alpha, w, sigma = point
    found = local_exponents(gflow.InductionProblem(L, alpha, w, **options), sigma)
    now = _times(*point, **options)
    assert set(found) == {name for name, time in now.items() if time is not None}
    for name, one in found.items():
        assert one.time == pytest.approx(now[name], rel=1e-9), name
    units = {"L": L - 2.0, "A": 1.0 + alpha, "w": w, "s": sigma}
    names = {"L": "L", "A": "alpha_star", "w": "w_star", "s": "log_sigma"}
    for letter in variables:
        shift = [STEP * units[letter] * (letter == key) for key in "LAws"]
        up, down = (_times(*(p + sign * h for p, h in zip(point, shift, strict=True)), **options) for sign in (1, -1))
        scale = units[letter] / (sigma if letter == "s" else 1.0)
        for name, one in found.items():
            difference = (up[name] - down[name]) / (2.0 * STEP * scale)
            # an exponent of 1e-3 and less drowns in the rounding of the times
            floor = 1e-8 * one.time / scale
            derivative = one.gradient[names[letter]]
            assert derivative == pytest.approx(difference, rel=1e-5, abs=floor), (name, letter, point)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_finite_differences_at_random_points(number: int) -> None:
    """Ten points drawn from L = 10..1e4, alpha* = .3..5, w* = .3..1.2, sigma = 1e-6..1e-2, untied and tied in turn."""
    _check(_draw(number), parametrization=KINDS[number % 2])


@pytest.mark.parametrize("options", [{"tokens": "rademacher"}, {"d": 3}], ids=str)
def test_finite_differences_for_other_tokens(options: dict[str, Any]) -> None:
    _check((30.0, 1.0, 0.6, 1e-3), **options)


def test_finite_differences_for_a_merged_logit_scale() -> None:
    """But for sigma, on which these times hardly depend."""
    _check((60.0, 1.0, 0.6, 1e-3), "LAw", parametrization="merged")


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_through_the_solver(kind: str) -> None:
    """`jax.jacfwd` through all steps of `integrate`, which knows nothing of variational equations."""
    problem = gflow.InductionProblem(40, 1.5, 0.6, parametrization=kind)
    loss, sigma = problem.population_loss(), 1e-3
    found = local_exponents(problem, sigma, ("T_II_of_initial", "T_III_of_initial"))
    fractions = {"T_II_of_initial": 0.99, "T_III_of_initial": 0.01}
    cls = type(problem.initial_params(sigma))

    def times(theta: jax.Array) -> dict[str, jax.Array]:
        there = loss.at(L=theta[0], alpha_star=theta[1], w_star=theta[2])
        count = 4 if kind != "untied" else 5
        start = cls(*[jnp.exp(theta[3])] * count)
        marks = {name: gflow.Below(there.induction, fraction=share) for name, share in fractions.items()}
        end = 1.2 * found["T_III_of_initial"].time
        return integrate(gflow.GradientFlow(there), start, t1=end, milestones=marks, rtol=1e-11).times

    rows = jax.jit(jax.jacfwd(times))(jnp.asarray([40.0, 1.5, 0.6, math.log(sigma)]))
    for name in fractions:
        np.testing.assert_allclose(list(found[name].gradient.values()), rows[name], rtol=3e-6, err_msg=name)


def test_extreme_points() -> None:
    """L = 1e6 with sigma = 1e-8, and L = 6: the slope is 1/g where sigma is small, errors are small everywhere."""
    far = gflow.InductionProblem(1e6, 1.0, 1.2)
    found = local_exponents(far, 1e-8)
    assert set(found) == set(far.milestones())
    assert found["T_III"].slope == pytest.approx(1.0 / growth_rate(far.population_loss().induction, "untied"), rel=1e-6)
    near = local_exponents(gflow.InductionProblem(6, 0.5, 1.0), 1e-2)
    for one in (*found.values(), *near.values()):
        assert all(error < 1e-7 for error in one.errors.values()), one
    # v2 relaxes exponentially to the plateau: T_o = log(10)/K2(0) = n log(10), n the only thing it depends on
    assert found["T_o"].exponents["n"] == pytest.approx(1.0, abs=1e-9)
    assert found["T_o"].time == pytest.approx((1e6 - 2) * math.log(10.0), rel=1e-6)
    for key in ("one_plus_alpha_star", "w_star", "log_inverse_sigma"):
        assert abs(found["T_o"].exponents[key]) < 1e-9


def test_a_long_plateau_takes_the_implicit_method() -> None:
    """T = 2e5 relaxations of v2; T ~ log(1/sigma)/g and so d log T/d log log(1/sigma) = 1 + O(1/log)."""
    problem = gflow.InductionProblem(50, 20.0, 0.2)
    one = local_exponents(problem, 1e-8, ["T_II"])["T_II"]
    induction = problem.population_loss().induction
    assert one.time * overlaps(induction).K2 > 1e5
    assert one.slope == pytest.approx(1.0 / growth_rate(induction, "untied"), rel=1e-6)
    assert one.exponents["one_plus_alpha_star"] == pytest.approx(2.0, abs=1e-4)


def test_first_crossing_in_closed_form() -> None:
    """w is negligible until 99% of the start: `v2 = v_p - (v_p - s) e^{-K2 t}` gives the time and dT/dlog sigma."""
    problem, sigma = gflow.InductionProblem(200, 1.0, 0.7), 1e-4
    K = overlaps(problem.population_loss().induction)
    v_p = K.amplitude * K.K1 / K.K2

    def time(log_sigma: float) -> float:
        above = 0.5 * K.K2 * (v_p - math.exp(log_sigma)) ** 2
        floor = 0.5 * K.amplitude**2 * (K.kcc - K.K1**2 / K.K2)
        share = (0.99 * (floor + above) - floor) / above
        return -math.log(share) / (2.0 * K.K2)

    one = local_exponents(problem, sigma, ["T_II_of_initial"])["T_II_of_initial"]
    at, h = math.log(sigma), 1e-3
    assert one.time == pytest.approx(time(at), rel=1e-6)
    assert one.gradient["log_sigma"] == pytest.approx((time(at + h) - time(at - h)) / (2 * h), rel=1e-3)


def test_what_is_asked_for_and_what_is_not_reached() -> None:
    problem = gflow.InductionProblem(40, 1.0, 0.6)
    assert list(local_exponents(problem, 1e-3, ["T_III", "T_I"])) == ["T_III", "T_I"]
    assert local_exponents(problem, 1e-3, []) == {}
    # from sigma = v_p v2 is already right: the plateau's 99% is passed when w grows, T_o at once or not at all
    with pytest.raises(gflow.InputError, match="did you mean 'T_III'"):
        local_exponents(problem, 1e-3, ["T_IIII"])
    with pytest.raises(gflow.InputError, match="sigma_init"):
        local_exponents(problem, -1.0)
    # beyond the minimum: the loss starts below 99% of the plateau, so T_II has no crossing to differentiate
    assert "T_II" not in local_exponents(problem, 0.5, ["T_II"])


def test_exponents_are_the_gradient_in_other_units() -> None:
    gradient = {"L": 2.0, "alpha_star": 3.0, "w_star": -4.0, "log_sigma": -5.0}
    one = LocalExponents("T", 100.0, 1.0, gradient, dict.fromkeys(gradient, 0.1), 12.0, 1.0, 0.5, math.exp(-4.0))
    wanted = {
        "L": 0.24,
        "n": 0.2,
        "one_plus_alpha_star": 0.06,
        "w_star": -0.02,
        "sigma_init": -0.05,
        "log_inverse_sigma": 0.2,
    }
    assert one.exponents == pytest.approx(wanted)
    assert one.slope == 5.0
    assert one.errors["n"] == pytest.approx(0.1 * 10.0 / 100.0 + 0.2 * 0.01)
    assert "d log T/d log w_star: -0.02 +- 0.0007" in repr(one)
