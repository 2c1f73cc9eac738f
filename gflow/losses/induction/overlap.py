"""Overlaps `S(a,b)` of two softmax attention heads, exactly, by Laplace quadrature as matrix products (MATH section 4).

    S(a,b) = E[f_a f_b],   f_a = sum_k x_{k+1} e^{a x_k} / Z_a,   Z_a = sum_{k=1}^n e^{a x_k}

`1/(Z_a Z_b) = int int exp(-u Z_a - v Z_b) du dv`; the expectation over the n+1 tokens then factorises into moments of
`G(x) = exp(-u e^{ax} - v e^{bx})`, and G separates, so the moments for all (u,v) are products of two matrices.
"""

from __future__ import annotations

import functools
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
    n: Array, d: Array, x: Array, p: Array, rows: tuple[Array, ...], by_slope: bool
) -> tuple[Array, Array, Array]:
    a, b, log_u, wu, log_v, wv = rows
    mean, second = jnp.sum(p * x), jnp.sum(p * x**2)

    def value(n: Array, b: Array) -> Array:
        moments = _cross_moments(a, b, log_u, log_v, x, p)
        inside = integrand(n, d, mean, second, moments)
        return jnp.einsum("cu,cuv,cv->c", wu, inside, wv, precision=jax.lax.Precision.HIGHEST)

    # (u, v) nodes held fixed: the integral does not depend on them, so neither does its derivative
    out, by_n = jax.jvp(lambda n: value(n, b), (n,), (jnp.ones_like(n),))
    if not by_slope:
        return out, by_n, jnp.full_like(out, jnp.nan)
    _, by_b = jax.jvp(lambda b: value(n, b), (b,), (jnp.ones_like(b),))
    return out, by_n, by_b


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
    n: Float[Array, ""],
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
) -> tuple[Float[Array, "chunks c"], Float[Array, "chunks c"], Float[Array, "chunks c"]]:
    """`S(a,b)`, `dS/dn`, `dS/db` by the double Laplace integral, a chunk at a time (MATH section 4).

    `dS/db` costs as many matrix products again: NaN unless `by_slope`.

    x, p: nodes and weights of one token; log_u, wu (log_v, wv): the Laplace rules for a (for b); d: token dimension.
    """
    return jax.lax.map(lambda rows: _chunk_cross(n, d, x, p, rows, by_slope), (a, b, log_u, wu, log_v, wv))


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


def _chunked(rows: Vector) -> Vector:
    """[B, ...] -> [B/CHUNK, CHUNK, ...], the last chunk filled with copies of the last row."""
    short = -rows.shape[0] % CHUNK
    padded = np.concatenate([rows, np.repeat(rows[-1:], short, axis=0)]) if short else rows
    return padded.reshape(-1, CHUNK, *rows.shape[1:])


def cross_batch(
    law_nodes: tuple[Vector, Vector],
    n: float,
    d: int,
    a: Vector,
    b: Vector,
    tolerance: Vector,
    body: int,
    by_slope: bool = False,
) -> tuple[Vector, Vector, Vector]:
    """`S(a,b)`, `dS/dn`, `dS/db` (NaN unless `by_slope`) for slopes a, b [B].

    `law_nodes` = (x, p) and `tolerance` [B] as in `laplace_rule`.
    """
    x, p = law_nodes
    log_u, wu = laplace_rule(a, n, x, p, tolerance, body)
    log_v, wv = laplace_rule(b, n, x, p, tolerance, body)
    rows = [_chunked(r) for r in (a, b, log_u, wu, log_v, wv)]
    out = cross_overlaps(np.float64(n), np.float64(d), x, p, *rows, by_slope=by_slope)
    return tuple(np.asarray(o).reshape(-1)[: a.size] for o in out)  # pyright: ignore[reportReturnType]


def self_batch(
    law_nodes: tuple[Vector, Vector], n: float, d: int, a: Vector, tolerance: Vector, body: int
) -> tuple[Vector, Vector]:
    """`S(a,a)` and `dS(a,a)/dn` for slopes a [B]."""
    x, p = law_nodes
    log_u, wu = laplace_rule(a, n, x, p, tolerance, body)
    out = self_overlaps(np.float64(n), np.float64(d), x, p, *[_chunked(r) for r in (a, log_u, wu)])
    return tuple(np.asarray(o).reshape(-1)[: a.size] for o in out)  # pyright: ignore[reportReturnType]
