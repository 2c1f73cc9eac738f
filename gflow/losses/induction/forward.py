"""The forward pass of target and model, sequence by sequence, in pure JAX (MATH sections 1, 2, 6).

Inside, tokens come first: a sequence batch is [L, d, *b], so that every step along the sequence is one contiguous
vector operation over the batch. The public functions take [*b, L, d].
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.losses.induction.params import MatrixParams


def _array(value: Any, like: Array) -> Array | None:
    """A parameter as an array of the tokens' precision; None (an infinite p11) stays None."""
    return None if value is None else jnp.asarray(value, like.dtype)


def gains(p11: Float[Array, ""], n: int) -> Float[Array, " n"]:
    """`1/N_k`, `N_k = 1 + r N_{k-1} = sum_{j<k} r^j`, r = e^{-p11}, k = 1..n: the newest token's weight in the average.

    A sum of positive terms: accurate with its derivatives at 0 (1/k) as at 1e8 (1); for p11 < 0 while n |p11| < 700.
    Source: MATH section 8.
    """
    decay = jnp.exp(-p11)

    def step(total: Array, _: None) -> tuple[Array, Array]:
        total = 1.0 + decay * total
        return total, total

    return 1.0 / jax.lax.scan(step, jnp.zeros_like(decay), None, length=n)[1]


