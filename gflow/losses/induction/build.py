"""Building the tables of `K(., c)` and `K(., .)` on the host: Chebyshev nodes, measured error, disk cache."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from gflow.errors import TableError
from gflow.io.cache import load_or_build
from gflow.losses.induction.expectation import (
    Setting,
    StudentOverlap,
    TargetOverlaps,
    query_groups,
    target_overlaps,
)
from gflow.losses.induction.quadrature import Vector
from gflow.losses.induction.table import OverlapTable
from gflow.tokens import TokenLaw

CELLS, ORDER = 256, 8
NAMES = {field.name for field in dataclasses.fields(OverlapTable)}
FORMAT = 4  # of the cached arrays and of what they mean; raise it whenever either changes
# relative error above which a table is refused: milestones could not be trusted to 1e-5
LARGEST_ERROR = 1e-5
MORE_NODES = (72, 88, 104, 128)  # Chebyshev nodes to try, should the usual number leave more than GOOD_TAIL
GOOD_TAIL = 1e-7
FINER = 1.25  # quadratures that the error is measured by


@dataclasses.dataclass(frozen=True)
class Resolution:
    """`nodes`: Chebyshev nodes in w (0: chosen by w*); `refine`: factor on every quadrature's number of nodes."""

    nodes: int = 0
    refine: float = 1.0


class _Interpolant:
    """Chebyshev interpolant on [lo, hi] of values at its nodes, and the size of its last coefficients."""

    def __init__(self, values: Vector, lo: float, hi: float) -> None:
        self.lo, self.hi = lo, hi
        m = values.size
        theta = math.pi * (np.arange(m) + 0.5) / m
        self.coefficients = 2.0 / m * np.cos(np.outer(np.arange(m), theta)) @ values
        self.coefficients[0] *= 0.5
        # the last coefficients alternate in parity, so look at several; geometric decay sums to a small multiple
        self.tail = 4.0 * float(np.max(np.abs(self.coefficients[-3:])))

    def __call__(self, w: Vector) -> Vector:
        return chebyshev.chebval((2.0 * w - self.lo - self.hi) / (self.hi - self.lo), self.coefficients)

    def slope(self, w: Vector) -> Vector:
        scale = 2.0 / (self.hi - self.lo)
        return scale * chebyshev.chebval(
            (2.0 * w - self.lo - self.hi) / (self.hi - self.lo), chebyshev.chebder(self.coefficients)
        )


def nodes_on(lo: float, hi: float, m: int) -> Vector:
    """Chebyshev nodes of the first kind on [lo, hi]."""
    return 0.5 * (lo + hi) + 0.5 * (hi - lo) * np.cos(math.pi * (np.arange(m) + 0.5) / m)


def _cells(values: Vector) -> Vector:
    """[2, CELLS*ORDER] values at each cell's Chebyshev nodes -> [CELLS, 2, ORDER] coefficients of t^k."""
    vandermonde = np.vander(nodes_on(-1.0, 1.0, ORDER), ORDER, increasing=True)
    return np.einsum("kv,jmv->mjk", np.linalg.inv(vandermonde), values.reshape(2, CELLS, ORDER))


def enough_nodes(s: Setting) -> int:
    """Chebyshev nodes for K1: typical logits grow like steepest * sqrt(d), and its transitions sharpen with n."""
    reach = s.steepest * math.sqrt(s.d)
    return 72 if reach > 4.0 else 60 if reach > 1.5 else 50 if s.n > 3e3 or (s.n < 16 and reach > 0.8) else 40


def build_arrays(
    law: TokenLaw, L: float, w_star: float, d: int, lo: float, hi: float, resolution: Resolution
) -> dict[str, Vector]:
    """The numbers of an `OverlapTable` (see `build_table`)."""
    c = w_star**2
    setting = Setting(law, L - 2.0, c, d, max(abs(lo), hi, c), resolution.refine)
    count = resolution.nodes or enough_nodes(setting)
    query_groups(setting, count)  # refuses what would take minutes
    student = StudentOverlap(setting)
    if not resolution.nodes:
        count = until_resolved(student, L, w_star, lo, hi, count)
    nodes, check = nodes_on(lo, hi, count), checked_at(lo, hi, c)
    fine = dataclasses.replace(setting, refine=FINER * resolution.refine)
    (target,), (exact,) = target_overlaps(setting, nodes), target_overlaps(fine, check)
    return assemble(setting, w_star, lo, hi, student, target, exact)


