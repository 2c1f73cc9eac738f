"""What distinguishes the lanes of an ensemble, and what both of their blocks do with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from gflow.sweeps.ensemble._batches import Batch, Ended
from gflow.sweeps.ensemble._loop import Policy

KINDS = ("untied", "tied", "merged")
MOST_STEPS = 20_000
# of the predicted time, where lanes that reach nothing are given up
HORIZON = 50.0
FIRST_STEP = 0.02  # of either block's own time unit

Columns = dict[str, np.ndarray]
Stretch = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Lanes:
    """What distinguishes lanes, one entry each. `table`: number of the lane's polynomials; `t1`: inf where a lane ends
    after its last milestone. `wK`, `wQ`: starts (tied: both wKQ; merged: wK is w)."""

    L: np.ndarray
    alpha_star: np.ndarray
    d: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    kind: np.ndarray
    sigma: np.ndarray
    wK: np.ndarray
    wQ: np.ndarray
    table: np.ndarray
    t1: np.ndarray
    rtol: np.ndarray

    def is_kind(self, kind: str) -> np.ndarray:
        """Which lanes have this parametrisation."""
        return self.kind == KINDS.index(kind)

    def __len__(self) -> int:
        return len(self.L)

    def select(self, chosen: np.ndarray) -> Lanes:
        """Some of the lanes."""
        return Lanes(**{field.name: getattr(self, field.name)[chosen] for field in dataclasses.fields(self)})

    def with_table(self, table: np.ndarray) -> Lanes:
        """The same lanes with other numbers of their tables."""
        return dataclasses.replace(self, table=table)


@dataclasses.dataclass(frozen=True)
class Course:
    """Where the lanes of a block start, what they watch and when they end, in the block's own time; one entry each.

    `levels` [levels, lanes], `curve` [points, lanes]; other words as in `_loop.Policy`.
    """

    a: np.ndarray
    b: np.ndarray
    levels: np.ndarray
    least: np.ndarray
    end: np.ndarray
    rtol: np.ndarray
    curve: np.ndarray

    def batch(self, system: Any, chosen: np.ndarray, dtype: Any) -> Batch:
        """The lanes `chosen`, with their system, in the precision asked for."""
        real = np.dtype(dtype)

        def of(x: np.ndarray) -> np.ndarray:
            return x[..., chosen].astype(real)

        y = (self.a[chosen] + 1j * self.b[chosen]).astype(np.result_type(real, np.complex64))
        policy = Policy(
            levels=of(self.levels),
            rows=np.asarray(len(self.levels), np.int32),
            least=of(self.least),
            end=of(self.end),
            rtol=of(self.rtol),
            curve=of(self.curve),
            most=np.asarray(MOST_STEPS, np.int32),
        )
        cast = jax.tree.map(lambda x: np.asarray(x, real), system)
        return Batch(cast, y, np.minimum(FIRST_STEP, of(self.end)).astype(real), policy)


def stretch(t1: np.ndarray, curve_times: np.ndarray | None, unit: np.ndarray | float, horizon: np.ndarray) -> Stretch:
    """(least, end, curve) of a block whose time is t/unit: to t1 where that is finite, else past the curve's last time,
    and to `horizon` at most."""
    times = np.zeros(0) if curve_times is None else np.asarray(curve_times)
    finite = np.isfinite(t1)
    last = (times[-1] if len(times) else 0.0) / unit + np.zeros_like(t1)
    end = np.where(finite, np.where(finite, t1, 0.0) / unit, np.maximum(horizon, last))
    curve = times[:, None] / (unit + np.zeros_like(t1))[None, :]
    return np.where(finite, np.inf, last), end, curve


def blank(lanes: int, levels: int, points: int) -> Ended:
    a, b, time = np.zeros((3, lanes))
    accepted, rejected, ended = np.zeros((3, lanes), dtype=np.int32)
    rows = np.full((levels + points, lanes), np.nan)
    return Ended(a, b, time, accepted, rejected, ended, rows[:levels], rows[levels:])


def put(whole: Ended, lanes: np.ndarray, part: Ended) -> None:
    for field, values in zip(whole, part, strict=True):
        field[..., lanes] = values
