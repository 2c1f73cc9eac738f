"""The flagship figure: how an induction head is learned, phase by phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots._axes import log_times, milestone_time, scale_time
from gflow.plots.style import COLOURS, MARKERS, SHADES, STYLES, new_figure, paper
from gflow.plots.trajectory import trajectory

LABELS = {
    "p21": "$p_{21}$",
    "v1": "$v_1$",
    "v2": "$v_2$",
    "wK": "$w_K$",
    "wQ": "$w_Q$",
    "wKQ": "$w_{KQ}$",
    "w": "$w$",
}
TIMES = {"T_I": "$T_I$", "T_o": "$T_o$", "T_II": "$T_{II}$", "T_III": "$T_{III}$"}
FLOOR = 1e-5  # lowest normalised loss shown: far below every milestone
EARLIEST = 1e-2  # time units: earlier than this nothing has moved


def flagship(traj: Any, problem: Any = None, predictions: dict[str, Any] | None = None) -> Any:
    """Both losses relative to their start, and the parameters, on a logarithmic time axis, with the phases shaded.

    - `traj`: a run of the induction-head loss, solved or loaded, complete or interrupted, of any parametrisation.
      A run of another loss is drawn by `plots.trajectory`.
    - `problem`: the `InductionProblem`, if at hand: gives the plateau when `predictions` does not.
    - `predictions`: as returned by `theory.predictions.predict`, with "plateau" if known; None entries are skipped.

    Phases: I until the 4-gram part is learned (T_I), II the plateau, III from T_II to T_III, IV convergence; a phase
    whose ends were not reached is left out. Open markers: predicted times, filled markers: measured. Returns a `Figure`.
    """
    if not {"fourgram", "induction"} <= set(traj.losses):
        return trajectory(traj)
    predictions = dict(predictions or {})
    plateau = predictions.get("plateau")
    if plateau is None and problem is not None:
        plateau = float(problem.plateau())
    with paper():
        figure = new_figure(height=4.6)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1.0))
        index, where = log_times(traj, start=_axis_start(traj))
        scale_time(top, where)
        _losses(top, traj, index, where, plateau)
        _times(top, traj, where, predictions)
        _parameters(bottom, traj, index, where)
        _phases((top, bottom), traj, where)
        bottom.set_xlabel("time $t$ of the gradient flow" if traj.t0 == 0 else "time $t - t_0$ of the gradient flow")
        figure.align_ylabels()
    return figure


def _axis_start(traj: Any) -> float | None:
    end = float(traj.ts[-1]) - float(traj.t0)
    return EARLIEST if end > 10 * EARLIEST else None


def _marks(where: np.ndarray, wanted: int) -> np.ndarray:
    """Indices at about equal distances on the logarithmic axis, where a curve carries a marker."""
    if len(where) < 2 or where[-1] <= where[0]:
        return np.arange(len(where))
    goals = np.linspace(np.log(where[0]), np.log(where[-1]), wanted + 2)[1:-1]
    return np.unique(np.searchsorted(np.log(where), goals).clip(0, len(where) - 1))


def _losses(axes: Any, traj: Any, index: np.ndarray, where: np.ndarray, plateau: float | None) -> None:
    names = {"fourgram": "4-gram part", "induction": "induction part"}
    for k, (name, label) in enumerate(names.items()):
        values = np.asarray(traj.losses[name], dtype=float)
        share = np.where(values[index] > 0, values[index], np.nan) / values[0]
        axes.plot(where, share, color=COLOURS[(0, 2)[k]], linestyle=STYLES[k], label=label)
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, 2.2)
    axes.set_ylabel("loss / its start")
    if plateau is not None and plateau > 0:
        level = plateau / float(traj.losses["induction"][0])
        axes.axhline(level, color="0.35", linewidth=0.8, linestyle=(0, (1, 2)), label="plateau (theory)")


def _times(axes: Any, traj: Any, where: np.ndarray, predictions: dict[str, Any]) -> None:
    """Measured times as filled, predicted times as open markers, on the lower edge of the losses."""
    measured, predicted = [], []
    for k, name in enumerate(TIMES):
        time, guess = milestone_time(traj, name), predictions.get(name)
        height = FLOOR * 10 ** (0.35 + 0.42 * k)
        if time is not None:
            axes.plot([time], [height], MARKERS[0], color="black", markersize=3.2, clip_on=True, zorder=4)
            measured.append(name)
        if guess is not None and where[0] <= guess <= where[-1]:
            axes.plot([guess], [height], MARKERS[1], color="black", fillstyle="none", markersize=6, zorder=3)
            predicted.append(name)
        at = time if time is not None else guess
        if at is not None and where[0] <= at <= where[-1]:
            axes.annotate(
                TIMES[name],
                (at, height),
                xytext=(-6, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7,
            )
    if measured:
        axes.plot([], [], MARKERS[0], color="black", markersize=3.2, label="measured time")
    if predicted:
        axes.plot([], [], MARKERS[1], color="black", fillstyle="none", markersize=6, label="predicted time")
    axes.legend(loc="lower left", handlelength=2.6)


def _parameters(axes: Any, traj: Any, index: np.ndarray, where: np.ndarray) -> None:
    present = {
        name: np.asarray(getattr(traj.params, name))[index]
        for name in LABELS
        if getattr(traj.params, name, None) is not None
    }
    if "wK" in present and "wQ" in present and np.allclose(present["wK"], present["wQ"], rtol=1e-6, atol=0.0):
        present["wK = wQ"] = present.pop("wK")
        del present["wQ"]
    labels = LABELS | {"wK = wQ": "$w_K = w_Q$"}
    for k, (name, values) in enumerate(present.items()):
        axes.plot(
            where,
            values,
            color=COLOURS[k % 5],
            linestyle=STYLES[k % 5],
            marker=MARKERS[k % 5],
            markevery=_marks(where, 5 + k % 2).tolist(),
            label=labels[name],
        )
    axes.set_ylabel("parameters")
    axes.legend(loc="upper left", ncols=2, handlelength=3.2)


def _phases(both: tuple[Any, Any], traj: Any, where: np.ndarray) -> None:
    """Alternating bands; the label of each stands above the figure."""
    low, high = float(where[0]), float(where[-1])
    ends = [milestone_time(traj, name) for name in ("T_I", "T_II", "T_III")]
    edges = [low]
    labels = []
    for label, end in zip(("I", "II", "III"), ends, strict=True):
        if end is None or not edges[-1] < end <= high:
            break
        edges.append(end)
        labels.append(label)
    if len(labels) == 3 and edges[-1] < high:
        edges.append(high)
        labels.append("IV")
    for k, (label, left, right) in enumerate(zip(labels, edges[:-1], edges[1:], strict=True)):
        for axes in both:
            axes.axvspan(left, right, color=SHADES[k], linewidth=0, zorder=0)
            if right < high:
                axes.axvline(right, color="0.6", linewidth=0.5, zorder=1)
        middle = float(np.sqrt(left * right))
        both[0].annotate(
            label, (middle, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, annotation_clip=False,
        )  # fmt: skip