def checked_at(lo: float, hi: float, c: float) -> Vector:
    """Where K1 is computed again by finer quadratures, between the nodes."""
    return np.unique(np.clip([0.9 * lo, 0.0, 0.35 * c, 0.7 * c, c, hi], lo, hi))


def assemble(
    setting: Setting,
    w_star: float,
    lo: float,
    hi: float,
    student: StudentOverlap,
    target: TargetOverlaps,
    exact: TargetOverlaps,
) -> dict[str, Vector]:
    """The numbers of a table from K1 at its Chebyshev nodes (`target`), K2, and K1 from finer quadratures (`exact`)."""
    c, L, d, nodes = setting.c, setting.n + 2.0, setting.d, target.w
    edges = np.linspace(lo, hi, CELLS + 1)
    w = (0.5 * (edges[:-1] + edges[1:])[:, None] + 0.5 * (hi - lo) / CELLS * nodes_on(-1.0, 1.0, ORDER)).ravel()
    K2, K2_L = student(w)
    if not all(np.all(np.isfinite(v)) for v in (target.K1, target.K1_L, K2, K2_L)) or np.any(K2 <= 0):
        raise TableError(f"overlaps at w_star={w_star:g}, L={L:g} are not finite; use a smaller w_star")
    # K1 spans decades when n is large: arcsinh(K1/scale) is a logarithm that survives a change of sign
    scale = float(np.min(K2))
    y1 = _Interpolant(np.arcsinh(target.K1 / scale), lo, hi)
    size = np.hypot(target.K1, scale)
    sensitivities = (target.K1_L, target.by_c(c, size * y1.slope(nodes)))
    K1 = scale * np.sinh(y1(w))
    K1_L, K1_c = (_Interpolant(v / size, lo, hi)(w) * np.hypot(K1, scale) for v in sensitivities)
    K1, moved = _meet(K1, K2, w, c, y1, scale)
    cells = _cells(np.stack([K1, K2]))
    zero = np.zeros_like(K2)

    # measured error: the cells' own polynomials against refined quadrature at points between the nodes
    table = evaluate_cells(cells, lo, hi, exact.w)
    gap1 = np.max(np.abs(table[0] / exact.K1 - 1.0))
    many = np.linspace(lo, hi, 101)  # cheap for K2
    finer = dataclasses.replace(setting, refine=1.5 * setting.refine)
    gap2 = np.max(np.abs(evaluate_cells(cells, lo, hi, many)[1] / StudentOverlap(finer)(many)[0] - 1.0))
    # |dK/K| = coth(y) |dy|; a safety factor of 3 on what is measured at a few points only
    tail = y1.tail * float(np.max(1.0 / np.tanh(np.abs(y1(w)))))
    error = np.array([3.0 * gap1 + tail + moved, 3.0 * gap2]) + 1e-13
    return {
        "cells": cells,
        "cells_L": _cells(np.stack([K1_L, K2_L])),
        "cells_c": _cells(np.stack([K1_c, zero])),
        "lo": np.float64(lo),
        "hi": np.float64(hi),
        "L": np.float64(L),
        "w_star": np.float64(w_star),
        "d": np.float64(d),
        "relative_error": error,
    }  # pyright: ignore[reportReturnType]


def until_resolved(student: StudentOverlap, L: float, w_star: float, lo: float, hi: float, count: int) -> int:
    """Nodes for K1, at least `count`: K1 takes long, K2, with singularities at the same w, tells in a moment."""
    tail = math.inf
    for more in (count, *(m for m in MORE_NODES if m > count)):
        K2 = student(nodes_on(lo, hi, more))[0]
        tail = _Interpolant(np.arcsinh(K2 / np.min(K2)), lo, hi).tail
        if tail <= GOOD_TAIL:
            return more
    if not tail <= 0.1 * LARGEST_ERROR:
        raise _too_inaccurate(L, w_star, tail)
    return MORE_NODES[-1]


def _too_inaccurate(L: float, w_star: float, error: float) -> TableError:
    return TableError(
        f"overlap table at L={L:g}, w_star={w_star:g} has a relative error of {error:.1e}, the limit is "
        f"{LARGEST_ERROR:.0e}; use a smaller w_star or d, or a larger L"
    )


