"""`Descent`: what a discrete-time run returns."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path as FilePath
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.training._chunk import Row
from gflow.training._status import Outcome, StepMilestone


class Path:
    """The rows kept so far; a row whose loss is not finite is not kept."""

    def __init__(self, frozen: PyTree) -> None:
        self.frozen = frozen
        self._rows: list[Row] = []

    def extend(self, rows: Row) -> None:
        """Take the filled rows of a call (host arrays, R rows)."""
        good = rows.filled & np.isfinite(rows.losses["total"])
        good &= rows.step > self.last_step
        if np.any(good):
            self._rows.append(jax.tree.map(lambda x: x[good], rows))
            self.__dict__.pop("_all", None)

    @property
    def last_step(self) -> int:
        """Step of the last row, -1 when there is none."""
        return int(self._rows[-1].step[-1]) if self._rows else -1

    @functools.cached_property
    def _all(self) -> Row:
        return jax.tree.map(lambda *xs: np.concatenate(xs), *self._rows)

    @property
    def steps(self) -> np.ndarray:
        """Steps of the rows: [N]."""
        return np.asarray(self._all.step)

    @property
    def losses(self) -> dict[str, np.ndarray]:
        """Parts of the loss, and "total": each [N]."""
        return {name: np.asarray(values) for name, values in self._all.losses.items()}

    @property
    def params(self) -> PyTree:
        """The caller's PyTree, leaves [N, ...]; frozen ones repeated."""
        n = len(self.steps)

        def repeat(x: Any) -> Any:
            return np.broadcast_to(np.asarray(x), (n, *np.shape(x))) if eqx.is_array_like(x) else x

        return eqx.combine(self._all.params, jax.tree.map(repeat, self.frozen))

    def moving(self, row: int) -> PyTree:
        """The moving leaves of a row, as device arrays."""
        return jax.tree.map(lambda x: jnp.asarray(x[row]), self._all.params)


@dataclasses.dataclass
class Descent:
    """The path of a discrete-time run, its milestones, and how it ended: what `Trajectory` is for a flow.

    - `steps` [N]: steps kept; `ts` [N]: their times, the sum of the learning rates so far; `params`: the caller's
      PyTree with a leading axis N (numpy leaves); `losses`: name of part -> [N], with "total".
    - `milestones`: name -> `StepMilestone` (`step`, `time`, `first`); `status` (an `Outcome`), `message`.
    - `optimizer`: its name; `stats`, `seconds`, `provenance`: dicts.
    """

    steps: np.ndarray
    ts: np.ndarray
    params: PyTree
    losses: dict[str, np.ndarray]
    milestones: dict[str, StepMilestone]
    status: Outcome
    message: str
    optimizer: str
    stats: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    clock: ClassVar[str] = "time $t$ (sum of the learning rates)"  # of an axis
    t0: ClassVar[float] = 0.0

    @property
    def t1_reached(self) -> float:
        """Time at the last step kept."""
        return float(self.ts[-1])

    @property
    def final(self) -> PyTree:
        """Parameters at the last step kept."""
        return jax.tree.map(lambda x: x[-1] if isinstance(x, np.ndarray) else x, self.params)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: parameters and losses along "time" (with "step"), milestones along "milestone"."""
        from gflow.training._persist import to_dataset

        return to_dataset(self)

    def save(self, path: str | FilePath, *, overwrite: bool = False) -> FilePath:
        """Write a netCDF file (atomically); raises `OutputError` when it exists and `overwrite` is False."""
        from gflow.training._persist import save

        return save(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        lines = [
            f"Descent by {self.optimizer}: {int(self.steps[-1])} steps, t = 0 .. {self.t1_reached:.6g}",
            f"  {self.status.value}: {self.message}",
        ]
        width = max((len(name) for name in self.milestones), default=0)
        lines += [f"  {name:<{width}}  {milestone!r}" for name, milestone in self.milestones.items()]
        return "\n".join(lines)
