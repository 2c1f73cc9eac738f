"""From the caller's parameters to flat initial value problems, one per block."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows._blocks import Block, leaf_mask
from gflow.flows._charts import AbstractChart, Coordinates
from gflow.flows._clocks import PlainClock
from gflow.flows._flow import AbstractFlow
from gflow.flows._law import AbstractLaw, State
from gflow.flows._problem import FlatProblem, Layout, gradient_of

WHOLE = "all"  # the name of the only block of a loss that does not split


def as_arrays(params: PyTree) -> PyTree:
    """Numbers become arrays (floats in the default precision); arrays keep their precision."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, bool | str) or callable(leaf):
            return leaf
        if isinstance(leaf, float | int):
            return jnp.asarray(leaf, float)
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic | jax.Array) else leaf

    return jax.tree.map(convert, params)


def precision(params: PyTree) -> Any:
    """The one floating point precision of the parameters; raises `InputError` when there is none, or several."""
    kinds = {leaf.dtype.name for leaf in jax.tree.leaves(params) if eqx.is_inexact_array(leaf)}
    if not kinds:
        raise InputError("params: there is no floating point array among the initial parameters")
    if len(kinds) > 1 or not kinds <= {"float32", "float64"}:
        raise InputError(f"params: all parameters must be float32, or all float64; got {', '.join(sorted(kinds))}")
    return jnp.dtype(kinds.pop())


def check_finite(params: PyTree) -> None:
    """Every initial value must be finite."""
    for path, leaf in jax.tree.leaves_with_path(params):
        if eqx.is_inexact_array(leaf) and not np.all(np.isfinite(np.asarray(leaf))):
            raise InputError(f"params{jax.tree_util.keystr(path)}: the initial value is not finite: {leaf}")


def check_loss(loss: Callable[[Any], Any], params: PyTree, dtype: Any) -> None:
    """The loss must be a scalar of the parameters' precision (looked at while tracing, so it costs nothing later)."""
    shape = eqx.filter_eval_shape(loss, params)
    if not hasattr(shape, "shape") or shape.shape != ():
        got = getattr(shape, "shape", type(shape).__name__)
        raise InputError(f"loss: it must return one scalar, got {got}; return jnp.sum(...) or jnp.mean(...)")
    if shape.dtype != dtype:
        raise InputError(
            f"loss: it returns {shape.dtype} for {dtype} parameters; cast its constants, or the parameters"
        )


def make_blocks(flow: AbstractFlow) -> tuple[Block, ...]:
    """The independent blocks of the flow: the loss's own, or one holding everything. A clock of the flow's own wins."""
    blocks = getattr(flow.loss, "blocks", None)
    if blocks is None or flow.chart is not None:
        clock = PlainClock() if flow.clock is None else flow.clock
        return (Block(WHOLE, where=jax.tree.leaves, loss=flow.loss, clock=clock),)
    return tuple(b if flow.clock is None else dataclasses.replace(b, clock=flow.clock) for b in blocks())


def flat_problem(
    block: Block,
    params: PyTree,
    moves: PyTree,
    shown: PyTree,
    law: AbstractLaw,
    rates: PyTree,
    chart: AbstractChart | None,
    t0: Any,
    rtol: Any,
    atol: Any,
) -> tuple[FlatProblem, jax.Array]:
    """The block's initial value problem and z0. Pure: may be traced.

    `moves` and `shown` are PyTrees of bools: the leaves that this block moves, and those it may see frozen.
    """
    moving, frozen = eqx.filter(params, moves), eqx.filter(params, shown)
    dtype = jax.tree.leaves(moving)[0].dtype
    check_loss(block.loss, eqx.combine(moving, frozen), dtype)
    rates = jax.tree.map(lambda r, p: jnp.asarray(r, p.dtype), eqx.filter(rates, moves), moving)
    clock, law = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, (block.clock, law))
    x0 = moving if chart is None else chart.to_chart(moving)
    sizes, bends = _sizes(x0, rtol, atol), jax.tree.map(lambda x: jnp.zeros(x.shape, bool), x0)
    if block.curved is not None:
        bent = eqx.filter(leaf_mask(block.curved, params), moves)
        bends = jax.tree.map(lambda b, x: jnp.full(x.shape, b), bent, moving)
    state, state_sizes, state_bends = _start_state(
        law, block.loss, moving, frozen, rates, bends if chart is None else None
    )
    layout = Layout.of((x0, state))
    y0 = layout.flatten((x0, state))
    coordinates = Coordinates(layout.flatten((sizes, state_sizes)), layout.flatten((bends, state_bends)))
    start = jnp.asarray(t0, dtype)
    problem = FlatProblem(block.loss, frozen, layout, law, rates, chart, coordinates, clock, start)
    return problem, coordinates.forward(y0)


def _start_state(
    law: AbstractLaw, loss: Callable[[Any], Any], moving: PyTree, frozen: PyTree, rates: PyTree, bends: PyTree | None
) -> tuple[State, State, State]:
    """The law's state at the start, its size, and where it bends: each a dict of PyTrees like the moving leaves."""
    if not law.names:
        return {}, {}, {}
    gradient = gradient_of(loss, moving, frozen)
    sizes, curved = law.scales(gradient, rates, _sizes(moving, None, None))
    straight = jax.tree.map(lambda x: jnp.zeros(x.shape, bool), moving)
    as_leaf = straight if bends is None else bends
    choose = {None: as_leaf, False: straight, True: jax.tree.map(jnp.ones_like, straight)}
    return law.start(gradient), sizes, {name: choose[curved[name]] for name in law.names}


def block_masks(flow: AbstractFlow, blocks: tuple[Block, ...], params: PyTree) -> list[tuple[PyTree, PyTree]]:
    """(moves, shown) of each block. Leaves that no block claims, a fixed p11 say, must be frozen; all see them."""
    trainable = flow.mask(params)
    if len(blocks) == 1:
        return [(trainable, jax.tree.map(lambda t: not t, trainable))]
    own = [leaf_mask(block.where, params) for block in blocks]
    claimed = jax.tree.map(lambda *masks: any(masks), *own)
    for path, lost in jax.tree.leaves_with_path(jax.tree.map(lambda t, c: t and not c, trainable, claimed)):
        if lost:
            name = jax.tree_util.keystr(path)
            raise InputError(
                f"params{name}: no block of the loss uses it; freeze it with trainable=, or set it to None"
            )
    return [
        (
            jax.tree.map(lambda t, o: t and o, trainable, mine),
            jax.tree.map(lambda t, o, c: (o and not t) or not c, trainable, mine, claimed),
        )
        for mine in own
    ]


def _sizes(x0: PyTree, rtol: Any, atol: Any) -> PyTree:
    """Size of each entry: its leaf's largest initial value, or what the caller's `atol` (absolute) amounts to."""
    if atol is not None:
        try:
            given = jax.tree.broadcast(atol, x0)
        except ValueError as error:
            raise InputError(f"atol: a PyTree of tolerances must be a prefix of the parameters: {error}") from error
        full = lambda a, x: jnp.broadcast_to(jnp.asarray(a, x.dtype) / jnp.asarray(rtol, x.dtype), x.shape)  # noqa: E731
        return jax.tree.map(full, given, x0)
    sizes = jax.tree.map(lambda x: jnp.max(jnp.abs(x), initial=0.0), x0)
    largest = jnp.max(jnp.stack(jax.tree.leaves(sizes)))
    fallback = jnp.where(largest > 0, largest, jnp.ones_like(largest))
    return jax.tree.map(lambda s, x: jnp.full(x.shape, jnp.where(s > 0, s, fallback)), sizes, x0)
