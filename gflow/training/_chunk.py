"""The compiled part of a descent: many steps, their milestones, their saved rows, in fixed memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from gflow.training._optimizers import rate_at

# why the steps stopped
GOING, LOSS, GRADIENT, PARAMETER, LARGE, DOMAIN = range(6)


class Task(eqx.Module):
    """What does not change from step to step. K conditions read F distinct functions, `index` says which."""

    loss: Callable[[Any], Any]
    batches: Callable[[Any], Any] | None
    key: Key[Array, ""] | None
    rule: Any
    rate: Any
    frozen: PyTree
    functions: tuple[Callable[[Any], Any], ...]
    index: tuple[int, ...] = eqx.field(static=True)
    level: Float[Array, " K"]
    sign: Float[Array, " K"]
    ceiling: Float[Array, ""]  # the loss at which a run counts as diverged
    tail: Float[Array, ""]  # go on for this multiple of the last milestone's step; negative: milestones end nothing
    steps: Int[Array, ""]

    def full(self, moving: PyTree) -> PyTree:
        """The caller's parameters."""
        return eqx.combine(moving, self.frozen)

    def values(self, moving: PyTree) -> Float[Array, " F"]:
        """The watched functions."""
        return read(self.functions, self.full(moving))


class State(eqx.Module):
    """Before step `step` + 1: parameters, optimiser, milestones. `code` says why the steps stopped, if they did."""

    step: Int[Array, ""]
    params: PyTree
    previous: PyTree  # parameters one step earlier
    proposed: PyTree  # where the step led that was not taken
    optimizer: PyTree
    loss: Float[Array, ""]  # as last evaluated for a gradient
    values: Float[Array, " F"]
    first: Int[Array, " K"]  # first step at which each condition holds, -1: not yet
    fraction: Float[Array, " K"]  # of that step at which the level is passed
    code: Int[Array, ""]
    leaf: Int[Array, ""]  # the first leaf that is not finite


class Row(eqx.Module):
    """A saved state: `filled` says whether it is one."""

    filled: Bool[Array, ""]
    step: Int[Array, ""]
    params: PyTree
    losses: dict[str, Float[Array, ""]]


def read(functions: tuple[Callable[[Any], Any], ...], params: PyTree) -> Float[Array, " F"]:
    """Scalar functions of the parameters, in one vector."""
    dtype = next(x.dtype for x in jax.tree.leaves(params) if eqx.is_inexact_array(x))
    return jnp.stack([jnp.asarray(f(params)).astype(dtype) for f in functions]) if functions else jnp.zeros(0, dtype)


def parts(loss: Any, params: PyTree) -> dict[str, Float[Array, ""]]:
    """The named terms of the loss, and "total"."""
    terms = dict(loss.parts(params)) if hasattr(loss, "parts") else {}
    total = sum(terms.values()) if terms else jnp.asarray(loss(params))
    return {k: jnp.asarray(v) for k, v in terms.items()} | {"total": jnp.asarray(total)}


def _stopped_by(values: PyTree) -> tuple[Bool[Array, ""], Int[Array, ""]]:
    """Is a leaf not finite, and which is the first."""
    bad = jnp.stack([~jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(values)])
    return jnp.any(bad), jnp.argmax(bad)


def _evaluated(task: Task, state: State) -> tuple[Float[Array, ""], PyTree]:
    """Loss and gradient of this step: of the loss itself, or of a fresh batch."""
    loss: Any = task.loss
    if task.batches is not None:
        loss = task.batches(jax.random.fold_in(task.key, state.step))  # pyright: ignore[reportArgumentType]
    return jax.value_and_grad(lambda p: loss(task.full(p)))(state.params)


