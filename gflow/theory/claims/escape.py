"""Leaving the plateau: T_II and T_III, their slope in log(1/sigma), their constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gflow.theory import limits, manifold, plateau
from gflow.theory.claims._claim import Claim, Expected, Law, Plot, Row, about
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid

SLOPE_II, SLOPE_III = "dT_II/dlog(1/sigma)", "dT_III/dlog(1/sigma)"
RATIO = "T_III w*^2/((1+alpha*)^2 n log(1/sigma))"
BY = {SLOPE_II: "T_II", SLOPE_III: "T_III"}


def _kind(at: Point) -> str:
    return {**REFERENCE, **at}["parametrization"]


def slopes(
    lab: Lab, points: Sequence[Point], low: float, high: float
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Of each point: {quantity: slope} and {quantity: error} of T_II, T_III between two sigmas."""
    pairs = [dict(at) | {"sigma_init": sigma} for at in points for sigma in (high, low)]
    found = lab.times(pairs, ("T_II", "T_III"))
    step = math.log(high / low)
    out = []
    for i in range(len(points)):
        value, error = {}, {}
        for name, milestone in BY.items():
            t, e = (x[milestone][2 * i : 2 * i + 2] for x in (found.time, found.error))
            value[name], error[name] = float(t[1] - t[0]) / step, float(e.sum()) / step
        out.append((value, error))
    return out


def _measured_slopes(lab: Lab) -> list[Row]:
    points = [*grid(w_star=[0.5, 1.0], L=lab.choose([100], [100, 1e4])), *grid(parametrization="tied")]
    points += lab.choose([], [*grid(alpha_star=[0.3, 3.0]), *grid(tokens="rademacher"), *grid(d=4, w_star=0.5)])
    rows = []
    for at, (value, error) in zip(points, slopes(lab, points, 1e-8, 1e-6), strict=True):
        rows += [Row(name, at | {"sigma_init": 1e-6}, value[name], error[name]) for name in BY]
    return rows


def _times(lab: Lab) -> list[Row]:
    points = grid(sigma_init=[1e-8, 1e-6, 1e-2], w_star=[0.5, 1.0], L=lab.choose([100], [100, 1e4, 1e6]))
    points += grid(sigma_init=1e-8, parametrization="tied")
    points += lab.choose([], grid(sigma_init=1e-8, tokens="rademacher") + grid(sigma_init=1e-8, alpha_star=[0.3, 3.0]))
    found = lab.times(points, ("T_II", "T_III"))
    rows = []
    for i, at in enumerate(points):
        for name in ("T_II", "T_III"):
            t, e = float(found.time[name][i]), float(found.error[name][i])
            rows.append(Row(name, at, t, e, inside=at["sigma_init"] <= 1e-6))
    return rows


def _ratios(lab: Lab) -> list[Row]:
    inside = grid(L=lab.choose([1e4, 1e6], [1e4, 1e5, 1e6]), sigma_init=1e-8, w_star=0.5)
    inside += grid(L=1e4, sigma_init=1e-8, w_star=0.5, parametrization="tied")
    beyond = grid(L=[100], sigma_init=1e-8, w_star=0.5) + grid(L=1e4, sigma_init=[1e-2], w_star=0.5)
    beyond += grid(L=1e4, sigma_init=1e-8, w_star=1.0)
    rows = []
    for points, counts in ((inside, True), (beyond, False)):
        found = lab.times(points, ("T_II", "T_III"))
        for at, t, e in zip(points, found.time["T_III"], found.error["T_III"], strict=True):
            unit = _unit(at)
            rows.append(Row(RATIO, at, float(t) * unit, float(e) * unit, inside=counts))
    return rows


def _unit(at: Point) -> float:
    """1 / [(1+alpha*)^2 n log(1/sigma) / w*^2]."""
    return at["w_star"] ** 2 / ((1.0 + at["alpha_star"]) ** 2 * (at["L"] - 2.0) * -math.log(at["sigma_init"]))


def _limit(lab: Lab, at: Point) -> Expected:
    """The theory's ratio for a time log(1/sigma)/g at large L: 1 untied, 1/2 tied."""
    power = {"untied": 1.0, "tied": 2.0}[_kind(at)]
    law = lab.problem(at).tokens
    rate = power * limits.growth_rate_large_L(law, at["L"], at["alpha_star"], at["w_star"])
    time = limits.escape_leading(-math.log(at["sigma_init"]), rate)
    return about(limits.separation_ratio(at["w_star"], at["alpha_star"], at["L"], at["sigma_init"], time), 0.02)


