"""Heat maps over two logarithmic axes: a cell per lane, and marks on those that have no value."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots._grid import FAILED, PENDING, Group, rising, word
from gflow.plots.style import WIDTH, halo, new_figure

PANEL = 2.3  # inches, height
MARKS: dict[str, Any] = {
    "failed": {"facecolor": "#3a3a3a", "edgecolor": "white", "hatch": "xxxx"},
    "pending": {"facecolor": "white", "edgecolor": "#888888", "hatch": "...."},
    "not reached": {"facecolor": "#f4f4f4", "edgecolor": "#777777", "hatch": "/////"},
}


def edges(centres: np.ndarray) -> np.ndarray:
    """Limits of the cells around ascending positive values, halfway between them in the logarithm."""
    where = np.log(centres)
    middle = 0.5 * (where[1:] + where[:-1])
    step = np.diff(where) if len(where) > 1 else np.ones(1)
    return np.exp(np.concatenate([[where[0] - 0.5 * step[0]], middle, [where[-1] + 0.5 * step[-1]]]))


def panels(count: int) -> tuple[Any, list[Any]]:
    """A figure with so many panels on the same axes."""
    columns = min(count, 3) if count != 4 else 2
    rows = -(-count // columns)
    width = WIDTH if columns > 1 else 0.62 * WIDTH
    figure = new_figure(height=0.7 + rows * PANEL, width=width)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    flat = list(grid.flat)
    for axes in flat[count:]:
        axes.remove()
    for axes in flat[: max(0, count - columns)]:
        axes.tick_params(labelbottom=False)
    return figure, flat[:count]


def draw_cells(
    axes: Any, group: Group, x: str, y: str, values: Any, look: dict[str, Any]
) -> tuple[Any, np.ndarray, set[str]]:
    """The cells of a group's `values`: the mesh, the values [y, x] as drawn, and which marks were needed."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    status = rising(rising(group.data["status"], x), y).transpose(y, x)
    shown = rising(rising(values, x), y).transpose(y, x)
    across, up = edges(shown[x].values), edges(shown[y].values)
    cells = np.ma.masked_invalid(shown.values)
    mesh = axes.pcolormesh(across, up, cells, rasterized=cells.size > 4000, **look)
    fate = status.values
    left, low = across.tolist(), up.tolist()
    masks = {
        "failed": fate == FAILED,
        "pending": fate == PENDING,
        "not reached": np.ma.getmaskarray(cells) & (fate != FAILED) & (fate != PENDING),
    }
    for name, mask in masks.items():
        boxes = [
            Rectangle((left[j], low[i]), left[j + 1] - left[j], low[i + 1] - low[i])
            for i, j in np.argwhere(mask).tolist()
        ]
        if boxes:
            axes.add_collection(PatchCollection(boxes, linewidth=0, label=name, **MARKS[name]))
    axes.set(xscale="log", yscale="log", xlim=across[[0, -1]], ylim=up[[0, -1]])
    if group.name:
        axes.set_title(group.name)
    return mesh, shown.values, {name for name, mask in masks.items() if mask.any()}


def contours(axes: Any, where: list[np.ndarray], values: np.ndarray, levels: list[float], **look: Any) -> bool:
    """Named lines at those levels of positive values [y, x], at `where` (x, y), that they cross; are there any?"""
    logs = np.ma.masked_invalid(np.log10(values))
    inside = [level for level in levels if logs.count() and logs.min() < np.log10(level) < logs.max()]
    if not inside:
        return False
    # matplotlib interpolates linearly between the lanes, which is wrong on logarithmic axes if they are far apart
    fine = _finer(_finer(logs.filled(np.nan), 0), 1)
    x, y = (np.exp(_finer(np.log(along), 0)) for along in where)
    lines = axes.contour(x, y, np.ma.masked_invalid(fine), np.log10(inside), **look)
    lines.set(path_effects=halo())
    names = {np.log10(level): "1" if level == 1.0 else f"$10^{{{np.log10(level):.3g}}}$" for level in inside}
    for text in axes.clabel(lines, fmt=names, fontsize=6.5):
        text.set_path_effects(halo())
    return True


def _finer(values: np.ndarray, axis: int) -> np.ndarray:
    """Seven more values, on a line, between each two along an axis; NaN beside NaN."""
    old = np.arange(values.shape[axis])
    new = np.linspace(0, old[-1], 8 * old[-1] + 1)
    return np.apply_along_axis(lambda row: np.interp(new, old, row), axis, values)


def finish(
    figure: Any,
    drawn: list[Any],
    x: str,
    y: str,
    marks: set[str],
    note: str,
    lines: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Names of the axes, the legend of the marks, and what the cells do not show."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    for axes in drawn:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            if high < 30 * low:  # too short for powers of ten alone
                axis.set_major_formatter(lambda at, _: f"{at:g}")
                axis.set_minor_formatter(lambda at, _: f"{at:g}" if f"{at:e}"[0] in "235" else "")
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(word(y))
        axes.set_xlabel(word(x))
        axes.label_outer()
    handles: list[Any] = [Line2D([], [], color="black", label=name, **look) for name, look in (lines or {}).items()]
    handles += [Patch(linewidth=0, label=name, **look) for name, look in MARKS.items() if name in marks]
    if handles:
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    if note:
        figure.supxlabel(note, fontsize=6.5, x=0.01, ha="left")
