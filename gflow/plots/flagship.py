"""The flagship figure: how an induction head is learned, phase by phase."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots._axes import Curves, milestone_time, sample, scale_time, time_label
from gflow.plots.style import COLOURS, DASHED, MARKERS, SHADES, STYLES, halo, new_figure, paper
from gflow.plots.trajectory import trajectory

PARTS = {"fourgram": "4-gram part", "induction": "induction part"}
LABELS = {
    "p11": "$p_{11}$",
    "p21": "$p_{21}$",
    "v1": "$v_1$",
    "v2": "$v_2$",
    "wK": "$w_K$",
    "wQ": "$w_Q$",
    "wKQ": "$w_{KQ}$",
    "w": "$w$",
}
# milestone -> label, the loss it is a level of, where its name stands relative to the point (in points of print)
TIMES = {
    "T_I": ("$T_I$", "fourgram", (-7, -7)),
    "T_o": ("$T_o$", "induction", (4, 9)),
    "T_II": ("$T_{II}$", "induction", (-6, -9)),
    "T_III": ("$T_{III}$", "induction", (13, 5)),
}
PHASES = (("I", "T_I"), ("II", "T_II"), ("III", "T_III"))
FLOOR, HIGHEST_FLOOR = 1e-5, 1e-3  # lowest normalised loss shown: far below every milestone
EARLIEST = 1e-1  # time units: earlier than this nothing has moved
APART = 0.03  # of the axis: names of phases closer than this would overlap


def flagship(traj: Any, problem: Any = None, predictions: dict[str, Any] | None = None) -> Any:
    """Both losses relative to their start, and the parameters, on a logarithmic time axis, with the phases shaded.

    - `traj`: a run of the induction-head loss, solved or loaded, complete or interrupted, of any parametrisation.
      A run of another loss is drawn by `plots.trajectory`.
    - `problem`: the `InductionProblem`, if at hand: gives the plateau when `predictions` does not.
    - `predictions`: as returned by `theory.predictions.predict`, with "plateau" if known; None entries are skipped.
      By default those that the run carries in `traj.provenance["predictions"]`.

    Phases: I until the 4-gram part is learned (T_I), II until the plateau is left (T_II), III until the induction part
    is learned (T_III), IV convergence. A phase that takes no time is left out, as are those the run did not get to.
    Filled markers: measured times, on the curves; open ones: predicted times, at the same level. Returns a `Figure`.
    """
    if not set(PARTS) <= set(traj.losses):
        return trajectory(traj)
    if predictions is None:
        predictions = traj.provenance.get("predictions")
    predictions = dict(predictions or {})
    plateau = predictions.get("plateau")
    if plateau is None and problem is not None:
        plateau = float(problem.plateau())
    with paper():
        figure = new_figure(height=4.8, margins=MARGINS)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1.0))
        losses, params = sample(traj, first=_axis_start(traj))
        scale_time(top, losses.where)
        _losses(top, losses, plateau)
        top.set_ylabel("loss / its start" if traj.ts[0] == traj.t0 else "loss / its first value")
        _times(top, traj, losses, plateau, predictions)
        _parameters(bottom, params)
        _phases((top, bottom), traj, losses.where)
        bottom.set_xlabel(time_label(traj))
        figure.align_ylabels()
    return figure


# of the figure's size; tick labels and titles of every run fit
MARGINS = {"left": 0.095, "right": 0.985, "bottom": 0.095, "top": 0.945, "hspace": 0.08}


def _axis_start(traj: Any) -> float | None:
    end = float(traj.ts[-1]) - float(traj.t0)
    return EARLIEST if end > 10 * EARLIEST else None


def _losses(axes: Any, losses: Curves, plateau: float | None) -> None:
    lowest = 1.0
    for k, (name, label) in enumerate(PARTS.items()):
        share = np.where(losses.values[name] > 0, losses.values[name], np.nan) / losses.start[name]
        (curve,) = axes.plot(losses.where, share, color=COLOURS[(0, 2)[k]], linestyle=STYLES[(3, 0)[k]], label=label)
        if len(share) == 1:
            curve.set(marker="os"[k], markersize=(5, 3)[k])  # a point has no line
        lowest = min(lowest, float(np.nanmin(share, initial=1.0)))
    axes.set_yscale("log")
    axes.set_ylim(float(np.clip(lowest / 3, FLOOR, HIGHEST_FLOOR)), 3.0)
    if plateau is not None and plateau > 0:
        level = plateau / float(losses.start["induction"])
        axes.axhline(level, color="0.35", linewidth=0.8, linestyle=DASHED, label="plateau (theory)", zorder=1.5)


def _level(traj: Any, name: str, losses: Curves, plateau: float | None) -> float | None:
    """The level whose crossing defines a milestone, relative to the start of its loss; None if not known."""
    start = float(losses.start[TIMES[name][1]])
    if name == "T_I":
        return 0.01
    if plateau is None:
        # where the curve was then; the recorded level of T_o is one of the loss above its plateau
        time = milestone_time(traj, name)
        values = losses.values["induction"]
        return None if time is None else float(np.interp(np.log(time), np.log(losses.where), values)) / start
    share = plateau / start
    return {"T_o": share + 0.01 * (1 - share), "T_II": 0.99 * share, "T_III": 0.01 * share}[name]


def _fourgram(losses: Curves, time: float) -> float:
    """The curve of the 4-gram part at a time."""
    return float(np.interp(time, losses.where, losses.values["fourgram"] / losses.start["fourgram"]))


def _times(axes: Any, traj: Any, losses: Curves, plateau: float | None, predictions: dict[str, Any]) -> None:
    """Measured and predicted times, at the level that defines them; on the lower edge if that is not known."""
    low, high = float(losses.where[0]), float(losses.where[-1])
    floor, ceiling = axes.get_ylim()
    measured, predicted = [], []
    for name, (label, _, offset) in TIMES.items():
        time, guess = milestone_time(traj, name), predictions.get(name)
        level = _level(traj, name, losses, plateau)
        height = 2.0 * floor if level is None else float(np.clip(level, 2.0 * floor, ceiling))
        shown = [t for t in (time, guess) if t is not None and low <= t <= high]
        if time is not None and time in shown:
            (dot,) = axes.plot([time], [height], "o", color="black", markersize=3, zorder=5)
            dot.set_gid(f"measured {name}")
            measured.append(dot)
        if guess is not None and guess in shown:
            (ring,) = axes.plot(
                [guess], [height], "D", color="black", fillstyle="none", markersize=6.5, markeredgewidth=0.9, zorder=4
            )
            ring.set_gid(f"predicted {name}")
            predicted.append(ring)
        if shown:
            if name == "T_III" and _fourgram(losses, shown[0]) > height:
                offset = (-12, -7)  # the other side is where the 4-gram curve passes
            elif np.log(high / shown[0]) < 2 * APART * np.log(high / low):
                offset = (-abs(offset[0]) - 4, offset[1])  # room on the left only
            axes.annotate(
                label, (shown[0], height), xytext=offset, textcoords="offset points", ha="center", va="center",
                fontsize=8, path_effects=halo(), zorder=6,
            )  # fmt: skip
    for artists, label in ((measured, "measured time"), (predicted, "predicted time")):
        if artists:
            artists[0].set_label(label)
    axes.legend(loc="lower left", handlelength=2.8)


def _parameters(axes: Any, params: Curves) -> None:
    # a loaded run has its leaves in any order, and in a dict if the type is not known: names are all that counts
    present = {name: params.values[name] for name in LABELS if name in params.values}
    if "wK" in present and "wQ" in present and np.allclose(present["wK"], present["wQ"], rtol=1e-6, atol=0.0):
        present = {("wK = wQ" if k == "wK" else k): v for k, v in present.items() if k != "wQ"}
    labels = LABELS | {"wK = wQ": "$w_K = w_Q$"}
    for k, (name, values) in enumerate(present.items()):
        axes.plot(
            params.where,
            values,
            color=COLOURS[k % len(COLOURS)],
            linestyle=STYLES[k % len(STYLES)],
            marker=MARKERS[k % len(MARKERS)],
            markevery=_marks(params.where, 5 + k % 2),
            label=labels[name],
        )
    axes.set_ylabel("parameters")
    if present:
        axes.legend(loc="upper left", ncols=2, handlelength=3.2)


def _marks(where: np.ndarray, wanted: int) -> list[int]:
    """Indices at about equal distances on the logarithmic axis, where a curve carries a marker."""
    if len(where) < 2 or where[-1] <= where[0]:
        return list(range(len(where)))
    goals = np.linspace(np.log(where[0]), np.log(where[-1]), wanted + 2)[1:-1]
    return np.unique(np.searchsorted(np.log(where), goals).clip(0, len(where) - 1)).tolist()


def _spans(traj: Any, low: float, high: float) -> list[tuple[str, float, float]]:
    """Phases between `low` and `high`: name, from, to. The last one is the one in which the run ended."""
    spans, left = [], low
    for label, name in PHASES:
        if name not in traj.milestones:
            return spans
        end = milestone_time(traj, name)
        right = high if end is None else min(end, high)
        if right > left:
            spans.append((label, left, right))
            left = right
        if end is None:
            return spans
    return [*spans, ("IV", left, high)] if high > left else spans


def _phases(both: tuple[Any, Any], traj: Any, where: np.ndarray) -> None:
    """Alternating bands; the name of each stands above the figure."""
    low, high = float(where[0]), float(where[-1])
    taken = 0.0
    for label, left, right in _spans(traj, low, high):
        for axes in both:
            axes.axvspan(left, right, color=SHADES[label], linewidth=0, zorder=0)
            if right < high:
                axes.axvline(right, color="0.6", linewidth=0.5, zorder=1)
        middle = 0.5 * float(np.log(left / low) + np.log(right / low)) / float(np.log(high / low))
        taken = max(middle, taken + APART)
        both[0].annotate(
            label, (taken, 1.0), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, annotation_clip=False,
        )  # fmt: skip
