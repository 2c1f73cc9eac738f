"""The two drivers: time-scale separation by the product wK wQ, and the proportion alpha*; and two literal readings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.theory import limits, manifold, plateau
from gflow.theory.claims._claim import REFUTED, Claim, Expected, Law, Plot, Row, about, between
from gflow.theory.claims._lab import Lab, Point, grid, point

MERGED, SPAN, UNTIED = (
    "dT_III/dlog(1/sigma) merged, over 1/g untied",
    "(T_II - T_o)/T_o merged",
    "(T_II - T_o)/T_o untied",
)
ORDER = "T_II / T_I"
FRACTION, FRACTION_LARGE = "plateau over the starting Loss_IH", "plateau over the starting Loss_IH at large L"
AT_T_I = "Loss_IH(T_I) over its start"
AT_T_II = "Loss_IH(T_II) over its start"


def _merged(lab: Lab) -> list[Row]:
    rows = []
    low, high = 1e-8, 1e-6
    for L, w in lab.choose([(100, 1.0)], [(100, 1.0), (100, 0.5), (1e4, 1.0)]):
        both = grid(L=L, w_star=w, sigma_init=[high, low], parametrization="merged")
        wait = grid(L=L, w_star=w, sigma_init=[high, low])
        found, product = lab.times(both, ("T_o", "T_II", "T_III")), lab.times(wait, ("T_o", "T_II", "T_III"))
        step, slope_untied = math.log(high / low), float(np.diff(product.time["T_III"])[0]) / math.log(high / low)
        slope = float(np.diff(found.time["T_III"])[0]) / step
        error = float(found.error["T_III"].sum()) / step / slope_untied
        rows.append(Row(MERGED, both[0], slope / slope_untied, error + 1e-9))
        for name, points, times in ((SPAN, both, found), (UNTIED, wait, product)):
            for i, at in enumerate(points):
                span = float(times.time["T_II"][i] / times.time["T_o"][i] - 1.0)
                error = sum(float(times.error[which][i] / times.time[which][i]) for which in ("T_o", "T_II"))
                rows.append(Row(name, at, span, error * (1.0 + abs(span))))
    return rows


def _proportion(lab: Lab) -> list[Row]:
    """Which is first, the end of the 4-gram part or of the plateau?"""
    points = grid(
        alpha_star=lab.choose([0.1, 1.0, 10.0], [0.1, 0.3, 1.0, 3.0, 10.0]), L=100, w_star=0.5, sigma_init=1e-6
    )
    found = lab.times(points, ("T_I", "T_II"))
    rows = []
    for i, at in enumerate(points):
        ratio = float(found.time["T_II"][i] / found.time["T_I"][i])
        error = sum(float(found.error[name][i] / found.time[name][i]) for name in ("T_I", "T_II"))
        rows.append(Row(ORDER, at, ratio, ratio * error))
    return rows


def _order_of_theory(lab: Lab, at: Point) -> Expected:
    induction = lab.induction(at)
    level = 0.99 * plateau.plateau_level(induction)
    late = manifold.escape_times(induction, "untied", at["sigma_init"], {"T_II": level})["T_II"]
    return about((late or math.nan) / limits.time_fourgram(at["alpha_star"], at["L"], at["sigma_init"]), 0.02)


def _fractions(lab: Lab) -> list[Row]:
    """The level at which a run waits, over the level at which it starts; both read off the run."""
    rows = []
    cases = [(100, w) for w in lab.choose([0.3, 0.5, 1.0], [0.3, 0.5, 0.7, 1.0, 1.2])]
    for L, w in [*cases, (1e4, 0.5), *lab.choose([], [(1e4, 0.3), (1e6, 0.7)])]:
        at = point(L=L, w_star=w, sigma_init=1e-8)
        run = lab.run(at)
        middle = 0.5 * (run.milestones["T_o"].time + run.milestones["T_II"].time)
        (value, left), error = lab.read(at, lambda run, t=middle: [_share(run, t), _share(run, "T_II")])
        error = error + 20.0 * lab.table_error(at)  # of a share of the start
        rows.append(Row(FRACTION, at, float(value), float(error[0])))
        if L >= 1e4:
            rows.append(Row(FRACTION_LARGE, at, float(value), float(error[0])))
        rows.append(Row(AT_T_II, at, float(left), float(error[1])))
    return rows


def _large_fraction(at: Point) -> Expected:
    """From K(w, w') n -> (1 - 2 w w')^-1/2, which holds for c = w*^2 < 1/sqrt 2."""
    c = at["w_star"] ** 2
    K = {
        name: limits.overlap_large_L(*pair, at["L"])
        for name, pair in (("cc", (c, c)), ("0c", (0.0, c)), ("00", (0.0, 0.0)))
    }
    return about(1.0 - K["0c"] ** 2 / (K["00"] * K["cc"]), 0.01)


def _share(run: Any, when: Any) -> float:
    """Loss_IH at a time or milestone over its start."""
    return run.losses_at(when)["induction"] / run.losses_at(0.0)["induction"]


def _phase_one(lab: Lab) -> list[Row]:
    rows = []
    for L in lab.choose([100, 1e4, 1e6], [100, 1e3, 1e4, 1e5, 1e6]):
        at = point(L=L, w_star=0.5, sigma_init=1e-2)
        (share,), (error,) = lab.read(at, lambda run: [_share(run, "T_I")])
        rows.append(Row(AT_T_I, at, float(share), float(error) + 20.0 * lab.table_error(at)))
    return rows


def _relaxed(lab: Lab, at: Point) -> Expected:
    """plateau + (start - plateau) e^{-2 K2(0) T_I}, with the theory's T_I, as a share of the start."""
    induction = lab.induction(at)
    share = plateau.plateau_fraction(induction)
    rate = math.log(100.0) / plateau.time_to_plateau(induction)
    time = limits.time_fourgram(at["alpha_star"], at["L"], at["sigma_init"])
    return about(share + (1.0 - share) * math.exp(-rate * time), 0.0, 0.005)


