"""Building the tables of finite p11 on the host: a row for each r, each kept on disk as soon as it is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gflow.errors import InputError, TableError
from gflow.io.cache import load_or_build
from gflow.losses.induction.build import LARGEST_ERROR, default_domain, make_table, nodes_on
from gflow.losses.induction.joint_table import JointTable, chebyshev_points, largest_r, unstretch
from gflow.losses.induction.overlap_finite import overlap_row
from gflow.losses.induction.quadrature import Vector
from gflow.losses.induction.table import OverlapTable
from gflow.losses.induction.transfer_rules import DIGITS, queries
from gflow.tokens import gaussian

FORMAT = 1  # of the rows and of what they mean; raise it whenever either changes
CHECKS = (0.3, 0.7, 0.96)  # values of r between the nodes at which the finished table is measured
Progress = Callable[["Building"], None]


class Building(NamedTuple):
    """How far a table is: `done` of `total` overlaps computed (those of rows found on disk count as done)."""

    done: int
    total: int


def _sizes(n: int) -> tuple[int, int]:
    """Nodes in w and in r: the transition near r = 1 takes place over 1 - r ~ 1/n."""
    return 22, 20 if n <= 24 else 22 if n <= 60 else 24 if n <= 120 else 28


def check_length(L: float | int) -> int:
    """n = L - 2 as the whole number that the chain of keys needs. Raises `InputError`."""
    if int(L) != L:
        raise InputError(f"L={L:g} must be a whole number when p11 is finite; the nearest is L={round(L)}")
    return int(L) - 2


def build_joint_table(
    L: float | int,
    w_star: float,
    d: int = 1,
    lo: float | None = None,
    hi: float | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    nodes: tuple[int, int] | None = None,
) -> JointTable:
    """The table of K1(w, r), K2(w, r) for Gaussian tokens on [lo, hi] (default: [-0.1 c, 1.25 c], c = w*^2).

    Computed row by row in r; with `cache` a row that was ever computed on this machine is read, so an interrupted
    build goes on where it stopped. `nodes`: Chebyshev nodes in w and in r. The cost rises like L^1.5 at most (grids
    near r = 1). Raises `InputError` for an L with a fraction, `TableError` where the error would be above 1e-5.
    """
    n, c = check_length(L), w_star**2
    low, high = default_domain(w_star)
    lo, hi = 0.4 * low if lo is None else lo, high if hi is None else hi
    base = make_table(gaussian(), float(L), w_star, d, min(lo, low), max(hi, high), cache=cache)
    in_w, in_r = nodes or _sizes(n)
    w, r_max = nodes_on(lo, hi, in_w), largest_r(n)
    at = [unstretch(t, r_max) for t in chebyshev_points(in_r)]
    off = np.unique(np.clip([0.9 * lo, 0.0, 0.37 * c, 0.72 * c, c, hi], lo, hi))
    jobs = [(r, w, 1.0) for r in at] + [(r, off, 1.2) for r in CHECKS]
    counts = [queries(n, d, max(abs(lo), hi, c), refine)[0].size for _, _, refine in jobs]
    done, rows = 0, []
    for (r, where, refine), count in zip(jobs, counts, strict=True):
        rows.append(_row(n, r, where, c, d, refine, cache, _teller(progress, done, sum(counts))))
        done += count
        if progress is not None:
            progress(Building(done, sum(counts)))
    K = np.stack(rows[:in_r])  # [R, 2, W]
    if not np.all(np.isfinite(K)) or np.any(K[:, 1] <= 0):
        raise TableError(f"overlaps at finite p11, L={L:g}, w_star={w_star:g} are not finite; use a smaller w_star")
    scale = float(np.min(K[:, 1]))
    y = np.stack([np.arcsinh(K[:, 0] / scale), np.log(K[:, 1])])  # [2, R, W]
    coefficients = np.einsum("wm,irm,sr->iws", _transform(in_w), y, _transform(in_r))
    table = _assemble(base, coefficients, scale, lo, hi, r_max, np.zeros(2))
    measured = _measured(table, off, np.stack(rows[in_r:]))
    # the last coefficients alternate in parity: look at several; dK/K = dy coth(y) for K1
    tail = np.max(np.abs(coefficients[:, -2:]), axis=(1, 2)) + np.max(np.abs(coefficients[:, :, -2:]), axis=(1, 2))
    error = 3.0 * measured + 2.0 * tail * np.array([float(np.max(1.0 / np.tanh(np.abs(y[0])))), 1.0])
    if not np.max(error) <= LARGEST_ERROR:
        raise TableError(
            f"the table at finite p11, L={L:g}, w_star={w_star:g} has a relative error of {np.max(error):.1e}, the "
            f"limit is {LARGEST_ERROR:.0e}; use a smaller w_star, or evaluate='sampled'"
        )
    return _assemble(base, coefficients, scale, lo, hi, r_max, error + np.asarray(base.relative_error))


def _teller(progress: Progress | None, before: int, total: int) -> Callable[[], None] | None:
    if progress is None:
        return None
    count = [before]

    def tell() -> None:  # called from the workers: an integer a little behind does no harm
        count[0] += 1
        progress(Building(count[0], total))

    return tell


def _row(
    n: int, r: float, w: Vector, c: float, d: int, refine: float, cache: bool, done: Callable[[], None] | None
) -> Vector:
    """K1 and K2 [2, W] at one r, from disk if they are there."""

    def compute() -> dict[str, Vector]:
        K1, K2 = overlap_row(n, r, w, c, d, refine, done)
        return {"K": np.stack([K1, K2])}

    if not cache:
        return compute()["K"]
    description = {
        "format": FORMAT, "n": n, "r": r, "w": w, "c": c, "d": d, "refine": refine, "digits": DIGITS,
    }  # fmt: skip
    return load_or_build("row", description, compute, {"K"})["K"]


def _transform(count: int) -> Vector:
    """[count, count]: values at Chebyshev points of the first kind -> Chebyshev coefficients."""
    theta = math.pi * (np.arange(count) + 0.5) / count
    out = 2.0 / count * np.cos(np.outer(np.arange(count), theta))
    out[0] *= 0.5
    return out


def _assemble(
    base: OverlapTable, coefficients: Vector, scale: float, lo: float, hi: float, r_max: float, error: Vector
) -> JointTable:
    scale_, lo_, hi_, end = (jnp.asarray(v, dtype=float) for v in (scale, lo, hi, r_max))
    return JointTable(base, jnp.asarray(coefficients), scale_, lo_, hi_, end, jnp.asarray(error))


def _measured(table: JointTable, w: Vector, K: Vector) -> Vector:
    """Largest |dK/K| [2] against overlaps K [checks, 2, W] of finer steps at r = CHECKS."""
    pair = jax.jit(jax.vmap(jax.vmap(table.pair, (0, None)), (None, 0)))
    seen = np.asarray(pair(jnp.asarray(w), jnp.asarray(CHECKS, dtype=float)))  # [checks, W, 2]
    return np.max(np.abs(seen / np.moveaxis(K, 1, 2) - 1.0), axis=(0, 1))
