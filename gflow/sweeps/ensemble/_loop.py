"""The adaptive loop of an ensemble: every lane has its own step, its own crossings and its own end."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int

from gflow.sweeps.ensemble._rosenbrock import ORDER, PlanarSystem, Plane, Reals, trial, unpack

SAFETY = 0.9
SHRINK, GROW = 0.2, 8.0
# how a lane ended
RUNNING, FOUND, AT_END, STUCK, OUTSIDE, TIRED = range(6)


class Crossings(NamedTuple):
    """For each level: the step in which the value fell to it, as (start, end, time + i length), once `seen`."""

    rows: Complex[Array, "levels 3 lanes"]
    seen: Bool[Array, "levels lanes"]


class LaneState(NamedTuple):
    """What the loop carries. The next step is computed at the end of an iteration and judged in the following one, so
    that it is one array by then and not an expression in each of its readers."""

    clock: Plane  # time + i (length of the next step)
    y: Plane
    packed: Complex[Array, " lanes"]  # the next step
    past: Float[Array, " lanes"]  # error of the last accepted step, relative to the tolerance
    crossings: Crossings
    accepted: Int[Array, " lanes"]
    rejected: Int[Array, " lanes"]
    ended: Int[Array, " lanes"]


def start(system: PlanarSystem, y: Plane, levels: Float[Array, "levels lanes"], first: Reals, rtol: Reals) -> LaneState:
    """Before the first step, of length `first`; levels that the value has reached already are crossed at time 0."""
    value = system.value(y.real, y.imag)
    zero = jnp.zeros_like(value)
    seen = value[None] <= levels
    at_once = jnp.stack([y, y, jnp.zeros_like(y)])[None]
    rows = jnp.where(seen[:, None, :], at_once, jnp.zeros_like(at_once))
    count = zero.astype(jnp.int32)
    fine = jnp.isfinite(value) & jnp.isfinite(first) & system.inside(y.real, y.imag)
    ended = jnp.where(~fine, OUTSIDE, jnp.where(jnp.all(seen, axis=0), FOUND, RUNNING)).astype(jnp.int32)
    clock = jax.lax.complex(zero, first)
    packed = trial(system, y, first, 1.0 / rtol)
    past = jnp.ones_like(zero, dtype=jnp.float32)
    return LaneState(clock, y, packed, past, Crossings(rows, seen), count, count, ended)


def advance(
    system: PlanarSystem,
    state: LaneState,
    levels: Float[Array, "levels lanes"],
    rtol: Reals,
    end: Reals,
    most: Int[Array, ""],
) -> LaneState:
    """Until every lane has ended: all levels crossed, time `end`, or a reason why it cannot go on."""

    per_rtol = 1.0 / rtol

    def busy(s: LaneState) -> Array:
        return jnp.any(s.ended == RUNNING)

    def body(s: LaneState) -> LaneState:
        t, h = s.clock.real, s.clock.imag
        y1, error = unpack(s.packed, s.y)
        running = s.ended == RUNNING
        taken = running & (error <= 1.0)
        value = system.value(y1.real, y1.imag)
        crossings = _note(s, y1, taken, value, levels)
        # PI control of the step; after a failure the plain rule
        factor = jnp.where(taken, error ** (-0.7 / ORDER) * s.past ** (0.4 / ORDER), error ** (-1.0 / ORDER))
        factor = jnp.clip(SAFETY * factor, SHRINK, GROW).astype(h.dtype)
        t1 = jnp.where(taken, t + h, t)
        left = end - t1
        h1 = jnp.where(running, jnp.minimum(h * factor, jnp.maximum(left, 1e-14 * end)), h)
        arrived = left <= 1e-14 * end
        stuck = ~arrived & (t1 + h1 == t1)
        tried = s.accepted + s.rejected + 1
        found = jnp.all(crossings.seen, axis=0)
        outside = taken & ~(system.inside(y1.real, y1.imag) & jnp.isfinite(value))
        whys = [(outside, OUTSIDE), (found, FOUND), (arrived, AT_END), (stuck, STUCK), (tried >= most, TIRED)]
        ended = s.ended
        for condition, why in whys:
            ended = jnp.where((ended == RUNNING) & condition, why, ended)
        y = jnp.where(taken, y1, s.y)
        return LaneState(
            jax.lax.complex(t1, h1),
            y,
            trial(system, y, h1, per_rtol),
            jnp.where(taken, jnp.maximum(error, 1e-4), s.past),
            crossings,
            s.accepted + taken.astype(jnp.int32),
            s.rejected + (running & ~taken).astype(jnp.int32),
            ended,
        )

    return jax.lax.while_loop(busy, body, state)


def _note(s: LaneState, y1: Plane, taken: Array, value: Reals, levels: Array) -> Crossings:
    """The crossings, with those of the step from `s` to `y1`."""

    def level(k: Array, old: Crossings) -> Crossings:
        new = taken & ~old.seen[k] & (value <= levels[k])
        rows = jnp.where(new[None], jnp.stack([s.y, y1, s.clock]), old.rows[k])
        return Crossings(old.rows.at[k].set(rows), old.seen.at[k].set(old.seen[k] | new))

    return jax.lax.fori_loop(0, levels.shape[0], level, s.crossings)
