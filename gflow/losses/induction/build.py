"""Building the tables of `K(., c)` and `K(., .)` on the host: Chebyshev nodes, measured error, disk cache."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev

from gflow.errors import TableError
from gflow.io.cache import load_or_build
from gflow.losses.induction.overlap import cross_batch, self_batch
from gflow.losses.induction.quadrature import Vector, key_quadrature, laplace_body, query_quadrature
from gflow.losses.induction.table import OverlapTable
from gflow.tokens import TokenLaw

CELLS, ORDER = 256, 8
FORMAT = 1  # of the cached arrays and of what they mean; raise it whenever either changes
SELF_BODY = 96
# relative error above which a table is refused: milestones could not be trusted to 1e-5
LARGEST_ERROR = 1e-5


@dataclasses.dataclass(frozen=True)
class Resolution:
    """`nodes`: Chebyshev nodes in w; `refine`: factor on every quadrature's number of nodes."""

    nodes: int = 40
    refine: float = 1.0


@dataclasses.dataclass(frozen=True)
class Overlaps:
    """K1, K2 and their derivatives at given w, all [W]."""

    K1: Vector
    K2: Vector
    K1_L: Vector
    K2_L: Vector
    K1_c: Vector


def overlaps(law: TokenLaw, n: float, c: float, d: int, w: Vector, steepest: float, refine: float = 1.0) -> Overlaps:
    """`K(w,c) = E_q S(wq,cq)` and `K(w,w)` at w [W], with derivatives in L and c; |w|, c <= `steepest`."""
    q, q_weights = query_quadrature(law, d, steepest, refine)
    x, p = key_quadrature(law, q, q_weights, steepest, refine)
    size = (w.size, q.size)
    a = (w[:, None] * q).ravel()
    b = np.broadcast_to(c * q, size).ravel()
    # events this rare change nothing: relative to the query's weight, and to overlaps as small as 1/n
    rare = np.clip(1e-13 * np.max(q_weights) / (q_weights * math.sqrt(n)), 1e-17, 1e-4)
    tolerance = np.broadcast_to(rare, size).ravel()
    ends = np.concatenate([steepest * q, -steepest * q])
    body = laplace_body(ends, n, x, p, np.tile(rare, 2), np.tile(q_weights, 2), refine)
    s, s_n, s_b = cross_batch((x, p), n, d, a, b, tolerance, body)
    own, own_n = self_batch((x, p), n, d, a, tolerance, max(SELF_BODY, body))

    def mean(values: Vector, weights: Vector) -> Vector:
        return values.reshape(size) @ weights

    return Overlaps(mean(s, q_weights), mean(own, q_weights), mean(s_n, q_weights), mean(own_n, q_weights), mean(s_b, q_weights * q))


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
        return scale * chebyshev.chebval((2.0 * w - self.lo - self.hi) / (self.hi - self.lo), chebyshev.chebder(self.coefficients))


def nodes_on(lo: float, hi: float, m: int) -> Vector:
    """Chebyshev nodes of the first kind on [lo, hi]."""
    return 0.5 * (lo + hi) + 0.5 * (hi - lo) * np.cos(math.pi * (np.arange(m) + 0.5) / m)


def _cells(values: Vector) -> Vector:
    """[CELLS, 2, ORDER] values at each cell's Chebyshev nodes -> coefficients of t^k."""
    vandermonde = np.vander(nodes_on(-1.0, 1.0, ORDER), ORDER, increasing=True)
    return np.einsum("kv,mjv->mjk", np.linalg.inv(vandermonde), values)


