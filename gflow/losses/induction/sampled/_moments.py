"""Overlaps of student and teacher on a fixed sample, with first and second derivatives from one pass each.

For isotropic parameters the induction part of the loss depends on the sample through two numbers,
`K1 = E<t, f>` and `K2 = E<f, f>`, functions of z = (w, p11) alone: t is what the target attends to, f what the model
does. A pass goes through the sample in chunks and along the keys one by one, so its memory is a few vectors per
chunk whatever L is; derivatives are carried forward with it. Asking JAX for a gradient runs one pass with two
tangents, for a Hessian (or a Jacobian of the flow) one pass with the second derivatives.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.losses.induction.forward import gains, projections


class Sample(eqx.Module):
    """C chunks of m sequences: tokens [C, L, d, m], and what the target attends to in each, before its factor A_i."""

    tokens: Float[Array, "C L d m"]
    attended: Float[Array, "C d m"]


def attention(z: Float[Array, " k"], tokens: Float[Array, "L d m"]) -> Float[Array, "d m"]:
    """`sum_k softmax_k(w x_L . y_{k+1}) x_{k+1}` key by key, z = (w, p11), or (w,) for an infinite p11."""
    w, scores, values = z[0], projections(tokens, tokens[-1]), tokens[1:-1]
    gain = gains(z[1], scores.shape[0]) if z.shape[0] > 1 else None

    def follow(y: Array, score: Array, g: Array | None) -> Array:
        return score if g is None else y + g * (score - y)

    def extremes(carry: Any, now: Any) -> tuple[Any, None]:
        y, low, high = carry
        y = follow(y, *now)
        return (y, jnp.minimum(low, y), jnp.maximum(high, y)), None

    def accumulate(carry: Any, now: Any) -> tuple[Any, None]:
        y, total, mixed = carry
        score, g, value = now
        y = follow(y, score, g)
        weight = jnp.exp(w * y - top)
        return (y, total + weight, mixed + weight[None] * value), None

    # the largest logit first, so that no exponential overflows; it needs no derivative
    first = scores[0]
    inputs = jax.lax.stop_gradient((scores, gain))
    (_, low, high), _ = jax.lax.scan(extremes, jax.lax.stop_gradient((first, first, first)), inputs)
    top = jax.lax.stop_gradient(jnp.maximum(w * low, w * high))
    start = (first, jnp.zeros_like(first), jnp.zeros_like(values[0]))
    (_, total, mixed), _ = jax.lax.scan(accumulate, start, (scores, gain, values))
    return mixed / total[None]


def _overlaps(z: Float[Array, " k"], chunk: Sample) -> Float[Array, "2"]:
    f = attention(z, chunk.tokens)
    return jnp.stack([jnp.mean(jnp.sum(chunk.attended * f, axis=0)), jnp.mean(jnp.sum(f * f, axis=0))])


def _with_slopes(z: Float[Array, " k"], chunk: Sample) -> tuple[Array, Array]:
    def twice(z: Array) -> tuple[Array, Array]:
        value = _overlaps(z, chunk)
        return value, value

    slopes, value = jax.jacfwd(twice, has_aux=True)(z)
    return value, slopes


def _with_curvature(z: Float[Array, " k"], chunk: Sample) -> tuple[Array, Array, Array]:
    def twice(z: Array) -> tuple[Array, tuple[Array, Array]]:
        value, slopes = _with_slopes(z, chunk)
        return slopes, (value, slopes)

    curvature, (value, slopes) = jax.jacfwd(twice, has_aux=True)(z)
    return value, slopes, curvature


def _pass(function: Any, z: Float[Array, " k"], sample: Sample) -> Any:
    """`function(z, chunk)` for every chunk. Many z at once (under `vmap`) are taken one after the other."""

    @jax.custom_batching.sequential_vmap
    def through(z: Array, sample: Sample) -> Any:
        return jax.lax.map(functools.partial(function, z), sample)

    return through(z, sample)


@eqx.filter_custom_jvp
def overlaps(z: Float[Array, " k"], *, sample: Sample) -> Float[Array, "C 2"]:
    """(K1, K2) of each chunk at z = (w, p11) or (w,)."""
    return _pass(_overlaps, z, sample)


@overlaps.def_jvp
def _overlaps_jvp(primals: Any, tangents: Any, *, sample: Sample) -> tuple[Any, Any]:
    value, slopes = _slopes(primals[0], sample=sample)
    return value, _along(slopes, tangents[0])


@eqx.filter_custom_jvp
def _slopes(z: Float[Array, " k"], *, sample: Sample) -> tuple[Array, Array]:
    return _pass(_with_slopes, z, sample)


@_slopes.def_jvp
def _slopes_jvp(primals: Any, tangents: Any, *, sample: Sample) -> tuple[Any, Any]:
    value, slopes, curvature = _pass(_with_curvature, primals[0], sample)
    return (value, slopes), (_along(slopes, tangents[0]), _along(curvature, tangents[0]))


def _along(derivative: Array, direction: Array | None) -> Array | None:
    return None if direction is None else jnp.tensordot(derivative, direction, axes=1)
