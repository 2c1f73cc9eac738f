"""The adaptive loop of an ensemble: every lane has its own step, its own crossings and its own end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int

from gflow.sweeps.ensemble._rosenbrock import ORDER, PlanarSystem, Plane, Reals, between, dense, trial, unpack

SAFETY = 0.9
SHRINK, GROW = 0.2, 8.0
# how a lane ended
RUNNING, FOUND, AT_END, STUCK, OUTSIDE, TIRED = range(6)


class Crossings(NamedTuple):
    """For each level: the step in which the value fell to it, as (start, end, time + i length), once `seen`."""

    rows: Complex[Array, "levels 3 lanes"]
    seen: Bool[Array, "levels lanes"]


class Policy(NamedTuple):
    """When lanes take notice, and when they end.

    A lane ends when its value has fallen to all `levels` [levels, lanes] and its time has come to `least` [lanes], or
    at time `end` [lanes]. `rows`: the number of levels as data, so that they stay a loop. `curve` [points, lanes]: when
    the value is wanted. `most`: steps tried.
    """

    levels: Any
    rows: Any
    least: Any
    end: Any
    rtol: Any
    curve: Any
    most: Any


class LaneState(NamedTuple):
    """What the loop carries. The next step is computed at the end of an iteration and judged in the following one, so
    that it is one array by then and not an expression in each of its readers."""

    clock: Plane  # time + i (length of the next step)
    y: Plane
    packed: Complex[Array, " lanes"]  # the next step
    past: Float[Array, " lanes"]  # error of the last accepted step, relative to the tolerance
    crossings: Crossings
    curve: Float[Array, "points lanes"]
    accepted: Int[Array, " lanes"]
    rejected: Int[Array, " lanes"]
    ended: Int[Array, " lanes"]


def start(system: PlanarSystem, y: Plane, first: Reals, policy: Policy) -> LaneState:
    """Before the first step, of length `first`; levels that the value has reached already are crossed at time 0."""
    levels = policy.levels
    value = system.value(y.real, y.imag)
    zero = jnp.zeros_like(value)
    seen = value[None] <= levels
    at_once = jnp.stack([y, y, jnp.zeros_like(y)])[None]
    rows = jnp.where(seen[:, None, :], at_once, jnp.zeros_like(at_once))
    count = zero.astype(jnp.int32)
    fine = jnp.isfinite(value) & jnp.isfinite(first) & system.inside(y.real, y.imag)
    ended = jnp.where(~fine, OUTSIDE, jnp.where(jnp.all(seen, axis=0) & (policy.least <= 0), FOUND, RUNNING))
    clock = jax.lax.complex(zero, first)
    packed = trial(system, y, first, 1.0 / policy.rtol)
    past = jnp.ones_like(zero, dtype=jnp.float32)
    curve = jnp.where(policy.curve <= 0, value[None], jnp.full_like(policy.curve, jnp.nan))
    return LaneState(clock, y, packed, past, Crossings(rows, seen), curve, count, count, ended.astype(jnp.int32))


def advance(system: PlanarSystem, state: LaneState, policy: Policy) -> LaneState:
    """Until every lane has ended: as the policy says, or for a reason why it cannot go on."""
    per_rtol, end = 1.0 / policy.rtol, policy.end

    def busy(s: LaneState) -> Array:
        return jnp.any(s.ended == RUNNING)

    def body(s: LaneState) -> LaneState:
        t, h = s.clock.real, s.clock.imag
        y1, error = unpack(s.packed, s.y)
        running = s.ended == RUNNING
        taken = running & (error <= 1.0)
        value = system.value(y1.real, y1.imag)
        crossings = _note(s, y1, taken, value, policy)
        # PI control of the step; after a failure the plain rule
        factor = jnp.where(taken, error ** (-0.7 / ORDER) * s.past ** (0.4 / ORDER), error ** (-1.0 / ORDER))
        factor = jnp.clip(SAFETY * factor, SHRINK, GROW).astype(h.dtype)
        t1 = jnp.where(taken, t + h, t)
        left = end - t1
        h1 = jnp.where(running, jnp.minimum(h * factor, jnp.maximum(left, 1e-14 * end)), h)
        arrived = left <= 1e-14 * end
        stuck = ~arrived & (t1 + h1 == t1)
        tried = s.accepted + s.rejected + 1
        found = jnp.all(crossings.seen, axis=0) & (t1 >= policy.least)
        outside = taken & ~(system.inside(y1.real, y1.imag) & jnp.isfinite(value))
        whys = [(outside, OUTSIDE), (found, FOUND), (arrived, AT_END), (stuck, STUCK), (tried >= policy.most, TIRED)]
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
            _draw(system, s, taken, policy.curve),
            s.accepted + taken.astype(jnp.int32),
            s.rejected + (running & ~taken).astype(jnp.int32),
            ended,
        )

    return jax.lax.while_loop(busy, body, state)


def _note(s: LaneState, y1: Plane, taken: Array, value: Reals, policy: Policy) -> Crossings:
    """The crossings, with those of the step from `s` to `y1`."""
    if not policy.levels.shape[0]:
        return s.crossings

    def level(k: Array, old: Crossings) -> Crossings:
        new = taken & ~old.seen[k] & (value <= policy.levels[k])
        rows = jnp.where(new[None], jnp.stack([s.y, y1, s.clock]), old.rows[k])
        return Crossings(old.rows.at[k].set(rows), old.seen.at[k].set(old.seen[k] | new))

    return jax.lax.fori_loop(0, policy.rows, level, s.crossings)


def _draw(system: PlanarSystem, s: LaneState, taken: Array, times: Array) -> Array:
    """The curve, with its points inside the step from `s`."""
    if not times.shape[0]:
        return s.curve
    rows = dense(system, s.y, s.clock.imag)

    def point(k: Array, curve: Array) -> Array:
        theta = (times[k] - s.clock.real) / s.clock.imag
        here = taken & (theta > 0.0) & (theta <= 1.0)
        y = between(s.y, rows, theta)
        return curve.at[k].set(jnp.where(here, system.value(y.real, y.imag), curve[k]))

    return jax.lax.fori_loop(0, times.shape[0], point, s.curve)
