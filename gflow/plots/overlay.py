"""Several runs on one figure: gradient flow, SGD and Adam, say, or two parametrisations, or two token laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gflow.errors import InputError
from gflow.plots._axes import milestone_time, sample
from gflow.plots.style import COLOURS, MARKERS, STYLES, new_figure, paper

PARTS = {"fourgram": "4-gram part", "induction": "induction part"}
ON_INDUCTION = ("T_o", "T_II", "T_III")  # milestones that are levels of the induction part
FLOOR = 1e-5  # lowest loss shown, relative to its start
SHORTEST = 1e-5  # of the longest run: an axis that would begin earlier shows nothing
MARGINS = {"left": 0.095, "right": 0.985, "bottom": 0.075, "top": 0.985, "hspace": 0.08}


def overlay(runs: Mapping[str, Any]) -> Any:
    """Losses relative to their start, and the logit scale `w` where there is one, of several runs over one time axis.

    - `runs`: name -> `Trajectory` or `Descent` (solved or loaded), at most 6. Time is that of the flow, or the sum of
      the learning rates: flow and gradient descent then lie on each other, Adam does not.

    Parts of the loss that all runs have are drawn, "total" if there is no other; markers: T_o, T_II, T_III. Returns a
    matplotlib `Figure`. Raises `InputError` for no run, too many, or runs without any length.
    """
    if not 1 <= len(runs) <= len(COLOURS):
        raise InputError(f"overlay: {len(runs)} runs given; give 1 to {len(COLOURS)}")
    ends = {name: float(run.ts[-1]) - float(run.t0) for name, run in runs.items()}
    if not min(ends.values()) > 0:
        raise InputError(f"overlay: the run {min(ends, key=lambda n: ends[n])} ended where it began; leave it out")
    parts = [part for part in PARTS if all(part in run.losses for run in runs.values())] or ["total"]
    curves = {name: sample(run) for name, run in runs.items()}
    scales = {name: _logit_scale(params.values) for name, (_, params) in curves.items()}
    rows = len(parts) + any(scale is not None for scale in scales.values())
    with paper():
        figure = new_figure(height=0.6 + 1.6 * rows, margins=MARGINS)
        panels = np.atleast_1d(figure.subplots(rows, 1, sharex=True))
        left = max(SHORTEST * max(ends.values()), min(float(losses.where[0]) for losses, _ in curves.values()))
        for k, (name, (losses, params)) in enumerate(curves.items()):
            look = {"color": COLOURS[k], "linestyle": STYLES[k]}
            for axes, part in zip(panels, parts, strict=False):
                share = np.where(losses.values[part] > 0, losses.values[part], np.nan) / losses.start[part]
                axes.plot(losses.where, share, label=name, **look)
                if part == "induction":
                    _milestones(axes, runs[name], losses.where, share, COLOURS[k], MARKERS[k])
            scale = scales[name]
            if scale is not None:
                panels[-1].plot(params.where, scale, label=name, **look)
        for axes, part in zip(panels, parts, strict=False):
            axes.set_yscale("log")
            axes.set_ylim(max(axes.get_ylim()[0], FLOOR), 3.0)
            axes.set_ylabel(f"{PARTS.get(part, 'loss')} / its start")
        if rows > len(parts):
            panels[-1].set_ylabel("logit scale $w$")
        panels[0].legend(loc="lower left")
        panels[-1].set_xscale("log")
        panels[-1].set_xlim(left, max(ends.values()))
        panels[-1].set_xlabel("time $t$ of the flow, or sum of the learning rates")
        figure.align_ylabels()
    return figure


def _logit_scale(values: dict[str, np.ndarray]) -> np.ndarray | None:
    """w along the path, whichever way it is parametrised."""
    if "wK" in values and "wQ" in values:
        return values["wK"] * values["wQ"]
    if "wKQ" in values:
        return values["wKQ"] ** 2
    return values.get("w")


def _milestones(axes: Any, run: Any, where: np.ndarray, share: np.ndarray, colour: str, marker: str) -> None:
    """Points on the curve at the times found."""
    times = [t for t in (milestone_time(run, name) for name in ON_INDUCTION) if t is not None and t >= where[0]]
    if times:
        levels = np.interp(np.log(times), np.log(where), share)
        axes.plot(times, levels, linestyle="", marker=marker, color=colour, markersize=4)
