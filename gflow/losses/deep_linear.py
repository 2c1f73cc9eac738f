"""Two-layer linear network with balanced initialisation: singular modes learned one after another, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class DeepLinearParams(NamedTuple):
    """The two layers of `x -> W2 W1 x`."""

    W1: Float[Array, "k n"]
    W2: Float[Array, "m k"]


class DeepLinearLoss(eqx.Module):
    """`loss(W1, W2) = 1/2 || target - W2 W1 ||_F^2`, whitened inputs.

    From balanced, aligned layers each singular value a of W2 W1 follows `da/dt = 2 a (s - a)` on its own, with s that
    of the target: `a(t) = s / (1 + (s/a0 - 1) e^{-2 s t})`. Source: Saxe, McClelland, Ganguli, arXiv 1312.6120.
    """

    target: Float[Array, "m n"]

    def __call__(self, params: DeepLinearParams) -> Float[Array, ""]:
        return 0.5 * jnp.sum((self.target - params.W2 @ params.W1) ** 2)

    def balanced_start(self, a0: float) -> DeepLinearParams:
        """Layers aligned with the target's singular vectors, every mode at strength `a0`."""
        left, _, right = jnp.linalg.svd(self.target, full_matrices=False)
        root = jnp.sqrt(jnp.asarray(a0, self.target.dtype))
        return DeepLinearParams(root * right, root * left)

    def mode_time(self, mode: int, strength: float, a0: float) -> Float[Array, ""]:
        """When singular value number `mode` of W2 W1 reaches `strength`: log(a (s-a0) / (a0 (s-a))) / (2 s)."""
        s = jnp.linalg.svd(self.target, compute_uv=False)[mode]
        return jnp.log(strength * (s - a0) / (a0 * (s - strength))) / (2 * s)
