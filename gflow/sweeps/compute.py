"""One chunk of lanes: the only function that workers run. The same task gives the same bits, wherever it runs."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import numpy as np

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
    return dataclasses.replace(_joined(task, parts), provenance=provenance() | {"worker": _WORKER})


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
