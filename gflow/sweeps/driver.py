"""Grid -> chunks -> executor -> store: what `gflow sweep` and `gflow.sweep` do."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gflow.config import read_toml
from gflow.config.sweep import SweepConfig, sweep_config
from gflow.errors import InputError
from gflow.sweeps import store as stores
from gflow.sweeps.columns import FAILED, Column, columns_of
from gflow.sweeps.compute import compute_chunk
from gflow.sweeps.curves import curve_times
from gflow.sweeps.design import Grid, label
from gflow.sweeps.executors import make_executor
from gflow.sweeps.records import Record, open_dataset
from gflow.sweeps.report import Report, report
from gflow.sweeps.store import Store
from gflow.sweeps.tasks import ChunkResult, ChunkTask, Options


@dataclasses.dataclass(frozen=True)
class News:
    """How far it is: `done` of all lanes, failed ones too, `rate` per second, seconds `left` (None: unknown)."""

    lanes: int
    done: int
    failed: int
    rate: float | None
    left: float | None
    workers: int


@dataclasses.dataclass
class Sweep:
    """A sweep about to run, with everything checked that can be checked without JAX. Made by `prepare`."""

    config: SweepConfig
    grid: Grid
    columns: list[Column]
    times: np.ndarray | None
    path: Path

    @property
    def design(self) -> dict[str, Any]:
        """What makes two sweeps the same: the file, and how it is cut and kept."""
        return {
            **self.config.as_dict(),
            "order": [dim.name for dim in self.grid.dims],
            "chunks": list(self.grid.chunks.chunk),
            "columns": [column.name for column in self.columns],
        }


def prepare(config: SweepConfig, out: str | Path) -> Sweep:
    """Check a sweep file's values and lay out its grid. Raises InputError."""
    grid = Grid.of(config)
    if config.precision != "float64" and not grid.validity.fast:
        raise InputError(
            f"precision = {config.precision!r} is for the exact loss of the second layer; "
            "leave it out where lanes are sampled, or train the first layer"
        )
    kinds = _names(config, "parametrization", "untied")
    trainings = _names(config, "training", "second-layer")
    columns = columns_of(kinds, trainings, config.milestones, curves=config.curves is not None)
    return Sweep(config, grid, columns, curve_times(grid), Path(out))


def run(
    sweep: Sweep,
    *,
    executor: str = "local",
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    tell: Callable[[News], None] | None = None,
) -> Report:
    """Compute what is not yet in the store. Raises `OutputError`, `StoreError`, `WorkerError`; what is done is kept.

    With `resume` a store that is there is gone on with, and one that is not is begun. `tell` is called at least every
    half second.
    """
    began = time.perf_counter()
    stores.check(sweep.path, sweep.design, resume=resume, overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        run_by = None
        if not resume or len(stores.records(sweep.path)) < len(sweep.grid.chunks):
            # before the store, which takes a while: workers load meanwhile
            run_by = stack.enter_context(_workers(make_executor(executor, workers, scheduler)))
        store = stack.enter_context(_open(sweep, resume=resume, overwrite=overwrite))
        records = store.records()
        progress = _Progress(sweep, records, tell)
        problems: dict[str, list[int]] = {}
        if run_by is not None:
            progress.say()
            todo = [index for index in range(len(sweep.grid.chunks)) if index not in records]
            for finished in _chunks(sweep, todo, run_by, problems):
                progress.workers = run_by.workers
                if finished is not None:
                    progress.add(_save(sweep, store, *finished), finished[1])
                progress.say()
        wall = time.perf_counter() - began
        found = report(sweep.path, sweep.grid, sweep.columns, store.records(), _told(problems))
        found = dataclasses.replace(found, workers=progress.workers, **progress.timing(wall))
        store.annotate({"status": found.status, **({} if run_by is None else {"wall_seconds": round(wall, 3)})})
        return found


@contextlib.contextmanager
def _workers(executor: Any) -> Iterator[Any]:
    """An executor that is closed in the end, at once when something went wrong."""
    try:
        yield executor
    except BaseException:
        executor.close(kill=True)
        raise
    executor.close()


def sweep(
    config: SweepConfig | Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[News], None] | None = None,
) -> Any:
    """Fill the grid of a sweep file with trajectories, in a Zarr store at `out`; returns it as an `xarray.Dataset`.

    - `config`: a TOML file, its tables as a dictionary, or a `SweepConfig`; see docs/sweeps.md.
    - `executor`: "local" (a process per core, or all GPUs), "serial" (this process) or "dask"; `workers`: how many;
      `scheduler`: address of a running Dask scheduler.
    - `resume`: go on with a store of the same file; `overwrite`: replace a store. `progress` is called with `News`.

    Failed lanes are NaN with `status` 3; `gflow.sweeps.records.records(out)` has their reasons. The dataset is read
    from disk where it is used. Raises `InputError`, `OutputError`, `StoreError`,
    `WorkerError`.
    """
    if isinstance(config, str | Path):
        config = sweep_config(read_toml(str(config)), str(config))
    elif not isinstance(config, SweepConfig):
        config = sweep_config(config)
    run(
        prepare(config, out),
        executor=executor, workers=workers, scheduler=scheduler, resume=resume, overwrite=overwrite, tell=progress,
    )  # fmt: skip
    return open_dataset(out)


