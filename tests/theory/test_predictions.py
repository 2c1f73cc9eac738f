"""Predictions against enumeration of all sequences, scipy, and runs of an independent implementation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import gflow
from gflow.errors import InputError
from gflow.theory import limits, manifold, plateau, predictions
from gflow.tokens import finite, gaussian, rademacher, uniform

CASES: dict[str, tuple[dict[str, Any], float, dict[str, float]]] = {
    "default": (
        {"L": 40, "w_star": 0.49},
        1e-2,
        {"T_I": 205.459, "T_o": 87.3923,
         "T_II": 878.466, "T_III": 3181.31, "T_III_of_initial": 2667.72, "g": 1.523829e-3},
    ),
    "flagship": (
        {"L": 100, "w_star": 1.0},
        1e-6,
        {"T_I": 208.4286, "T_o": 225.653,
         "T_II": 5203.435, "T_III": 6066.08, "T_III_of_initial": 6040.97, "g": 2.271529e-3},
    ),
    "tied": (
        {"L": 64, "w_star": 0.8, "parametrization": "tied"},
        1e-3,
        {"T_I": 207.289, "T_o": 142.752,
         "T_II": 946.457, "T_III": 1495.65, "T_III_of_initial": 1459.87, "g": 4.819605e-3},
    ),
    "rademacher": (
        {"L": 40, "w_star": 0.8, "tokens": "rademacher"},
        1e-2,
        {"T_I": 205.459, "T_o": 87.1861,
         "T_II": 494.215, "T_III": 1653.11, "T_III_of_initial": 1453.54, "g": 3.669751e-3},
    ),
}  # fmt: skip


def problem(**settings: Any) -> gflow.InductionProblem:
    return gflow.InductionProblem(**{"alpha_star": 1.0, **settings})


def enumerated(values: list[float], probabilities: list[float], n: int, w: float, v: float) -> float:
    """K(w, v) = E[f_w f_v] by summing over every sequence of n + 1 tokens and every query."""
    total = 0.0
    law = list(zip(values, probabilities, strict=True))
    for sequence in itertools.product(law, repeat=n + 1):
        x = np.array([s[0] for s in sequence])
        weight = math.prod(s[1] for s in sequence)
        for q, p in law:
            means = []
            for slope in (w, v):
                e = np.exp(slope * q * x[:-1])
                means.append(float(e @ x[1:]) / float(e.sum()))
            total += p * weight * means[0] * means[1]
    return total


class Enumerated:
    """Rademacher or any finite law, small n: overlaps and their derivatives by enumeration and central differences."""

    def __init__(self, values: list[float], probabilities: list[float], L: int, w_star: float) -> None:
        self.c, self.A = w_star**2, 0.5
        K = lambda w, v: enumerated(values, probabilities, L - 2, w, v)  # noqa: E731
        h = 2e-3
        self.K1, self.K2, self.kcc = K(0.0, self.c), K(0.0, 0.0), K(self.c, self.c)

        def difference(f: Any) -> float:
            return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

        self.dK1, self.dK2 = difference(lambda w: K(w, self.c)), difference(lambda w: K(w, w))


@pytest.mark.parametrize("law", [([-1.0, 1.0], [0.5, 0.5]), ([-0.5, 1.5], [0.7, 0.3])])
def test_the_plateau_is_that_of_enumeration(law: tuple[list[float], list[float]]) -> None:
    brute = Enumerated(*law, L=8, w_star=0.8)
    induction = problem(L=8, w_star=0.8, tokens=finite(*law)).population_loss().induction
    v = brute.A * brute.K1 / brute.K2
    assert plateau.v_plateau(induction) == pytest.approx(v, rel=1e-8)
    assert plateau.plateau_level(induction) == pytest.approx(
        0.5 * brute.A**2 * brute.kcc - 0.5 * v * brute.A * brute.K1, rel=1e-7
    )
    rate = brute.A * v * brute.dK1 - 0.5 * v**2 * brute.dK2
    assert plateau.growth_rate(induction, "untied") == pytest.approx(rate, rel=1e-7)
    assert plateau.growth_rate(induction, "tied") == pytest.approx(2 * rate, rel=1e-7)
    assert plateau.growth_rate(induction, "merged") is None
    assert plateau.slope(induction, "untied") == pytest.approx(1 / rate, rel=1e-7)
    assert plateau.time_to_plateau(induction) == pytest.approx(math.log(10) / brute.K2, rel=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_reference_runs(name: str) -> None:
    """The growth rate is exact, T_II and T_III miss terms of the order of sigma, T_I those of order 1/A_g."""
    settings, sigma, expected = CASES[name]
    p = problem(**settings)
    found = predictions.predict(p, p.population_loss(), sigma)
    assert set(found) == set(predictions.KEYS)
    assert found["growth_rate"] == pytest.approx(expected["g"], rel=1e-6)
    for key in ("T_II", "T_III", "T_III_of_initial"):
        assert found[key] == pytest.approx(expected[key], rel=2 * sigma**2 + 4e-6), key
    assert found["T_o"] == pytest.approx(expected["T_o"], rel=max(sigma, 1e-5))
    assert abs(found["T_I"] - expected["T_I"]) < 2 / 0.5


def test_cruder_orders_are_cruder() -> None:
    """v2 relaxes about as fast as w grows: the slow manifold is wrong in T_III - T_II, and stays so as sigma -> 0."""
    p = problem(L=100, w_star=1.0)
    loss, truth = p.population_loss(), 6066.08 - 5203.435
    spans = {}
    for order in ("slow_manifold", "unstable_manifold"):
        found = predictions.predict(p, loss, 1e-6, order)
        spans[order] = found["T_III"] - found["T_II"]
    assert spans["unstable_manifold"] == pytest.approx(truth, rel=1e-4)
    assert spans["slow_manifold"] < 0.95 * truth
    leading = predictions.predict(p, loss, 1e-6, "leading")
    assert leading["T_II"] == leading["T_III"] == pytest.approx(6 * math.log(10) / 2.271529e-3, rel=1e-6)


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_the_slope_in_log_sigma_is_one_over_g(kind: str) -> None:
    p = problem(L=40, w_star=0.7, parametrization=kind)
    loss = p.population_loss()
    far, near = (predictions.predict(p, loss, s) for s in (1e-12, 1e-9))
    for key in ("T_II", "T_III"):
        assert (far[key] - near[key]) / math.log(1e3) == pytest.approx(1 / far["growth_rate"], rel=1e-6)


def test_the_escape_agrees_with_a_flow_of_scipy() -> None:
    """Same overlaps, but the two-dimensional flow itself, by scipy, from sigma."""
    p = problem(L=30, w_star=0.9, parametrization="tied")
    induction = p.population_loss().induction
    sigma, level = 1e-7, 0.3 * plateau.plateau_level(induction)
    gradient = jax.jit(jax.value_and_grad(lambda y: induction(gflow.TiedParams(None, None, y[0], y[1]))))

    def field(_: float, y: np.ndarray) -> np.ndarray:
        return -np.asarray(gradient(y)[1])

    run = solve_ivp(field, (0.0, 3000.0), [sigma, sigma], rtol=1e-10, atol=1e-14, dense_output=True)
    crossing = brentq(lambda t: float(gradient(run.sol(t))[0]) - level, 1.0, 3000.0)
    found = manifold.escape_times(induction, "tied", sigma, {"here": level, "above": 1.0})
    assert found["here"] == pytest.approx(crossing, rel=1e-6)
    assert found["above"] is None


def test_merged_has_no_escape() -> None:
    p = problem(L=40, w_star=0.7, parametrization="merged")
    found = predictions.predict(p, p.population_loss(), 1e-3)
    assert found["growth_rate"] is None
    assert found["T_II"] is None
    assert found["T_III"] is None


def test_levels_above_the_plateau_are_passed_while_v2_relaxes() -> None:
    """w* = 0.3: 1% of the start is above the plateau (trap (i))."""
    p = problem(L=40, w_star=0.3)
    loss = p.population_loss()
    assert plateau.plateau_fraction(loss.induction) < 0.01
    found = predictions.predict(p, loss, 1e-4)
    assert 0 < found["T_II_of_initial"] < found["T_III_of_initial"] < found["T_II"]


@pytest.mark.parametrize("law", [gaussian(), rademacher(), uniform()], ids=lambda law: law.name)
def test_large_L(law: Any) -> None:
    """The relative distance of rho from its limit falls like 1/L."""
    gaps = []
    for L in (1e3, 1e4):
        induction = problem(L=L, w_star=0.5, tokens=law).population_loss().induction
        gaps.append(plateau.rho(induction) / limits.growth_rate_large_L(law, L, 1.0, 0.5) - 1)
    assert abs(gaps[1]) < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.2)


def test_large_L_constants() -> None:
    assert limits.growth_rate_large_L(gaussian(), 102, 1.0, 0.5) == pytest.approx(0.25 / 400)
    assert limits.growth_rate_large_L(gaussian(), 102, 1.0, 0.5, d=3) == pytest.approx(9 * 0.25 / 400)
    assert limits.growth_rate_large_L(rademacher(), 102, 1.0, 0.5) == pytest.approx(math.tanh(0.25) / 400)
    with pytest.raises(InputError, match="mean"):
        limits.growth_rate_large_L(finite([0, 1], [0.5, 0.5]), 102, 1.0, 0.5)
    assert limits.overlap_large_L(0.5, 0.5, 102) == pytest.approx(math.sqrt(2) / 100)
    with pytest.raises(InputError, match="below 1"):
        limits.overlap_large_L(1.0, 0.5, 102)


def test_d_dimensional_tokens() -> None:
    """L = 40, w* = .6, sigma = .01, d = 4 by an independent implementation."""
    p = problem(L=40, w_star=0.6, d=4)
    found = predictions.predict(p, p.population_loss(), 1e-2)
    assert abs(found["T_I"] - 51.3648) < 2 / 0.5 / 4
    assert found["T_o"] == pytest.approx(21.5542, rel=0.03)
    assert found["T_III"] == pytest.approx(138.2929, rel=2e-3)


@pytest.mark.parametrize("kind", ["untied", "tied", "merged"])
def test_the_final_hessian_is_that_of_jax(kind: str) -> None:
    p = problem(L=20, w_star=0.8, parametrization=kind)
    induction = p.population_loss().induction
    cls = type(p.initial_params(0.1))
    point = {"untied": [0.5, 0.8, 0.8], "tied": [0.5, 0.8], "merged": [0.5, 0.64]}[kind]
    hessian = jax.hessian(lambda y: induction(cls(None, None, *y)))(np.array(point))
    values = np.linalg.eigvalsh(np.asarray(hessian))
    nonzero = values[np.abs(values) > 1e-9]
    assert np.linalg.eigvalsh(plateau.final_hessian(induction, kind)) == pytest.approx(nonzero, rel=1e-7)
    assert plateau.final_decay_rate(induction, kind) == pytest.approx(2 * nonzero[0], rel=1e-7)


def test_initial_rates_are_those_of_the_gradient() -> None:
    for kind, leaf in (("untied", "wK"), ("tied", "wKQ")):
        p = problem(L=20, w_star=0.8, parametrization=kind)
        loss, start = p.population_loss(), p.initial_params(0.05)
        force = jax.grad(loss)(start)
        rates = plateau.initial_rates(loss.induction, kind, 0.05)
        assert rates["v2"] == pytest.approx(20 * abs(float(force.v2)), rel=1e-9)
        assert rates["logit_weight"] == pytest.approx(20 * abs(float(getattr(force, leaf))) / 0.05, rel=1e-9)


def test_late_laws_of_the_fourgram_part() -> None:
    """By scipy, from the closed form of MATH section 3 written once more; tokens with a mean too."""
    n, A, s2 = 38.0, 0.5, 1.3
    for mu in (0.0, 0.8):

        def loss(y: np.ndarray) -> float:
            r = math.exp(-y[0])
            M, N = (1 - r) / (1 - r**n), (1 - r) * (1 + r**n) / ((1 + r) * (1 - r**n))
            return 0.5 * (s2 * (A * A - 2 * A * y[1] * M + y[1] ** 2 * N) + mu**2 * (A - y[1]) ** 2)  # noqa: B023

        def field(_: float, y: np.ndarray) -> list[float]:
            h = 1e-6
            return [-(loss(y + h * e) - loss(y - h * e)) / (2 * h) for e in np.eye(2)]

        t = 3e4
        end = solve_ivp(field, (0.0, t), [0.01, 0.01], method="LSODA", rtol=1e-8, atol=1e-10).y[:, -1]
        assert loss(end) == pytest.approx(limits.fourgram_late(t), rel=1e-2)
        assert end[0] == pytest.approx(limits.p21_late(t, 1.0, 1, s2, mu), abs=1e-2)


def test_what_is_conserved() -> None:
    start = problem(L=20, w_star=0.8).initial_params(0.05)
    assert float(limits.conserved(start)) == 0.0
    assert limits.conserved(problem(L=20, w_star=0.8, parametrization="tied").initial_params(0.05)) is None