def build_arrays(
    law: TokenLaw, L: float, w_star: float, d: int, lo: float, hi: float, resolution: Resolution
) -> dict[str, Vector]:
    """The numbers of an `OverlapTable` (see `build_table`)."""
    n, c = L - 2.0, w_star**2
    steepest = max(abs(lo), hi, c)
    at = nodes_on(lo, hi, resolution.nodes)
    k = overlaps(law, n, c, d, at, steepest, resolution.refine)
    if not all(np.all(np.isfinite(v)) for v in (k.K1, k.K2, k.K1_L, k.K2_L, k.K1_c)) or np.any(k.K2 <= 0):
        raise TableError(f"overlaps at w_star={w_star:g}, L={L:g} are not finite; use a smaller w_star")
    # K spans decades when n is large: arcsinh(K/scale) is a logarithm that survives a change of sign
    scale = float(np.min(k.K2))
    y1, y2 = (_Interpolant(np.arcsinh(v / scale), lo, hi) for v in (k.K1, k.K2))

    def values(w: Vector) -> tuple[Vector, Vector]:
        return scale * np.sinh(y1(w)), scale * np.sinh(y2(w))

    # exact identities K1(c) = K2(c) and K1'(c) = K2'(c)/2 put the minimum at (A_i, c) with loss zero; imposing them
    # moves K1 by no more than its error
    at_c = np.array([c])
    K1_c, K2_c = (v[0] for v in values(at_c))
    lift = K2_c / K1_c
    slope1 = (scale * np.cosh(y1(at_c)) * y1.slope(at_c))[0] * lift
    slope2 = (scale * np.cosh(y2(at_c)) * y2.slope(at_c))[0]
    tilt = (0.5 * slope2 - slope1) / K2_c
    moved = abs(lift - 1.0) + abs(tilt) * max(hi - c, c - lo)

    def corrected(w: Vector) -> Vector:
        K1, K2 = values(w)
        return np.stack([K1 * (lift + tilt * (w - c)), K2])

    edges = np.linspace(lo, hi, CELLS + 1)
    inner = 0.5 * (edges[:-1] + edges[1:])[:, None] + 0.5 * (hi - lo) / CELLS * nodes_on(-1.0, 1.0, ORDER)
    K = np.moveaxis(corrected(inner.ravel()).reshape(2, CELLS, ORDER), 0, 1)
    zero = np.zeros(resolution.nodes)
    by_L = [_Interpolant(v, lo, hi) for v in (k.K1_L / k.K2, k.K2_L / k.K2)]
    by_c = [_Interpolant(v, lo, hi) for v in (k.K1_c / k.K2, zero)]

    def derivative(pair: list[_Interpolant]) -> Vector:
        return np.stack([f(inner.ravel()).reshape(CELLS, ORDER) for f in pair], axis=1) * K[:, 1:]

    cells = _cells(K)
    # measured error: the cells' own polynomials against refined quadrature at points between the nodes
    check = np.unique(np.array([lo, 0.5 * lo, 0.0, 0.35 * c, 0.7 * c, c, hi]))
    check = check[(check >= lo) & (check <= hi)]
    fine = overlaps(law, n, c, d, check, steepest, 1.3 * resolution.refine)
    index = np.clip(np.floor((check - lo) / (hi - lo) * CELLS).astype(int), 0, CELLS - 1)
    t = 2.0 * ((check - lo) / (hi - lo) * CELLS - index) - 1.0
    table = np.sum(cells[index] * t[:, None, None] ** np.arange(ORDER), axis=-1)
    gap = [np.max(np.abs(table[:, j] / v - 1.0)) for j, v in enumerate((fine.K1, fine.K2))]
    # |dK/K| = coth(y) |dy|, and a safety factor of 3 on what is only measured at a few points
    error = np.array(
        [3.0 * gap[j] + y.tail * np.max(1.0 / np.tanh(np.abs(y(at)))) + 1e-14 for j, y in enumerate((y1, y2))]
    )
    error[0] += moved
    return {
        "cells": cells,
        "cells_L": _cells(derivative(by_L)),
        "cells_c": _cells(derivative(by_c)),
        "lo": np.float64(lo),
        "hi": np.float64(hi),
        "L": np.float64(L),
        "w_star": np.float64(w_star),
        "d": np.float64(d),
        "relative_error": error,
    }  # pyright: ignore[reportReturnType]


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
    return _from_arrays(arrays)


def _from_arrays(arrays: dict[str, Vector]) -> OverlapTable:
    error = float(np.max(arrays["relative_error"]))
    if not error <= LARGEST_ERROR:
        raise TableError(
            f"overlap table at L={float(arrays['L']):g}, w_star={float(arrays['w_star']):g} has a relative error of "
            f"{error:.1e}, the limit is {LARGEST_ERROR:.0e}; use a smaller w_star, or the sampled loss"
        )
    return OverlapTable(**{key: jnp.asarray(value) for key, value in arrays.items()})



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
    description = {
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
    names = {field.name for field in dataclasses.fields(OverlapTable)}
    arrays = load_or_build("table", description, lambda: build_arrays(law, L, w_star, d, lo, hi, resolution), names)
    return _from_arrays(arrays)
