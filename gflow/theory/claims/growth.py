"""The plateau: where it lies, how soon it is reached, and how fast the logit weights grow on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.theory import limits, plateau
from gflow.theory.claims._claim import Claim, Law, Plot, Row, about
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid, point
from gflow.tokens import from_name

V, LEVEL, T_O, T_O_N = "v2 on the plateau", "Loss_IH on the plateau", "T_o", "T_o d/n"
RATE, STEADY, RATE_N = "growth rate of the logit weight", "its second half over its first", "n g"
SMALL = 1e-8  # sigma at which what vanishes with it has vanished


def _kind(at: Point) -> str:
    return {**REFERENCE, **at}["parametrization"]


def _cases(lab: Lab) -> list[dict[str, Any]]:
    cases = [
        point(sigma_init=SMALL),
        point(sigma_init=SMALL, w_star=0.5, alpha_star=3.0),
        point(sigma_init=SMALL, w_star=0.5, L=1e4),
    ]
    more = [
        point(sigma_init=SMALL, w_star=0.5, alpha_star=0.5),
        point(sigma_init=SMALL, L=1e4, alpha_star=3.0),
        point(sigma_init=SMALL, tokens="rademacher"),
        point(sigma_init=SMALL, parametrization="tied"),
    ]
    return [*cases, *lab.choose([], more)]


def _resting(lab: Lab) -> list[Row]:
    """v2 and Loss_IH half-way between T_o and T_II, and T_o."""
    rows = []
    for at in _cases(lab):
        run = lab.run(at)
        T_o, T_II = run.milestones["T_o"], run.milestones["T_II"]
        middle = 0.5 * (T_o.time + T_II.time)

        def reading(run: Any, t: float = middle) -> list[float]:
            return [float(run.at(t).v2), run.losses_at(t)["induction"], run.milestones["T_o"].time]

        (v2, level, reached), error = lab.read(at, reading)
        # the level is a difference of overlaps: their errors weigh as much as it is smaller than they are
        table = 10.0 * lab.table_error(at) / plateau.plateau_fraction(lab.induction(at))
        n = at["L"] - 2.0
        rows += [
            Row(V, at, v2, error[0] + 10.0 * lab.table_error(at) * v2),
            Row(LEVEL, at, level, error[1] + table * level),
            Row(T_O, at, reached, error[2] + 10.0 * lab.table_error(at) * reached),
            Row(T_O_N, at, reached * at.get("d", 1) / n, error[2] / n, inside=n > 1e3),
        ]
    return rows


def _growing(lab: Lab) -> list[Row]:
    """d log wK/dt over the middle of the plateau, and over its two halves."""
    rows = []
    for at in _cases(lab):
        run = lab.run(at)
        start, end = run.milestones["T_o"].time, run.milestones["T_II"].time
        # by then v2 has settled, and before the last third the logit scale is below 1e-5
        times = start + (end - start) * np.array([0.3, 0.45, 0.6])

        def reading(run: Any, at: Point = at, times: np.ndarray = times) -> list[float]:
            path = run.at(times)
            growth = np.log(np.asarray(path.wKQ if _kind(at) == "tied" else path.wK))
            halves = np.diff(growth) / np.diff(times)
            return [(growth[2] - growth[0]) / (times[2] - times[0]), halves[1] / halves[0]]

        (rate, steady), error = lab.read(at, reading)
        rows += [Row(RATE, at, float(rate), float(error[0])), Row(STEADY, at, float(steady), float(error[1]))]
    return rows


def _large(lab: Lab) -> list[Row]:
    """n times the growth rate, from the times that two sigmas need to T_II: it knows nothing of the plateau."""
    cases = grid(L=lab.choose([100, 1e4, 1e6], [100, 1e3, 1e4, 1e5, 1e6]), w_star=lab.choose([0.5], [0.3, 0.5, 1.0]))
    cases += grid(L=1e6, w_star=0.5, alpha_star=3.0)
    cases += grid(L=lab.choose([1e4], [1e4, 1e6]), tokens="rademacher", w_star=[0.5, 1.0])
    cases += grid(L=1e4, w_star=0.5, parametrization="tied")
    if lab.full:
        cases += grid(L=1e4, tokens="uniform", w_star=[0.5, 1.0]) + grid(L=1e4, d=[2, 4], w_star=0.3)
    rows = []
    low, high = 1e-9, 1e-7
    pairs = [at | {"sigma_init": sigma} for at in cases for sigma in (high, low)]
    found = lab.times(pairs, ("T_II",))
    for i, at in enumerate(cases):
        t, e = (values["T_II"][2 * i : 2 * i + 2] for values in (found.time, found.error))
        rate = math.log(high / low) / float(t[1] - t[0])
        here = at | {"sigma_init": high}
        n = at["L"] - 2.0
        rows.append(Row(RATE_N, here, n * rate, n * rate * float(e.sum() / (t[1] - t[0])) + 1e-8, inside=_is_large(at)))
    return rows


def _is_large(at: Point) -> bool:
    """Is what is missing, of order e^{w*^4}/n or so, below the tolerance?"""
    return at["L"] >= (1e4 if at["w_star"] <= 0.7 or "tokens" in at else 1e5)


def _limit(at: Point) -> float:
    """n g as n -> inf."""
    whole = REFERENCE | dict(at)
    law = from_name(whole["tokens"])
    power = {"untied": 1.0, "tied": 2.0}[whole["parametrization"]]
    rate = limits.growth_rate_large_L(law, whole["L"], whole["alpha_star"], whole["w_star"], whole["d"])
    return (whole["L"] - 2.0) * rate * power


def _rate(at: Point, lab: Lab) -> float:
    return float(plateau.growth_rate(lab.induction(at), _kind(at)) or math.nan)


CLAIMS = [
    Claim(
        name="plateau-level",
        title="The induction part waits at v_p = A_i K1(0)/K2(0)",
        statement="Before the logit scale has grown, v2 settles at v_p, and Loss_IH at the plateau level.",
        formula="v2 -> v_p = A_i K1(0)/K2(0),   Loss_IH -> A_i^2 [K(c,c) - K1(0)^2/K2(0)]/2",
        source="derived, docs/theory.md",
        assumptions="sigma -> 0 (1e-8)",
        rule="Half-way between T_o and T_II, v2 and Loss_IH equal both formulas to 1e-5.",
        measure=lambda lab: [row for row in _resting(lab) if row.quantity in (V, LEVEL)],
        law=lambda lab: Law(
            "saddle",
            "v2 = v_p, Loss_IH = plateau",
            {
                V: lambda p: about(plateau.v_plateau(lab.induction(p)), 1e-5),
                LEVEL: lambda p: about(plateau.plateau_level(lab.induction(p)), 1e-5),
            },
        ),
        control=lambda lab: Law(
            "zero-output",
            "the part waits where it puts out nothing",
            {LEVEL: lambda p: about(plateau.zero_output_level(lab.induction(p)), 1e-5)},
        ),
    ),
    Claim(
        name="plateau-reached",
        title="The plateau is reached in a time n log(10)/d: O(L), whatever sigma",
        statement="v2 relaxes at the rate K2(0) = d/n, so Loss_IH is within 1% of the plateau after log(10)/K2(0).",
        formula="T_o = log(10)/K2(0) = n log(10)/d",
        source="derived, docs/theory.md; order O(L): [WYEW]",
        assumptions="sigma -> 0 (1e-8); the second form for standard tokens",
        rule="T_o equals log(10)/K2(0) to 1e-5, and n log(10)/d to 0.1%.",
        measure=lambda lab: [row for row in _resting(lab) if row.quantity in (T_O, T_O_N)],
        law=lambda lab: Law(
            "relaxation",
            "log(10)/K2(0)",
            {
                T_O: lambda p: about(plateau.time_to_plateau(lab.induction(p)), 1e-5),
                T_O_N: lambda p: about(math.log(10.0), 1e-3),
            },
        ),
        control=lambda lab: Law(
            "waits-for-sigma",
            "T_o grows with log(1/sigma), as T_II does",
            {T_O_N: lambda p: about(-math.log(p["sigma_init"]), 0.05)},
        ),
    ),
    Claim(
        name="plateau-growth",
        title="On the plateau the logit weights grow exponentially, at the rate g",
        statement="wK = wQ grow like e^{rho t} (tied: wKQ like e^{2 rho t}) from the time when v2 has settled until "
        "the "
        "plateau is left.",
        formula="g = rho = A_i v_p K1'(0) - v_p^2 K2'(0)/2 (untied), 2 rho (tied)",
        source="derived, docs/theory.md; exponential growth: [WYEW]",
        assumptions="sigma -> 0 (1e-8)",
        rule="Between 30% and 60% of the way from T_o to T_II, d log wK/dt equals g to 1e-4, and its second half "
        "equals "
        "its first to 1e-4.",
        measure=_growing,
        law=lambda lab: Law(
            "exponential",
            "rate g",
            {RATE: lambda p: about(_rate(p, lab), 1e-4), STEADY: lambda p: about(1.0, 1e-4)},
        ),
        control=lambda lab: Law(
            "linear",
            "wK grows linearly: its relative rate falls as 1/t",
            {STEADY: lambda p: about(0.375 / 0.525, 0.05)},
        ),
    ),
    Claim(
        name="growth-rate-large-L",
        title="For long sequences n g tends to w*^2/(1+alpha*)^2",
        statement="The growth rate on the plateau is inversely proportional to n, with a constant that depends on the "
        "token law, on d, w* and alpha* only.",
        formula="n rho -> A_i^2 s2 E_q[q kappa'(w*^2 q)]: w*^2/(1+alpha*)^2 (Gaussian), tanh(w*^2)/(1+alpha*)^2 "
        "(Rademacher), times d^2 in d dimensions",
        source="[WYEW] (order); constants derived, docs/theory.md",
        assumptions="L >= 1e4 (Gaussian tokens with w* > 0.7: 1e5), standard laws of mean 0",
        rule="n g, from the times that two sigmas need to T_II, equals the limit to 0.2%.",
        measure=_large,
        law=lambda lab: Law("constants", "n g -> limit", {RATE_N: lambda p: about(_limit(p), 2e-3)}),
        control=lambda lab: Law(
            "gaussian-for-all",
            "w*^2/(1+alpha*)^2 for every token law, and untied or tied alike",
            {RATE_N: lambda p: about(p["w_star"] ** 2 * plateau.A_i(p["alpha_star"]) ** 2, 2e-3)},
        ),
        plot=Plot(RATE_N, "L", "n g", by="w_star"),
    ),
]
