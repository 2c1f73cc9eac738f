"""Parts that the figures share: points along a path that suit a logarithmic time axis, and that axis."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

FIRST_SHARE = 1e-6  # of the run: an axis that would begin earlier shows nothing
GRID = 512  # points of the dense output, next to the ends of the steps


@dataclasses.dataclass(frozen=True)
class Curves:
    """A path as it is drawn: times since t0 `where` [N], all > 0, and `values`: name -> [N, ...] at these times.

    `start`: name -> the value at t0, or at the first time kept if t0 is not among them.
    """

    where: np.ndarray
    values: dict[str, np.ndarray]
    start: dict[str, Any]


def sample(traj: Any, first: float | None = None) -> tuple[Curves, Curves]:
    """Losses and parameters along the path, for an axis from `first` after t0 (by default the first time kept).

    Between the times kept the dense output is used; without one, or for the losses of a loaded run whose loss is not
    at hand, the times kept are all there is.
    """
    ts = np.asarray(traj.ts, dtype=float)
    left = _left(ts - float(traj.t0), first)
    times = _dense_times(traj, ts, left)
    if times is None:
        params, losses, at_losses = traj.params, traj.losses, ts
        times = ts
    else:
        params = traj.at(times)
        known = getattr(traj, "flow", None) is not None
        losses, at_losses = (traj.losses_at(times), times) if known else (traj.losses, ts)
    t0 = float(traj.t0)
    return _curves(at_losses - t0, losses, left), _curves(times - t0, named_leaves(params), left)


def _left(since: np.ndarray, first: float | None) -> float:
    """Where the axis begins."""
    positive = since[since > 0]
    if not len(positive):
        return 1.0
    end = float(positive[-1])
    return first if first is not None and first < end else max(float(positive[0]), FIRST_SHARE * end)


def _dense_times(traj: Any, ts: np.ndarray, left: float) -> np.ndarray | None:
    """The times kept and a logarithmic grid, t0 first; None if the path is known at the times kept only."""
    if not hasattr(traj, "complete") or len(ts) == 0 or traj.complete().blocks is None:
        return None
    t0, end = float(traj.t0), float(traj.t1_reached)
    if not end - t0 > left:
        return None
    grid = t0 + np.geomspace(left, end - t0, GRID)
    times = np.unique(np.concatenate([[t0], grid, ts[ts - t0 > left]]))
    return times[(times >= t0) & (times <= end)]


def _curves(since: np.ndarray, values: dict[str, Any], left: float) -> Curves:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    # the last point before the axis begins stands at its left edge; of a run without any length that is all of it
    index = np.concatenate([np.flatnonzero(since <= left)[-1:], np.flatnonzero(since > left)]).astype(int)
    shown = {name: value[index] for name, value in arrays.items()}
    return Curves(np.maximum(since[index], left), shown, {name: value[0] for name, value in arrays.items()})


def last_stage(run: Any) -> Any:
    """The run itself, or the last stage of a schedule, on its own clock."""
    return list(run.stages.values())[-1] if hasattr(run, "stages") else run


def scale_time(axes: Any, where: np.ndarray) -> None:
    """A logarithmic axis over `where`; a linear one if there is only one time."""
    low, high = float(where[0]), float(where[-1])
    if high > low > 0:
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_xlim(low - 0.5, high + 0.5)
        axes.set_xticks([low], ["start"])


def time_label(traj: Any, *, short: bool = False) -> str:
    """Name of the time axis; says so when the run ended early. `short`: for the axis of a narrow column."""
    if short:
        label = "$t$ = sum of learning rates" if hasattr(traj, "steps") else "time $t$"
    else:
        flow = "time $t$ of the gradient flow" if traj.t0 == 0 else "time $t - t_0$ of the gradient flow"
        label = getattr(traj, "clock", flow)
    status = getattr(traj, "status", None)
    if status is None or status.ok:
        return label
    reason = status.value.replace("_", " ")
    return f"{label} ({reason})" if short else f"{label} (stopped at $t$ = {traj.t1_reached:.4g}: {reason})"


def named_leaves(params: Any) -> dict[str, np.ndarray]:
    """Leaves of a path of parameters by name, each [N, ...]; absent ones left out."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    named = [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]
    return {name or "params": np.asarray(leaf) for name, leaf in named if isinstance(leaf, np.ndarray)}


def milestone_time(traj: Any, name: str) -> float | None:
    """Time of a milestone since t0 if it was reached, and lies on a logarithmic axis; otherwise None."""
    found = traj.milestones.get(name)
    if found is None or found.time is None or not found.time > traj.t0:
        return None
    return float(found.time - traj.t0)