def _meet(K1: Vector, K2: Vector, w: Vector, c: float, y1: _Interpolant, scale: float) -> tuple[Vector, float]:
    """K1 with `K1(c) = K2(c)` and `K1'(c) = K2'(c)/2` imposed, and the relative change that took.

    Both are exact identities; they put the loss's minimum, zero, at (A_i, c). What they move is within K1's error.
    """
    lo, hi = y1.lo, y1.hi
    # value and slope of K2 at c from its own cells
    cells = _cells(np.stack([K2, K2]))
    step = 0.25 * (hi - lo) / CELLS
    near = evaluate_cells(cells, lo, hi, np.array([c - step, c, c + step]))[0]
    index = min(int((c - lo) / (hi - lo) * CELLS), CELLS - 1)
    t = 2.0 * ((c - lo) / (hi - lo) * CELLS - index) - 1.0
    powers = np.arange(1, ORDER)
    slope2 = float(np.sum(cells[index, 0, 1:] * powers * t ** (powers - 1)) * 2.0 * CELLS / (hi - lo))
    at_c = np.array([c])
    value1 = float(scale * np.sinh(y1(at_c))[0])
    lift = near[1] / value1
    slope1 = float(scale * (np.cosh(y1(at_c)) * y1.slope(at_c))[0]) * lift
    tilt = (0.5 * slope2 - slope1) / near[1]
    return K1 * (lift + tilt * (w - c)), abs(lift - 1.0) + abs(tilt) * max(hi - c, c - lo)


def evaluate_cells(cells: Vector, lo: float, hi: float, w: Vector) -> Vector:
    """(K1, K2) [2, W] at w [W] from the local polynomials."""
    position = (w - lo) / (hi - lo) * CELLS
    index = np.clip(np.floor(position).astype(int), 0, CELLS - 1)
    t = 2.0 * (position - index) - 1.0
    return np.sum(cells[index] * t[:, None, None] ** np.arange(ORDER), axis=-1).T


def default_domain(w_star: float) -> tuple[float, float]:
    """[-0.25 c, 1.25 c]: the logit scale runs from near 0 to c."""
    return -0.25 * w_star**2, 1.25 * w_star**2


def build_table(
    law: TokenLaw,
    L: float,
    w_star: float,
    d: int = 1,
    lo: float | None = None,
    hi: float | None = None,
    resolution: Resolution | None = None,
) -> OverlapTable:
    """Table of K(., c) and K(., .) on [lo, hi] (default [-0.25 c, 1.25 c]), computed now. Raises `TableError`."""
    low, high = default_domain(w_star)
    lo, hi = low if lo is None else lo, high if hi is None else hi
    arrays = build_arrays(law, L, w_star, d, lo, hi, resolution or Resolution())
    return from_arrays(arrays)


def from_arrays(arrays: dict[str, Vector]) -> OverlapTable:
    """The table of these numbers. Raises TableError if they are not accurate enough."""
    error = float(np.max(arrays["relative_error"]))
    if not error <= LARGEST_ERROR:
        raise _too_inaccurate(float(arrays["L"]), float(arrays["w_star"]), error)
    return OverlapTable(**{key: jnp.asarray(value) for key, value in arrays.items()})


def description(
    law: TokenLaw, L: float, w_star: float, d: int, lo: float, hi: float, resolution: Resolution
) -> dict[str, Any]:
    """What a table in the cache is known by."""
    return {
        "format": FORMAT,
        "law": law.name,
        "nodes": np.asarray(law.nodes, dtype=float),
        "weights": np.asarray(law.weights, dtype=float),
        "L": float(L),
        "w_star": float(w_star),
        "d": int(d),
        "lo": float(lo),
        "hi": float(hi),
        "chebyshev": resolution.nodes,
        "refine": float(resolution.refine),
    }


def make_table(
    law: TokenLaw,
    L: float,
    w_star: float,
    d: int = 1,
    lo: float | None = None,
    hi: float | None = None,
    resolution: Resolution | None = None,
    cache: bool = True,
) -> OverlapTable:
    """`build_table` through the disk cache: read if it was ever built on this machine, else built and stored."""
    if not cache:
        return build_table(law, L, w_star, d, lo, hi, resolution)
    low, high = default_domain(w_star)
    lo, hi = low if lo is None else lo, high if hi is None else hi
    resolution = resolution or Resolution()
    described = description(law, L, w_star, d, lo, hi, resolution)
    arrays = load_or_build("table", described, lambda: build_arrays(law, L, w_star, d, lo, hi, resolution), NAMES)
    return from_arrays(arrays)
