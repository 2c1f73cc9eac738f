"""Milestones that read several blocks at once: looked for on the joint dense path after the blocks are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.flows._dense import DenseBlock
from gflow.flows._status import Milestone


@eqx.filter_jit
def _along(f: Callable[[Any], Any], params: PyTree) -> jax.Array:
    return jax.vmap(lambda p: jnp.asarray(f(p)))(params)


def locate(
    paths: Sequence[DenseBlock],
    conditions: dict[str, Condition],
    params: PyTree,
    end: float,
    t1: float | None,
    t0: float,
) -> dict[str, Milestone]:
    """First crossings on the joint path, looked for at every block's steps and three points between each two."""
    steps = np.unique(np.concatenate([*(p.step_times() for p in paths), [t0, end]]))
    steps = steps[steps <= end]
    fractions = np.linspace(0, 1, 4, endpoint=False)
    ts = np.append((steps[:-1, None] + np.diff(steps)[:, None] * fractions).ravel(), steps[-1])

    def full(times: np.ndarray) -> PyTree:
        still = jax.tree.map(lambda x: np.broadcast_to(x, (len(times), *np.shape(x))), eqx.filter(params, eqx.is_array))
        return eqx.combine(*(p.moving(times) for p in paths), still, params)

    def values(f: Callable[[Any], Any], times: np.ndarray) -> np.ndarray:
        size = max(8, 1 << max(len(times) - 1, 0).bit_length())
        padded = np.concatenate([times, np.full(size - len(times), times[-1])])
        return np.asarray(_along(f, full(padded)))[: len(times)]

    found: dict[str, Milestone] = {}
    for name, condition in conditions.items():
        curve = values(condition.f, ts)
        level = float(condition.resolve(jnp.asarray(curve[0])))
        sign = float(condition.direction) or (1.0 if curve[0] <= level else -1.0)
        gap = sign * (curve - level)
        hits = np.flatnonzero(gap >= 0)
        found[name] = _milestone(condition, level, sign, ts, gap, hits, values, end, t1)
    return found


def _milestone(
    condition: Condition,
    level: float,
    sign: float,
    ts: np.ndarray,
    gap: np.ndarray,
    hits: np.ndarray,
    values: Callable[[Callable[[Any], Any], np.ndarray], np.ndarray],
    end: float,
    t1: float | None,
) -> Milestone:
    describe = f"{condition.word} {level:.6g}"
    if not len(hits):
        kind = "solver_stopped" if t1 is None else "not_reached_by_t1"
        reason = f"still {abs(gap[-1]):.3g} from the level {level:.6g} at the end of the run, t = {end:.6g}"
        return Milestone(None, None, "", kind, reason, level, describe)
    first = int(hits[0])
    if first == 0:
        return Milestone(float(ts[0]), 0.0, "", "reached", "already true at the start", level, describe)
    lo, hi = float(ts[first - 1]), float(ts[first])
    root = scipy.optimize.brentq(lambda t: float(sign * (values(condition.f, np.array([t]))[0] - level)), lo, hi)
    return Milestone(float(root), None, "", "reached", "found on the joint dense path", level, describe)  # pyright: ignore
