"""From where does an asymptotic claim hold? The smallest L, 1/sigma, alpha* from which a ratio stays near its limit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gflow.theory import limits, manifold, plateau
from gflow.theory.claims._lab import Lab, Point, point

TOLERANCES = (0.05, 0.01)
AXES: dict[str, str] = {"L": "L", "1/sigma_init": "sigma_init", "alpha_star": "alpha_star"}


@dataclasses.dataclass(frozen=True)
class Asymptotic:
    """A ratio that tends to 1: `ratio(lab, points)`, along some axes, everything else as in `fixed`."""

    claim: str
    quantity: str
    ratio: Callable[[Lab, Sequence[Point]], np.ndarray]
    axes: tuple[str, ...]
    fixed: dict[str, Any]


def starts_at(values: Sequence[float], ratios: Sequence[float], tolerance: float) -> tuple[float | None, float | None]:
    """(smallest value from which on `|ratio - 1| <= tolerance`, the largest value where that fails), None if absent.

    `values` rise; the truth lies between the two: nothing is interpolated. A ratio that is not finite fails.
    """
    good = [bool(abs(ratio - 1.0) <= tolerance) for ratio in ratios]
    last = max((i for i, fine in enumerate(good) if not fine), default=-1)
    start = values[last + 1] if last + 1 < len(values) else None
    return start, (values[last] if last >= 0 else None)


def _leading(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    found = lab.times(points, ("T_III",)).time["T_III"]
    theory = [
        limits.escape_leading(
            -math.log(at["sigma_init"]),
            limits.growth_rate_large_L(lab.problem(at).tokens, at["L"], at["alpha_star"], at["w_star"]),
        )
        for at in points
    ]
    return found / np.array(theory)


def _manifold(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    found = lab.times(points, ("T_III",)).time["T_III"]
    theory = []
    for at in points:
        induction = lab.induction(at)
        level = 0.01 * plateau.plateau_level(induction)
        time = manifold.escape_times(induction, "untied", at["sigma_init"], {"T_III": level})["T_III"]
        theory.append(math.nan if time is None else time)
    return found / np.array(theory)


def _growth(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    """The slope of T_II at tiny sigma, against the large-L rate."""
    low, high = 1e-9, 1e-7
    pairs = [dict(at) | {"sigma_init": sigma} for at in points for sigma in (high, low)]
    times = lab.times(pairs, ("T_II",)).time["T_II"].reshape(-1, 2)
    rates = math.log(high / low) / (times[:, 1] - times[:, 0])
    theory = [
        limits.growth_rate_large_L(lab.problem(at).tokens, at["L"], at["alpha_star"], at["w_star"]) for at in points
    ]
    return rates / np.array(theory)


def _fourgram(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    found = lab.times(points, ("T_I",)).time["T_I"]
    return found / np.array([limits.time_fourgram(at["alpha_star"], at["L"], at["sigma_init"]) for at in points])


def _slope(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    """dT_III/dlog(1/sigma) g, from sigma to sigma/2."""
    pairs = [dict(at) | {"sigma_init": at["sigma_init"] * factor} for at in points for factor in (1.0, 0.5)]
    times = lab.times(pairs, ("T_III",)).time["T_III"].reshape(-1, 2)
    rates = [plateau.rho(lab.induction(at)) for at in points]
    return (times[:, 1] - times[:, 0]) / math.log(2.0) * np.array(rates)


def _kept(lab: Lab, points: Sequence[Point]) -> np.ndarray:
    """Loss_IH at T_I over its start: is it still all there when the 4-gram part is learned?"""
    shares = []
    for at in points:
        run = lab.run(at)
        shares.append(run.losses_at("T_I")["induction"] / run.losses_at(0.0)["induction"])
    return np.array(shares)


RATIOS = [
    Asymptotic(
        "leading-constant",
        "T_III over (1+alpha*)^2 n log(1/sigma)/w*^2",
        _leading,
        ("L", "1/sigma_init", "alpha_star"),
        {"L": 1e4, "sigma_init": 1e-8, "w_star": 0.5},
    ),
    Asymptotic("escape-times", "T_III over the unstable manifold's", _manifold, ("1/sigma_init",), {"w_star": 0.5}),
    Asymptotic("slope", "dT_III/dlog(1/sigma) over 1/g", _slope, ("1/sigma_init",), {"w_star": 0.5}),
    Asymptotic("growth-rate-large-L", "n g over w*^2/(1+alpha*)^2", _growth, ("L",), {"w_star": 0.5}),
    Asymptotic("fourgram-time", "T_I over its formula", _fourgram, ("L", "1/sigma_init", "alpha_star"), {}),
    Asymptotic("phase-I-99", "Loss_IH(T_I) over its start", _kept, ("L",), {"w_star": 0.5, "sigma_init": 1e-2}),
]


def _grid(lab: Lab, axis: str) -> list[float]:
    if axis == "L":
        return [float(f"{x:.3g}") for x in np.geomspace(10, 1e6, lab.choose(11, 31))]
    if axis == "alpha_star":
        return [float(f"{x:.3g}") for x in np.geomspace(0.01, 100, lab.choose(9, 25))]
    return [float(f"{x:.3g}") for x in np.geomspace(3, 1e10, lab.choose(12, 39))]


def onsets(lab: Lab, names: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of the document for the asymptotic claims among `names` (docs/claims.md)."""
    entries = []
    for one in RATIOS:
        if one.claim not in names:
            continue
        for axis in one.axes:
            lab.tell(f"{one.claim}: from which {axis} on?")
            values = _grid(lab, axis)
            if one.ratio is _kept:
                values = [value for value in values if value >= 100]
            key = AXES[axis]
            places = [1.0 / value if axis == "1/sigma_init" else value for value in values]
            ratios = one.ratio(lab, [point(**one.fixed | {key: place}) for place in places])
            others = {name: value for name, value in point(**one.fixed).items() if name != key}
            for tolerance in TOLERANCES:
                start, previous = starts_at(values, ratios.tolist(), tolerance)
                entries.append(
                    {
                        "claim": one.claim,
                        "quantity": one.quantity,
                        "axis": axis,
                        "others": others,
                        "limit": 1.0,
                        "tolerance": tolerance,
                        "from": start,
                        "previous": previous,
                        "tested_to": values[-1],
                        "values": values,
                        "ratios": ratios.tolist(),
                    }
                )
    return entries
