"""The 4-gram part of the population loss at finite p11: two geometric attention kernels, one after the other."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.losses.induction.forward import position_weights


class FiniteFourgramLoss(eqx.Module):
    """`Loss_G4 = d/2 {s2 [(A_g - v1 c_0)^2 + v1^2 sum_{m>0} c_m^2] + mu^2 (A_g - v1)^2}`, any p11 (MATH section 3).

    Exact for every token law with mean mu and variance s2. Called with parameters whose p11 is None (infinite) it is
    `FourgramLoss` to rounding. `n` = L - 2 is the number of keys: the whole numbers only.
    """

    n: int = eqx.field(static=True)
    alpha_star: Float[Array, ""]
    d: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]
    block: ClassVar[str] = "fourgram"

    @property
    def amplitude(self) -> Float[Array, ""]:
        """A_g = alpha*/(1+alpha*)."""
        return self.alpha_star / (1.0 + self.alpha_star)

    @property
    def without_output(self) -> Float[Array, ""]:
        """The loss of a model that puts out nothing, v1 = 0."""
        return 0.5 * self.d * self.amplitude**2 * (self.variance + self.mean**2)

    def __call__(self, params: Any) -> Float[Array, ""]:
        A, p21, v = self.amplitude, jnp.asarray(params.p21), jnp.asarray(params.v1)
        c = position_weights(None if params.p11 is None else jnp.asarray(params.p11), p21, self.n)
        # a sum of squares: nothing cancels, however small the loss has become
        bracket = (A - v * c[-1]) ** 2 + v * v * jnp.sum(c[:-1] ** 2)
        return 0.5 * self.d * (self.variance * bracket + self.mean**2 * (A - v) ** 2)
