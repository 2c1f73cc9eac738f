"""What a trajectory itself says about the quantities that theory predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

POINTS = 400


def growth_rate(traj: Any) -> float | None:
    """`g = d log wK / dt` (untied) or `d log wKQ / dt` (tied) on the plateau; None for `merged` and without a plateau.

    Read between T_o and T_II where it changes least: before, v2 is still relaxing to its plateau value; after, the
    logit scale is no longer small. MATH section 5 gives the value as sigma_init -> 0.
    """
    names = [name for name in ("wK", "wKQ") if hasattr(traj.params, name)]
    start, end = (traj.milestones[name].time if name in traj.milestones else None for name in ("T_o", "T_II"))
    if not names or start is None or end is None or start >= end:
        return None
    times = np.linspace(start, end, POINTS)
    growth = np.log(np.abs(getattr(traj.at(times), names[0])))
    # over four grid intervals, so that the difference stays well above the solver's error
    rates = (growth[4:] - growth[:-4]) / (times[4:] - times[:-4])
    flattest = int(np.argmin(np.abs(rates[2:] - rates[:-2]))) + 1
    rate = float(rates[flattest])
    return rate if np.isfinite(rate) else None
