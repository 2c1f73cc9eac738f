"""Parts that the figures share: a time axis that can begin at 0, and points along a path that suit it."""

from __future__ import annotations

from typing import Any

import numpy as np

FIRST_SHARE = 1e-6  # of the run: an axis that would begin earlier shows nothing


def log_times(traj: Any, start: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Indices into `ts` that a logarithmic axis can show, and where they go: t - t0 > 0; t0 itself at the left edge."""
    since = np.asarray(traj.ts, dtype=float) - float(traj.t0)
    end = float(since[-1]) if len(since) else 0.0
    positive = since[since > 0]
    if not len(positive):
        return np.arange(len(since)), np.full(len(since), 1.0)
    first = start if start is not None else max(float(positive[0]), FIRST_SHARE * end)
    before = np.flatnonzero(since <= first)
    keep = np.flatnonzero(since > first)
    # the last point before the axis begins stands at its left edge
    index = np.concatenate([before[-1:], keep])
    return index, np.maximum(since[index], first)


def scale_time(axes: Any, where: np.ndarray) -> None:
    """A logarithmic axis over `where`; a linear one if there is only one time."""
    low, high = float(where[0]), float(where[-1])
    if high > low > 0:
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_xlim(low - 0.5, high + 0.5)
        axes.set_xticks([low], ["start"])


def named_leaves(params: Any) -> dict[str, np.ndarray]:
    """Leaves of a path of parameters by name, each [N, ...]; absent ones left out."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def milestone_time(traj: Any, name: str) -> float | None:
    """Time of a milestone since t0 if it was reached, and lies on a logarithmic axis; otherwise None."""
    found = traj.milestones.get(name)
    if found is None or found.time is None or not found.time > traj.t0:
        return None
    return float(found.time - traj.t0)
