"""Figures of a report: SVG inside the page, in the page's colours and fonts, with the legend as text of the page."""

from __future__ import annotations

import dataclasses
import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from gflow.report import _ticks
from gflow.report._svg import GRID, INK, MUTED, SERIES, WRONG, Key, embed

SIZE = (3.6, 2.5)  # inches; small, so that its 9 points are still read when the figure is as wide as a telephone
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: dict[str, Any] = {"theory": "-", "control": (0, (5, 2.5)), "other": (0, (1.2, 1.8)), "measured": "none"}
WIDEST = 1e250  # numbers beyond it overflow in the arithmetic of axes, and are left out

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib; measures the text only, and is wider than most
    "font.size": 9,
    "axes.linewidth": 0.7,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "grid.linestyle": "-",
    "text.color": INK,
    "text.usetex": False,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "gflow",
} | {
    f"{axis}tick.{key}": value
    for axis in "xy"
    for key, value in {"color": MUTED, "labelcolor": INK, "labelsize": 8.5, "major.size": 3, "minor.size": 0}.items()
}


@dataclasses.dataclass(frozen=True)
class Drawing:
    """An SVG element, and the entries of its legend."""

    svg: str
    legend: tuple[Key, ...]


def draw(figure: Mapping[str, Any], name: str) -> Drawing | None:
    """The figure of a checked document; `name` begins all its ids. None when no point of it can be drawn.

    Numbers that are null, or not positive on a logarithmic axis, are left out.
    """
    series = [_points(curve, figure["xscale"] == "log", figure["yscale"] == "log") for curve in figure["series"]]
    if not any(curve["x"] for curve in series):
        return None
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib's remarks on odd axes are no concern of a reader
        canvas = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.add_subplot()
        axes.set_xscale(figure["xscale"])
        axes.set_yscale(figure["yscale"])
        keys = [_curve(axes, curve, key) for curve, key in zip(series, _keys(figure["series"]), strict=True)]
        keys += [_band(axes, band, number) for number, band in enumerate(figure["bands"])]
        _ticks.set_ticks(axes)
        axes.set_xlabel(_short(figure["xlabel"], 44), parse_math=False)
        axes.set_ylabel(_short(figure["ylabel"], 30), parse_math=False)
        stream = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(stream, format="svg", metadata=nothing)
    label = f"{figure['title']}: {figure['ylabel']} against {figure['xlabel']}"
    return Drawing(embed(stream.getvalue(), name, label), tuple(key for key in keys if key is not None))


def _keys(series: Sequence[Mapping[str, Any]]) -> list[Key]:
    """How curves look: the n-th that is measured and the n-th of theory share a colour; a wrong law has its own."""
    count = {"measured": 0, "theory": 0, "control": 0, "other": 0}
    single = sum(curve["kind"] == "theory" for curve in series) == 1
    keys = []
    for curve in series:
        kind, number = curve["kind"], count[curve["kind"]]
        count[kind] += 1
        colour = SERIES[(number + (3 if kind == "other" else 0)) % len(SERIES)]
        if kind == "control":
            colour = WRONG
        elif kind == "theory" and single:
            colour = INK
        marker = MARKERS[number % len(MARKERS)] if kind in ("measured", "other") else None
        keys.append(Key(curve["label"], colour, marker, kind))
    return keys


def _curve(axes: Any, curve: Mapping[str, Any], key: Key) -> Key | None:
    if not curve["x"]:
        return None
    style: dict[str, Any] = {"color": key.colour, "linestyle": DASHES[key.kind], "linewidth": 1.6, "zorder": 3}
    if key.marker:
        size = 5.0 if key.kind == "measured" else 3.5
        style |= {"marker": key.marker, "markersize": size, "markeredgewidth": 0, "zorder": 4}
    axes.errorbar(curve["x"], curve["y"], yerr=curve["error"], elinewidth=1.1, capsize=2, **style)
    return key


def _band(axes: Any, band: Mapping[str, Any], number: int) -> Key | None:
    """A shaded range of y; without a bound it goes to the edge of the axes."""
    low, high = (_drawable(band[key], axes.get_yscale() == "log") for key in ("low", "high"))
    if low is None and high is None:
        return None
    bottom, top = axes.get_ylim()
    if low is None and high is not None:
        low = bottom if bottom < high else _beyond(axes, high, -1)
        axes.set_ylim(bottom=low)
    elif high is None and low is not None:
        high = top if top > low else _beyond(axes, low, 1)
        axes.set_ylim(top=high)
    axes.axhspan(low, high, **_shade(number))
    return Key(band["label"], SERIES[0], None, "band", shade=_shade(number)["alpha"])


def _beyond(axes: Any, edge: float, sign: int) -> float:
    """A tenth of the axis beyond `edge`, so that a band without a bound is seen."""
    bottom, top = axes.get_ylim()
    if axes.get_yscale() == "log":
        return edge * max(top / bottom, edge / bottom, top / edge) ** (0.1 * sign)
    return edge + 0.1 * sign * max(top - bottom, abs(edge - bottom), abs(edge - top))


def _shade(number: int) -> dict[str, Any]:
    return {"facecolor": SERIES[0], "alpha": 0.14 + 0.12 * min(number, 3), "linewidth": 0, "zorder": 1}


def _points(curve: Mapping[str, Any], logx: bool, logy: bool) -> dict[str, list[float] | None]:
    """The points of a curve that axes of these scales have room for; a gap in theory is closed."""
    errors = curve["error"] or [None] * len(curve["x"])
    kept = [
        (float(x), float(y), abs(e) if e is not None and e < WIDEST else 0.0)
        for x, y, e in zip(curve["x"], curve["y"], errors, strict=True)
        if _drawable(x, logx) is not None and _drawable(y, logy) is not None
    ]
    x, y, error = ([point[k] for point in kept] for k in range(3))
    return {"x": x, "y": y, "error": error if any(error) else None}


def _drawable(value: float | int | None, log: bool) -> float | None:
    if value is None or abs(value) > WIDEST or (log and value <= 1 / WIDEST) or not math.isfinite(value):
        return None
    return float(value)


def _short(text: str, width: int) -> str:
    """At most two lines; the whole text is the name of the figure."""
    return textwrap.fill(text, width, max_lines=2, placeholder=" …")
