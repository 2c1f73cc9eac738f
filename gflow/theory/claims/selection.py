"""Laws and exponents by other means: selection out of sample, differentiation, the saddle's Hessian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.conditions import Above
from gflow.flows import GradientFlow, solve
from gflow.losses.chain import ChainLoss
from gflow.theory import landscape, plateau
from gflow.theory.claims._claim import Claim, Expected, Law, Row, about
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid, point
from gflow.theory.exponents import local_exponents
from gflow.theory.laws import Selection, power_exponent, select_law

CHOSEN, SLOPE, POWER = "the logarithm is selected (1) or another law (0)", "slope of the law over 1/g", "fitted power p"
IN_L, IN_A, IN_W = "d log T_III/d log n", "d log T_III/d log(1+alpha*)", "d log T_III/d log w*"
UNIT, SWEPT = "dT_III/dlog(1/sigma) g", "regression of log T_III on log n"
LOWEST, INDEX, STIFF = "lowest eigenvalue", "number of negative eigenvalues", "highest eigenvalue"


def _chain(lab: Lab, depth: int) -> Selection:
    """Times of dw/dt = (1 - w^N) w^(N-1) from s to 1/2, and the law that they follow."""

    def compute() -> Selection:
        lab.tell(f"chains of depth {depth}")
        scales = np.geomspace(1e-1, 1e-5 if depth == 2 else 1e-4, lab.choose(10, 16))
        times, errors = [], []
        for s in scales:
            flow = GradientFlow(ChainLoss(depth))
            # the parameter itself is a PyTree
            found = solve(flow, np.asarray(s), milestones={"half": Above(lambda w: w, 0.5)}).milestones["half"]
            times.append(found.time)
            errors.append(found.error or 0.0)
        return select_law(scales, times, errors)

    return lab.once(("chain", depth), compute)


def _flagship(lab: Lab, w: float) -> Selection:
    def compute() -> Selection:
        points = grid(sigma_init=[10.0**-k for k in range(2, 10)], w_star=w)
        found = lab.times(points, ("T_III",))
        return select_law([at["sigma_init"] for at in points], found.time["T_III"], found.error["T_III"])

    return lab.once(("law of T_III", w), compute)


def _selected(lab: Lab) -> list[Row]:
    rows = []

    def add(selection: Selection, at: dict[str, Any]) -> None:
        chosen = None if selection.verdict == "undecided" else float(selection.winner == "log")
        rows.append(Row(CHOSEN, at, chosen, 0.0))

    for w in lab.choose([1.0], [0.5, 1.0]):
        selection, at = _flagship(lab, w), point(w_star=w, sigma_init=1e-9)
        add(selection, at)
        # towards small sigma, where the slope is its limit
        ends = grid(sigma_init=[1e-7, 1e-9], w_star=w)
        times = lab.times(ends, ("T_III",))
        slope, error = np.diff(times.time["T_III"])[0], times.error["T_III"].sum()
        rows.append(Row(SLOPE, at, float(slope) / math.log(100.0), float(error) / math.log(100.0)))
    add(_chain(lab, 2), {"depth": 2})
    add(_chain(lab, 3), {"depth": 3})
    three = _chain(lab, 3).laws["power"]
    low, high = three.intervals["p"]
    rows.append(Row(POWER, {"depth": 3}, three.parameters["p"], max(0.5 * (high - low), 1e-6)))
    return rows


def _exponents(lab: Lab) -> list[Row]:
    rows = []
    lengths = lab.choose([1e4], [1e3, 1e4, 1e6])
    for at in grid(L=lengths, w_star=0.5, alpha_star=lab.choose([3.0], [1.0, 3.0]), sigma_init=1e-8):
        lab.tell("exponents by differentiation")
        found = local_exponents(lab.problem(at), at["sigma_init"], ("T_III",))["T_III"]
        noise = 10.0 * lab.table_error(at) + 1e-9
        for name, key in ((IN_L, "n"), (IN_A, "one_plus_alpha_star"), (IN_W, "w_star")):
            rows.append(Row(name, at, found.exponents[key], found.errors[key] + noise))
        rows.append(Row(UNIT, at, found.slope, found.slope_error + noise * found.slope))
        swept = [dict(at) | {"L": at["L"] * factor} for factor in (0.5, 1 / math.sqrt(2), 1.0, math.sqrt(2), 2.0)]
        times = lab.times(swept, ("T_III",))
        fit = power_exponent([p["L"] - 2.0 for p in swept], times.time["T_III"])
        rows.append(Row(SWEPT, dict(at) | {"exponent": found.exponents["n"]}, fit.slope, fit.error + 1e-8))
    return rows


def _saddle(lab: Lab) -> list[Row]:
    rows = []
    cases = grid(w_star=lab.choose([1.0], [0.5, 1.0]), L=[100, 1e4]) + grid(parametrization="tied", L=64, w_star=0.8)
    for at in cases:
        problem, loss = lab.problem(at), lab.induction(at)
        found = landscape.spectrum(
            loss, landscape.plateau_saddle(problem).params, trainable=lambda p: _induction_leaves(p)
        )
        values = np.asarray(found.eigenvalues)
        rows.append(Row(LOWEST, at, float(values[0]), float(found.noise)))
        rows.append(Row(INDEX, at, float(np.sum(values < -found.noise)), 0.0))
        rows.append(Row(STIFF, at, float(values[-1]), float(found.noise)))
    return rows


def _induction_leaves(params: Any) -> tuple[Any, ...]:
    return (params.v2, params.wKQ) if hasattr(params, "wKQ") else (params.v2, params.wK, params.wQ)


def _kind(at: Point) -> str:
    return {**REFERENCE, **at}["parametrization"]


def _unstable(lab: Lab, at: Point) -> Expected:
    return about(-(plateau.growth_rate(lab.induction(at), _kind(at)) or math.nan), 1e-6)


def _is(value: float) -> Any:
    return lambda p: about(value, 0.0, 0.1)


CLAIMS = [
    Claim(
        name="law-selection",
        title="Two weights in a product wait for log(1/s), three for 1/s",
        statement="Among a constant, log(1/s), 1/s, a power and a power of the log, the error out of sample selects "
        "the "
        "logarithm for T_III and for the chain of depth 2, and a power for depth 3.",
        formula="T_III ~ a + log(1/sigma)/g;   depth 2: log(1/s);   depth 3: 1/s",
        source="[SMG]; closed forms of the chains; [WYEW] for T_III",
        assumptions="sigma from 1e-2 to 1e-9",
        rule="Laws are fitted to the larger scales and compared at the smaller ones (docs/exponents.md). The slope of "
        "T_III's law at the smallest sigma is 1/g to 1e-4; the power of depth 3 is 1 to 1%.",
        measure=_selected,
        law=lambda lab: Law(
            "log, log, 1/s",
            "the product of two waits logarithmically",
            {
                CHOSEN: lambda p: about(0.0 if p.get("depth") == 3 else 1.0, 0.0, 0.1),
                SLOPE: lambda p: about(plateau.slope(lab.induction(p), "untied") or math.nan, 1e-4),
                POWER: lambda p: about(1.0, 0.01),
            },
        ),
        control=lambda lab: Law("log for three", "depth 3 waits logarithmically, too", {CHOSEN: _is(1.0)}),
    ),
    Claim(
        name="exponents-pointwise",
        title="Pointwise exponents, by differentiation through the flow",
        statement="The exponents of T_III in n, 1+alpha* and w*, differentiated through the flow and the crossing, are "
        "1, "
        "2 and -2 up to what log(1/sigma) has not yet outgrown; a regression over a sweep finds the same.",
        formula="d log T_III/d log n -> 1, /d log(1+alpha*) -> 2, /d log w* -> -2;   dT_III/dlog(1/sigma) = 1/g",
        source="[WYEW]: T ~ L log(1/sigma) (1+alpha*)^2/w*^2; docs/exponents.md",
        assumptions="L >= 1e3, sigma = 1e-8, w* = 0.5",
        rule="Exponents to 0.005, 0.02 and 0.03; the slope is 1/g to 1e-4; the regression's exponent, with its 95% "
        "interval, "
        "is the pointwise one to 0.001.",
        measure=_exponents,
        law=lambda lab: Law(
            "1, 2, -2",
            "exponents of the leading order",
            {
                IN_L: lambda p: about(1.0, 0.0, 0.005),
                IN_A: lambda p: about(2.0, 0.0, 0.02),
                IN_W: lambda p: about(-2.0, 0.0, 0.03),
                UNIT: lambda p: about(plateau.slope(lab.induction(p), "untied") or math.nan, 1e-4),
                SWEPT: lambda p: about(p["exponent"], 0.0, 1e-3),
            },
        ),
        control=lambda lab: Law("1, 1, -1", "exponents of a single weight", {IN_A: _is(1.0), IN_W: _is(-1.0)}),
    ),
    Claim(
        name="plateau-saddle",
        title="The plateau is a saddle with one weak unstable direction, of eigenvalue -rho",
        statement="At (v_p, 0, 0) the Hessian of Loss_IH has exactly one negative eigenvalue, -rho (tied: -2 rho), "
        "along "
        "wK = wQ; the stiff one is K2(0).",
        formula="eigenvalues K2(0), rho, -rho (untied);  K2(0), -2 rho (tied)",
        source="derived, docs/landscape.md",
        assumptions="p11 = inf",
        rule="The lowest eigenvalue is -g to 1e-6, one is negative, the highest is K2(0) to 1e-6.",
        measure=_saddle,
        law=lambda lab: Law(
            "one direction",
            "-g, once",
            {
                LOWEST: lambda p: _unstable(lab, p),
                INDEX: _is(1.0),
                STIFF: lambda p: about(plateau.overlaps(lab.induction(p)).K2, 1e-6),
            },
        ),
        control=lambda lab: Law("minimum", "the plateau is a minimum", {INDEX: _is(0.0)}),
    ),
]
