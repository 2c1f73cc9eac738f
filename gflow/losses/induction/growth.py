"""Growth of an overlap table along a flow: every loss that shares a table grows to one and the same larger table."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gflow import tokens
from gflow.errors import TableError
from gflow.losses.induction.build import make_table
from gflow.losses.induction.table import OverlapTable
from gflow.tokens import TokenLaw

SLOTS = 16  # values of a finite law are padded to a multiple of this
KEPT = 8  # tables held in memory; older ones come back from the disk cache
_grown: OrderedDict[tuple[Any, ...], OverlapTable] = OrderedDict()


class LawData(eqx.Module):
    """A token law as arrays of one shape, so that the losses of all laws share one compilation.

    `kind`: index in `tokens.NAMES`, or their number for a finite law, whose `values` and `weights` [m] follow, padded
    with weight 0.
    """

    kind: Float[Array, ""]
    values: Float[Array, " m"]
    weights: Float[Array, " m"]

    @classmethod
    def of(cls, law: TokenLaw) -> LawData:
        """The arrays of `law`."""
        named = law.name in tokens.NAMES
        kind = tokens.NAMES.index(law.name) if named else len(tokens.NAMES)
        count = 0 if named else law.nodes.size
        padding = (0, SLOTS * max(1, math.ceil(count / SLOTS)) - count)
        rows = [np.pad(np.asarray(x, dtype=float)[:count], padding) for x in (law.nodes, law.weights)]
        return cls(*(jnp.asarray(v, dtype=float) for v in (kind, *rows)))

    def law(self) -> TokenLaw:
        """The law of these arrays (host)."""
        kind = round(float(self.kind))
        if kind < len(tokens.NAMES):
            return tokens.from_name(tokens.NAMES[kind])
        weights = np.asarray(self.weights, dtype=float)
        used = weights > 0
        # single precision loses their sum
        return tokens.finite(np.asarray(self.values, dtype=float)[used], weights[used] / np.sum(weights[used]))


def wider_domain(table: Any, w: float) -> tuple[float, float] | None:
    """A domain [lo, hi] that holds that of `table` and `w` with room to spare; None if the table's own will do.

    `table`: anything with `lo`, `hi`, `in_domain`. Raises `TableError` for a w that is not finite.
    """
    if not math.isfinite(w):
        raise TableError(f"the logit scale is {w}: no table can hold it; start from finite parameters")
    if bool(table.in_domain(jnp.asarray(w, table.lo.dtype))):
        return None
    lo, hi = float(table.lo), float(table.hi)
    room = 0.25 * (hi - lo) + 0.25 * abs(w)
    return (lo, max(hi, w + room)) if w > 0.5 * (lo + hi) else (min(lo, w - room), hi)


def grown_table(table: OverlapTable, law: LawData, w: float) -> OverlapTable:
    """`table` if it holds the logit scale `w` with a margin, else a larger one that does, with room to spare.

    Computed now, on the host; the same arguments give the same object. Raises `TableError`.
    """
    domain = wider_domain(table, w)
    if domain is None:
        return table
    lo, hi = domain
    dtype = table.cells.dtype
    arrays = [np.asarray(x).tobytes() for x in jax.tree.leaves(law)]
    key = (*arrays, float(table.L), float(table.w_star), float(table.d), lo, hi, dtype.name)
    if key not in _grown:
        made = make_table(law.law(), float(table.L), float(table.w_star), int(table.d), lo, hi)
        _grown[key] = jax.tree.map(lambda x: x.astype(dtype), made)
        while len(_grown) > KEPT:
            _grown.popitem(last=False)
    return _grown[key]
