"""Tables of `K1(w) = K(w, c)` and `K2(w) = K(w, w)`, `c = w*^2`: all that the induction part of the loss needs.

    K(w, w') = E_q S(wq, w'q),     Loss_IH = 1/2 [A_i^2 K(c,c) - 2 A_i v2 K1(w) + v2^2 K2(w)]        (MATH section 4)

A table is data: local polynomials on equal cells, with their derivatives in L and c, and its own error bound.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# an accepted state closer to the end of the domain than this fraction of its width asks for a larger table
MARGIN = 0.02


@jax.custom_jvp
def _attach(row: Array, by_L: Array, by_c: Array, L: Array, c: Array) -> Array:
    """`row`, with derivatives `by_L` and `by_c` in L and c: the value costs nothing and cannot drift."""
    return row


@_attach.defjvp
def _attach_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    row, by_L, by_c, _, _ = primals
    d_row, _, _, d_L, d_c = tangents
    return row, d_row + by_L * d_L + by_c * d_c


class OverlapTable(eqx.Module):
    """`K1(w) = K(w,c)` and `K2(w) = K(w,w)` on `lo <= w <= hi` as local polynomials; NaN outside.

    `cells[i, j, k]`: coefficient of t^k of K_{j+1} in cell i, t in [-1, 1] across the cell; `cells_L`, `cells_c`: the
    same for the derivatives in L and c. `relative_error` [2]: bounds of |dK/K| of K1 and K2 over the domain. All values
    are data: tables of any L, w*, domain share one compilation. Differentiable in w to any order below 8, and once in
    L and w_star (by the tabulated derivatives: changing these leaves changes no value, only `build_table` does).
    """

    cells: Float[Array, "m 2 k"]
    cells_L: Float[Array, "m 2 k"]
    cells_c: Float[Array, "m 2 k"]
    lo: Float[Array, ""]
    hi: Float[Array, ""]
    L: Float[Array, ""]
    w_star: Float[Array, ""]
    d: Float[Array, ""]
    relative_error: Float[Array, "2"]

    @property
    def c(self) -> Float[Array, ""]:
        """c = w*^2, where the loss has its minimum."""
        return self.w_star**2

    def pair(self, w: Float[Array, ""]) -> Float[Array, "2"]:
        """(K1(w), K2(w)); NaN outside the domain, with NaN derivatives."""
        return _pair(self, w)

    def target(self, w: Float[Array, ""]) -> Float[Array, ""]:
        """K1(w) = K(w, c): overlap of the student with the target."""
        return self.pair(w)[0]

    def student(self, w: Float[Array, ""]) -> Float[Array, ""]:
        """K2(w) = K(w, w): overlap of the student with itself."""
        return self.pair(w)[1]

    @property
    def kcc(self) -> Float[Array, ""]:
        """K(c, c) = K2(c); its derivative in w_star includes that of c."""
        return self.student(self.c)

    def in_domain(self, w: Float[Array, ""]) -> Bool[Array, ""]:
        """True where w is inside with a margin; False asks for a larger table."""
        margin = MARGIN * (self.hi - self.lo)
        return (w >= self.lo + margin) & (w <= self.hi - margin)


# a program of its own: what evaluates a table outside a compiled function (plateaus, predictions) then loads one, not
# one for each operation, and what is compiled traces it once
@eqx.filter_jit
def _pair(table: OverlapTable, w: Float[Array, ""]) -> Float[Array, "2"]:
    m = table.cells.shape[0]
    # the factor, not a branch, carries the NaN: so derivatives are NaN as well
    inside = jnp.where((w >= table.lo) & (w <= table.hi), 1.0, jnp.nan).astype(table.cells.dtype)
    position = (w - table.lo) * (m / (table.hi - table.lo))
    index = jnp.clip(jnp.floor(jax.lax.stop_gradient(position)).astype(jnp.int32), 0, m - 1)
    t = (2.0 * (position - index.astype(position.dtype)) - 1.0) * inside

    def take(cells: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(cells, index, keepdims=False)

    row = _attach(take(table.cells), take(table.cells_L), take(table.cells_c), table.L, table.c)
    value = row[:, -1]
    for k in range(row.shape[1] - 2, -1, -1):
        value = value * t + row[:, k]
    return value
