"""Two things that must hold along any gradient flow: the loss never rises, and it falls at the rate |grad loss|^2."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from gflow.theory.own._plateaus import Path, look

WINDOWS = 256  # stretches of a run on which dLoss/dt = -|grad loss|^2 is integrated
ROUNDINGS = 64


@dataclasses.dataclass(frozen=True)
class Balance:
    """A number that should vanish, how far from 0 it may be by the errors of the solution."""

    value: float
    allowed: float


def _solution_error(path: Path, rtol: float) -> np.ndarray:
    """What the loss may be off by along the path: roundings, and its change over the tolerance of each entry."""
    sizes = [np.max(np.abs(np.asarray(leaf)).reshape(len(path.times), -1), axis=1)
             for leaf in jax.tree.leaves(path.traj.at(path.times))]  # fmt: skip
    entries = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(path.traj.initial))
    size = np.max(np.stack(sizes), axis=0) * np.sqrt(entries)
    eps = float(np.finfo(path.levels.dtype).eps)
    return ROUNDINGS * eps * np.maximum.accumulate(np.abs(path.levels)) + 4.0 * rtol * np.sqrt(path.squared) * size


def rise(path: Path, rtol: float) -> Balance:
    """The largest rise of the loss above what it has already been, and what rounding and tolerance allow there."""
    rises = path.levels - np.minimum.accumulate(path.levels)
    allowed = _solution_error(path, rtol)
    worst = int(np.argmax(rises - allowed))
    return Balance(float(rises[worst]), float(allowed[worst]))


def rate(path: Path, rtol: float) -> Balance:
    """`|Loss(a) - Loss(b) - int_a^b |grad|^2 dt|` summed over stretches, as a share of the drop (or of the rise).

    Gauss-Legendre with 5 points on each half of a stretch; the difference to 5 points on the whole is its error.
    """
    steps = path.traj.step_times
    steps = steps[steps <= path.times[-1]]
    edges = steps if len(steps) <= WINDOWS else steps[np.unique(np.linspace(0, len(steps) - 2, WINDOWS).astype(int))]
    ends = edges[1:] if len(steps) <= WINDOWS else steps[np.searchsorted(steps, edges) + 1]
    starts = edges[: len(ends)]
    if not len(starts):
        return Balance(0.0, 0.0)
    nodes, weights = np.polynomial.legendre.leggauss(5)

    def integral(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        ts = 0.5 * (a + b)[:, None] + 0.5 * (b - a)[:, None] * nodes
        return 0.5 * (b - a) * (look(path.traj, path.loss, ts.ravel())[1].reshape(ts.shape) @ weights)

    middle = 0.5 * (starts + ends)
    halves, whole = integral(starts, middle) + integral(middle, ends), integral(starts, ends)
    at_start, at_end = look(path.traj, path.loss, starts)[0], look(path.traj, path.loss, ends)[0]
    change = at_start - at_end
    total = max(float(np.sum(np.abs(change))), float(np.sum(halves)))
    if not total > 0:
        return Balance(0.0, 0.0)
    rounding = len(starts) * float(np.finfo(path.levels.dtype).eps) * float(np.max(np.abs(at_start)))
    off = float(np.sum(np.abs(change - halves)))
    return Balance(off / total, float((np.sum(np.abs(halves - whole)) + rounding) / total) + 30.0 * rtol)
