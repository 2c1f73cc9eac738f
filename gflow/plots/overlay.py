"""Several runs on one figure: gradient flow, SGD and Adam, say, or two parametrisations, or two token laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gflow.errors import InputError
from gflow.plots._axes import last_stage, milestone_time, sample
from gflow.plots._names import place_names
from gflow.plots._panels import PARTS, TIMES
from gflow.plots.style import COLOURS, MARKERS, STYLES, new_figure, paper

FLOOR = 1e-5  # lowest loss shown, relative to its start
SHORTEST = 1e-5  # of the longest run: an axis that would begin earlier shows nothing
# the first run lies below, broad and pale, so that one that follows it is seen on it
ORDER = (5, 1, 2, 3, 0, 4)
BROAD = 3.4
LEFT, RIGHT, TOP, BOTTOM, PANEL, LINE = 0.62, 0.1, 0.08, 0.42, 1.55, 0.16  # inches


def overlay(runs: Mapping[str, Any]) -> Any:
    """Losses relative to their start, and the logit scale `w` where there is one, of several runs over one time axis.

    - `runs`: name -> `Trajectory`, `StagedTrajectory` (its last stage) or `Descent`, solved or loaded, 1 to 6. Time is
      that of the flow, or the sum of the learning rates (step * lr): flow and gradient descent then lie on each other,
      Adam does not.

    Parts of the loss that all runs have are drawn, "total" if there is no other; markers: T_I on the 4-gram part, T_o,
    T_II, T_III on the induction part. Returns a matplotlib `Figure`. Raises `InputError` for no run, too many, or runs
    without any length.
    """
    if not 1 <= len(runs) <= len(COLOURS):
        raise InputError(f"overlay: {len(runs)} runs given; give 1 to {len(COLOURS)}")
    runs = {name: last_stage(run) for name, run in runs.items()}
    ends = {name: float(run.ts[-1]) - float(run.t0) for name, run in runs.items()}
    if not min(ends.values()) > 0:
        raise InputError(f"overlay: the run {min(ends, key=lambda n: ends[n])} ended where it began; leave it out")
    parts = [part for part in PARTS if all(part in run.losses for run in runs.values())] or ["total"]
    curves = {name: sample(run) for name, run in runs.items()}
    scales = {name: _logit_scale(params.values) for name, (_, params) in curves.items()}
    rows = len(parts) + any(scale is not None for scale in scales.values())
    per_line = 4 if max(map(len, runs)) < 16 else 2
    top = TOP + LINE * -(-len(runs) // per_line)
    height = top + rows * PANEL + BOTTOM
    margins = {"left": LEFT / 6.5, "right": 1 - RIGHT / 6.5, "bottom": BOTTOM / height, "top": 1 - top / height}
    with paper():
        figure = new_figure(height=height, margins=margins | {"hspace": 0.08})
        panels = np.atleast_1d(figure.subplots(rows, 1, sharex=True))
        left = max(SHORTEST * max(ends.values()), min(float(losses.where[0]) for losses, _ in curves.values()))
        named: dict[str, list[Any]] = {part: [] for part in parts}
        for k, (name, (losses, params)) in enumerate(curves.items()):
            look = {"color": COLOURS[ORDER[k]], "linestyle": STYLES[k], "linewidth": BROAD if k == 0 else 1.5}
            for axes, part in zip(panels, parts, strict=False):
                share = np.where(losses.values[part] > 0, losses.values[part], np.nan) / losses.start[part]
                axes.plot(losses.where, share, label=name, **look)
                points = _milestones(runs[name], part, losses.where, share)
                if points:
                    axes.plot(*zip(*points.values(), strict=True), **_marker(k))
                    named[part] += [(TIMES[m][0], *at, TIMES[m][2]) for m, at in points.items()] if k == 0 else []
            scale = scales[name]
            if scale is not None:
                panels[-1].plot(params.where, scale, label=name, **look)
        panels[-1].set_xscale("log")
        panels[-1].set_xlim(left, max(ends.values()))
        for axes, part in zip(panels, parts, strict=False):
            axes.set_yscale("log")
            axes.set_ylim(max(axes.get_ylim()[0], FLOOR), 3.0)
            axes.set_ylabel(f"{PARTS.get(part, 'loss')} / its start")
            place_names(axes, named[part])
        if rows > len(parts):
            panels[-1].set_ylabel("logit scale $w$")
        panels[0].legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=per_line, handlelength=4.5, borderaxespad=0.2
        )
        panels[-1].set_xlabel("time $t$ of the flow, or sum of the learning rates (step $\\times$ learning rate)")
        figure.align_ylabels()
    return figure


def _logit_scale(values: dict[str, np.ndarray]) -> np.ndarray | None:
    """w along the path, whichever way it is parametrised."""
    if "wK" in values and "wQ" in values:
        return values["wK"] * values["wQ"]
    if "wKQ" in values:
        return values["wKQ"] ** 2
    return values.get("w")


def _milestones(run: Any, part: str, where: np.ndarray, share: np.ndarray) -> dict[str, tuple[float, float]]:
    """Name -> point on the curve of a part, for the times found."""
    times = {name: milestone_time(run, name) for name, (_, of, _) in TIMES.items() if of == part}
    return {
        name: (time, float(np.interp(np.log(time), np.log(where), share)))
        for name, time in times.items()
        if time is not None and time >= where[0]
    }


def _marker(k: int) -> dict[str, Any]:
    edge = {"markeredgecolor": "black", "markeredgewidth": 0.6} if k == 0 else {}
    return {"linestyle": "", "marker": MARKERS[k], "color": COLOURS[ORDER[k]], "markersize": 6 - 0.5 * k, **edge}
