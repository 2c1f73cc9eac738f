"""Overlaps of two attention heads at finite p11, exactly, by a transfer operator along the keys (MATH section 8).

With r = e^{-p11} the student's keys are `Y_k = Z_k / N_k`, `Z_k = r Z_{k-1} + x_k`, `N_k = (1-r^k)/(1-r)`: a Markov
chain. After the Laplace transform of MATH section 4,

    E[f_student f_target] = int int du dv sum_{k,l} E[ x_{k+1} e^{a Y_k} x_{l+1} e^{b x_l} prod_m G_m ],
    G_m = exp(-u e^{a Y_m} - v e^{b x_m}),

is a product of matrices, one per key. Carried backwards in k: functions of Z_k, one for each pair of states (A, B) in
{0 waiting, 1 pending, 2 done}: head A *fires* at its key k (factor u e^{aY_k}) and takes its value x_{k+1} one step
later, and B likewise. The future of (1, 2) is that of (2, 1): eight functions, eleven matrix products per key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST_LOG = 300.0  # exp of more is as good as infinite, and would be infinite soon


class Chain(NamedTuple):
    """`r`, `N_k` and `sigma_k = sd(Z_k)`, k = 0..n (N_0 = sigma_0 = 0): all that the steps know of the first layer."""

    r: Any
    N: Any
    sigma: Any


class CrossState(NamedTuple):
    """Expectation of what is still to come, by states of (A, B), as functions on the grid of Z: arrays [..., P, C]."""

    h00: Array
    h10: Array
    h01: Array
    h11: Array
    h20: Array
    h02: Array
    h21: Array
    h22: Array
    same: Array | None  # both fire at one and the same key: all that orthogonal components of the values add


class SelfState(NamedTuple):
    """The same for a head with itself, where the pair has no order and there is one Laplace variable."""

    h00: Array
    h10: Array
    h11: Array
    h20: Array
    h21: Array
    h22: Array
    same: Array | None


class Band(NamedTuple):
    """Rows of a transfer matrix in blocks of `rows`, each with the `width` columns it can reach (0: all of them)."""

    rows: int = 0
    width: int = 0


def cross_end(shape: tuple[int, ...], orthogonal: bool) -> CrossState:
    """After the last key: both done counts 1, both pending E[x^2] = 1, one pending E[x] = 0."""
    one, no = jnp.ones(shape), jnp.zeros(shape)
    return CrossState(no, no, no, one, no, no, no, one, no if orthogonal else None)


def self_end(shape: tuple[int, ...], orthogonal: bool) -> SelfState:
    """The same for a head with itself."""
    one, no = jnp.ones(shape), jnp.zeros(shape)
    return SelfState(no, no, one, no, no, one, no if orthogonal else None)


def _fired(chain: Chain, k: Any, z: Array, a: Array, log_u: Array) -> tuple[Array, Array]:
    """`g = exp(-e)` and `e = u e^{a Y_k}` on the grid z of Z_k/sigma_k: [P, C] for a and log u [C]."""
    y = (chain.sigma[k] / chain.N[k]) * z
    e = jnp.exp(jnp.minimum(log_u[None, :] + a[None, :] * y[:, None], LARGEST_LOG))
    return jnp.exp(-e), e


def _apply(matrix: Array, h: Array) -> Array:
    return jnp.einsum("...ij,...jc->...ic", matrix, h, precision=jax.lax.Precision.HIGHEST)


def _cross_products(b: Array, log_v: Array, x: Array, M: Array, ready: Any) -> CrossState:
    """One step of all functions; `ready`: those of Z_k, already weighted by who of A fires at k."""
    A0, A1, A2, A3, B0, B1, same = ready
    eb = jnp.exp(jnp.minimum(log_v + b * x, LARGEST_LOG))
    M = M * jnp.exp(-eb)
    Mb, Mx = M * eb, M * x
    return CrossState(
        h00=_apply(M, A0) + _apply(Mb, B0),
        h10=_apply(Mx, A1) + _apply(Mb * x, B1),
        h01=_apply(Mx, A2),
        h11=_apply(Mx * x, A3),
        h20=_apply(M, A1) + _apply(Mb, B1),
        h02=_apply(M, A2),
        h21=_apply(Mx, A3),
        h22=_apply(M, A3),
        same=None if same is None else _apply(M, same[0]) + _apply(Mb, same[1]),
    )


def _cross_ready(g: Array, e: Array, h: CrossState) -> tuple[Any, ...]:
    ge = g * e
    same = None if h.same is None else (g * h.same, ge * h.h22)
    after = g * h.h21
    return g * h.h00 + ge * h.h10, g * h.h20, g * h.h02 + ge * h.h21, g * h.h22, g * h.h01 + ge * h.h11, after, same


def _self_products(x: Array, M: Array, ready: Any) -> SelfState:
    start, one, done, same = ready
    Mx = M * x
    return SelfState(
        h00=_apply(M, start),
        h10=_apply(Mx, one),
        h11=_apply(Mx * x, done),
        h20=_apply(M, one),
        h21=_apply(Mx, done),
        h22=_apply(M, done),
        same=None if same is None else _apply(M, same),
    )


def _self_ready(g: Array, e: Array, h: SelfState) -> tuple[Any, ...]:
    ge = g * e
    both = ge * e  # the pair may fire at one key
    same = None if h.same is None else g * h.same + both * h.h22
    return g * h.h00 + 2 * ge * h.h10 + both * h.h11, g * h.h20 + ge * h.h21, g * h.h22, same


def _blocks(chain: Chain, k: Any, z: Array, band: Band) -> tuple[Array, Array]:
    """Rows [B, R] of the grid z and, for each block of them, the columns [B, width] that they reach."""
    count = -(-z.size // band.rows)
    rows = jnp.minimum(jnp.arange(count * band.rows), z.size - 1).reshape(count, band.rows)
    middle = 0.5 * (z[rows[:, 0]] + z[rows[:, -1]])
    # where x_k = 0 leads from the middle of the block
    centre = chain.r * chain.sigma[k - 1] / chain.sigma[k] * middle / (z[1] - z[0]) + 0.5 * (z.size - 1)
    start = jnp.clip(jnp.round(centre - 0.5 * band.width).astype(int), 0, z.size - band.width)
    return rows, start[:, None] + jnp.arange(band.width)[None, :]


def _onto(chain: Chain, k: Any, z: Array, z_out: Array, band: Band, ready: Any, products: Callable[..., Any]) -> Any:
    """From functions of Z_k on the grid z to functions of Z_{k-1} on the grid z_out (both in units of sigma)."""
    if band.width:
        rows, columns = _blocks(chain, k, z, band)
        start, end = z_out[rows], z[columns]
        ready = jax.tree.map(lambda h: h[columns], ready)
    else:
        start, end = z_out, z
    x = chain.sigma[k] * end[..., None, :] - chain.r * chain.sigma[k - 1] * start[..., :, None]
    step = (z[1] - z[0]) * chain.sigma[k] / math.sqrt(2 * math.pi)
    out = products(x, step * jnp.exp(-0.5 * x * x), ready)
    if band.width:
        out = jax.tree.map(lambda h: h.reshape(-1, h.shape[-1])[: z_out.size], out)
    return out


def _cross_step(
    chain: Chain,
    k: Any,
    h: CrossState,
    z: Array,
    z_out: Array,
    a: Array,
    log_u: Array,
    b: Any,
    log_v: Array,
    band: Band,
) -> CrossState:
    g, e = _fired(chain, k, z, a, log_u)

    def one(lv: Array, h: CrossState) -> CrossState:
        return _onto(chain, k, z, z_out, band, _cross_ready(g, e, h), functools.partial(_cross_products, b, lv))

    return jax.vmap(one)(log_v, h)


# stepping on one grid and changing to another are compiled apart, so that few programs serve every chain
@functools.partial(jax.jit, static_argnames="band")
def cross_steps(
    chain: Chain,
    h: CrossState,
    last: Any,
    first: Any,
    z: Float[Array, " p"],
    a: Float[Array, " c"],
    log_u: Float[Array, " c"],
    b: Any,
    log_v: Float[Array, " v"],
    band: Band,
) -> CrossState:
    """Keys k = last, ..., first: from functions of Z_last to functions of Z_{first-1}, all on the grid z.

    h: arrays [V, P, C], for all pairs of a target's log v and of a student's slope a with its log u.
    """

    def step(i: Any, h: CrossState) -> CrossState:
        return _cross_step(chain, last - i, h, z, z, a, log_u, b, log_v, band)

    return jax.lax.fori_loop(0, last - first + 1, step, h)


@jax.jit
def cross_change(
    chain: Chain,
    h: CrossState,
    k: Any,
    z: Float[Array, " p"],
    z_out: Float[Array, " o"],
    a: Float[Array, " c"],
    log_u: Float[Array, " c"],
    b: Any,
    log_v: Float[Array, " v"],
) -> CrossState:
    """Key k: from functions of Z_k on the grid z to functions of Z_{k-1} on the grid z_out."""
    return _cross_step(chain, k, h, z, z_out, a, log_u, b, log_v, Band())


def _self_step(
    chain: Chain, k: Any, h: SelfState, z: Array, z_out: Array, a: Array, log_u: Array, band: Band
) -> SelfState:
    return _onto(chain, k, z, z_out, band, _self_ready(*_fired(chain, k, z, a, log_u), h), _self_products)


@functools.partial(jax.jit, static_argnames="band")
def self_steps(
    chain: Chain,
    h: SelfState,
    last: Any,
    first: Any,
    z: Float[Array, " p"],
    a: Float[Array, " c"],
    log_u: Float[Array, " c"],
    band: Band,
) -> SelfState:
    """`cross_steps` for the student with itself, h: arrays [P, C]. The matrices serve all slopes at once."""
    step = lambda i, h: _self_step(chain, last - i, h, z, z, a, log_u, band)  # noqa: E731
    return jax.lax.fori_loop(0, last - first + 1, step, h)


@jax.jit
def self_change(
    chain: Chain,
    h: SelfState,
    k: Any,
    z: Float[Array, " p"],
    z_out: Float[Array, " o"],
    a: Float[Array, " c"],
    log_u: Float[Array, " c"],
) -> SelfState:
    """`cross_change` for the student with itself."""
    return _self_step(chain, k, h, z, z_out, a, log_u, Band())
