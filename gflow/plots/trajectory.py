"""The figure of any gradient flow: its losses, its parameters, its milestones."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots._axes import log_times, milestone_time, named_leaves, scale_time
from gflow.plots.style import COLOURS, STYLES, new_figure, paper

MOST_CURVES = 6  # of one array: more would be a smear; their range is shaded instead


def trajectory(traj: Any) -> Any:
    """Losses (logarithmic where they are positive) above, parameters below, milestones as dotted lines.

    `traj`: a `Trajectory`, solved or loaded, of any loss and any parameters; partial runs included. Arrays with more
    than 6 entries are drawn as their mean and range. Returns a matplotlib `Figure`.
    """
    with paper():
        figure = new_figure(height=4.4)
        top, bottom = figure.subplots(2, 1, sharex=True)
        index, where = log_times(traj)
        losses = {name: np.asarray(value)[index] for name, value in traj.losses.items()}
        if len(losses) == 2:
            losses.pop("total", None)  # one part and the total are the same curve
        for k, (name, values) in enumerate(losses.items()):
            top.plot(where, values, color=COLOURS[k % 5], linestyle=STYLES[k % 5], label=name)
        shown = np.concatenate(list(losses.values()) or [np.zeros(1)])
        if shown.size and np.all(shown > 0):
            top.set_yscale("log")
        top.set_ylabel("loss")
        if len(losses) > 1:
            top.legend(loc="best")
        for k, (name, values) in enumerate(named_leaves(traj.params).items()):
            _curves(bottom, where, values[index].reshape(len(index), -1), name, COLOURS[k % 5], STYLES[k % 5])
        bottom.set_ylabel("parameters")
        bottom.set_xlabel("time $t$" if traj.t0 == 0 else "time $t - t_0$")
        if bottom.get_legend_handles_labels()[1]:
            bottom.legend(loc="best")
        scale_time(top, where)
        for name in traj.milestones:
            time = milestone_time(traj, name)
            if time is not None and where[0] <= time <= where[-1]:
                for axes in (top, bottom):
                    axes.axvline(time, color="0.5", linewidth=0.7, linestyle=":")
                text = top.annotate(name, (time, 1.0), xycoords=("data", "axes fraction"), fontsize=7)
                text.set(rotation=45, horizontalalignment="left", verticalalignment="bottom")
    return figure


def _curves(axes: Any, where: np.ndarray, values: np.ndarray, name: str, colour: str, style: Any) -> None:
    """One curve per entry, or mean and range when there are many."""
    if values.shape[1] > MOST_CURVES:
        axes.fill_between(where, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        axes.plot(where, values.mean(axis=1), color=colour, linestyle=style, label=f"{name} (mean, range)")
        return
    for j in range(values.shape[1]):
        axes.plot(where, values[:, j], color=colour, linestyle=style, label=name if j == 0 else None)
