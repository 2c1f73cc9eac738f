"""The compiled part of a run of the toy: many steps of many seeds, their records, in fixed memory."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from gflow.losses.induction import MatrixParams
from gflow.training.matrices._model import LEAVES, Toy

# what stopped a seed: its index here, -1 while it runs
QUANTITIES = ("training loss", *(f"gradient of {leaf}" for leaf in LEAVES), *LEAVES, "training loss (exploded)")


class Setting(eqx.Module):
    """What does not change from step to step."""

    toy: Toy
    rule: Any
    lr: Float[Array, ""]
    ceiling: Float[Array, ""]  # times its start: a training loss above has diverged
    evaluation: Float[Array, "L d e"]
    batch: int = eqx.field(static=True)


class State(eqx.Module):
    """One seed before step `step`."""

    step: Int[Array, ""]
    params: MatrixParams
    optimizer: PyTree
    key: Key[Array, ""]
    start: Float[Array, ""]  # its first training loss
    stopped_by: Int[Array, ""]


class Record(eqx.Module):
    """What is kept of a state; losses on the evaluation sample, with their standard errors. NaN once a seed stopped."""

    fourgram: Float[Array, ""]
    induction: Float[Array, ""]
    fourgram_error: Float[Array, ""]
    induction_error: Float[Array, ""]
    singular_KQ: Float[Array, " d"]
    singular_V1: Float[Array, " d"]
    singular_V2: Float[Array, " d"]
    singular_sign: Float[Array, " d"]
    p21: Float[Array, ""]


def first_state(setting: Setting, initial: Key[Array, ""], data: Key[Array, ""], sigma_init: Array) -> State:
    """The state before the first step."""
    params = setting.toy.initial_params(initial, sigma_init)
    start = jnp.asarray(jnp.nan, setting.toy.dtype)
    return State(jnp.asarray(0), params, setting.rule.init(params), data, start, jnp.asarray(-1))


def record(setting: Setting, state: State) -> Record:
    """Losses, singular values and p21 of a state."""
    params, root = state.params, jnp.sqrt(jnp.asarray(setting.evaluation.shape[-1], setting.toy.dtype))
    parts = setting.toy.per_sequence(params, setting.evaluation)
    (fourgram, induction), errors = [jnp.mean(p) for p in parts], [jnp.std(p) / root for p in parts]
    KQ = jnp.asarray(params.WK).T @ jnp.asarray(params.WQ)
    sign = jnp.where(jnp.asarray(params.WK) + jnp.asarray(params.WQ) >= 0, 1.0, -1.0).astype(KQ.dtype)
    # in one call: each would be compiled anew
    matrices = jnp.stack([KQ, jnp.asarray(params.V1), jnp.asarray(params.V2), sign])
    singular = jnp.linalg.svd(matrices, compute_uv=False)
    found = Record(
        fourgram=fourgram,
        induction=induction,
        fourgram_error=errors[0],
        induction_error=errors[1],
        singular_KQ=singular[0],
        singular_V1=singular[1],
        singular_V2=singular[2],
        singular_sign=singular[3],
        p21=jnp.asarray(params.p21),
    )
    return jax.tree.map(lambda x: jnp.where(state.stopped_by < 0, x, jnp.nan), found)


def _finite(tree: MatrixParams) -> list[Array]:
    return [jnp.all(jnp.isfinite(getattr(tree, leaf))) for leaf in LEAVES]


def step(setting: Setting, state: State) -> State:
    """One step on a fresh batch; a seed that cannot take it stays where it is, and says why."""
    batch = setting.toy.sequences(jax.random.fold_in(state.key, state.step), setting.batch)
    loss, gradient = jax.value_and_grad(setting.toy)(state.params, batch)
    params, optimizer = setting.rule.update(gradient, state.optimizer, state.params, setting.lr)
    start = jnp.where(state.step == 0, loss, state.start)
    fine = jnp.stack([jnp.isfinite(loss), *_finite(gradient), *_finite(params), loss <= setting.ceiling * start])
    stopped_by = jnp.where(state.stopped_by >= 0, state.stopped_by, jnp.where(jnp.all(fine), -1, jnp.argmin(fine)))
    go = State(state.step + 1, params, optimizer, state.key, start, stopped_by)
    stay = State(state.step, state.params, state.optimizer, state.key, start, stopped_by)
    # the key is the same in both, and `where` does not take keys
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(stopped_by < 0, a, b), go, stay)


def _records(setting: Setting, states: State) -> Record:
    """The record of every seed, one after the other.

    Side by side they would be compiled to wrong numbers: XLA for the CPU (jaxlib 0.10.2), in float32, when attention
    weights of many parameter sets meet values of one shared sample.
    """
    return jax.lax.map(lambda state: record(setting, state), states)


@eqx.filter_jit
def begin(setting: Setting, keys: tuple[Key[Array, " S"], Key[Array, " S"]], sigma_init: Array) -> tuple[State, Record]:
    """All seeds before their first step, and the record of it."""
    states = jax.vmap(first_state, in_axes=(None, 0, 0, None))(setting, *keys, sigma_init)
    return states, _records(setting, states)


@eqx.filter_jit
def advance(
    setting: Setting, states: State, done: Int[Array, ""], steps: Int[Array, ""], every: Int[Array, ""], rows: int
) -> tuple[State, Record]:
    """`rows` times `every` steps of all seeds from step `done`, none beyond `steps`, with a record after each `every`.

    Leaves of the record are [rows, S, ...].
    """

    def row(carry: tuple[State, Array], _: None) -> tuple[tuple[State, Array], Record]:
        states, done = carry
        ahead = jnp.minimum(every, steps - done)
        states = jax.lax.fori_loop(0, ahead, lambda _, s: jax.vmap(lambda one: step(setting, one))(s), states)
        return (states, done + ahead), _records(setting, states)

    (states, _), kept = jax.lax.scan(row, (states, done), None, length=rows)
    return states, kept
