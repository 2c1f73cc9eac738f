"""A flow's loss against time on the dense solution, and the plateaus of it: where it waits, and how long.

With D the whole drop of the loss, d(t) is how long it takes from t until the loss has fallen by another `FALL` D. A
plateau is a local maximum of d that is long (its share of the time to 99% of D is at least `SHARE`, so the loss falls
there ten times more slowly than on average) and left by a phase at least `CONTRAST` times as fast (docs/landscape.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

FALL = 0.01  # of the drop, what a plateau may lose
SHARE = 0.1  # of the time to 99% of the drop, what a plateau must last
CONTRAST = 3.0  # how much faster the phase after it, and that between two plateaus, is
DONE = 0.99  # of the drop: later is the approach to the end
GRID = 2048  # times at which the loss is looked at, beside the steps
STEPS_SHOWN = 1024  # steps whose ends are looked at


@eqx.filter_jit
def _look(loss: Any, path: PyTree) -> tuple[Array, Array]:
    def one(p: PyTree) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(lambda q: jnp.asarray(loss(q)))(p)
        return value, sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient))  # pyright: ignore

    return jax.lax.map(one, path, batch_size=256)


@dataclasses.dataclass(frozen=True)
class Path:
    """The loss and `|grad loss|^2` along a trajectory, at `times` [n], ascending."""

    traj: Any
    loss: Any
    times: np.ndarray
    levels: np.ndarray
    squared: np.ndarray

    def look(self, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(loss, |grad|^2) at any times [k] of the run."""
        return look(self.traj, self.loss, ts)

    @property
    def drop(self) -> float:
        """How much the loss falls in all."""
        return float(self.levels[0] - self.levels[-1])


def look(traj: Any, loss: Any, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(loss, |grad|^2) at times [k], from the dense solution."""
    n = len(ts)
    size = max(64, 1 << max(n - 1, 0).bit_length())  # few sizes are compiled
    padded = np.concatenate([ts, np.full(size - n, ts[-1])])
    values, squared = _look(loss, jax.tree.map(jnp.asarray, traj.at(padded)))
    return np.asarray(values)[:n], np.asarray(squared)[:n]


def sample(traj: Any, loss: Any) -> Path:
    """The path at the ends of its steps, at their quarters, and on a logarithmic grid; where the loss is finite."""
    steps = traj.step_times
    if len(steps) > STEPS_SHOWN:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, STEPS_SHOWN).astype(int))]
    quarters = steps[:-1, None] + np.diff(steps)[:, None] * np.array([0.25, 0.5, 0.75])
    grids = []
    if len(steps) > 1:
        span = steps[-1] - steps[0]
        grids.append(steps[0] + np.geomspace(min(steps[1] - steps[0], 1e-3 * span), span, GRID // 2))
        grids.append(np.linspace(steps[0], steps[-1], GRID // 2))
    times = np.unique(np.concatenate([steps, quarters.ravel(), *grids]))
    times = np.clip(times, traj.t0, traj.t1_reached)
    values, squared = look(traj, loss, times)
    fine = np.isfinite(values) & np.isfinite(squared)
    return Path(traj, loss, times[fine], values[fine], squared[fine])


@dataclasses.dataclass(frozen=True)
class Plateau:
    """From `start` to `end` the loss falls by `FALL` of its whole drop; `level`: at the middle of that fall.

    `depth`: the share of the drop that is done at the start; `share`: of the time to 99% of the drop.
    """

    start: float
    end: float
    level: float
    depth: float
    share: float

    @property
    def length(self) -> float:
        return self.end - self.start


def plateaus(path: Path) -> list[Plateau]:
    """All plateaus of a path, in order of time (see the module); their ends solve the definition on the dense path."""
    drop = path.drop
    # a fall that rounding could make is none
    if len(path.times) < 8 or not drop > 1e4 * np.finfo(path.levels.dtype).eps * np.max(np.abs(path.levels)):
        return []
    levels = np.minimum.accumulate(path.levels)
    total = _when(path.times, levels, levels[0] - DONE * drop) - path.times[0]
    starts = np.flatnonzero(levels - FALL * drop >= levels[0] - DONE * drop)
    waits = _when(path.times, levels, levels[starts] - FALL * drop) - path.times[starts]
    found = []
    for i in _peaks(waits):
        start, end = _refine(path, int(starts[i]), drop)
        done = (path.levels[0] - float(path.look(np.array([start]))[0][0])) / drop
        share = (end - start) / total
        if share >= SHARE:
            level = float(path.levels[0]) - (done + FALL / 2) * drop
            found.append(Plateau(start, end, float(level), float(done), float(share)))
    return found


def _when(times: np.ndarray, levels: np.ndarray, wanted: Any) -> np.ndarray:
    """When the falling levels reach `wanted`, by straight lines between the times."""
    return np.asarray(np.interp(-np.asarray(wanted), -levels, times))


def _peaks(waits: np.ndarray) -> list[int]:
    """Local maxima followed by values CONTRAST times smaller, and as far apart from the maximum before."""
    peaks: list[int] = []
    best, low = 0, np.inf  # the largest since the last dip, the smallest since the last peak
    rising = True
    for i, wait in enumerate(waits):
        if rising:
            if wait > waits[best]:
                best = i
            elif wait * CONTRAST <= waits[best]:
                peaks.append(best)
                rising, low = False, wait
        else:
            low = min(low, wait)
            if wait >= CONTRAST * low:
                rising, best = True, i
    return peaks


def _refine(path: Path, i: int, drop: float) -> tuple[float, float]:
    """The maximum of d(a) near grid time i, and where the wait that begins there ends, on the dense path."""
    times = path.times
    ends = _landing(path, drop)
    low, high = times[max(i - 1, 0)], times[min(i + 1, len(times) - 1)]
    start = times[i]
    if i == 0:
        # the run begins on the plateau, unless the wait still grows there
        first = ends(np.array([times[0], times[1]])) - times[:2]
        high = times[0] if first[0] >= first[1] else high
    for _ in range(4):
        if high <= low:
            break
        tried = np.linspace(low, high, 17)
        k = int(np.argmax(ends(tried) - tried))
        start, low, high = tried[k], tried[max(k - 1, 0)], tried[min(k + 1, 16)]
    start = float(low if high <= low else start)
    return start, float(ends(np.array([start]))[0])


def _landing(path: Path, drop: float) -> Callable[[np.ndarray], np.ndarray]:
    """a -> when the loss is `FALL` drop below its value at a: bracketed on the grid, then Newton in time."""
    levels = np.minimum.accumulate(path.levels)

    def ends(a: np.ndarray) -> np.ndarray:
        wanted = path.look(a)[0] - FALL * drop
        right = np.clip(np.searchsorted(-levels, -wanted), 1, len(levels) - 1)
        low, high = path.times[right - 1], path.times[right]
        b = _when(path.times, levels, wanted)
        for _ in range(8):
            value, squared = path.look(b)
            above = value > wanted
            low, high = np.where(above, b, low), np.where(above, high, b)
            step = b + (value - wanted) / np.where(squared > 0, squared, np.inf)
            b = np.where((step > low) & (step < high), step, 0.5 * (low + high))
        return b

    return ends