def average(tokens: Float[Array, "n *r"], p11: Float[Array, ""] | None) -> Float[Array, "n *r"]:
    """The first layer along the first axis: `Y_k = Y_{k-1} + (x_k - Y_{k-1})/N_k`, `Y_1 = x_1`; p11 None: Y = x.

    The same as `Y_k = sum_{j<k} softmax_j(-p11 j) x_{k-j}` and as MATH section 8's recurrence, written as a convex
    combination, so that nothing can overflow or cancel. Linear in the tokens: a projection may be averaged instead.
    """
    if p11 is None:
        return tokens

    def step(y: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        token, gain = now
        y = y + gain * (token - y)
        return y, y

    return jax.lax.scan(step, tokens[0], (tokens, gains(p11, tokens.shape[0])))[1]


def position_weights(p11: Float[Array, ""] | None, p21: Float[Array, ""], n: int) -> Float[Array, " n"]:
    """Weights C with `sum_k softmax_k(-p21 (n-k)) y_{k+1} = sum_i C_i x_i`: both position attentions composed, in O(n).

    `C_i = a_i/N_i + e^{-p11} C_{i+1}` with a the second layer's attention. Source: MATH section 3 (c_j = C_{n-j}).
    """
    attention = jax.nn.softmax(-p21 * jnp.arange(n - 1, -1, -1, dtype=p21.dtype))
    if p11 is None:
        return attention
    decay = jnp.exp(-p11)

    def step(later: Array, here: Array) -> tuple[Array, Array]:
        weight = here + decay * later
        return weight, weight

    return jax.lax.scan(step, jnp.zeros_like(decay), attention * gains(p11, n), reverse=True)[1]


def attend(logits: Float[Array, "n *b"], values: Float[Array, "n d *b"]) -> Float[Array, "d *b"]:
    """`sum_k softmax_k(logits_k) values_k`, safe for large logits."""
    weights = jnp.exp(logits - jax.lax.stop_gradient(jnp.max(logits, axis=0, keepdims=True)))
    return jnp.sum(weights[:, None] * values, axis=0) / jnp.sum(weights, axis=0)[None]


def projections(tokens: Float[Array, "L d *b"], direction: Float[Array, "d *b"]) -> Float[Array, "n *b"]:
    """`direction . x_k` for the n = L-2 keys."""
    return jnp.sum(tokens[:-2] * direction[None], axis=1)


def _times(matrix: Any, vectors: Float[Array, "d *b"]) -> Float[Array, "e *b"]:
    return jnp.tensordot(jnp.asarray(matrix), vectors, axes=1)


def induction_output(params: Any, tokens: Float[Array, "L d *b"]) -> Float[Array, "d *b"]:
    """out_2 of the model for token-first sequences: reads p11, v2 (V2) and the logit scale (WK, WQ)."""
    query, p11 = tokens[-1], _array(params.p11, tokens)
    if isinstance(params, MatrixParams):
        # (WQ x_L) . (WK y) = (WK^T WQ x_L) . y, and the first layer commutes with the projection
        logits = average(projections(tokens, _times(jnp.asarray(params.WK).T, _times(params.WQ, query))), p11)
        return _times(params.V2, attend(logits, tokens[1:-1]))
    logits = jnp.asarray(params.logit_scale) * average(projections(tokens, query), p11)
    return params.v2 * attend(logits, tokens[1:-1])


def fourgram_output(params: Any, tokens: Float[Array, "L d *b"]) -> Float[Array, "d *b"]:
    """out_1 of the model for token-first sequences: reads p11, p21 and v1 (V1)."""
    n = tokens.shape[0] - 2
    weights = position_weights(_array(params.p11, tokens), jnp.asarray(params.p21), n)
    mixed = jnp.tensordot(weights, tokens[:n], axes=1)
    return _times(params.V1, mixed) if isinstance(params, MatrixParams) else params.v1 * mixed


def induction_target(tokens: Float[Array, "L d *b"], w_star: Float[Array, ""]) -> Float[Array, "d *b"]:
    """`sum_s x_s softmax_s(w*^2 x_L x_{s-1})` for token-first sequences: the induction target before its factor A_i."""
    return attend(w_star**2 * projections(tokens, tokens[-1]), tokens[1:-1])


def _token_first(x: Float[Array, "*b L d"]) -> Float[Array, "L d *b"]:
    return jnp.moveaxis(x, (-2, -1), (0, 1))


def first_layer(x: Float[Array, "*b L d"], p11: Any) -> Float[Array, "*b n d"]:
    """Keys `y_{k+1} = sum_{j=0}^{k-1} softmax_j(-p11 j) x_{k-j}`, k = 1..n, n = L-2 (p11 None means infinite: x_k).

    Values and derivatives are finite for every finite p11. Memory O(b L d). Source: MATH sections 2, 8.
    """
    return jnp.moveaxis(average(jnp.moveaxis(x, -2, 0)[:-2], _array(p11, x)), 0, -2)


def model_output(params: Any, x: Float[Array, "*b L d"]) -> tuple[Float[Array, "*b d"], Float[Array, "*b d"]]:
    """`out_1 = v1 sum_k softmax_k(-p21 (n-k)) y_{k+1}`, `out_2 = v2 sum_k softmax_k(w x_L . y_{k+1}) x_{k+1}`.

    `params`: any of the parametrisations (isotropic in d dimensions: v and w times the identity), or `MatrixParams`.
    Source: MATH sections 2, 6.
    """
    tokens = _token_first(x)
    return jnp.moveaxis(fourgram_output(params, tokens), 0, -1), jnp.moveaxis(induction_output(params, tokens), 0, -1)


def target_output(
    x: Float[Array, "*b L d"], alpha_star: Any, w_star: Any
) -> tuple[Float[Array, "*b d"], Float[Array, "*b d"]]:
    """`f*(X) = (A_g x_{L-2}, A_i sum_s x_s softmax_s(w*^2 x_L . x_{s-1}))`, `A_g = alpha*/(1+alpha*)`, A_i = 1 - A_g.

    Source: MATH section 1.
    """
    alpha, w = jnp.asarray(alpha_star, x.dtype), jnp.asarray(w_star, x.dtype)
    induction = jnp.moveaxis(induction_target(_token_first(x), w), 0, -1)
    return alpha / (1.0 + alpha) * x[..., -3, :], induction / (1.0 + alpha)


def sequence_losses(
    params: Any, x: Float[Array, "*b L d"], alpha_star: Any, w_star: Any
) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
    """`1/2 ||f*(X) - out||^2` of each sequence, summed over components: (4-gram part, induction part).

    Their means over sequences estimate Loss_G4 and Loss_IH. Source: MATH section 2.
    """
    wanted, given = target_output(x, alpha_star, w_star), model_output(params, x)
    fourgram, induction = (0.5 * jnp.sum((t - o) ** 2, axis=-1) for t, o in zip(wanted, given, strict=True))
    return fourgram, induction
