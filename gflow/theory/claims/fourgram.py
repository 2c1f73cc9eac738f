"""The 4-gram part: when it is learned, and its algebraic end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.flows import GradientFlow, solve
from gflow.theory import limits, plateau
from gflow.theory.claims._claim import REFUTED, Claim, Expected, Law, Plot, Row, about
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid, point, slope

ALPHA_SMALL = "T_I A_g^2"
BY_L, BY_SIGMA, TOGETHER = "dT_I/dlog L", "dT_I/dlog(1/sigma)", "dT_I/dlog L along sigma = 1/L"
LATE, POSITION = "4 t Loss_G4", "p21 - log(t)/2"
FACTOR = 10.0  # between the two points of a slope


def _time(at: Point) -> float:
    """T_I of the theory at a point."""
    whole = REFERENCE | dict(at)
    power = {"variance": 1.0, "mean": 0.0}
    return limits.time_fourgram(whole["alpha_star"], whole["L"], whole["sigma_init"], whole["d"], **power)


def _slope_of(at: Point, **factors: float) -> float:
    """The slope of the theory's T_I towards the point whose coordinates are multiplied by `factors`."""
    other = dict(at) | {key: at[key] * factor for key, factor in factors.items()}
    return (_time(other) - _time(at)) / math.log(FACTOR)


def _slopes(lab: Lab, name: str, starts: list[dict[str, Any]], **factors: float) -> list[Row]:
    rows = []
    for at in starts:
        other = dict(at) | {key: at[key] * factor for key, factor in factors.items()}
        found = lab.times([at, other], ("T_I",))
        value, error = slope((0.0, math.log(FACTOR)), found.time["T_I"], found.error["T_I"])
        rows.append(Row(name, at, value, error))
    return rows


def _constant(lab: Lab) -> list[Row]:
    points = grid(L=[100, 1e4, 1e6], sigma_init=[1e-2, 1e-5, 1e-10], alpha_star=lab.choose([1.0], [0.5, 1.0, 4.0]))
    small = grid(alpha_star=[0.01, 0.003], L=[100, 1e4])
    found = lab.times([*points, *small], ("T_I",))
    rows = [
        Row("T_I", at, float(t), float(e))
        for at, t, e in zip(points, found.time["T_I"], found.error["T_I"], strict=False)
    ]
    for at, t, e in zip(small, found.time["T_I"][len(points) :], found.error["T_I"][len(points) :], strict=True):
        A = at["alpha_star"] / (1.0 + at["alpha_star"])
        rows.append(Row(ALPHA_SMALL, at, float(t) * A**2, float(e) * A**2))
    rows += _slopes(lab, BY_L, grid(L=1e5, sigma_init=1e-14, alpha_star=[1.0, 3.0]), L=FACTOR)
    rows += _slopes(lab, BY_SIGMA, grid(L=1e9, sigma_init=1e-4, alpha_star=[1.0, 3.0]), sigma_init=1.0 / FACTOR)
    return rows


def _small_alpha(lab: Lab) -> list[Row]:
    return [row for row in _constant(lab) if row.quantity == ALPHA_SMALL]


def _fifty(at: Point) -> Expected:
    A = plateau.A_g(at["alpha_star"])
    return about(50.0 + A * min(math.log(at["L"]), -math.log(at["sigma_init"])), 0.0, 10.0 * A)


def _bounded(lab: Lab) -> list[Row]:
    rows = _slopes(lab, BY_L, grid(L=[1e4, 1e5], sigma_init=[1e-1, 1e-2]), L=FACTOR)
    return rows + _slopes(lab, BY_SIGMA, grid(L=[20, 100], sigma_init=[1e-5, 1e-8]), sigma_init=1.0 / FACTOR)


def _uniform(lab: Lab) -> list[Row]:
    starts = [point(L=L, sigma_init=1.0 / L) for L in (1e3, 1e4, 1e5)]
    return _slopes(lab, TOGETHER, starts, L=FACTOR, sigma_init=1.0 / FACTOR)


