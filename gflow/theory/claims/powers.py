"""Leaving the plateau: exponents of the wait in L, sigma, alpha* and w*."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gflow.theory import limits
from gflow.theory.claims._claim import Claim, Expected, Law, Plot, Row, about
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid
from gflow.theory.claims.escape import ESCAPE, SLOPE_III, slopes

EXPONENT_L = "exponent of n in T_III"
CURVED, POWER = "exponent of log(1/sigma) in T_III", "exponent of 1/sigma in dT_III/dlog(1/sigma)"
EXPONENT_A, EXPONENT_A_SLOPE = "exponent of 1+alpha* in T_III", "exponent of 1+alpha* in dT_III/dlog(1/sigma)"
EXPONENT_W, EXPONENT_W_SLOPE = "exponent of w* in T_III", "exponent of w* in dT_III/dlog(1/sigma)"
SCALE: dict[str, Callable[[Point], float]] = {
    "L": lambda p: p["L"] - 2.0,
    "alpha_star": lambda p: 1.0 + p["alpha_star"],
    "w_star": lambda p: p["w_star"],
}


def _kind(at: Point) -> str:
    return {**REFERENCE, **at}["parametrization"]


def _between(lab: Lab, quantity: str, points: list[dict[str, Any]], x: str, of: str, inside: Any) -> list[Row]:
    """Exponents of x (n, 1+alpha*, w*) in T_III ("time") or in its slope, between neighbouring points."""
    if of == "slope":
        values, errors = np.array([(v[SLOPE_III], e[SLOPE_III]) for v, e in slopes(lab, points, 1e-9, 1e-7)]).T
    else:
        found = lab.times(points, ("T_III",))
        values, errors = found.time["T_III"], found.error["T_III"]
    rows = []
    for i in range(len(points) - 1):
        low, high = points[i], points[i + 1]
        step = math.log(SCALE[x](high) / SCALE[x](low))
        exponent = math.log(values[i + 1] / values[i]) / step
        noise = (errors[i] / values[i] + errors[i + 1] / values[i + 1]) / abs(step)
        rows.append(Row(quantity, low, exponent, float(noise), inside=inside(low)))
    return rows


def _in_L(lab: Lab) -> list[Row]:
    rows = []
    for sigma in lab.choose([1e-6], [1e-2, 1e-6]):
        points = grid(L=[30, 100, 1e3, 1e4, 1e5, 1e6], sigma_init=sigma, w_star=0.5)
        rows += _between(lab, EXPONENT_L, points, "L", "time", lambda p: p["L"] >= 100)
    return rows


def _in_sigma(lab: Lab) -> list[Row]:
    """Four sigmas: how does the slope between the first two differ from that between the last two?"""
    rows = []
    for at in grid(w_star=[0.5, 1.0], L=lab.choose([100], [100, 1e4])):
        near, far = slopes(lab, [at], 1e-4, 1e-3)[0], slopes(lab, [at], 1e-10, 1e-8)[0]
        s, e = (near[0][SLOPE_III], far[0][SLOPE_III]), (near[1][SLOPE_III], far[1][SLOPE_III])
        x = -math.log(math.sqrt(1e-3 * 1e-4)), -math.log(math.sqrt(1e-8 * 1e-10))
        change, noise = math.log(s[1] / s[0]), e[0] / s[0] + e[1] / s[1]
        here = at | {"sigma_init": 1e-3}
        rows.append(Row(CURVED, here, 1.0 + change / math.log(x[1] / x[0]), noise / math.log(x[1] / x[0])))
        rows.append(Row(POWER, here, change / (x[1] - x[0]), noise / (x[1] - x[0])))
    return rows


def _in_alpha(lab: Lab) -> list[Row]:
    points = grid(alpha_star=[0.1, 0.3, 1.0, 3.0, 10.0], sigma_init=1e-8, w_star=0.5)
    rows = _between(lab, EXPONENT_A_SLOPE, points, "alpha_star", "slope", lambda p: True)
    return rows + _between(lab, EXPONENT_A, points, "alpha_star", "time", lambda p: p["alpha_star"] >= 1.0)


def _in_w(lab: Lab) -> list[Row]:
    points = grid(w_star=[0.3, 0.5, 0.7, 1.0], L=1e4, sigma_init=1e-8)
    rows = _between(lab, EXPONENT_W_SLOPE, points, "w_star", "slope", lambda p: p["w_star"] < 0.7)
    return rows + _between(lab, EXPONENT_W, points, "w_star", "time", lambda p: False)


def _leading(lab: Lab, at: Point) -> float:
    """The theory's time at large L and small sigma."""
    power = {"untied": 1.0, "tied": 2.0}[_kind(at)]
    rate = limits.growth_rate_large_L(lab.problem(at).tokens, at["L"], at["alpha_star"], at["w_star"])
    return limits.escape_leading(-math.log(at["sigma_init"]), power * rate)


