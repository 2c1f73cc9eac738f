"""The figure of any gradient flow: its losses, its parameters, its milestones."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots._axes import milestone_time, sample, scale_time, time_label
from gflow.plots.style import COLOURS, STYLES, new_figure, paper

CLOSE = 0.04  # of the axis: names closer than this would overlap
MOST_CURVES = 6  # of one array: more would be a smear; their range is shaded instead


def trajectory(traj: Any) -> Any:
    """Losses (logarithmic where they are positive) above, parameters below, milestones as dotted lines.

    `traj`: a `Trajectory`, solved or loaded, of any loss and any parameters; partial runs included. Arrays with more
    than 6 entries are drawn as their mean and range. Returns a matplotlib `Figure`.
    """
    with paper():
        figure = new_figure(height=4.4)
        top, bottom = figure.subplots(2, 1, sharex=True)
        path, params = sample(traj)
        losses, where = dict(path.values), path.where
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
        for k, (name, values) in enumerate(params.values.items()):
            _curves(bottom, params.where, values.reshape(len(values), -1), name, COLOURS[k % 5], STYLES[k % 5])
        bottom.set_ylabel("parameters")
        bottom.set_xlabel(time_label(traj))
        if bottom.get_legend_handles_labels()[1]:
            bottom.legend(loc="best")
        scale_time(top, where)
        _milestones((top, bottom), traj, where)
    return figure


def _milestones(both: tuple[Any, Any], traj: Any, where: np.ndarray) -> None:
    """Dotted lines; names above, those of neighbours too close to be told apart on one line."""
    reached = [(milestone_time(traj, name), name) for name in traj.milestones]
    times = sorted((t, name) for t, name in reached if t is not None and where[0] <= t <= where[-1])
    groups: list[tuple[float, list[str]]] = []
    for time, name in times:
        for axes in both:
            axes.axvline(time, color="0.5", linewidth=0.7, linestyle=":")
        if groups and np.log(time / groups[-1][0]) < CLOSE * np.log(where[-1] / where[0]):
            groups[-1][1].append(name)
        else:
            groups.append((time, [name]))
    for time, names in groups:
        both[0].annotate(
            ", ".join(names), (time, 1.0), xycoords=("data", "axes fraction"), fontsize=7, rotation=30,
            xytext=(0, 2), textcoords="offset points", ha="left", va="bottom",
        )  # fmt: skip


def _curves(axes: Any, where: np.ndarray, values: np.ndarray, name: str, colour: str, style: Any) -> None:
    """One curve per entry, or mean and range when there are many."""
    if values.shape[1] > MOST_CURVES:
        axes.fill_between(where, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        axes.plot(where, values.mean(axis=1), color=colour, linestyle=style, label=f"{name} (mean, range)")
        return
    for j in range(values.shape[1]):
        axes.plot(where, values[:, j], color=colour, linestyle=style, label=name if j == 0 else None)
