"""What goes to a worker and what comes back: plain data, small enough to be sent."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Lanes = dict[str, np.ndarray | list[Any]]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked of every lane.

    `milestones`: names; `curve_times` [n]: when losses are wanted; `check`: lanes of a chunk computed again by `solve`.
    """

    milestones: tuple[str, ...]
    precision: str = "float64"
    curve_times: np.ndarray | None = None
    check: int = 0


@dataclasses.dataclass(frozen=True)
class ChunkTask:
    """Lanes to compute, all of them valid: `lanes[key]` has one entry per lane for every key that varies.

    `fixed`: the values of other keys, of which a lane reads those that `gflow.config.sweep.read_by` says.
    """

    index: int
    lanes: Lanes
    fixed: dict[str, Any]
    options: Options
    columns: tuple[str, ...]  # names of the columns that are kept

    @property
    def size(self) -> int:
        """How many lanes."""
        return len(next(iter(self.lanes.values())))

    def lane(self, number: int) -> dict[str, Any]:
        """The values of one lane, as Python's own types."""
        values = {key: entries[number] for key, entries in self.lanes.items()}
        return {key: v.item() if isinstance(v, np.generic) else v for key, v in values.items()}

    def column(self, key: str, default: Any = None) -> np.ndarray | list[Any]:
        """One value per lane of any key, also of a fixed one."""
        if key in self.lanes:
            return self.lanes[key]
        value = self.fixed.get(key, default)
        return np.full(self.size, value) if isinstance(value, int | float) else [value] * self.size


@dataclasses.dataclass(frozen=True)
class ChunkResult:
    """What was computed: per column one entry per lane of the task (those missing are filled).

    `failures`: (lane number, reason) of the lanes that failed. `seconds`: "tables", "compile", "solve" of this chunk;
    `statistics`: whatever else is worth keeping with the chunk, as JSON can hold it; `provenance`: of the worker.
    """

    index: int
    columns: dict[str, np.ndarray]
    failures: list[tuple[int, str]]
    seconds: dict[str, float]
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
