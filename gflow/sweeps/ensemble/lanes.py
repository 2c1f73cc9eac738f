"""What distinguishes the lanes of an ensemble, and what both of their blocks do with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from gflow.sweeps.ensemble._batches import Batch, Ended

KINDS = ("untied", "tied", "merged")
MOST_STEPS = 20_000
# of the predicted time, where lanes that reach nothing are given up
HORIZON = 50.0
FIRST_STEP = 0.02  # of either block's own time unit

Columns = dict[str, np.ndarray]


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


def batch(
    system: Any, a: np.ndarray, b: np.ndarray, levels: np.ndarray, end: np.ndarray, rtol: np.ndarray,
    chosen: np.ndarray, dtype: Any,
) -> Batch:  # fmt: skip
    """The lanes `chosen` as a batch; states a + ib."""
    real = np.dtype(dtype)
    plane = np.result_type(real, np.complex64)
    cast = jax.tree.map(lambda x: np.asarray(x, real), system)
    return Batch(
        cast,
        (a[chosen] + 1j * b[chosen]).astype(plane),
        levels[:, chosen].astype(real),
        np.minimum(FIRST_STEP, end[chosen]).astype(real),
        rtol[chosen].astype(real),
        end[chosen].astype(real),
        np.asarray(MOST_STEPS, np.int32),
    )  # pyright: ignore[reportArgumentType]


def stop_level(t1: np.ndarray) -> np.ndarray:
    """The last level of a batch: -inf where a lane goes on to t1."""
    return np.where(np.isfinite(t1), -np.inf, np.inf)


def blank(lanes: int, levels: int) -> Ended:
    a, b, time = np.zeros((3, lanes))
    accepted, rejected, ended = np.zeros((3, lanes), dtype=np.int32)
    return Ended(a, b, time, accepted, rejected, ended, np.full((levels, lanes), np.nan))


def put(whole: Ended, lanes: np.ndarray, part: Ended) -> None:
    for field, values in zip(whole, part, strict=True):
        field[..., lanes] = values