def _watched(task: Task, state: State, params: PyTree, step: Int[Array, ""]) -> tuple[Array, Array, Array]:
    """Values of the watched functions after a step, and the milestones with it."""
    if not task.functions:
        return state.values, state.first, state.fraction
    wanted = jnp.any(state.first < 0)
    values = jax.lax.cond(wanted, lambda p: task.values(p), lambda _: state.values, params)
    picked = np.array(task.index, int)
    before = task.sign * (state.values[picked] - task.level)
    gap = task.sign * (values[picked] - task.level)
    new = (gap >= 0) & (state.first < 0)
    # the value before may be what it is only because nothing was finite: then the whole step is as good as any place
    share = jnp.where(before < 0, before / (before - gap), jnp.ones_like(gap))
    return values, jnp.where(new, step, state.first), jnp.where(new, share, state.fraction)


def _step(task: Task, state: State) -> State:
    """One step, unless something about it is not finite, or leads out of the loss's domain."""
    value, gradient = _evaluated(task, state)
    moved, optimizer = task.rule.update(gradient, state.optimizer, state.params, rate_at(task.rate, state.step))
    no_gradient, of_gradient = _stopped_by(gradient)
    no_params, of_params = _stopped_by(moved)
    domain = getattr(task.loss, "domain", None)
    outside = jnp.asarray(False) if domain is None else ~jnp.all(domain(task.full(moved)))
    reasons = [~jnp.isfinite(value), no_gradient, value > task.ceiling, no_params, outside]
    code = jnp.select(reasons, [jnp.asarray(c) for c in (LOSS, GRADIENT, LARGE, PARAMETER, DOMAIN)], jnp.asarray(GOING))
    leaf = jnp.where(no_gradient, of_gradient, of_params)
    halted = code != GOING
    step = state.step + 1
    values, first, fraction = _watched(task, state, moved, step)
    stay = State(
        state.step, state.params, state.previous, moved, state.optimizer, value, state.values, state.first,
        state.fraction, code, leaf,
    )  # fmt: skip
    go = State(step, moved, state.params, moved, optimizer, value, values, first, fraction, code, leaf)
    return jax.tree.map(lambda a, b: jnp.where(halted, a, b), stay, go)


def _over(task: Task, state: State) -> Bool[Array, ""]:
    """All steps done, or every milestone found and the tail behind it."""
    last = jnp.max(state.first, initial=0)
    enough = last + jnp.ceil(last.astype(task.tail.dtype) * task.tail).astype(last.dtype)
    found = jnp.all(state.first >= 0) & (state.step >= enough)
    return (state.step >= task.steps) | (found & (task.tail >= 0))


@eqx.filter_jit
def advance(
    task: Task, state: State, targets: Int[Array, " R"], keep: Bool[Array, " R"]
) -> tuple[State, Row, Bool[Array, ""]]:
    """Step to each target in turn, saving the state there where `keep`; ends early when it halts or is over."""

    def go_on(state: State) -> Bool[Array, ""]:
        return (state.code == GOING) & ~_over(task, state)

    def to_target(state: State, entry: tuple[Array, Array]) -> tuple[State, Row]:
        target, wanted = entry
        state = jax.lax.while_loop(lambda s: go_on(s) & (s.step < target), lambda s: _step(task, s), state)
        arrived = (state.step == target) & wanted & (state.code == GOING)
        shapes = eqx.filter_eval_shape(parts, task.loss, task.full(state.params))
        blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        losses = jax.lax.cond(arrived, lambda p: parts(task.loss, task.full(p)), lambda _: blank, state.params)
        return state, Row(arrived, state.step, state.params, losses)

    state, rows = jax.lax.scan(to_target, state, (targets, keep))
    return state, rows, ~go_on(state)


@eqx.filter_jit
def start(
    loss: Callable[[Any], Any], functions: tuple[Callable[[Any], Any], ...], rule: Any, moving: PyTree, frozen: PyTree
) -> tuple[Float[Array, ""], Float[Array, " F"], PyTree]:
    """Loss, watched functions and optimiser at the initial parameters."""
    params = eqx.combine(moving, frozen)
    return jnp.asarray(loss(params)), read(functions, params), rule.init(moving)
