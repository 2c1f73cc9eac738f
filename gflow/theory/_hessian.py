"""Hessians as numbers: the dense one at a point or along a path, the ends of a large one's spectrum, their noise."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

LANCZOS_PAIRS = 3  # eigenvalues at each end
ENTRIES = 1 << 22  # of all the matrices that are built at once along a path


class Point(eqx.Module):
    """What the dense Hessian says at a point."""

    values: Float[Array, "*n m"]
    vectors: Float[Array, "*n m m"]
    gradient: Float[Array, "*n m"]
    loss: Float[Array, "*n"]
    rayleigh: Float[Array, "*n"]
    rounding: Float[Array, "*n"]


def _flat(loss: Any, moving: PyTree, frozen: PyTree) -> tuple[Any, Float[Array, " m"]]:
    y, back = ravel_pytree(moving)
    return (lambda x: jnp.asarray(loss(eqx.combine(back(x), frozen)))), y


def _point(loss: Any, moving: PyTree, frozen: PyTree) -> Point:
    value, y = _flat(loss, moving, frozen)
    eps = jnp.finfo(y.dtype).eps
    # how much the matrix changes when every entry moves by a rounding, with signs that do not cancel in pairs
    signs = jnp.where(jnp.arange(y.size) % 3 == 0, -1.0, 1.0).astype(y.dtype)
    near = jnp.stack([y, y * (1 + 2 * eps * signs), y * (1 - 2 * eps * signs)])
    hessian, *others = jax.vmap(jax.hessian(value))(near)
    symmetric = (hessian + hessian.T) / 2
    apart = [jnp.linalg.norm(other - hessian) for other in (hessian.T, *others)]
    rounding = jnp.max(jnp.stack(apart))
    values, vectors = jnp.linalg.eigh(symmetric)
    level, gradient = jax.value_and_grad(value)(y)
    squared = gradient @ gradient
    rayleigh = gradient @ symmetric @ gradient / jnp.where(squared > 0, squared, 1.0)
    return Point(values, vectors, gradient, level, rayleigh, rounding)


@eqx.filter_jit
def dense_at(loss: Any, moving: PyTree, frozen: PyTree) -> Point:
    """Eigenvalues and gradient at a point."""
    return _point(loss, moving, frozen)


@eqx.filter_jit
def dense_along(loss: Any, moving: PyTree, frozen: PyTree) -> Point:
    """The same at every point of a path, whose moving leaves have a leading axis; as many at once as memory allows."""
    n = jax.tree.leaves(moving)[0].shape[0]
    size = sum(leaf.size for leaf in jax.tree.leaves(moving)) // n
    batch = max(1, min(n, ENTRIES // size**2))
    return jax.lax.map(lambda p: _point(loss, p, frozen), moving, batch_size=batch)


@eqx.filter_jit
def _gradient(loss: Any, moving: PyTree, frozen: PyTree) -> tuple[Array, Array]:
    value, y = _flat(loss, moving, frozen)
    return jax.value_and_grad(value)(y)


@eqx.filter_jit
def _product(loss: Any, moving: PyTree, frozen: PyTree, v: Float[Array, " m"]) -> Float[Array, " m"]:
    value, y = _flat(loss, moving, frozen)
    return jax.jvp(jax.grad(value), (y,), (v,))[1]


def lanczos(
    loss: Any, moving: PyTree, frozen: PyTree
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float, float]:
    """The extreme eigenvalues by products H v: values, vectors, gradient, loss, largest residual, Rayleigh quotient.

    Implicitly restarted Lanczos (ARPACK). The residual `|H v - lambda v|` bounds the error of each eigenvalue.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    level, gradient = (np.asarray(x) for x in _gradient(loss, moving, frozen))
    m, dtype = gradient.size, gradient.dtype

    def times(v: np.ndarray) -> np.ndarray:
        return np.asarray(_product(loss, moving, frozen, jnp.asarray(np.ravel(v), dtype)))

    if not np.all(np.isfinite(times(gradient))):
        nothing = np.full(2 * LANCZOS_PAIRS, np.nan)
        return nothing, np.full((m, nothing.size), np.nan), gradient, float(level), np.inf, np.nan
    operator = LinearOperator((m, m), matvec=times, dtype=dtype)  # pyright: ignore[reportCallIssue]
    start = np.cos(np.arange(m) + 1.0).astype(dtype)  # any vector that is not special; always the same
    # tol = 0 asks for the precision of the numbers
    values, vectors = eigsh(operator, k=2 * LANCZOS_PAIRS, which="BE", v0=start, ncv=min(m, 60), maxiter=200, tol=0)
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
    residual = max(float(np.linalg.norm(times(v) - e * v)) for e, v in zip(values, vectors.T, strict=True))
    squared = float(gradient @ gradient)
    rayleigh = float(gradient @ times(gradient)) / squared if squared > 0 else 0.0
    return values, vectors, gradient, float(level), residual, rayleigh


def table_noise(loss: Any, params: PyTree) -> np.ndarray:
    """Size of the error that an overlap table puts into the eigenvalues, at each point [n]; 0 without a table.

    Of each derivative of K1 and K2 two errors are known: what it jumps by between neighbouring cells (the table is a
    polynomial in each), and the table's own relative error, of the function and of the derivative itself. They enter H
    through `J = dw/d theta`: `|J|^2 dL_ww + 2 |J| dL_vw + |d2w| dL_w`. `params`: leaves [n].
    """
    induction = getattr(loss, "induction", loss)
    table = getattr(induction, "table", None)
    if not hasattr(table, "cells") or getattr(params, "v2", None) is None or not hasattr(params, "logit_scale"):
        return np.zeros(np.shape(jax.tree.leaves(params)[0])[:1])
    v, A = np.abs(np.asarray(params.v2)), float(induction.amplitude)
    (first1, first2), (second1, second2) = table_errors(table, np.asarray(params.logit_scale))
    by_w = A * v * first1 + 0.5 * v * v * first2
    mixed = A * first1 + v * first2
    by_ww = A * v * second1 + 0.5 * v * v * second2
    if hasattr(params, "wKQ"):
        slope, bend = 2.0 * np.abs(np.asarray(params.wKQ)), 2.0
    elif hasattr(params, "wK"):
        slope, bend = np.hypot(np.asarray(params.wK), np.asarray(params.wQ)), 1.0
    else:
        slope, bend = 1.0, 0.0
    return slope**2 * by_ww + 2.0 * slope * mixed + bend * by_w


REACH = 4  # cells on either side


def table_errors(table: Any, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of `(K1', K2')` and of `(K1'', K2'')` at w [n]: two arrays [2, n]."""
    cells = np.asarray(table.cells)
    half = 0.5 * float(table.hi - table.lo) / len(cells)
    here = np.clip((w - float(table.lo)) // (2 * half), 0, len(cells) - 1).astype(int)
    own = np.asarray(table.relative_error)[:, None]
    value = np.abs(cells[here].sum(-1)).T
    errors = []
    for k in (1, 2):
        cells = cells[..., 1:] * np.arange(1, cells.shape[-1])
        at_end, at_start = cells.sum(-1), (cells * (-1.0) ** np.arange(cells.shape[-1])).sum(-1)
        jumps = np.abs(at_end[:-1] - at_start[1:])
        around = np.clip(here[:, None] + np.arange(-REACH, REACH), 0, len(jumps) - 1)
        errors.append((np.max(jumps[around], axis=1) / half**k).T + own * (value + np.abs(at_end[here]).T / half**k))
    return errors[0], errors[1]
