"""The 4-gram part of the population loss in closed form, for an infinite p11 (MATH section 3)."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# B_{2k}/(2k)! of (x/2) coth(x/2) = sum_k B_{2k} x^{2k}/(2k)!; twelve terms reach 1e-17 on |x| <= 1
_COTH_SERIES = (
    1.0,
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
    77683 / 14101100039391805440000,
)


def _half_coth(x: Array) -> tuple[Array, Array]:
    """`log[(x/2) coth(x/2)]` and `log[x/(1-e^{-x})]`, smooth and finite, with all derivatives, for every real x."""
    near = jnp.abs(x) <= 1.0
    # each branch sees only arguments it can differentiate
    small = jnp.where(near, x, 0.0)
    square = small * small
    even = jnp.full_like(x, _COTH_SERIES[-1])
    for coefficient in _COTH_SERIES[-2::-1]:
        even = even * square + coefficient
    size = jnp.where(near, 1.0, jnp.abs(x))
    t = jnp.exp(-size)
    log_gap = jnp.log1p(-t)
    log_coth = jnp.where(near, jnp.log(even), jnp.log(0.5 * size) + jnp.log1p(t) - log_gap)
    log_ratio = jnp.where(
        near, jnp.log(even + 0.5 * small), jnp.log(size) - log_gap + jnp.minimum(jnp.where(near, 0.0, x), 0.0)
    )
    return log_coth, log_ratio


def attention_moments(p21: Float[Array, ""], n: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`M = (1-r)/(1-r^n)` and `N = (1-r)(1+r^n)/((1+r)(1-r^n))`, r = e^{-p21}: weight of the wanted token, and sum of
    squared weights, of `softmax_k(-p21 (n-k))` over n positions (MATH section 3).

    `M = E(np)/(n E(p))`, `E(x) = x/(1-e^{-x})`, and `N = H(np)/(n H(p))`, `H(x) = (x/2) coth(x/2)`: both analytic at 0.
    Full relative accuracy, value and derivatives, for any p21 (also 0 and negative) and real n >= 2.
    """
    H_p, E_p = _half_coth(p21)
    H_np, E_np = _half_coth(n * p21)
    return jnp.exp(E_np - E_p) / n, jnp.exp(H_np - H_p) / n


class FourgramLoss(eqx.Module):
    """`Loss_G4 = d/2 {s2 [A_g^2 - 2 A_g v1 M + v1^2 N] + mu^2 (A_g - v1)^2}`, `A_g = alpha*/(1+alpha*)`, p11 = inf.

    Called with parameters of any parametrisation, it reads p21 and v1 only. All leaves are scalar arrays: L (real, at
    least 4), alpha_star, d (number of token components), mean and variance of a token. Differentiable in all of them.
    Source: MATH section 3; d-dimensional tokens, section 6.
    """

    L: Float[Array, ""]
    alpha_star: Float[Array, ""]
    d: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]
    block: ClassVar[str] = "fourgram"

    @property
    def amplitude(self) -> Float[Array, ""]:
        """A_g = alpha*/(1+alpha*)."""
        return self.alpha_star / (1.0 + self.alpha_star)

    def __call__(self, params: Any) -> Float[Array, ""]:
        A, n, p, v = self.amplitude, self.L - 2.0, jnp.asarray(params.p21), jnp.asarray(params.v1)
        late = p > 1.0
        M, N = attention_moments(jnp.where(late, 1.0, p), n)
        early_bracket = A * A - 2.0 * A * v * M + v * v * N
        # As p grows M and N tend to 1 and the bracket to zero: with 1 - M small, and 1 - N = 2 (1-M)/(1+r) exactly,
        # nothing cancels
        far = jnp.where(late, p, 2.0)
        r, r_n = jnp.exp(-far), jnp.exp(-n * far)
        missed = (r - r_n) / (1.0 - r_n)
        late_bracket = (A - v) ** 2 + 2.0 * missed * v * (A - v * jax.nn.sigmoid(far))
        bracket = jnp.where(late, late_bracket, early_bracket)
        return 0.5 * self.d * (self.variance * bracket + self.mean**2 * (A - v) ** 2)