def _theory(lab: Lab, x: str, tolerance: float) -> Callable[[Point], Expected]:
    """The exponent of x in the theory's time."""

    def expect(at: Point) -> Expected:
        other = dict(at) | {x: at[x] * 1.01}
        step = math.log(SCALE[x](other) / SCALE[x](at))
        return about(math.log(_leading(lab, other) / _leading(lab, at)) / step, 0.0, tolerance)

    return expect


CLAIMS = [
    Claim(
        name="exponent-L",
        title="T_III grows like L^1",
        statement="The plateau's length is proportional to the sequence length.",
        formula="d log T_III / d log n -> 1",
        source=f"[WYEW]: {ESCAPE}",
        assumptions="L >= 100",
        rule="The exponent of n = L-2 between neighbouring lengths is 1 up to 0.02.",
        measure=_in_L,
        law=lambda lab: Law("linear", "exponent 1", {EXPONENT_L: _theory(lab, "L", 0.02)}),
        control=lambda lab: Law("L^1.05", "exponent 1.05", {EXPONENT_L: lambda p: about(1.05, 0.0, 0.02)}),
        plot=Plot(EXPONENT_L, "L", "exponent of n in T_III", by="sigma_init"),
    ),
    Claim(
        name="exponent-log-sigma",
        title="T_III grows like the first power of log(1/sigma), and like no power of 1/sigma",
        statement="The wait is logarithmic in the initial scale: dT_III/dlog(1/sigma) is a constant.",
        formula="T_III = a + b log(1/sigma)^p with p = 1;   T_III != a + b sigma^-q with q > 0",
        source=f"[WYEW]: {ESCAPE}",
        assumptions="sigma <= 1e-3",
        rule="From the slopes between sigma = 1e-3 and 1e-4 and between 1e-8 and 1e-10: p is 1 up to 0.02, q is 0 up "
        "to "
        "0.005.",
        measure=_in_sigma,
        law=lambda lab: Law(
            "logarithm",
            "p = 1, q = 0",
            {CURVED: lambda p: about(1.0, 0.0, 0.02), POWER: lambda p: about(0.0, 0.0, 0.005)},
        ),
        control=lambda lab: Law("sigma^-0.1", "a power of 1/sigma", {POWER: lambda p: about(0.1, 0.0, 0.005)}),
    ),
    Claim(
        name="exponent-alpha",
        title="T_III grows like (1+alpha*)^2",
        statement="The more the 4-gram part weighs, the longer the induction head waits: as the square of 1+alpha*.",
        formula="d log T_III / d log(1+alpha*) -> 2; of dT_III/dlog(1/sigma) exactly 2",
        source=f"[WYEW]: {ESCAPE}",
        assumptions="sigma = 1e-8; for T_III itself alpha* >= 1",
        rule="The exponent in the slope is 2 up to 0.001, in T_III up to 0.03.",
        measure=_in_alpha,
        law=lambda lab: Law(
            "square",
            "exponent 2",
            {EXPONENT_A: _theory(lab, "alpha_star", 0.03), EXPONENT_A_SLOPE: _theory(lab, "alpha_star", 1e-3)},
        ),
        control=lambda lab: Law("linear", "exponent 1", {EXPONENT_A: lambda p: about(1.0, 0.0, 0.03)}),
        plot=Plot(EXPONENT_A, "alpha_star", "exponent of 1+alpha* in T_III"),
    ),
    Claim(
        name="exponent-w",
        title="The wait grows like w*^-2",
        statement="What each factor of sigma costs is inversely proportional to w*^2.",
        formula="d log(dT_III/dlog(1/sigma)) / d log w* -> -2",
        source=f"[WYEW]: {ESCAPE}",
        assumptions="L = 1e4, w* <= 0.7; in T_III itself the constant, which depends on w*, is lost only against "
        "log(1/sigma)",
        rule="The exponent in the slope is -2 up to 0.01.",
        measure=_in_w,
        law=lambda lab: Law(
            "inverse-square",
            "exponent -2",
            {EXPONENT_W: _theory(lab, "w_star", 0.05), EXPONENT_W_SLOPE: _theory(lab, "w_star", 0.01)},
        ),
        control=lambda lab: Law(
            "one weight",
            "w*^-1, as for one weight in place of two",
            {EXPONENT_W_SLOPE: lambda p: about(-1.0, 0.0, 0.01)},
        ),
    ),
]
