"""One Rosenbrock step of many planar systems at once: structure of arrays, one 2x2 Jacobian per lane.

    (I/(gamma h) - J) u_i = f(y + sum_j a_ij u_j) + sum_j C_ij u_j / h,      y1 = y + sum_i b_i u_i,   error = u_8

Rodas5P (`gflow.flows._rodas` has the coefficients and their source), autonomous.

States are complex arrays, y = a + ib. XLA's CPU compiler makes one loop per *output* of an elementwise computation, and
each repeats all the work that its output needs; a step has three outputs, a, b and the size of the error, and would be
computed three times. So a step returns one complex number, with the error (to 4%) in the last eight bits of a: 6e-14 of
a, and nothing at all in single precision, whose numbers travel in double here. Measured: 4 times as fast.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float

from gflow.flows._rodas import DENSE, GAMMA, TABLEAU

ORDER = 5
STAGES = 8
_A, _C, _B = (rows.tolist() for rows in TABLEAU)
_DENSE = DENSE.tolist()
# the error, relative to the tolerance, as 2^((code - MIDDLE)/PER_OCTAVE)
BITS, PER_OCTAVE, MIDDLE = 8, 8, 160
LARGEST = 2.0 ** ((2**BITS - 1 - MIDDLE) / PER_OCTAVE)

Plane = Complex[Array, " lanes"]
Reals = Float[Array, " lanes"]
# a field of a system: numpy's array on its way to the device, JAX's there; shapes are in the class's words
Held = Any
Pair = tuple[Reals, Reals]


class PlanarSystem(eqx.Module):
    """An autonomous system in the plane, many lanes at once, with a value to watch that falls along its solutions.

    `one` is the number 1 as data. XLA does not fuse a division or an exponential into several readers, and there breaks
    a step into hundreds of loops; times one, such a result is a product, which it does fuse. `fuses()`: the rates are
    simple enough for all stages of a step to become one loop (1.6 times as fast); else stages are a loop of their own.
    """

    one: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def fuses(self) -> bool:
        """Whether XLA makes one loop of a whole step (known from measurements)."""

    @abc.abstractmethod
    def rates(self, a: Reals, b: Reals) -> Pair:
        """(da/dt, db/dt)."""

    @abc.abstractmethod
    def linear(self, a: Reals, b: Reals) -> tuple[Pair, tuple[Reals, Reals, Reals, Reals]]:
        """The rates and their Jacobian, row by row."""

    @abc.abstractmethod
    def value(self, a: Reals, b: Reals) -> Reals:
        """What milestones watch."""

    @abc.abstractmethod
    def falling(self, a: Reals, b: Reals) -> Reals:
        """d value/dt."""

    @abc.abstractmethod
    def inside(self, a: Reals, b: Reals) -> Bool[Array, " lanes"]:
        """Where the formulas hold."""

    @abc.abstractmethod
    def scales(self, a: Reals, b: Reals) -> Pair:
        """What errors of a and b are measured against."""


def step(system: PlanarSystem, a: Reals, b: Reals, h: Reals) -> tuple[Pair, Pair]:
    """The state after a step of length h, and an estimate of its error."""
    us = _stages(system, a, b, h)
    return _weighted((a, b), _B, us), us[-1]


def dense(system: PlanarSystem, y: Plane, h: Reals) -> Complex[Array, "4 lanes"]:
    """What `between` needs of a step: its end, and three rows of its interpolant."""
    a, b = y.real, y.imag
    us = _stages(system, a, b, h)
    zero = (jnp.zeros_like(a), jnp.zeros_like(b))
    rows = [_weighted((a, b), _B, us), *(_weighted(zero, weights, us) for weights in _DENSE)]
    return jnp.stack([jax.lax.complex(*row) for row in rows])


def between(y: Plane, rows: Complex[Array, "4 lanes"], theta: Reals) -> Plane:
    """The solution at the fraction theta of a step from y, to order 4 (`flows._rodas.RodasInterpolation`)."""
    part = theta.astype(y.dtype)
    inner = rows[1] + part * (rows[2] + part * rows[3])
    return (1.0 - part) * y + part * (rows[0] + (1.0 - part) * inner)


def _stages(system: PlanarSystem, a: Reals, b: Reals, h: Reals) -> list[Pair]:
    f, (j11, j12, j21, j22) = system.linear(a, b)
    per_h = 1.0 / h * system.one
    diagonal = per_h / GAMMA
    m11, m22 = diagonal - j11, diagonal - j22
    scale = 1.0 / (m11 * m22 - j12 * j21) * system.one
    # the inverse of [[m11, -j12], [-j21, m22]]
    i11, i12, i21, i22 = m22 * scale, j12 * scale, j21 * scale, m11 * scale
    if system.fuses():
        us: list[Pair] = []
        for i in range(STAGES):
            if i:
                f = system.rates(*_weighted((a, b), _A[i], us))
                f = _weighted(f, _C[i], us, per_h)
            us.append((i11 * f[0] + i12 * f[1], i21 * f[0] + i22 * f[1]))
        return us

    weights, couplings = jnp.asarray(_A, h.dtype), jnp.asarray(_C, h.dtype)

    def stage(i: Array, u: Array) -> Array:
        rows = [(u[k].real, u[k].imag) for k in range(STAGES - 1)]
        f = system.rates(*_weighted((a, b), weights[i], rows))
        f = _weighted(f, couplings[i], rows, per_h)
        return u.at[i].set(jax.lax.complex(i11 * f[0] + i12 * f[1], i21 * f[0] + i22 * f[1]))

    first = jax.lax.complex(i11 * f[0] + i12 * f[1], i21 * f[0] + i22 * f[1])
    u = jnp.zeros((STAGES, *first.shape), first.dtype).at[0].set(first)
    u = jax.lax.fori_loop(1, STAGES, stage, u)
    return [(u[k].real, u[k].imag) for k in range(STAGES)]


def _weighted(y: Pair, weights: list[float] | Array, us: Sequence[Pair], factor: Reals | None = None) -> Pair:
    pulls = []
    for part in (0, 1):
        terms = [weights[k] * u[part] for k, u in enumerate(us)]
        pulls.append(sum(terms[1:], terms[0]))
    if factor is not None:
        pulls = [factor * pull for pull in pulls]
    return y[0] + pulls[0], y[1] + pulls[1]


def trial(system: PlanarSystem, y: Plane, h: Reals, per_rtol: Reals) -> Complex[Array, " lanes"]:
    """A step, packed: `unpack` gives the new state and its error relative to the tolerance.

    The tolerance comes as its inverse: a division by an array would split the step's one loop, see `PlanarSystem`.
    """
    (a, b), (e, g) = step(system, y.real, y.imag, h)
    of_a, of_b = system.scales(a, b)
    error = jnp.maximum(jnp.abs(e) / of_a, jnp.abs(g) / of_b) * per_rtol
    error = jnp.where(jnp.isfinite(error), error, LARGEST).astype(jnp.float32)
    code = jnp.clip(jnp.round(PER_OCTAVE * jnp.log2(error)) + MIDDLE, 0, 2**BITS - 1)
    a, b = (x.astype(jnp.float64) for x in (a, b))
    word = jax.lax.bitcast_convert_type(a, jnp.uint64)
    word = (word & jnp.uint64(2**64 - 2**BITS)) | code.astype(jnp.uint64)
    return jax.lax.complex(jax.lax.bitcast_convert_type(word, jnp.float64), b)


def unpack(packed: Complex[Array, " lanes"], like: Plane) -> tuple[Plane, Reals]:
    """The new state, of the type of `like`, and its error relative to the tolerance, in single precision."""
    code = jax.lax.bitcast_convert_type(packed.real, jnp.uint64) & jnp.uint64(2**BITS - 1)
    error = jnp.exp2((code.astype(jnp.float32) - MIDDLE) / PER_OCTAVE)
    return packed.astype(like.dtype), error
