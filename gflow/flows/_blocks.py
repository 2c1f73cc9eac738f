"""Independent blocks of parameters, each with its own loss and its own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from gflow.flows._clocks import AbstractClock, PlainClock


class Block(eqx.Module):
    """One term of a loss that splits: `loss(params) = sum_b b.loss(params of block b)`.

    A loss with a method `blocks() -> tuple[Block, ...]` promises that the parameters of different blocks never meet,
    so `solve` may integrate each block on its own clock (MATH section 5, "The flow splits").

    Arguments:
    - `name`: the block's name; a condition whose function has `.block == name` is watched inside it.
    - `where`: selects the block's leaves, `lambda p: (p.v2, p.wK, p.wQ)`.
    - `loss`: params -> scalar, called with the caller's params type in which the leaves of the other blocks are None.
    - `clock`: the time scale; `curved`: selects the leaves that grow exponentially (integrated in arcsinh).
    """

    name: str = eqx.field(static=True)
    where: Callable[[Any], Sequence[Any]] = eqx.field(static=True)
    loss: Callable[[Any], Any]
    clock: AbstractClock = eqx.field(default_factory=PlainClock)
    curved: Callable[[Any], Sequence[Any]] | None = eqx.field(static=True, default=None)


def leaf_mask(where: Callable[[Any], Any] | None, params: PyTree) -> PyTree:
    """PyTree of bools like `params`: True at the leaves that `where` selects."""
    nothing = jax.tree.map(lambda _: False, params)
    if where is None:
        return nothing
    return eqx.tree_at(where, nothing, replace_fn=lambda _: True)
