"""`predict`: what theory expects of one run, under the names of the milestones."""

from __future__ import annotations

import math
from typing import Any, Literal

from gflow.theory.limits import escape_leading, time_fourgram
from gflow.theory.manifold import escape_times
from gflow.theory.plateau import growth_rate, overlaps, plateau_level, time_to_plateau

Order = Literal["leading", "slow_manifold", "unstable_manifold"]
Real = float | int
KEYS = ("T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial", "growth_rate")


def relaxation_time(induction: Any, sigma: Real, level: Real) -> float | None:
    """`t = -log[(level - plateau)/(start - plateau)]/(2 K2(0))`: Loss_IH passes a level above its plateau, w ~ 0.

    None if the level is not between the plateau and the start (derived, docs/theory.md).
    """
    K = overlaps(induction)
    floor = plateau_level(induction)
    above = 0.5 * K.K2 * (sigma - K.amplitude * K.K1 / K.K2) ** 2
    share = (level - floor) / above
    return -math.log(share) / (2.0 * K.K2) if 0.0 < share <= 1.0 else None


def predict(
    problem: Any, loss: Any, sigma_init: Real, order: Order = "unstable_manifold", *, balanced: bool = True
) -> dict[str, float | None]:
    """Predicted milestones and growth rate g of a run from `sigma_init`; None where theory has none.

    `order` says how T_II, T_III (and the levels relative to the start, if below the plateau) are predicted:
    - "leading": `log(1/sigma)/g`, the same for all;
    - "slow_manifold": with the O(1) terms, v2 slaved to w: right only if v2 is much faster than w;
    - "unstable_manifold" (the default, and what the command line shows): with all terms that do not vanish as
      sigma -> 0, so a ratio away from 1 is an effect of finite sigma, not of a crude formula.
    `balanced=False`: wK or wQ starts elsewhere, which T_I, T_o and g do not know of; the others are then None.
    T_I: `49.5/A_g^2 + min(log L, log 1/sigma)/A_g`, error O(1/A_g). T_o: `log(10)/K2(0)`. Sources: docs/theory.md.
    """
    induction, kind = loss.induction, problem.parametrization
    law = problem.tokens
    floor = plateau_level(induction)
    K = overlaps(induction)
    start = floor + 0.5 * K.K2 * (sigma_init - K.amplitude * K.K1 / K.K2) ** 2
    levels = {
        "T_II": 0.99 * floor,
        "T_III": 0.01 * floor,
        "T_II_of_initial": 0.99 * start,
        "T_III_of_initial": 0.01 * start,
    }
    rate = growth_rate(induction, kind)
    if order == "leading":
        grown = rate is not None and rate > 0
        late = {
            name: escape_leading(-math.log(sigma_init), rate) if grown and level < floor else None  # pyright: ignore[reportArgumentType]
            for name, level in levels.items()
        }
    else:
        late = escape_times(induction, kind, sigma_init, levels, order)
    early = {name: relaxation_time(induction, sigma_init, level) for name, level in levels.items() if level > floor}
    first = time_fourgram(problem.alpha_star, problem.L, sigma_init, problem.d, float(law.variance), float(law.mean))
    settled = time_to_plateau(induction)
    if rate is None:
        # merged: w moves as fast as v2, so there is no relaxation at w ~ 0 to speak of, and no plateau to reach
        early, settled = {}, None
    elif order != "leading":
        # a start too large to have a plateau: a time below that of the relaxation means nothing
        late = {name: t if t is not None and t > settled else None for name, t in late.items()}
    times = dict.fromkeys(KEYS) | {"T_I": first, "T_o": settled} | late | early | {"growth_rate": rate}
    known = KEYS if balanced else ("T_I", "T_o", "growth_rate")
    return {key: times[key] if key in known else None for key in KEYS}
