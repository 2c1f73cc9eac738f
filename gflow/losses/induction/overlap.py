"""Overlaps `S(a,b)` of two softmax attention heads, exactly, by Laplace quadrature as matrix products (MATH section 4).

    S(a,b) = E[f_a f_b],   f_a = sum_k x_{k+1} e^{a x_k} / Z_a,   Z_a = sum_{k=1}^n e^{a x_k}

`1/(Z_a Z_b) = int int exp(-u Z_a - v Z_b) du dv`; the expectation over the n+1 tokens then factorises into moments of
`G(x) = exp(-u e^{ax} - v e^{bx})`, and G separates, so the moments for all (u,v) are products of two matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gflow.losses.induction.quadrature import Vector, laplace_rule

# phi is clipped from below: what it multiplies there is already far below rounding
_LARGEST_DEFICIT = 1.0 - 1.2e-16
# pairs (a, b) per matrix product: the working set stays in the cache of one core, and far below 1 GB on any device
CHUNK = 8
# chunks per call: every call has the same shape whatever the number of rows, so that few programs are compiled
CALL = 16


class Moments(NamedTuple):
    """Expectations over one token, times u per factor e^{ax} and v per factor e^{bx}; arrays over the (u, v) grid.

    `deficit` = 1 - phi, which keeps its digits where phi is near 1; m1, m2 = E[xG], E[x^2 G]; a, b = E[e^{ax}G],
    E[e^{bx}G]; ab = E[e^{(a+b)x}G]; a1, b1 = E[x e^{ax}G], E[x e^{bx}G].
    """

    deficit: Array
    m1: Array
    m2: Array
    a: Array
    b: Array
    ab: Array
    a1: Array
    b1: Array


def integrand(n: Array, d: Array, mean: Array, second: Array, m: Moments) -> Array:
    """The braces of MATH section 4: joint expectation of f_a f_b's numerators with `exp(-u Z_a - v Z_b)`, times u v.

    n may be real. At n = 2, 3 the negative powers of phi have the coefficient zero and clipping phi makes them finite,
    so they drop out.
    """
    log_phi = jnp.log1p(-jnp.minimum(m.deficit, _LARGEST_DEFICIT))
    phi2 = jnp.exp((n - 2) * log_phi)
    phi = jnp.exp(log_phi)
    phi1, phi3 = phi2 * phi, phi2 / phi
    phi4 = phi3 / phi
    crossed = m.a * m.b1 + m.a1 * m.b
    separate = m.a * m.b * m.m1
    same = m.ab * ((n - 1) * m.m2 * phi2 + (second + (d - 1) * n) * phi1)
    neighbours = (n - 2) * m.m1 * crossed * phi3
    distant = (n - 2) * (n - 3) * separate * m.m1 * phi4
    drift = mean * (crossed * phi2 + 2 * (n - 2) * separate * phi3)
    return same + neighbours + distant + drift


def _cross_moments(a: Array, b: Array, log_u: Array, log_v: Array, x: Array, p: Array) -> Moments:
    """Moments on the grid [C, Nu, Nv] for a batch of slopes a, b [C]."""
    # (log u + a x) first: e^{ax} alone may overflow
    key, weight = x[None, None, :], p[None, None, :]
    ea = jnp.exp(log_u[:, :, None] + a[:, None, None] * key)
    eb = jnp.exp(log_v[:, :, None] + b[:, None, None] * key)
    ha = -jnp.expm1(-ea)
    hb = -jnp.expm1(-eb)
    ga = (1.0 - ha) * weight
    gb = 1.0 - hb
    gea = ga * ea
    left = jnp.stack([ga * key**2, gea * key, gea, ga, ga * key], axis=1)

    def product(first: int, last: int, right: Array) -> Array:
        rows = left[:, first:last]
        flat = rows.reshape(rows.shape[0], -1, rows.shape[-1])
        out = jnp.einsum("crx,cvx->crv", flat, right, precision=jax.lax.Precision.HIGHEST)
        return out.reshape(rows.shape[:3] + right.shape[1:2])

    plain = product(0, 3, gb)
    fired = product(2, 5, gb * eb)
    missing = product(3, 5, hb)
    # 1 - phi = E[1-ga] + E[ga (1-gb)], and E[xG] = E x - the same with x: no cancellation for small u, v
    lost = ha @ jnp.stack([p, p * x], axis=-1)
    return Moments(
        deficit=lost[:, :, None, 0] + missing[:, 0],
        m1=jnp.sum(p * x) - lost[:, :, None, 1] - missing[:, 1],
        m2=plain[:, 0],
        a=plain[:, 2],
        b=fired[:, 1],
        ab=fired[:, 0],
        a1=plain[:, 1],
        b1=fired[:, 2],
    )


def _chunk_cross(
    ns: Array, d: Array, x: Array, p: Array, rows: tuple[Array, ...], by_slope: bool
) -> tuple[Array, Array, Array]:
    a, b, log_u, wu, log_v, wv = rows
    mean, second = jnp.sum(p * x), jnp.sum(p * x**2)

    def moments_at(b: Array) -> Moments:
        return _cross_moments(a, b, log_u, log_v, x, p)

    # (u, v) nodes held fixed: the integral does not depend on them, so neither does its derivative
    if by_slope:
        moments, turned = jax.jvp(moments_at, (b,), (jnp.ones_like(b),))
    else:
        moments, turned = moments_at(b), None

    def value(n: Array, moments: Moments) -> Array:
        inside = integrand(n, d, mean, second, moments)
        return jnp.einsum("cu,cuv,cv->c", wu, inside, wv, precision=jax.lax.Precision.HIGHEST)

    def one(n: Array) -> tuple[Array, Array, Array]:
        out, by_n = jax.jvp(lambda n: value(n, moments), (n,), (jnp.ones_like(n),))
        if turned is None:
            return out, by_n, jnp.full_like(out, jnp.nan)
        return out, by_n, jax.jvp(lambda m: value(n, m), (moments,), (turned,))[1]

    # the matrix products are those of every n: L enters only here
    return jax.lax.map(one, ns)


def _chunk_self(n: Array, d: Array, x: Array, p: Array, rows: tuple[Array, ...]) -> tuple[Array, Array]:
    a, log_u, wu = rows
    e = jnp.exp(log_u[:, :, None] + a[:, None, None] * x[None, None, :])
    h = -jnp.expm1(-e)
    g = (1.0 - h) * p[None, None, :]
    ge = g * e
    lost = h @ jnp.stack([p, p * x], axis=-1)
    a0, a1 = jnp.sum(ge, axis=-1), ge @ x
    mean, second = jnp.sum(p * x), jnp.sum(p * x**2)
    moments = Moments(lost[..., 0], mean - lost[..., 1], g @ x**2, a0, a0, jnp.sum(ge * e, axis=-1), a1, a1)

    def value(n: Array) -> Array:
        # 1/Z^2 = int u e^{-uZ} du
        return jnp.sum(wu * integrand(n, d, mean, second, moments), axis=-1)

    return jax.jvp(value, (n,), (jnp.ones_like(n),))


@functools.partial(jax.jit, static_argnames="by_slope")
def cross_overlaps(
    ns: Float[Array, " g"],
    d: Float[Array, ""],
    x: Float[Array, " m"],
    p: Float[Array, " m"],
    a: Float[Array, "chunks c"],
    b: Float[Array, "chunks c"],
    log_u: Float[Array, "chunks c nu"],
    wu: Float[Array, "chunks c nu"],
    log_v: Float[Array, "chunks c nv"],
    wv: Float[Array, "chunks c nv"],
    by_slope: bool,
) -> tuple[Float[Array, "chunks g c"], Float[Array, "chunks g c"], Float[Array, "chunks g c"]]:
    """`S(a,b)`, `dS/dn`, `dS/db` for each n by the double Laplace integral, a chunk at a time (MATH section 4).

    `dS/db` costs as many matrix products again: NaN unless `by_slope`.

    x, p: nodes and weights of one token; log_u, wu (log_v, wv): the Laplace rules for a (for b); d: token dimension.
    """
    return jax.lax.map(lambda rows: _chunk_cross(ns, d, x, p, rows, by_slope), (a, b, log_u, wu, log_v, wv))


@jax.jit
def self_overlaps(
    n: Float[Array, ""],
    d: Float[Array, ""],
    x: Float[Array, " m"],
    p: Float[Array, " m"],
    a: Float[Array, "chunks c"],
    log_u: Float[Array, "chunks c nu"],
    wu: Float[Array, "chunks c nu"],
) -> tuple[Float[Array, "chunks c"], Float[Array, "chunks c"]]:
    """`S(a,a)` and `dS(a,a)/dn` by the single integral `1/Z^2 = int u e^{-uZ} du`."""
    return jax.lax.map(lambda rows: _chunk_self(n, d, x, p, rows), (a, log_u, wu))


def _calls(*columns: Vector) -> Iterator[list[Vector]]:
    """Columns [B, ...] as [CALL, CHUNK, ...], one call after another; the last one is filled with its last row."""
    rows = CALL * CHUNK
    for at in range(0, columns[0].shape[0], rows):
        parts = [column[at : at + rows] for column in columns]
        short = rows - parts[0].shape[0]
        if short:
            parts = [np.concatenate([part, np.repeat(part[-1:], short, axis=0)]) for part in parts]
        yield [part.reshape(CALL, CHUNK, *part.shape[1:]) for part in parts]


def cross_batch(
    law_nodes: tuple[Vector, Vector],
    ns: Sequence[float],
    d: int,
    a: Vector,
    b: Vector,
    tolerance: Vector,
    body: int,
    by_slope: bool = False,
    span: tuple[float, float] | None = None,
) -> tuple[Vector, Vector, Vector]:
    """`S(a,b)`, `dS/dn`, `dS/db` (NaN unless `by_slope`) for every n and slopes a, b [B], each [len(ns), B].

    `law_nodes` = (x, p) and `tolerance` [B] as in `laplace_rule`; `span`: of all n that the nodes must do for.
    """
    x, p = law_nodes
    span = span or (min(ns), max(ns))
    log_u, wu = laplace_rule(a, span, x, p, tolerance, body)
    log_v, wv = laplace_rule(b, span, x, p, tolerance, body)
    many = np.asarray(ns, dtype=float)
    calls = [
        cross_overlaps(many, np.float64(d), x, p, *rows, by_slope=by_slope)
        for rows in _calls(a, b, log_u, wu, log_v, wv)
    ]
    # fetched when all are under way
    whole = [np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*calls, strict=True)]
    return tuple(np.moveaxis(x, 1, 0).reshape(len(ns), -1)[:, : a.size] for x in whole)  # pyright: ignore[reportReturnType]


def self_batch(
    law_nodes: tuple[Vector, Vector], n: float, d: int, a: Vector, tolerance: Vector, body: int
) -> tuple[Vector, Vector]:
    """`S(a,a)` and `dS(a,a)/dn` for slopes a [B]."""
    x, p = law_nodes
    log_u, wu = laplace_rule(a, n, x, p, tolerance, body)
    calls = [self_overlaps(np.float64(n), np.float64(d), x, p, *rows) for rows in _calls(a, log_u, wu)]
    columns = [
        np.concatenate([np.asarray(part).ravel() for part in parts])[: a.size] for parts in zip(*calls, strict=True)
    ]
    return columns[0], columns[1]
