"""Where the names of points find room: beside their point, away from curves, other points and other names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gflow.plots.style import halo

Offset = tuple[float | int, float | int]
# around the point, in points of print; the first of equals is taken
AROUND = (
    *((-9, -8), (9, 8), (9, -8), (-9, 8), (13, 0), (-13, 0)),
    *((0, 11), (0, -11), (17, 9), (-17, -9), (17, -9), (-17, 9)),
)
SIZE = (15.0, 9.5)  # of a name of 8 points, a little more than it needs
POINT = 3.5  # half the size of a marker
NAME, MARK, CURVE, EDGE = 10, 4, 3, 10  # how bad it is to lie on one of these


def place_names(axes: Any, names: Sequence[tuple[str, float, float, Offset]]) -> None:
    """Write names beside points of a panel whose scales and limits are final.

    `names`: text, x, y, and the offset from the point (in points of print) that is taken if it is as good as any other.
    """
    scale = axes.figure.dpi / 72.0
    inside = axes.get_window_extent()
    corner, far = np.array([[inside.x0, inside.y0], [inside.x1, inside.y1]]) / scale
    curves, marks = [np.empty((0, 2))], [np.empty((0, 2))]
    for line in axes.get_lines():
        if line.get_transform() != axes.transData:
            continue  # the line of a level: names may stand on it
        where = axes.transData.transform(np.asarray(line.get_xydata(), float)) / scale
        where = where[np.all(np.isfinite(where), axis=1)]
        (curves if len(where) > 1 else marks).append(_dense(where))
    paths, points = np.concatenate(curves), np.concatenate(marks)
    taken: list[np.ndarray] = []
    half = 0.5 * np.array(SIZE)
    for text, x, y, wanted in names:
        at = axes.transData.transform((x, y)) / scale

        def cost(offset: Offset, at: np.ndarray = at) -> int:
            middle = at + offset
            hit = NAME * sum(bool(np.all(np.abs(middle - other) < 2 * half)) for other in taken)
            hit += MARK * int(np.sum(np.all(np.abs(points - middle) < half + POINT, axis=1)))
            hit += CURVE * bool(np.any(np.all(np.abs(paths - middle) < half, axis=1)))
            return hit + EDGE * bool(np.any(middle - half < corner) or np.any(middle + half > far))

        offset = min((wanted, *AROUND), key=cost)
        taken.append(at + offset)
        axes.annotate(
            text, (x, y), xytext=offset, textcoords="offset points", ha="center", va="center", fontsize=8,
            path_effects=halo(), zorder=6,
        )  # fmt: skip


def _dense(where: np.ndarray) -> np.ndarray:
    """Points along a path no further apart than a name is high."""
    if len(where) < 2:
        return where
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(where, axis=0).T))])
    goals = np.linspace(0.0, length[-1], int(length[-1] / (0.5 * SIZE[1])) + 2)
    return np.stack([np.interp(goals, length, column) for column in where.T], axis=1)