def _late(lab: Lab) -> list[Row]:
    rows = []
    times = np.array([1e3, 1e4, 1e5, 1e6, 1e7])
    cases = [{}, {"alpha_star": 3.0}, {"d": 4, "w_star": 0.5}]
    for case in lab.choose(cases[:2], [*cases, {"alpha_star": 0.5, "L": 1e4}]):
        at = point(**case)
        loss = lab.loss(at).fourgram
        flow = GradientFlow(loss, trainable=lambda p: (p.p21, p.v1))
        found = [solve(flow, lab.start(at), t1=float(times[-1]), rtol=rtol) for rtol in (3e-9, 1e-7)]
        values = [run.losses_at(times)["total"] for run in found]
        places = [run.at(times).p21 for run in found]
        for i, t in enumerate(times.tolist()):
            here = at | {"t": float(t)}
            late = t >= 1e5 / min(1.0, at["alpha_star"]) ** 2
            error = 4.0 * t * abs(float(values[0][i] - values[1][i])) + 1e-9
            rows.append(Row(LATE, here, 4.0 * t * float(values[0][i]), error, inside=late))
            gap = abs(float(places[0][i] - places[1][i])) + 1e-9
            rows.append(Row(POSITION, here, float(places[0][i]) - 0.5 * math.log(t), gap, inside=late))
    return rows


def _p21(at: Point) -> Expected:
    return about(limits.p21_late(at["t"], at["alpha_star"], at.get("d", 1)) - 0.5 * math.log(at["t"]), 0.0, 0.02)


def _logarithm(at: Point) -> float:
    return 1.0 / plateau.A_g(at["alpha_star"])


