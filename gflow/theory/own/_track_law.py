"""How a plateau's length grows as the initial values shrink: like log(1/s), or like a power of 1/s?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

LAST = 3  # neighbours, at the smallest scales, that decide
CONSTANT = 0.1  # relative spread up to which a slope or an exponent counts as constant
MOST_LOCAL = 6  # scales, from which on laws are also compared by their extrapolation
CLEARER = 3.0  # how much wider the other law's spread must be


@dataclasses.dataclass(frozen=True)
class LengthLaw:
    """`winner`: "log", "power", or None if not decided; `value`: the slope or exponent at the smallest scales.

    `slope_spread`, `exponent_spread`: (largest - smallest)/|mean| over the last neighbours; None with fewer than 2.
    `selection`: what `gflow.theory.laws.select_law` says of the same numbers, None below 6 scales.
    """

    winner: str | None
    value: float | None
    error: float | None
    slope_spread: float | None
    exponent_spread: float | None
    reason: str
    selection: str | None = None


def length_law(track: Any) -> LengthLaw:
    """The law of `track` (an `own.Track`), from its local slopes and exponents.

    `dT/dlog(1/s)` constant: a log law. `dlog T/dlog(1/s)` constant: a power law. Constant is a spread of 10% over the
    last three neighbours, a third of that of the other law. From 6 scales on `laws.select_law` must not contradict.
    """
    slopes, exponents = track.slopes[-LAST:], track.exponents[-LAST:]
    if len(slopes) < 2:
        count = len(track.scales)
        reason = f"the plateau is there at {count} scale{'s' * (count != 1)}, and a law needs 3; give smaller scales"
        return LengthLaw(None, None, None, None, None, reason)
    by_slope, by_exponent = _spread(slopes), _spread(exponents)
    steps = -np.diff(np.log(track.scales))[-1]
    noise = float(np.sum(track.errors[-2:]) / steps)
    other, selection = selected(track) or ("", None)
    logarithmic = by_slope <= CONSTANT and by_exponent >= CLEARER * by_slope
    power = by_exponent <= CONSTANT and by_slope >= CLEARER * by_exponent
    if (logarithmic and other == "power") or (power and other == "log"):
        reason = f"the local slopes say {'log' if logarithmic else 'power'}, the extrapolation says {selection}"
        return LengthLaw(None, None, None, by_slope, by_exponent, reason, selection)
    if logarithmic:
        value, error = float(slopes[-1]), float(abs(slopes[-1] - slopes[-2])) + noise
        reason = f"dT/dlog(1/s) stays at {value:.6g} within {by_slope:.1%}; the exponent changes by {by_exponent:.0%}"
        return LengthLaw("log", value, error, by_slope, by_exponent, reason, selection)
    if power:
        value = float(exponents[-1])
        error = float(abs(exponents[-1] - exponents[-2])) + noise / float(track.lengths[-1])
        reason = f"dlog T/dlog(1/s) stays at {value:.6g} within {by_exponent:.1%}; the slope changes by {by_slope:.0%}"
        return LengthLaw("power", value, error, by_slope, by_exponent, reason, selection)
    reason = (
        f"neither is constant enough at these scales: slope within {by_slope:.0%}, exponent within {by_exponent:.0%}"
    )
    return LengthLaw(None, None, None, by_slope, by_exponent, reason, selection)


def selected(track: Any) -> tuple[str, str] | None:
    """("log", "power" or "", words) of `gflow.theory.laws.select_law` for the same lengths; None below 6 scales."""
    if len(track.scales) < MOST_LOCAL:
        return None
    from gflow.theory.laws import select_law

    # a scale is relative to theta_0: its unit is free, and log(1/s) must not begin at 0
    found = select_law(0.1 * track.scales / track.scales[0], track.lengths, track.errors)
    kind = {"log": "log", "power": "power", "inverse": "power"}.get(found.winner or "", "")
    return kind, found.verdict


def _spread(values: np.ndarray) -> float:
    middle = abs(float(np.mean(values)))
    return float(np.ptp(values)) / middle if middle > 0 else float("inf")
