"""What is in the store of a sweep, in numbers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gflow.sweeps.columns import FAILED, NOT_REACHED, PENDING, Column
from gflow.sweeps.design import Grid
from gflow.sweeps.records import Record, open_dataset

TOLD = 20  # failures that are told one by one


@dataclasses.dataclass(frozen=True)
class Report:
    """Lanes of a sweep by what became of them, the first failures by name, all of them by reason, ranges of times.

    `check`: of the lanes computed again by `gflow.solve`, how many, the largest relative difference of a milestone, and
    how many milestones only one of both found. `computed`, `seconds`, `lanes_per_second`, `workers`: of this run alone;
    `problems`: chunks that no worker finished.
    """

    path: Path
    lanes: int
    failed: int
    not_reached: int
    pending: int
    failures: list[dict[str, Any]]
    reasons: dict[str, int]
    ranges: dict[str, dict[str, float]]
    problems: list[str]
    check: dict[str, Any] | None = None
    computed: int = 0
    workers: int = 0
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    lanes_per_second: float | None = None

    @property
    def status(self) -> str:
        """done, failed (some lane is), or unfinished."""
        return "unfinished" if self.pending else "failed" if self.failed else "done"


def report(
    path: Path, grid: Grid, columns: Sequence[Column], records: Mapping[int, Record], problems: list[str]
) -> Report:
    """Read it from the store and its records."""
    with open_dataset(path) as dataset:
        # by the records: the last chunk that a killed process wrote may be there without one
        status = dataset["status"].values
        missing = [grid.chunks.region(index) for index in range(len(grid.chunks)) if index not in records]
        for region in missing:
            status[region] = PENDING
        kept = (status != PENDING) & (status != FAILED)
        ranges = {}
        for name in [column.name for column in columns if column.name.startswith("T_")]:
            values = dataset[name].values[kept]
            values = values[np.isfinite(values)]
            if len(values):
                ranges[name] = {"min": float(values.min()), "max": float(values.max())}
    reasons = collections.Counter(reason for record in records.values() for _, reason in record.failures)
    first = [
        {**grid.coordinates(index, lane), "reason": reason}
        for index, lane, reason in _first_failures(records)
    ]  # fmt: skip
    return Report(
        path,
        grid.size,
        int(np.count_nonzero(status == FAILED)),
        int(np.count_nonzero(status == NOT_REACHED)),
        int(np.count_nonzero(status == PENDING)),
        first,
        dict(reasons.most_common()),
        ranges,
        problems,
        _check(records),
    )


def _check(records: Mapping[int, Record]) -> dict[str, Any] | None:
    told = [record.statistics for record in records.values() if record.statistics.get("checked")]
    if not told:
        return None
    return {
        "lanes": sum(one["checked"] for one in told),
        "largest_difference": max(one["largest_difference"] for one in told),
        "unlike": sum(one["unlike"] for one in told),
    }


def _first_failures(records: Mapping[int, Record]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for index in sorted(records):
        found += [(index, lane, reason) for lane, reason in records[index].failures[: TOLD - len(found)]]
        if len(found) >= TOLD:
            break
    return found