def _open(sweep: Sweep, *, resume: bool, overwrite: bool) -> Store:
    if resume and sweep.path.exists():
        return Store.resume(sweep.path, sweep.grid, sweep.columns, sweep.design)
    return Store.create(
        sweep.path, sweep.grid, sweep.columns, sweep.design, curve_times=sweep.times, overwrite=overwrite
    )


def _chunks(
    sweep: Sweep, todo: list[int], executor: Any, problems: dict[str, list[int]]
) -> Iterator[tuple[int, ChunkResult | None] | None]:
    """(chunk, its result) as they are finished, None as a sign of life; those without a valid lane need no worker."""
    empty = [index for index in todo if not sweep.grid.valid(index).any()]
    for index in empty:
        yield index, None
    left = set(todo) - set(empty)
    tasks = (_task(sweep, index) for index in todo if index in left)
    for finished in executor.run(compute_chunk, tasks) if left else ():
        if finished.task is None:
            yield None
        elif finished.error is not None:
            problems.setdefault(" ".join(str(finished.error).split()), []).append(finished.task.index)
            yield None
        else:
            yield finished.task.index, finished.result


def _told(problems: Mapping[str, list[int]]) -> list[str]:
    """What kept workers from finishing chunks, each thing once."""
    return [
        f"chunk {chunks[0]}{f' and {len(chunks) - 1} more' if len(chunks) > 1 else ''}: {problem}"
        for problem, chunks in problems.items()
    ]


def _task(sweep: Sweep, index: int) -> ChunkTask:
    config = sweep.config
    options = Options(config.milestones, config.precision, sweep.times, config.check)
    lanes = sweep.grid.lanes(index, sweep.grid.valid(index))
    return ChunkTask(index, lanes, config.fixed, options, tuple(column.name for column in sweep.columns))


def _save(sweep: Sweep, store: Store, index: int, result: ChunkResult | None) -> Record:
    """Put the computed lanes among those that cannot be computed, and write the chunk."""
    valid = sweep.grid.valid(index)
    where = np.flatnonzero(valid)
    failures = sweep.grid.reasons(index, ~valid)
    failed = ~valid
    if result is not None:
        failures = sorted([*failures, *((int(where[number]), reason) for number, reason in result.failures)])
        failed[[lane for lane, _ in failures]] = True
    columns = {}
    for column in sweep.columns:
        points = 0 if sweep.times is None else len(sweep.times)
        values = column.empty(len(valid), points)
        if result is not None and column.name in result.columns:
            found = np.asarray(result.columns[column.name])
            known = np.ones(found.shape, bool) if column.dtype == "float64" else np.isfinite(found)
            values[valid] = np.where(known, found, column.fill).astype(column.dtype)
            values[failed] = column.fill
        if column.name == "status":
            values[failed] = FAILED
        columns[column.name] = values
    record = Record(
        index,
        len(valid),
        failures,
        {} if result is None else result.seconds,
        {} if result is None else result.statistics,
    )
    started = time.perf_counter()
    store.write(record, columns)
    if result is not None and result.provenance:
        store.sign(result.provenance | {"config": sweep.config.as_dict()})
    record.seconds["store"] = time.perf_counter() - started
    return record


def _names(config: SweepConfig, key: str, default: str) -> set[str]:
    """The names that a key takes in some lane."""
    if key in config.varied:
        return {label(value) for value in config.varied[key].values}
    return {config.fixed.get(key, default)}


class _Progress:
    """Counts lanes and seconds of one run."""

    def __init__(self, sweep: Sweep, records: dict[int, Record], tell: Callable[[News], None] | None) -> None:
        self._tell = tell
        self._lanes = sweep.grid.size
        self._before = sum(record.lanes for record in records.values())
        self._failed = sum(len(record.failures) for record in records.values())
        self._computed = self._finished = 0
        self._seconds: dict[str, float] = dict.fromkeys(("tables", "compile", "solve", "store"), 0.0)
        self._workers_seen: set[str] = set()
        self._began = self._first = time.perf_counter()
        self._first_lanes = 0
        self.workers = 0

    def add(self, record: Record, result: ChunkResult | None) -> None:
        """A chunk has been saved."""
        self._computed += record.lanes
        self._finished += record.lanes - len(record.failures)
        self._failed += len(record.failures)
        for name, spent in record.seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        if result is not None:
            self._workers_seen.add(str(result.provenance.get("worker")))
            if self._first == self._began:  # what comes before the first chunk is starting and compiling
                self._first, self._first_lanes = time.perf_counter(), self._computed

    def say(self) -> None:
        """Tell how far it is."""
        if self._tell is None:
            return
        now, done = time.perf_counter(), self._before + self._computed
        counted, since = self._computed - self._first_lanes, now - self._first
        if not counted:
            counted, since = self._computed, now - self._began
        rate = counted / since if counted and since > 0 else None
        left = (self._lanes - done) / rate if rate else None
        self._tell(News(self._lanes, done, self._failed, rate, left, self.workers))

    def timing(self, wall: float) -> dict[str, Any]:
        """Seconds of this run (those of the workers: their mean) and lanes per second of solving."""
        shared = max(1, len(self._workers_seen))
        seconds = {name: s if name == "store" else s / shared for name, s in self._seconds.items()} | {"total": wall}
        rate = self._finished / seconds["solve"] if seconds["solve"] > 0 else None
        return {"seconds": seconds, "computed": self._computed, "lanes_per_second": rate}