def _pick(rows: list[Row], *names: str) -> list[Row]:
    return [row for row in rows if row.quantity in names]


def _shares(lab: Lab) -> list[Row]:
    return lab.once("fractions", lambda: _fractions(lab))


def _first_phase(lab: Lab) -> list[Row]:
    return lab.once("phase one", lambda: _phase_one(lab))


def _at_most(high: float) -> Any:
    return lambda p: between(-high, high)


CLAIMS = [
    Claim(
        name="separation-product",
        title="Without the product wK wQ there is no plateau that grows with log(1/sigma)",
        statement="The first driver is the time-scale separation by the quadratic wK wQ. With w itself as the "
        "parameter "
        "(merged) it vanishes: times do not depend on sigma, and the plateau's level is passed without a stop.",
        formula="merged: dT_III/dlog(1/sigma) -> 0, (T_II - T_o)/T_o << 1",
        source="[WYEW], drivers; ablation: docs/ablations.md",
        assumptions="sigma <= 1e-6",
        rule="Merged: the slope is below 1e-3 of the untied 1/g, and (T_II - T_o)/T_o below 0.25. Untied: above 10.",
        measure=_merged,
        law=lambda lab: Law(
            "vanishes",
            "no separation when merged",
            {MERGED: _at_most(1e-3), SPAN: _at_most(0.25), UNTIED: lambda p: between(10.0, math.inf)},
        ),
        control=lambda lab: Law("stays", "merged waits as untied does", {MERGED: lambda p: about(1.0, 0.01)}),
    ),
    Claim(
        name="separation-alpha",
        title="The proportion alpha* decides which part is learned first",
        statement="The second driver is alpha*: a large one lets the 4-gram part be learned long before the plateau "
        "ends, "
        "a small one reverses the order.",
        formula="T_II/T_I = [unstable manifold] / [49.5/A_g^2 + min(log L, log 1/sigma)/A_g]",
        source="[WYEW], drivers; times derived, docs/theory.md",
        assumptions="sigma = 1e-6, L = 100, w* = 0.5",
        rule="T_II/T_I equals the ratio of both formulas to 2%; at alpha* = 0.1 it is below 1.",
        measure=_proportion,
        law=lambda lab: Law("both times", "ratio of both formulas", {ORDER: lambda p: _order_of_theory(lab, p)}),
        control=lambda lab: Law("always", "the 4-gram part is always first", {ORDER: lambda p: between(1.0, math.inf)}),
        plot=Plot(ORDER, "alpha_star", "T_II / T_I", yscale="log"),
    ),
    Claim(
        name="plateau-fraction",
        title="The plateau lies at 1 - K1(0)^2/(K2(0) K(c,c)) of the starting Loss_IH",
        statement="Fitting v2 alone removes most of Loss_IH when w* is small.",
        formula="plateau/start = 1 - K1(0)^2/(K2(0) K(c,c)) -> 1 - sqrt(1 - 2 w*^4) at large L, for w*^4 < 1/2",
        source="derived, docs/theory.md (trap i)",
        assumptions="sigma -> 0; the limit for L >= 1e4 and w* <= 0.7",
        rule="The fraction read off the run equals the formula to 1e-5, and the limit to 1% at L >= 1e4.",
        measure=lambda lab: _pick(_shares(lab), FRACTION, FRACTION_LARGE),
        law=lambda lab: Law(
            "overlaps",
            "1 - K1(0)^2/(K2(0) K(c,c))",
            {
                FRACTION: lambda p: about(plateau.plateau_fraction(lab.induction(p)), 1e-5),
                FRACTION_LARGE: _large_fraction,
            },
        ),
        control=lambda lab: Law("w*^4", "the fraction is w*^4", {FRACTION: lambda p: about(p["w_star"] ** 4, 1e-3)}),
        plot=Plot(FRACTION, "w_star", "plateau / start", yscale="log", by="L"),
    ),
    Claim(
        name="initial-99-until-T_II",
        title="Literally, Loss_IH does not stay at 99% of its initial value until T_II",
        statement="Loss_IH is still at least 99% of its initial value when the plateau ends.",
        formula="Loss_IH(T_II) >= 0.99 Loss_IH(0)",
        source="[WYEW], phases I to III, read literally; docs/theory.md (trap i)",
        assumptions="none on w*",
        rule="The share at T_II lies in [0.99, 1]. It is 0.99 of the plateau's fraction: percents at small w*.",
        measure=lambda lab: _pick(_shares(lab), AT_T_II),
        law=lambda lab: Law("literal", "at least 99%", {AT_T_II: lambda p: between(0.99, 1.0)}),
        control=lambda lab: Law("constant", "the same share at every w*", {AT_T_II: lambda p: about(0.5, 0.01)}),
        expected_verdict=REFUTED,
        plot=Plot(AT_T_II, "w_star", "Loss_IH(T_II) / start", by="L"),
    ),
    Claim(
        name="phase-I-99",
        title="Literally, Loss_IH at 99% when the 4-gram part is learned needs L above 1e4",
        statement="When phase I ends (T_I) Loss_IH is still at least 99% of its initial value.",
        formula="Loss_IH(T_I) >= 0.99 Loss_IH(0)",
        source="[WYEW], phase I, read for every L; docs/theory.md (trap ii)",
        assumptions="none on L",
        rule="The share at T_I lies in [0.99, 1]. It fails for short sequences, where v2 relaxes (in a time n) before "
        "T_I, and holds from about L = 1e5.",
        measure=_first_phase,
        law=lambda lab: Law("literal", "at least 99%", {AT_T_I: lambda p: between(0.99, 1.0)}),
        control=lambda lab: Law(
            "plateau",
            "Loss_IH has reached its plateau by T_I",
            {AT_T_I: lambda p: about(plateau.plateau_fraction(lab.induction(p)), 0.05)},
        ),
        expected_verdict=REFUTED,
        plot=Plot(AT_T_I, "L", "Loss_IH(T_I) / start"),
    ),
    Claim(
        name="phase-I-relaxation",
        title="What Loss_IH loses in phase I is the relaxation of v2, of rate 2/n",
        statement="By T_I Loss_IH has come down towards its plateau by the factor e^{-2 K2(0) T_I}, and by nothing "
        "else.",
        formula="Loss_IH(T_I) = plateau + (start - plateau) e^{-2 K2(0) T_I}",
        source="derived, docs/theory.md (trap ii)",
        assumptions="sigma = 0.01, w* = 0.5",
        rule="The share at T_I equals the formula, with the theory's T_I, to 0.005.",
        measure=_first_phase,
        law=lambda lab: Law("relaxation", "exponential towards the plateau", {AT_T_I: lambda p: _relaxed(lab, p)}),
        control=lambda lab: Law("frozen", "nothing happens before T_I", {AT_T_I: lambda p: about(1.0, 0.01)}),
    ),
]
