"""One chunk of lanes: the only function that workers run. The same task gives the same bits, wherever it runs."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import numpy as np

from gflow.sweeps.columns import FAILED
from gflow.sweeps.tasks import ChunkResult, ChunkTask

_WORKER = uuid.uuid4().hex[:12]  # this process, among the workers


def compute_chunk(task: ChunkTask) -> ChunkResult:
    """Compute every lane of a task; a lane that fails is named in the result and costs no other."""
    from gflow.io.provenance import provenance
    from gflow.sweeps import fast, reference

    quick = fast.eligible(task)
    slow = np.flatnonzero(~quick)
    parts = []
    if quick.any():
        chosen = np.flatnonzero(quick)
        found, left = fast.solve_lanes(_part(task, chosen))
        slow = np.sort(np.concatenate([slow, chosen[left]]))
        parts.append((chosen, found))
    if len(slow):
        parts.append((slow, reference.solve_lanes(_part(task, slow))))
    found = _joined(task, parts)
    statistics = found.statistics | _checked(task, found, quick)
    return dataclasses.replace(found, statistics=statistics, provenance=provenance() | {"worker": _WORKER})


def _checked(task: ChunkTask, found: ChunkResult, quick: np.ndarray) -> dict[str, Any]:
    """Some of the ensemble's lanes again, through `gflow.solve`: how far apart are the milestones, relatively?"""
    from gflow.sweeps import reference

    finished = np.flatnonzero(quick & (found.columns["status"] != FAILED))
    if not task.options.check or not len(finished):
        return {}
    chosen = np.unique(finished[np.linspace(0, len(finished) - 1, task.options.check).astype(int)])
    again = reference.solve_lanes(_part(task, chosen))
    worst, unlike = 0.0, 0
    for name in set(task.options.milestones) & set(again.columns):
        ours, exact = found.columns[name][chosen], again.columns[name]
        unlike += int(np.sum(np.isnan(ours) != np.isnan(exact)))
        both = np.isfinite(ours) & np.isfinite(exact) & (exact != 0)
        worst = max(worst, float(np.max(np.abs(ours[both] / exact[both] - 1.0), initial=0.0)))
    return {"checked": len(chosen), "largest_difference": worst, "unlike": unlike}


def _part(task: ChunkTask, lanes: np.ndarray) -> ChunkTask:
    """The task with these lanes only."""
    if len(lanes) == task.size:
        return task
    taken = {
        key: values[lanes] if isinstance(values, np.ndarray) else [values[i] for i in lanes]
        for key, values in task.lanes.items()
    }
    return ChunkTask(task.index, taken, task.fixed, task.options, task.columns)


def _joined(task: ChunkTask, parts: list[tuple[np.ndarray, ChunkResult]]) -> ChunkResult:
    """Results of disjoint groups of lanes as one."""
    if len(parts) == 1:
        return parts[0][1]
    columns: dict[str, np.ndarray] = {}
    failures: list[tuple[int, str]] = []
    seconds: dict[str, float] = {}
    statistics: dict[str, Any] = {}
    for lanes, result in parts:
        for name, values in result.columns.items():
            if name not in columns:
                columns[name] = np.full((task.size, *values.shape[1:]), np.nan)
            columns[name][lanes] = values
        failures += [(int(lanes[number]), reason) for number, reason in result.failures]
        seconds = {name: seconds.get(name, 0.0) + spent for name, spent in result.seconds.items()}
        statistics |= result.statistics
    return ChunkResult(task.index, columns, sorted(failures), seconds, statistics)
