"""`Trajectory`: what a solve returns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows._dense import DenseBlock
from gflow.flows._flow import AbstractFlow
from gflow.flows._status import Milestone, StationaryPoint, Status


@dataclasses.dataclass(frozen=True)
class LogSpaced:
    """`n` save times: t0, then log-spaced from `start` after t0 (by default the first step) to the end of the run."""

    n: int
    start: float | None = None

    def times(self, trajectory: Trajectory) -> np.ndarray:
        """The times for this run."""
        if self.n < 2:
            raise InputError(f"LogSpaced(n={self.n}): at least 2 times are needed")
        steps = trajectory.step_times
        t0, end = trajectory.t0, trajectory.t1_reached
        first = self.start if self.start is not None else (steps[1] - t0 if len(steps) > 1 else 0.0)
        if end <= t0 or first <= 0 or first >= end - t0:
            return np.unique([t0, end])
        return np.concatenate([[t0], t0 + np.geomspace(first, end - t0, self.n - 1)[:-1], [end]])


@eqx.filter_jit
def _parts(loss: Any, params: PyTree) -> dict[str, jax.Array]:
    """Named terms of the loss and their total along a path: params with a leading time axis."""

    def one(p: PyTree) -> dict[str, jax.Array]:
        terms = dict(loss.parts(p)) if hasattr(loss, "parts") else {}
        return terms | {"total": jnp.asarray(loss(p))}

    return jax.vmap(one)(params)


def _first(leaf: Any) -> Any:
    return np.asarray(leaf[0]) if isinstance(leaf, np.ndarray) else leaf


@dataclasses.dataclass
class Trajectory:
    """The path of a gradient flow, its milestones, and how it ended.

    - `ts` [N]: times kept (every accepted step unless `save` said otherwise); `params`: the caller's PyTree with a
      leading axis N (numpy leaves); `losses`: name of part -> [N], with "total".
    - `at(t)`: parameters at any time, or at a milestone by name; `losses_at(t)` likewise.
    - `milestones`: name -> `Milestone`; `status`, `message`; `t0`, `t1_reached`.
    - `stationary`: block -> `StationaryPoint` where the flow last rested, `saddles`: all those it left;
      `stats`, `seconds`, `provenance`: dicts.
    """

    flow: AbstractFlow | None
    initial: PyTree
    blocks: Sequence[DenseBlock] | None
    milestones: dict[str, Milestone]
    status: Status
    message: str
    t0: float
    t1_reached: float
    stationary: dict[str, StationaryPoint] = dataclasses.field(default_factory=dict)
    saddles: dict[str, list[StationaryPoint]] = dataclasses.field(default_factory=dict)
    stats: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    # fills in `blocks` when the path is first asked for: milestones are known long before every block is at the end
    pending: Callable[[Trajectory], None] | None = None
    _chosen: np.ndarray | None = None
    _saved_losses: dict[str, np.ndarray] | None = None

    def select(self, ts: np.ndarray | None) -> None:
        """Keep these times (None: every accepted step) as `ts`, `params`, `losses`."""
        self._chosen = ts
        self._saved_losses = None
        for name in ("ts", "params", "losses"):
            self.__dict__.pop(name, None)

    def losses_saved(self, losses: dict[str, np.ndarray]) -> None:
        """Use these values at `ts` instead of evaluating the loss (a loaded trajectory may not have it)."""
        self._saved_losses = losses

    def complete(self) -> Trajectory:
        """Fill in the path up to `t1_reached` now, rather than when it is first asked for; returns itself."""
        if self.pending is not None:
            fill_in, self.pending = self.pending, None
            fill_in(self)
        return self

    @functools.cached_property
    def step_times(self) -> np.ndarray:
        """Ends of the accepted steps of all blocks, from t0 to the end of the run."""
        self.complete()
        times = [block.step_times() for block in self.blocks or []]
        ts = np.unique(np.concatenate([*times, [self.t0, self.t1_reached]]))
        ts = ts[ts <= self.t1_reached]
        # two blocks that end together differ in the last digit only
        apart = np.diff(ts, prepend=-np.inf) > 1e-14 * np.abs(ts)
        apart[0] = True
        ts = ts[apart]
        ts[-1] = self.t1_reached
        return ts

    @functools.cached_property
    def ts(self) -> np.ndarray:
        """Times kept: [N]."""
        return self.step_times if self._chosen is None else self._chosen

    @functools.cached_property
    def params(self) -> PyTree:
        """Parameters at `ts`: the caller's PyTree with numpy leaves [N, ...]."""
        return self._path(self.ts)

    @functools.cached_property
    def losses(self) -> dict[str, np.ndarray]:
        """Parts of the loss at `ts`, and "total": each [N]."""
        if self._saved_losses is not None:
            return self._saved_losses
        return self._losses(self.params, len(self.ts))

    def at(self, t: Any) -> PyTree:
        """Parameters at time `t` (a number, an array [M], or a milestone's name), to the solver's accuracy.

        Raises `InputError` outside [t0, t1_reached]: nothing is extrapolated.
        """
        ts = np.atleast_1d(self._time(t))
        path = self._path(ts)
        return path if np.ndim(self._time(t)) else jax.tree.map(_first, path)

    def losses_at(self, t: Any) -> dict[str, Any]:
        """Parts of the loss at time `t` (as in `at`), and "total"."""
        ts = np.atleast_1d(self._time(t))
        values = self._losses(self._path(ts), len(ts))
        return values if np.ndim(self._time(t)) else {k: float(v[0]) for k, v in values.items()}

    @property
    def final(self) -> PyTree:
        """Parameters at the end of the run."""
        self.complete()
        return self.at(self.t1_reached)

    def _time(self, t: Any) -> np.ndarray:
        if isinstance(t, str):
            if t not in self.milestones:
                raise InputError(f"at({t!r}): no such milestone; there are {', '.join(self.milestones) or 'none'}")
            when = self.milestones[t].time
            if when is None:
                raise InputError(f"at({t!r}): that milestone was not reached: {self.milestones[t].reason}")
            t = when
        ts = np.asarray(t, dtype=float)
        slack = 1e-12 * max(abs(self.t0), abs(self.t1_reached))
        if ts.size and not (np.min(ts) >= self.t0 - slack and np.max(ts) <= self.t1_reached + slack):
            raise InputError(
                f"at(t): t = {np.min(ts):g} .. {np.max(ts):g} leaves the run, {self.t0:g} .. {self.t1_reached:g}"
            )
        return ts

    def _path(self, ts: np.ndarray) -> PyTree:
        """Full parameters at times [n]: moving leaves from the blocks, the others repeated."""
        self.complete()
        if self.blocks is None:
            raise InputError("at(t): the file holds no dense output (a chart of your own was used); use ts and params")
        moving = [block.moving(ts) for block in self.blocks]

        def repeat(x: Any) -> Any:
            return np.broadcast_to(np.asarray(x), (len(ts), *np.shape(x))) if eqx.is_array_like(x) else x

        return (
            eqx.combine(*moving, jax.tree.map(repeat, self.initial)) if moving else jax.tree.map(repeat, self.initial)
        )

    @property
    def state(self) -> dict[str, PyTree]:
        """The flow's own state at `ts`, by name ("velocity" of a heavy ball): like `params`, None at frozen leaves."""
        return self.state_at(self.ts)

    def state_at(self, t: Any) -> dict[str, PyTree]:
        """The flow's own state at time `t` (as in `at`); empty for a gradient flow."""
        ts = np.atleast_1d(self._time(t))
        self.complete()
        if self.blocks is None:
            raise InputError("state: the file holds no dense output (a chart of your own was used)")
        states = [block.state(ts) for block in self.blocks]
        names = states[0] if states else {}
        whole = {name: eqx.combine(*(state[name] for state in states)) for name in names}
        return whole if np.ndim(self._time(t)) else jax.tree.map(_first, whole)

    def _losses(self, params: PyTree, n: int) -> dict[str, np.ndarray]:
        if self.flow is None:
            raise InputError("losses_at: a loaded trajectory has its saved losses only; give load(..., loss=...)")
        # whole powers of two, so that few sizes are compiled
        size = max(8, 1 << max(n - 1, 0).bit_length())
        index = np.minimum(np.arange(size), max(n - 1, 0))
        padded = jax.tree.map(lambda x: x[index] if isinstance(x, np.ndarray) else x, params)
        return {k: np.asarray(v)[:n] for k, v in _parts(self.flow.loss, padded).items()}

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: parameters and losses along "time", milestones along "milestone", all else in attrs."""
        from gflow.flows._persist import to_dataset

        return to_dataset(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a netCDF file (atomically); raises `OutputError` when it exists and `overwrite` is False."""
        from gflow.flows._persist import save

        return save(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        steps = f"{self.stats.get('accepted', '?')} steps, {self.stats.get('rejected', '?')} rejected"
        lines = [
            f"Trajectory: t = {self.t0:g} .. {self.t1_reached:.6g}, {steps}",
            f"  {self.status.value}: {self.message}",
        ]
        width = max((len(name) for name in self.milestones), default=0)
        lines += [f"  {name:<{width}}  {milestone!r}" for name, milestone in self.milestones.items()]
        for name, point in self.stationary.items():
            escape = "" if point.escape_time is None else f", escape predicted at t = {point.escape_time:.4g}"
            lines.append(f"  {name}: {point.kind} at t = {point.time:.4g}{escape}")
        return "\n".join(lines)
