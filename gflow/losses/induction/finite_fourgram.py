"""The 4-gram part of the population loss at finite p11: two geometric attention kernels, one after the other."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.losses.induction.fourgram import attention_moments


def composed_weights(
    p11: Float[Array, ""], p21: Float[Array, ""], n: int
) -> tuple[Float[Array, ""], Float[Array, " m"]]:
    """`c_0` and `c_1, ..., c_{n-1}`: the weights of x_{L-2}, x_{L-3}, ... in `sum_k softmax_k(-p21 (n-k)) y_{k+1}`.

    `c_m = sum_{i=0}^m e^{-p21 i} e^{-p11 (m-i)} / (N_n(p21) N_{n-i}(p11))`, `N_k(p) = sum_{j<k} e^{-p j}`, by the
    recurrence `s_m = e^{-p11} s_{m-1} + e^{-p21 m}/N_{n-m}(p11)`: O(n) work. Finite, with finite
    derivatives, for every p11 and p21 (0, 1e-12 and 1e8 too). Source: MATH section 3.
    """
    m = jnp.arange(n, dtype=p11.dtype)
    one = jnp.ones_like(m)
    first = attention_moments(p11 * one, n - m)[0]  # 1 / N_{n-m}(p11)
    second = attention_moments(p21, jnp.asarray(n, p21.dtype))[0]
    entering = jnp.exp(-p21 * m) * first

    r = jnp.exp(-p11)

    def follow(s: Array, b: Array) -> tuple[Array, Array]:
        s = r * s + b
        return s, s

    # a loop: an associative scan is not quicker at these lengths, and takes far longer to compile
    _, s = jax.lax.scan(follow, entering[0], entering[1:])
    return second * first[0], second * s


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
        if params.p11 is None:
            c0, m = attention_moments(p21, jnp.asarray(self.n, p21.dtype))[0], jnp.arange(1, self.n, dtype=p21.dtype)
            rest = c0 * jnp.exp(-p21 * m)
        else:
            c0, rest = composed_weights(jnp.asarray(params.p11), p21, self.n)
        # a sum of squares: nothing cancels, however small the loss has become
        bracket = (A - v * c0) ** 2 + v * v * jnp.sum(rest * rest)
        return 0.5 * self.d * (self.variance * bracket + self.mean**2 * (A - v) ** 2)