CLAIMS = [
    Claim(
        name="fourgram-time",
        title="The 4-gram part is learned at 49.5/A_g^2 + min(log L, log 1/sigma)/A_g",
        statement="Loss_G4 falls to 1% of its start at a time that depends on L and sigma through one logarithm only, "
        "with known constants.",
        formula="T_I = 49.5/A_g^2 + (1/A_g) min(log L, log 1/sigma) + O(1/A_g)",
        source="derived, docs/theory.md; order O(1): [WYEW], phase I",
        assumptions="p11 = inf, standard tokens, d = 1",
        rule="T_I lies within 5/A_g of the formula; its slope in log L (where sigma << 1/L) and in log 1/sigma (where "
        "1/L << sigma) is 1/A_g to 3%; T_I A_g^2 is that of the formula to 0.3% for small alpha*.",
        measure=_constant,
        law=lambda lab: Law(
            "constants",
            "49.5/A_g^2 + min(log L, log 1/sigma)/A_g",
            {
                "T_I": lambda p: about(_time(p), 0.0, 5.0 / plateau.A_g(p["alpha_star"])),
                ALPHA_SMALL: lambda p: about(_time(p) * plateau.A_g(p["alpha_star"]) ** 2, 0.003),
                BY_L: lambda p: about(_slope_of(p, L=FACTOR), 0.03),
                BY_SIGMA: lambda p: about(_slope_of(p, sigma_init=1.0 / FACTOR), 0.03),
            },
        ),
        control=lambda lab: Law(
            "power",
            "min(L, 1/sigma)^0.1 in place of the logarithm",
            {
                "T_I": lambda p: about(
                    50.0 / plateau.A_g(p["alpha_star"]) ** 2
                    + min(p["L"], 1.0 / p["sigma_init"]) ** 0.1 / plateau.A_g(p["alpha_star"]),
                    0.0,
                    5.0 / plateau.A_g(p["alpha_star"]),
                ),
                BY_L: lambda p: about((FACTOR**0.1 - 1.0) * p["L"] ** 0.1 * _logarithm(p) / math.log(FACTOR), 0.03),
            },
        ),
        plot=Plot("T_I", "L", "T_I", by="sigma_init"),
    ),
    Claim(
        name="fourgram-time-50",
        title="With 50 in place of 49.5 the error of T_I is not O(1/A_g)",
        statement="T_I is 50/A_g^2 plus the logarithm over A_g, up to a constant over A_g: what reading the late law "
        "Loss_G4 = 1/(4t) back to the start gives.",
        formula="T_I A_g^2 = 50 + A_g min(log L, log 1/sigma) + O(A_g)",
        source="read off 1/(4t); the exact constant is (100 - 1)/2, docs/theory.md",
        assumptions="alpha* << 1",
        rule="T_I A_g^2 lies within 10 A_g of the formula. As alpha* -> 0 it tends to 49.5 instead.",
        measure=_small_alpha,
        law=lambda lab: Law("50", "50 + A_g log", {ALPHA_SMALL: _fifty}),
        control=lambda lab: Law("100", "twice as long", {ALPHA_SMALL: lambda p: about(100.0, 0.01)}),
        expected_verdict=REFUTED,
    ),
    Claim(
        name="phase-I-order-one",
        title="Phase I lasts O(1): T_I settles as L grows, and as sigma falls",
        statement="At a fixed sigma the time to learn the 4-gram part tends to a limit as L grows; at a fixed L it "
        "tends "
        "to a limit as sigma falls.",
        formula="dT_I/dlog L -> 0 at fixed sigma,  dT_I/dlog(1/sigma) -> 0 at fixed L",
        source="[WYEW], phase I",
        assumptions="L >> 1/sigma, or sigma << 1/L",
        rule="Both slopes are 0 up to 0.05 (the logarithm's slope would be 1/A_g = 2).",
        measure=_bounded,
        law=lambda lab: Law(
            "bounded",
            "T_I does not change",
            {
                BY_L: lambda p: about(_slope_of(p, L=FACTOR), 0.0, 0.05),
                BY_SIGMA: lambda p: about(_slope_of(p, sigma_init=1.0 / FACTOR), 0.0, 0.05),
            },
        ),
        control=lambda lab: Law(
            "logarithm",
            "T_I grows like log L/A_g at every sigma",
            {BY_L: lambda p: about(_logarithm(p), 0.03), BY_SIGMA: lambda p: about(_logarithm(p), 0.03)},
        ),
    ),
    Claim(
        name="phase-I-uniform",
        title="Read as one bound for all L and sigma, O(1) fails by a logarithm",
        statement="T_I has one bound for all L and sigma at once.",
        formula="sup over L and sigma of T_I < inf",
        source="[WYEW], phase I, read as uniform in both; the logarithm: docs/theory.md",
        assumptions="L grows and sigma = 1/L falls together",
        rule="The slope of T_I in log L along sigma = 1/L is 0 up to 0.05. It is near 1/A_g.",
        measure=_uniform,
        law=lambda lab: Law("uniform", "T_I does not change", {TOGETHER: lambda p: about(0.0, 0.0, 0.05)}),
        control=lambda lab: Law(
            "double", "each of the two logarithms counts", {TOGETHER: lambda p: about(2.0 * _logarithm(p), 0.03)}
        ),
        expected_verdict=REFUTED,
    ),
    Claim(
        name="fourgram-late",
        title="The 4-gram part ends algebraically: Loss_G4 4t -> 1",
        statement="Loss_G4 never settles exponentially: it falls as 1/(4t) whatever alpha*, L and d, and p21 grows "
        "like "
        "half the logarithm of t.",
        formula="Loss_G4 4t -> 1,   p21 ~ log(2 d A_g^2 t)/2",
        source="derived, docs/theory.md (phase IV)",
        assumptions="t >> 1e4/A_g^2",
        rule="4 t Loss_G4 is 1 to 1%, and p21 - log(t)/2 is log(2 d A_g^2)/2 to 0.02, from t = 1e5/min(1, alpha*)^2.",
        measure=_late,
        law=lambda lab: Law(
            "1/(4t)",
            "4 t Loss_G4 -> 1",
            {LATE: lambda p: about(4.0 * p["t"] * limits.fourgram_late(p["t"]), 0.01), POSITION: _p21},
        ),
        control=lambda lab: Law(
            "exponential", "Loss_G4 is negligible at late times", {LATE: lambda p: about(0.0, 0.0, 0.01)}
        ),
        plot=Plot(LATE, "t", "4 t Loss_G4", by="alpha_star"),
    ),
]
