"""Tables of `K1(w, r) = K(w, c)` and `K2(w, r) = K(w, w)` at finite p11, r = e^{-p11} (MATH section 8).

They are the tables at p11 = inf, times what finite p11 changes: a polynomial in w and in a stretched r that vanishes at
r = 0. So r = 0 gives the tables of `table.py` to the last digit, and the loss's minimum stays exactly where it is.
"""

from __future__ import annotations

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gflow.losses.induction.table import MARGIN, OverlapTable

STRETCH = 0.8  # smaller: more of the nodes near r = 1, where the first layer attends to many tokens


class JointTable(eqx.Module):
    """`K1(w, r)` and `K2(w, r)` on `lo <= w <= hi`, `0 <= r <= r_max` (slightly above 1); NaN outside.

    `coefficients[i]` [2, W, R]: Chebyshev coefficients in w and in the stretched r (`position`) of y1, y2, where
    `K1 = scale sinh(asinh(K1(w, 0)/scale) + y1(w, r) - y1(w, 0))` and `K2 = K2(w, 0) exp(y2(w, r) - y2(w, 0))`.
    `relative_error` [2]: bounds of |dK/K| over the domain. Differentiable in w and r to any order.
    """

    base: OverlapTable
    coefficients: Float[Array, "2 w r"]
    scale: Float[Array, ""]
    lo: Float[Array, ""]
    hi: Float[Array, ""]
    r_max: Float[Array, ""]
    relative_error: Float[Array, "2"]

    def pair(self, w: Float[Array, ""], r: Float[Array, ""]) -> Float[Array, "2"]:
        """(K1(w, r), K2(w, r)); NaN outside the domain, with NaN derivatives."""
        inside = (w >= self.lo) & (w <= self.hi) & (r >= 0.0) & (r <= self.r_max)
        # the factor, not a branch, carries the NaN: so derivatives are NaN as well
        mark = jnp.where(inside, 1.0, jnp.nan).astype(self.coefficients.dtype)
        columns = _chebyshev((2 * w - self.lo - self.hi) / (self.hi - self.lo) * mark, self.coefficients.shape[1])
        t = _chebyshev(2 * position(r, self.r_max) - 1, self.coefficients.shape[2])
        away = t - jnp.asarray(np.resize((1.0, -1.0), t.size), t.dtype)  # T_j(t) - T_j(-1), and t = -1 is r = 0
        change = jnp.einsum("w,iwr,r->i", columns, self.coefficients, away)
        K = self.base.pair(w)
        K1 = self.scale * jnp.sinh(jnp.arcsinh(K[0] / self.scale) + change[0])
        return jnp.stack([K1, K[1] * jnp.exp(change[1])])

    def in_domain(self, w: Float[Array, ""]) -> Bool[Array, ""]:
        """True where w is inside with a margin; False asks for a larger table."""
        margin = MARGIN * (self.hi - self.lo)
        return (w >= self.lo + margin) & (w <= self.hi - margin)


def position(r: Float[Array, ""], r_max: Float[Array, ""]) -> Float[Array, ""]:
    """The stretched r in [0, 1]: t with `r = r_max [1 - STRETCH (1-t)/(STRETCH+t)]`."""
    left = (r_max - r) / r_max
    return STRETCH * (1.0 - left) / (STRETCH + left)


def unstretch(t: float, r_max: float) -> float:
    """r at a stretched position t in [0, 1]."""
    return r_max * (1.0 - STRETCH * (1.0 - t) / (STRETCH + t))


def largest_r(n: int) -> float:
    """End of the domain: a little beyond r = 1, so that derivatives at p11 = 0 are those of an interior point."""
    return 1.0 + 0.25 / n


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _chebyshev(x: Float[Array, ""], count: int) -> Float[Array, " count"]:
    """T_0(x), ..., T_{count-1}(x). In a few operations: an unrolled recurrence is what compilation would wait for."""
    return jnp.cos(jnp.arange(count, dtype=x.dtype) * jnp.arccos(x))


@_chebyshev.defjvp
def _chebyshev_jvp(count: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # T' in terms of T: regular at x = +-1, and differentiable in its turn
    row = _chebyshev(primals[0], count)
    derivative = np.zeros((count, count))
    for j in range(count):
        for k in range((j + 1) % 2, j, 2):
            derivative[j, k] = j if k == 0 else 2 * j
    return row, jnp.asarray(derivative, row.dtype) @ row * tangents[0]


def chebyshev_points(count: int) -> list[float]:
    """Chebyshev points of the first kind on [0, 1]."""
    return [0.5 + 0.5 * math.cos(math.pi * (i + 0.5) / count) for i in range(count)]
