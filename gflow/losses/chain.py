"""Depth-N linear chain: the smallest flow with a plateau, and its closed-form times."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.errors import InputError


class ChainLoss(eqx.Module):
    """`loss(w) = (1 - w^N)^2 / (2 N)`, so that `dw/dt = (1 - w^N) w^(N-1)`.

    The product of N equal weights fitted to 1. Depth 2 leaves a start at s after a time log(1/s), depth 3 after 1/s:
    the exponential and the algebraic plateau.
    """

    depth: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.depth < 1:
            raise InputError(f"ChainLoss: depth={self.depth} must be at least 1")

    def __call__(self, w: Float[Array, ""]) -> Float[Array, ""]:
        return (1 - w**self.depth) ** 2 / (2 * self.depth)

    def time(self, w: Float[Array, ""], start: Float[Array, ""]) -> Float[Array, ""]:
        """Time to go from `start` to `w` (both in (0, 1)), in closed form for depth 1, 2 and 3.

        `int dw / ((1 - w^N) w^(N-1))`: depth 2 gives w/sqrt(1-w^2) = C e^t. Raises `InputError` for other depths.
        """
        if self.depth not in _ANTIDERIVATIVE:
            raise InputError(f"ChainLoss: no closed form for depth {self.depth}; there is one for 1, 2 and 3")
        primitive = _ANTIDERIVATIVE[self.depth]
        return primitive(w) - primitive(start)


def _cubic(w: Float[Array, ""]) -> Float[Array, ""]:
    # 1/(w^2 (1-w^3)) = 1/w^2 + w/(1-w^3), the second by partial fractions
    root = jnp.sqrt(jnp.asarray(3.0, w.dtype))
    return -1 / w - jnp.log1p(-w) / 3 + jnp.log1p(w + w**2) / 6 - jnp.arctan((2 * w + 1) / root) / root


_ANTIDERIVATIVE = {
    1: lambda w: -jnp.log1p(-w),
    2: lambda w: jnp.log(w) - 0.5 * jnp.log1p(-(w**2)),
    3: _cubic,
}
