"""Milestones as part of the carried state: noticed on each step's interpolant, then landed on by a real step.

A milestone is noticed when its condition holds at the end of a step or at one of `INTERIOR` points of the step's
interpolant, so a monotone condition is never missed and any other is found if it stays true for a quarter of a step.
The step is then repeated so that it *ends* at the crossing (to the interpolant's accuracy) and one Newton step in
time along the flow removes the rest: the time found carries the solver's error, not the interpolant's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gflow.conditions import Condition
from gflow.flows._problem import FlatProblem, field

INTERIOR = (0.25, 0.5, 0.75)
# a crossing within this fraction of the step is finished by one Newton step: its square is far below any tolerance
NEWTON_REACH = 1e-5
MAX_LANDINGS = 6


class Marks(eqx.Module):
    """The conditions of one block before they meet a state: unique functions, and M milestones that read them.

    Function number 0 is the block's loss, kept as None: its value is wanted at every step anyway.
    """

    functions: tuple[Callable[[Any], Any] | None, ...]
    index: tuple[int, ...] = eqx.field(static=True)
    level: tuple[Float[Array, ""], ...]
    relative: tuple[bool, ...] = eqx.field(static=True)
    direction: tuple[int, ...] = eqx.field(static=True)


def make_marks(conditions: Sequence[Condition], loss: Callable[[Any], Any]) -> Marks:
    """Host side: equal functions are evaluated once."""
    originals = [loss]
    index = []
    for condition in conditions:
        place = next((i for i, f in enumerate(originals) if f is condition.f), None)
        if place is None:
            place = len(originals)
            originals.append(condition.f)
        index.append(place)
    return Marks(
        (None, *originals[1:]),
        tuple(index),
        tuple(c.amount for c in conditions),
        tuple(c.relative for c in conditions),
        tuple(c.direction for c in conditions),
    )


class Watch(eqx.Module):
    """Marks with levels resolved: for each of M milestones its function, level [M] and direction [M]."""

    functions: tuple[Callable[[Any], Any] | None, ...]
    index: tuple[int, ...] = eqx.field(static=True)
    level: Float[Array, " M"]
    sign: Float[Array, " M"]

    @property
    def size(self) -> int:
        """M."""
        return len(self.index)

    def values(self, problem: FlatProblem, z: Float[Array, " m"]) -> Float[Array, " U"]:
        """The loss at z, then the other watched functions."""
        return _values(self.functions, problem, z)

    def gap(self, values: Float[Array, " U"]) -> Float[Array, " M"]:
        """Signed distance to each level: negative before the milestone, >= 0 once it is reached."""
        return self.sign * (values[np.array(self.index, int)] - self.level)


@eqx.filter_jit
def _values(
    functions: Sequence[Callable[[Any], Any] | None], problem: FlatProblem, z: Float[Array, " m"]
) -> Float[Array, " U"]:
    params = problem.params(z)
    return jnp.stack([jnp.asarray((f or problem.loss)(params)).astype(z.dtype) for f in functions])


class Found(eqx.Module):
    """What is known of M milestones, and the landing under way."""

    reached: Bool[Array, " M"]
    s: Float[Array, " M"]
    error: Float[Array, " M"]  # in s, from the step's tolerance
    gap: Float[Array, " M"]  # at the present state
    land: Float[Array, ""]  # solver time to land on, inf when none
    resume: Float[Array, ""]  # step size to go on with after landing
    landings: Int[Array, ""]


def make_watch(problem: FlatProblem, marks: Marks, z0: Float[Array, " m"]) -> Watch:
    """Resolve levels and directions at the initial state."""
    empty = jnp.zeros(0, z0.dtype)
    if not marks.index:
        return Watch(marks.functions, marks.index, empty, empty)
    initial = _values(marks.functions, problem, z0)[np.array(marks.index, int)]
    level = jnp.stack(marks.level).astype(z0.dtype)
    level = jnp.where(np.array(marks.relative), level * initial, level)
    direction = jnp.asarray(np.array(marks.direction, z0.dtype))
    side = jnp.where(initial <= level, 1.0, -1.0).astype(z0.dtype)
    return Watch(marks.functions, marks.index, level, jnp.where(direction == 0, side, direction))


def first_found(watch: Watch, problem: FlatProblem, s0: Float[Array, ""], z0: Float[Array, " m"]) -> Found:
    """Milestones already true at the start are reached at the start, with no error."""
    size = watch.size
    gap = watch.gap(watch.values(problem, z0)) if size else jnp.zeros(0, z0.dtype)
    return Found(
        reached=gap >= 0,
        s=jnp.full(size, s0, z0.dtype),
        error=jnp.zeros(size, z0.dtype),
        gap=gap,
        land=jnp.asarray(jnp.inf, z0.dtype),
        resume=jnp.asarray(0.0, z0.dtype),
        landings=jnp.asarray(0),
    )


def look_ahead(
    watch: Watch,
    problem: FlatProblem,
    interpolate: Callable[[Float[Array, ""]], Float[Array, " m"]],
    s0: Float[Array, ""],
    s1: Float[Array, ""],
    z1: Float[Array, " m"],
) -> Float[Array, "K U"]:
    """The loss and the watched functions at the interior points of a step, and (last row) at its end."""
    if watch.size == 0:
        return watch.values(problem, z1)[None]
    thetas = jnp.asarray(INTERIOR, z1.dtype)
    inner = jax.vmap(lambda theta: interpolate(s0 + theta * (s1 - s0)))(thetas)
    return jax.vmap(lambda z: watch.values(problem, z))(jnp.concatenate([inner, z1[None]]))


def examine(
    watch: Watch,
    problem: FlatProblem,
    found: Found,
    interpolate: Callable[[Float[Array, ""]], Float[Array, " m"]],
    values: Float[Array, "K U"],
    s0: Float[Array, ""],
    s1: Float[Array, ""],
    z1: Float[Array, " m"],
    tolerance: Float[Array, " m"],
    accept: Bool[Array, ""],
) -> tuple[Found, Bool[Array, ""]]:
    """Judge a candidate step [s0, s1] by its `values`: (found, keep); keep False means: repeat it up to `land`."""
    if watch.size == 0:
        return found, accept
    h = s1 - s0
    gaps = jax.vmap(watch.gap)(values)  # [4, M]
    pending = ~found.reached & accept
    hit = jnp.any(gaps >= 0, axis=0) & pending
    landing = s1 >= found.land
    look = jnp.any(hit) | (landing & accept)

    def look_closer(found: Found) -> tuple[Found, Bool[Array, ""]]:
        velocity = field(s1, z1, problem)
        along = lambda v: jax.jvp(lambda z: watch.gap(watch.values(problem, z)), (z1,), (v,))[1]  # noqa: E731
        # the gap's rate along the flow, and its change when every coordinate is off by its tolerance
        slope, spread = jax.vmap(along)(jnp.stack([velocity, tolerance * jnp.sign(velocity)]))
        reach = NEWTON_REACH * jnp.maximum(h, found.resume)
        delta = -gaps[-1] / jnp.where(slope > 0, slope, 1.0)
        inside_hit = jnp.any(gaps[:-1] >= 0, axis=0)
        exact = (slope > 0) & (jnp.abs(delta) <= reach) & ~inside_hit & pending
        missing = hit & ~exact
        theta = _crossing(watch, problem, interpolate, found.gap, gaps, missing, s0, h)
        # after too many landings (a condition with a jump, say) the interpolant's crossing is the answer
        give_up = missing & (found.landings >= MAX_LANDINGS)
        again = jnp.any(missing & ~give_up)
        take = jnp.where(again, False, exact | give_up)
        when = jnp.where(exact, s1 + delta, s0 + theta * h)
        error = jnp.where(exact, jnp.abs(spread) / jnp.where(slope > 0, slope, 1.0), h)
        target = s0 + jnp.min(jnp.where(missing, theta, 1.0)) * h
        # a landing that found nothing (the interpolant was wrong) simply ends, but counts: before a jump, or the end of
        # a range where the function is NaN, landing could go on for ever
        tries = jnp.where(again, found.landings + 1, jnp.where(jnp.any(take), 0, found.landings))
        return Found(
            reached=found.reached | take,
            s=jnp.where(take, when, found.s),
            error=jnp.where(take, error, found.error),
            gap=found.gap,
            land=jnp.where(again, target, jnp.inf),
            resume=jnp.where(again, jnp.maximum(h, found.resume), found.resume),
            landings=tries,
        ), ~again & accept

    found, keep = jax.lax.cond(look, look_closer, lambda f: (f, accept), found)
    # an ordinary step on the way ends a series of landings
    landings = jnp.where(look | ~accept, found.landings, 0)
    gap = jnp.where(keep, gaps[-1], found.gap)
    return eqx.tree_at(lambda f: (f.gap, f.landings), found, (gap, landings)), keep


def _crossing(
    watch: Watch,
    problem: FlatProblem,
    interpolate: Callable[[Float[Array, ""]], Float[Array, " m"]],
    start: Float[Array, " M"],
    gaps: Float[Array, "K M"],
    missing: Bool[Array, " M"],
    s0: Float[Array, ""],
    h: Float[Array, ""],
) -> Float[Array, " M"]:
    """Fraction of the step at which each missing milestone crosses, on the interpolant (bracketed Illinois rule)."""
    grid = jnp.asarray((0.0, *INTERIOR, 1.0), h.dtype)
    first = jnp.argmax(gaps >= 0, axis=0)
    rows = jnp.concatenate([start[None], gaps])
    pick = lambda shift: jnp.take_along_axis(rows, (first + shift)[None], axis=0)[0]  # noqa: E731
    bracket = (grid[first], pick(0), grid[first + 1], pick(1))

    def middle(lo: Array, f_lo: Array, hi: Array, f_hi: Array) -> Array:
        fraction = -f_lo / jnp.where(f_hi > f_lo, f_hi - f_lo, 1.0)
        return lo + jnp.clip(jnp.where(f_hi > f_lo, fraction, 0.5), 0.0, 1.0) * (hi - lo)

    def refine(_: Any, bracket: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        lo, f_lo, hi, f_hi = bracket
        theta = middle(*bracket)
        values = jax.vmap(lambda th: watch.gap(watch.values(problem, interpolate(s0 + th * h))))(theta)
        value = jnp.diagonal(values)
        after = value >= 0
        # Illinois: halve the value at the end that stays, so that neither end gets stuck
        return (
            jnp.where(after, lo, theta),
            jnp.where(after, f_lo * 0.5, value),
            jnp.where(after, theta, hi),
            jnp.where(after, value, f_hi * 0.5),
        )

    bracket = jax.lax.fori_loop(0, 8, refine, bracket)
    return jnp.where(missing, middle(*bracket), 1.0)