def _predicted(lab: Lab, at: Point, name: str, relative: float) -> Expected:
    induction = lab.induction(at)
    level = plateau.plateau_level(induction) * {"T_II": 0.99, "T_III": 0.01}[name]
    found = manifold.escape_times(induction, _kind(at), at["sigma_init"], {name: level})[name]
    return about(found if found is not None else math.nan, relative)


def _scaled(expected: Expected, factor: float) -> Expected:
    value = expected.value or 0.0
    return Expected(value * factor, expected.low + (factor - 1.0) * value, expected.high + (factor - 1.0) * value)


def _inverse_rate(lab: Lab, relative: float) -> Callable[[Point], Expected]:
    return lambda p: about(plateau.slope(lab.induction(p), _kind(p)) or math.nan, relative)


ESCAPE = "T_II, T_III ~ L log(1/sigma_init), with (1+alpha*)^2/w*^2"
CLAIMS = [
    Claim(
        name="slope",
        title="T_II and T_III grow by 1/g for each unit of log(1/sigma)",
        statement="The plateau is as long as the exponential growth needs: every factor e by which sigma is smaller "
        "costs exactly 1/g.",
        formula="dT_II/dlog(1/sigma) = dT_III/dlog(1/sigma) = 1/g",
        source="derived, docs/theory.md; order: [WYEW]",
        assumptions="sigma -> 0",
        rule="The slope between sigma = 1e-6 and 1e-8 equals 1/g to 1e-4.",
        measure=_measured_slopes,
        law=lambda lab: Law("1/g", "slope = 1/g", {name: _inverse_rate(lab, 1e-4) for name in BY}),
        control=lambda lab: Law(
            "1/(2g)",
            "the product wK wQ grows at twice the rate, so the slope is 1/(2g)",
            {name: lambda p: about(0.5 * (plateau.slope(lab.induction(p), _kind(p)) or math.nan), 1e-4) for name in BY},
        ),
    ),
    Claim(
        name="escape-times",
        title="T_II and T_III are those of the saddle's unstable manifold",
        statement="The whole of T_II and T_III, not only their growth with log(1/sigma), follows from the curve along "
        "which every run leaves the saddle.",
        formula="T = [log(w0)/2 - log(sigma) + p D]/g + int_{w0} dt",
        source="derived, docs/theory.md",
        assumptions="sigma -> 0 (1e-6 and below)",
        rule="Both times equal the prediction to 1e-5.",
        measure=_times,
        law=lambda lab: Law(
            "unstable-manifold",
            "T_II, T_III of the unstable manifold",
            {name: lambda p, name=name: _predicted(lab, p, name, 1e-5) for name in ("T_II", "T_III")},
        ),
        control=lambda lab: Law(
            "leading-order",
            "log(1/sigma)/g without the constant",
            {
                "T_III": lambda p: about(
                    limits.escape_leading(
                        -math.log(p["sigma_init"]), plateau.growth_rate(lab.induction(p), _kind(p)) or 1.0
                    ),
                    1e-5,
                )
            },
        ),
    ),
    Claim(
        name="leading-constant",
        title="The leading constant of T_III is 1 (untied), 1/2 (tied)",
        statement="T_III is (1+alpha*)^2 n log(1/sigma)/w*^2 with constant 1 for wK wQ and 1/2 for wKQ^2.",
        formula="T_III w*^2/((1+alpha*)^2 n log(1/sigma)) -> 1 (untied), 1/2 (tied)",
        source=f"[WYEW]: {ESCAPE}; constant derived, docs/theory.md",
        assumptions="L >= 1e4, sigma = 1e-8, w* = 0.5, d = 1, Gaussian",
        rule="The ratio is within 2% of its limit. It tends there only as 1/log(1/sigma): the table of onsets says "
        "from "
        "where other tolerances hold.",
        measure=_ratios,
        law=lambda lab: Law("1", "ratio -> 1, 1/2", {RATIO: lambda p: _limit(lab, p)}),
        control=lambda lab: Law(
            "5% more", "constants 1.05 and 0.525", {RATIO: lambda p: _scaled(_limit(lab, p), 1.05)}
        ),
        plot=Plot(RATIO, "L", "T_III over its leading order", by="sigma_init"),
    ),
]
