"""The two panels of a run of the induction head: losses with their times and phases, and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gflow.plots._axes import Curves, milestone_time
from gflow.plots._names import place_names
from gflow.plots.style import COLOURS, DASHED, MARKERS, SHADES, STYLES

PARTS = {"fourgram": "4-gram part", "induction": "induction part"}
LABELS = {
    "p11": "$p_{11}$",
    "p21": "$p_{21}$",
    "v1": "$v_1$",
    "v2": "$v_2$",
    "wK": "$w_K$",
    "wK = wQ": "$w_K = w_Q$",
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
EARLIEST = 1e-1  # time units: earlier than this nothing has moved in a flow
APART = 0.03  # of an axis of text width: names of phases closer than this would overlap


def axis_start(run: Any) -> float | None:
    """Where the time axis begins; None: with the first time kept, as for optimisers whose steps may be far smaller."""
    end = float(run.ts[-1]) - float(run.t0)
    return EARLIEST if end > 10 * EARLIEST and not hasattr(run, "steps") else None


def draw_losses(axes: Any, losses: Curves) -> float:
    """Both parts relative to their start; returns the lowest value drawn."""
    lowest = 1.0
    for k, (name, label) in enumerate(PARTS.items()):
        share = np.where(losses.values[name] > 0, losses.values[name], np.nan) / losses.start[name]
        (curve,) = axes.plot(losses.where, share, color=COLOURS[(0, 2)[k]], linestyle=STYLES[(3, 0)[k]], label=label)
        if len(share) == 1:
            curve.set(marker="os"[k], markersize=(5, 3)[k])  # a point has no line
        lowest = min(lowest, float(np.nanmin(share, initial=1.0)))
    axes.set_yscale("log")
    return lowest


def limit_losses(axes: Any, lowest: float) -> None:
    """The range of the losses' axis, from a bit below the lowest value down to a floor."""
    axes.set_ylim(float(np.clip(lowest / 3, FLOOR, HIGHEST_FLOOR)), 3.0)


def draw_plateau(axes: Any, losses: Curves, plateau: float | None) -> None:
    """The level at which the induction part waits."""
    if plateau is not None and plateau > 0:
        level = plateau / float(losses.start["induction"])
        axes.axhline(level, color="0.35", linewidth=0.8, linestyle=DASHED, label="plateau (theory)", zorder=1.5)


def _level(run: Any, name: str, losses: Curves, plateau: float | None) -> float | None:
    """The level whose crossing defines a milestone, relative to the start of its loss; None if not known."""
    start = float(losses.start[TIMES[name][1]])
    if name == "T_I":
        return 0.01
    if plateau is None:
        # where the curve was then; the recorded level of T_o is one of the loss above its plateau
        time = milestone_time(run, name)
        values = losses.values["induction"]
        return None if time is None else float(np.interp(np.log(time), np.log(losses.where), values)) / start
    share = plateau / start
    return {"T_o": share + 0.01 * (1 - share), "T_II": 0.99 * share, "T_III": 0.01 * share}[name]


def draw_times(axes: Any, run: Any, losses: Curves, plateau: float | None, predictions: Mapping[str, Any]) -> None:
    """Measured and predicted times, at the level that defines them; on the lower edge if that is not known."""
    low, high = float(losses.where[0]), float(losses.where[-1])
    floor, ceiling = axes.get_ylim()
    measured, predicted, names = [], [], []
    for name, (label, _, offset) in TIMES.items():
        time, guess = milestone_time(run, name), predictions.get(name)
        level = _level(run, name, losses, plateau)
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
            names.append((label, shown[0], height, offset))
    place_names(axes, names)
    for artists, label in ((measured, "measured time"), (predicted, "predicted time")):
        if artists:
            artists[0].set_label(label)


def shown_parameters(params: Curves) -> dict[str, np.ndarray]:
    """Parameters by name, in the order of `LABELS`; wK and wQ are one curve where they are equal."""
    # a loaded run has its leaves in any order, and in a dict if the type is not known: names are all that counts
    present = {name: params.values[name] for name in LABELS if name in params.values}
    # p11 without an end is no curve
    present = {name: values for name, values in present.items() if np.any(np.isfinite(values))}
    if "wK" in present and "wQ" in present and np.allclose(present["wK"], present["wQ"], rtol=1e-6, atol=0.0):
        present = {("wK = wQ" if k == "wK" else k): v for k, v in present.items() if k != "wQ"}
    return present


def draw_parameters(axes: Any, params: Curves, looks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """One curve per parameter, in its own colour, line and marker; returns the curves by name.

    `looks`: name -> number of its look, for several panels that are read together; by default the order of the names.
    """
    curves = {}
    for position, (name, values) in enumerate(shown_parameters(params).items()):
        k = position if looks is None else looks[name]
        (curves[name],) = axes.plot(
            params.where,
            values,
            color=COLOURS[k % len(COLOURS)],
            linestyle=STYLES[k % len(STYLES)],
            marker=MARKERS[k % len(MARKERS)],
            markevery=_marks(params.where, 5 + k % 2),
            label=LABELS[name],
        )
    return curves


def _marks(where: np.ndarray, wanted: int) -> list[int]:
    """Indices at about equal distances on the logarithmic axis, where a curve carries a marker."""
    if len(where) < 2 or where[-1] <= where[0]:
        return list(range(len(where)))
    goals = np.linspace(np.log(where[0]), np.log(where[-1]), wanted + 2)[1:-1]
    return np.unique(np.searchsorted(np.log(where), goals).clip(0, len(where) - 1)).tolist()


def _spans(run: Any, low: float, high: float) -> list[tuple[str, float, float]]:
    """Phases between `low` and `high`: name, from, to. The last one is the one in which the run ended."""
    spans, left = [], low
    for label, name in PHASES:
        if name not in run.milestones:
            return spans
        end = milestone_time(run, name)
        right = high if end is None else min(end, high)
        if right > left:
            spans.append((label, left, right))
            left = right
        if end is None:
            return spans
    return [*spans, ("IV", left, high)] if high > left else spans


def draw_phases(both: tuple[Any, Any], run: Any, where: np.ndarray, apart: float = APART) -> None:
    """Alternating bands; the name of each stands above the upper panel."""
    low, high = float(where[0]), float(where[-1])
    spans = _spans(run, low, high)
    places: list[float] = []
    for _, left, right in spans:
        for axes in both:
            if right < high:
                axes.axvline(right, color="0.6", linewidth=0.5, zorder=1)
        middle = 0.5 * float(np.log(left / low) + np.log(right / low)) / float(np.log(high / low))
        places.append(max(middle, places[-1] + apart) if places else middle)
    for k, (label, left, right) in enumerate(spans):
        for axes in both:
            axes.axvspan(left, right, color=SHADES[label], linewidth=0, zorder=0)
        place = min(places[k], 1.0 - apart * (len(spans) - 1 - k))  # the last ones stay above the panel
        both[0].annotate(
            label, (place, 1.0), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, annotation_clip=False,
        )  # fmt: skip
