"""A sample's overlaps as a two-dimensional Chebyshev table: the flow of a sampled loss without passes through it."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gflow.errors import InputError, TableError
from gflow.losses.induction.sampled._moments import Sample, overlaps
from gflow.losses.induction.sampled._parts import SampledInductionLoss, cut, from_overlaps, per_scramble, silent

SIZES = ((16, 20), (20, 28), (28, 40))  # nodes in w and in e^{-p11}, tried in turn
CHECKS = 10  # points off the nodes
FAR = 700.0  # p11 from which e^{-p11} is nothing


class TabulatedInductionLoss(eqx.Module):
    """`SampledInductionLoss` with K1, K2 interpolated in (w, e^{-p11}), each scramble by itself.

    `cells` [S, 2, W, R] are Chebyshev coefficients on [lo, hi] x [0, 1] (R = 1: an infinite p11); `error` [2] their
    largest relative error at points off the nodes. NaN where w leaves [lo, hi], or p11 < 0. Isotropic parameters only.
    """

    alpha_star: Float[Array, ""]
    norm: Float[Array, " S"]
    cells: Float[Array, "S 2 W R"]
    lo: Float[Array, ""]
    hi: Float[Array, ""]
    error: Float[Array, "2"]
    block: ClassVar[str] = "induction"

    def scrambles(self, params: Any) -> Float[Array, " S"]:
        """The loss on each scramble alone."""
        if params.p11 is not None and self.cells.shape[3] == 1:
            raise InputError("sampled table: it was made for an infinite p11; make it for parameters with a finite one")
        w = jnp.asarray(params.logit_scale, self.lo.dtype)
        inside = (w >= self.lo) & (w <= self.hi)
        x = jnp.where(inside, (2.0 * w - self.lo - self.hi) / (self.hi - self.lo), jnp.nan)
        p11 = jnp.asarray(FAR if params.p11 is None else params.p11, w.dtype)
        r = jnp.where(p11 >= 0.0, jnp.exp(-p11), jnp.nan)
        along_w, along_r = _polynomials(x, self.cells.shape[2]), _polynomials(2.0 * r - 1.0, self.cells.shape[3])
        K = (self.cells @ along_r) @ along_w
        return from_overlaps(self.alpha_star, params.v2, self.norm, K)

    def scramble(self, i: Any) -> TabulatedInductionLoss:
        """The loss of scramble i alone."""
        S = self.norm.shape[0]
        return dataclasses.replace(self, norm=cut(self.norm, i, S), cells=cut(self.cells, i, S))

    def pooled(self) -> TabulatedInductionLoss:
        """The mean of all scrambles as a single one: the same loss, without what tells its error."""
        mean = lambda x: jnp.mean(x, axis=0, keepdims=True)  # noqa: E731
        return dataclasses.replace(self, norm=mean(self.norm), cells=mean(self.cells))

    def without_output(self) -> Float[Array, ""]:
        """`A_i^2 E|t|^2 / 2`: the loss of a model that says nothing."""
        return silent(self.alpha_star, self.norm)

    def __call__(self, params: Any) -> Float[Array, ""]:
        return jnp.mean(self.scrambles(params))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polynomials(x: Float[Array, ""], count: int) -> Float[Array, " count"]:
    """Chebyshev polynomials `T_k(x) = cos(k arccos x)`, k < count, on [-1, 1]; differentiable at the ends too."""
    return jnp.cos(jnp.arange(count, dtype=x.dtype) * jnp.arccos(jnp.clip(x, -1.0, 1.0)))


@_polynomials.defjvp
def _polynomials_jvp(count: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    # T_k' is a combination of T_0 .. T_{k-1}
    rows = [np.polynomial.chebyshev.chebder(np.eye(count)[k]) for k in range(count)]
    matrix = np.stack([np.pad(row, (0, count - len(row))) for row in rows])
    values = _polynomials(primals[0], count)
    return values, tangents[0] * (jnp.asarray(matrix, values.dtype) @ values)


@eqx.filter_jit
def _evaluate(points: Float[Array, "M k"], sample: Sample, scrambles: int) -> Float[Array, "M S 2"]:
    return jax.lax.map(lambda z: per_scramble(overlaps(z, sample=sample), scrambles), points)


def _nodes(count: int) -> np.ndarray:
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _coefficients(values: np.ndarray, axis: int) -> np.ndarray:
    count = values.shape[axis]
    matrix = np.linalg.inv(np.polynomial.chebyshev.chebvander(_nodes(count), count - 1))
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)


def tabulate(
    loss: SampledInductionLoss, lo: float, hi: float, finite_p11: bool, tolerance: float
) -> TabulatedInductionLoss:
    """The overlaps of `loss` on [lo, hi] in w (and every p11 >= 0), to a relative `tolerance` (host).

    Costs some hundred evaluations of the loss, all scrambles at once. Raises `TableError` when the finest grid is
    not enough; the loss itself can always be integrated instead.
    """
    S = loss.norm.shape[0]
    dtype = loss.norm.dtype

    def values(w: np.ndarray, r: np.ndarray | None) -> np.ndarray:
        columns = [w] if r is None else [w, np.minimum(-np.log(np.maximum(r, 1e-308)), FAR)]
        return np.asarray(_evaluate(jnp.asarray(np.stack(columns, axis=1), dtype), loss.sample, S), float)

    rng = np.random.default_rng(0)
    w_test = rng.uniform(lo, hi, CHECKS)
    r_test = np.concatenate(
        [1.0 - rng.uniform(0.0, 1.0, CHECKS // 2) ** 4, rng.uniform(0.0, 1.0, CHECKS - CHECKS // 2)]
    )
    wanted = values(w_test, r_test if finite_p11 else None)
    scale = np.max(np.abs(wanted), axis=(0, 1))
    error = np.full(2, np.inf)
    for size, size_r in SIZES:
        columns = size_r if finite_p11 else 1
        w = 0.5 * (lo + hi) + 0.5 * (hi - lo) * _nodes(size)
        r = 0.5 + 0.5 * _nodes(columns)
        grid = np.meshgrid(w, r, indexing="ij")
        K = values(grid[0].ravel(), grid[1].ravel() if finite_p11 else None)
        cells = _coefficients(_coefficients(K.reshape(size, columns, S, 2), 0), 1).transpose(2, 3, 0, 1)
        numbers = [jnp.asarray(v, dtype) for v in (cells, lo, hi)]
        there = np.polynomial.chebyshev.chebvander((2.0 * w_test - lo - hi) / (hi - lo), size - 1)
        across = np.polynomial.chebyshev.chebvander(2.0 * r_test - 1.0, columns - 1)
        got = np.einsum("pw,pr,skwr->psk", there, across, cells)
        error = np.max(np.abs(got - wanted), axis=(0, 1)) / scale
        if np.all(error <= tolerance):
            cells, lo_, hi_ = numbers
            return TabulatedInductionLoss(loss.alpha_star, loss.norm, cells, lo_, hi_, jnp.asarray(error, dtype))
    raise TableError(
        f"sampled table: relative error {np.max(error):.1e} on w in [{lo:.3g}, {hi:.3g}] with {SIZES[-1]} nodes, "
        f"wanted {tolerance:.0e}; integrate the sampled loss itself, or loosen the tolerance"
    )


def logit_range(c: float, start: float, width: float = 1.0) -> tuple[float, float]:
    """The logit scales that a flow towards c = w*^2 from `start` is expected to visit, with room for overshooting."""
    room = 0.25 * width * max(c, abs(start), 0.25)
    return min(-room, start - room), max(c, start) + 2.0 * room


def is_inside(loss: TabulatedInductionLoss, w: float) -> bool:
    """Whether w keeps a distance of 1% of the width from the ends of the table."""
    margin = 0.01 * float(loss.hi - loss.lo)
    return math.isfinite(w) and float(loss.lo) + margin < w < float(loss.hi) - margin
