"""When did the value reach a level? A real step from the last state before it, to a time that is then corrected."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.sweeps.ensemble._loop import Crossings
from gflow.sweeps.ensemble._rosenbrock import PlanarSystem, Plane, Reals, step

GUESSES = 5  # Newton iterations on the cubic through both ends: arithmetic only
LANDINGS = 2  # real steps; each squares the error of the time


def landing_times(
    system: PlanarSystem, crossings: Crossings, levels: Float[Array, "levels lanes"]
) -> Float[Array, "levels lanes"]:
    """Times of the crossings; NaN where a level was not reached."""

    def one(packed: tuple[Array, Array, Array]) -> Array:
        (before, after, clock), seen, level = packed
        return jnp.where(seen, _land(system, before, after, clock, level), jnp.nan)

    return jax.lax.map(one, (crossings.rows, crossings.seen, levels))


def _land(system: PlanarSystem, before: Plane, after: Plane, clock: Plane, level: Reals) -> Reals:
    t, h = clock.real, clock.imag
    inside = h > 0  # false for what was reached at the start
    length = jnp.where(inside, h, 1.0)
    ends = ((before.real, before.imag), (after.real, after.imag))
    v0, v1 = (system.value(*y) for y in ends)
    d0, d1 = (system.falling(*y) * length for y in ends)
    where = jnp.where(inside, (v0 - level) / jnp.where(inside, v0 - v1, 1.0), 0.0)
    for _ in range(GUESSES):
        rest = 1.0 - where
        cubic = (1.0 + 2.0 * where) * rest**2 * v0 + where * rest**2 * d0
        cubic = cubic + where**2 * (3.0 - 2.0 * where) * v1 - where**2 * rest * d1
        rising = 6.0 * where * rest * (v1 - v0) + rest * (1.0 - 3.0 * where) * d0
        rising = rising + where * (3.0 * where - 2.0) * d1
        where = jnp.clip(where - (cubic - level) / rising, 0.0, 1.0)

    def improve(_: Array, where: Array) -> Array:
        part = jnp.maximum(where, 1e-6) * length
        a, b = step(system, before.real, before.imag, part)[0]
        better = part + (level - system.value(a, b)) / system.falling(a, b)
        return jnp.clip(better / length, 0.0, 1.5)

    where = jax.lax.fori_loop(0, LANDINGS, improve, where)
    return t + jnp.where(inside, where * length, 0.0)
