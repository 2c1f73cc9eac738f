"""The toy in R^d: random initial matrices, the loss per component on a batch of sequences (MATH section 6)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gflow.losses.induction import MatrixParams, sequence_losses

LEAVES = ("p21", "V1", "V2", "WK", "WQ")


class Toy(eqx.Module):
    """`Loss = Loss_G4 + Loss_IH`, each `E ||f* - out||^2 / (2 d)`; tokens i.i.d. N(0, I_d), W* = w*^2 I, p11 = inf.

    `alpha_star`, `w_star`: dimensionless; `L` (at least 4) and `d` fix the shapes. Source: MATH sections 1, 2, 6.
    """

    alpha_star: Float[Array, ""]
    w_star: Float[Array, ""]
    L: int = eqx.field(static=True)
    d: int = eqx.field(static=True)

    @classmethod
    def of(cls, d: int, L: int = 32, alpha_star: float = 1.0, w_star: float = 1.0, dtype: Any = float) -> Toy:
        """The toy in the precision `dtype`."""
        return cls(jnp.asarray(alpha_star, dtype), jnp.asarray(w_star, dtype), int(L), int(d))

    @property
    def dtype(self) -> Any:
        """Precision of everything."""
        return self.alpha_star.dtype

    def initial_params(self, key: Key[Array, ""], sigma_init: Any) -> MatrixParams:
        """V1, V2, WK, WQ ~ sigma N(0, 1) entry by entry, p21 = sigma."""
        sigma = jnp.asarray(sigma_init, self.dtype)
        # drawn in float32, so that a seed is the same matrix in either precision
        draws = jax.random.normal(key, (4, self.d, self.d), jnp.float32).astype(self.dtype)
        V1, V2, WK, WQ = sigma * draws
        return MatrixParams(p21=sigma, V1=V1, V2=V2, WK=WK, WQ=WQ)

    def sequences(self, key: Key[Array, ""], count: int) -> Float[Array, "L d count"]:
        """Fresh sequences, tokens first; drawn in float32, which halves the time and changes no statistics."""
        return jax.random.normal(key, (self.L, self.d, count), jnp.float32).astype(self.dtype)

    def per_sequence(
        self, params: MatrixParams, tokens: Float[Array, "L d b"]
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """(4-gram part, induction part) of each sequence, divided by d.

        Sequences are stored tokens first, the order in which the forward pass works.
        """
        x = jnp.moveaxis(tokens, -1, 0)
        fourgram, induction = sequence_losses(params, x, self.alpha_star, self.w_star)
        return fourgram / self.d, induction / self.d

    def __call__(self, params: MatrixParams, tokens: Float[Array, "L d b"]) -> Float[Array, ""]:
        """Mean loss of a batch."""
        fourgram, induction = self.per_sequence(params, tokens)
        return jnp.mean(fourgram) + jnp.mean(induction)


def seed_keys(seed: Any) -> tuple[Key[Array, ""], Key[Array, ""]]:
    """(key of the initial matrices, key of the data) of a seed: each seed has its own stream."""
    initial, data = jax.random.split(jax.random.key(seed))
    return initial, data
