"""The Zarr store of a sweep: created whole, filled chunk by chunk by one process, readable and resumable at any moment.

A chunk counts once its record is there, which is written last, atomically: kill the process when you like, a chunk is
either complete or not recorded. Records, design and lock lie in the folder of the array `status`, where nothing that
reads Zarr looks for more arrays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gflow.config.sweep import SECTIONS
from gflow.errors import InputError, OutputError, StoreError
from gflow.io.atomic import atomic_path
from gflow.sweeps.columns import AXES, CURVE_TIME, Column
from gflow.sweeps.design import Grid
from gflow.sweeps.lock import Lock

FORMAT = 1
PRIVATE = os.path.join("status", ".gflow")
KIND = "sweep"


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a finished chunk: `failures` [(lane number in the chunk, reason)], seconds, statistics."""

    index: int
    lanes: int
    failures: list[tuple[int, str]]
    seconds: dict[str, float]
    statistics: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As it is kept: every reason once, with its lanes."""
        by_reason: dict[str, list[int]] = {}
        for lane, reason in self.failures:
            by_reason.setdefault(reason, []).append(lane)
        return dataclasses.asdict(self) | {"failures": by_reason}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Record:
        """What `as_dict` gave."""
        failures = [(int(lane), reason) for reason, lanes in content["failures"].items() for lane in lanes]
        values = {key: value for key, value in content.items() if key != "failures"}
        return cls(failures=sorted(failures), **values)


class Store:
    """An open store: this process is the only one that writes to it. Made by `create` and `resume`; a context manager.

    Raises `OutputError` for paths that cannot be used, `StoreError` when the disk fails later.
    """

    def __init__(self, path: Path, grid: Grid, columns: Sequence[Column], lock: Lock) -> None:
        import zarr

        self.path = path
        self.grid = grid
        self.columns = list(columns)
        self._lock = lock
        self._signed = False
        self._arrays: dict[str, Any] = dict(zarr.open_group(path, mode="r+", use_consolidated=True).arrays())

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    @classmethod
    def create(
        cls, path: str | Path, grid: Grid, columns: Sequence[Column], design: Mapping[str, Any], *,
        curve_times: np.ndarray | None = None, overwrite: bool = False,
    ) -> Store:  # fmt: skip
        """A new store, all pending; `design` is what a sweep that goes on with it must equal.

        With `overwrite` a store that gflow wrote, and nobody is writing, is replaced; nothing else ever is.
        """
        path = Path(path)
        old = _replaceable(path, overwrite)
        new = path.resolve().with_name(f".gflow-{uuid.uuid4().hex[:12]}.zarr")
        lock = None
        try:
            _layout(new, grid, columns, curve_times)
            private = new / PRIVATE
            private.mkdir()
            _write_json(private / "design.json", {"format": FORMAT, **design})
            lock = Lock.take(private / "lock", path)
            _sync_tree(new)
            if old is not None:
                _discard(path.resolve())
            os.rename(new, path.resolve())
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if lock is not None:
                lock.release()
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"{path} cannot be written: {_reason(error)}; give another path") from error
        finally:
            if old is not None:
                old.release()
        return cls(path, grid, columns, lock)

    @classmethod
    def resume(cls, path: str | Path, grid: Grid, columns: Sequence[Column], design: Mapping[str, Any]) -> Store:
        """An existing store, to be gone on with. Raises InputError when it is that of another design."""
        path = Path(path)
        lock = Lock.take(path / PRIVATE / "lock", path)
        try:
            stored = stored_design(path)
            _same_design(path, stored, design)
            return cls(path, grid, columns, lock)
        except BaseException:
            lock.release()
            raise

    def records(self) -> dict[int, Record]:
        """The chunks that are complete, by number."""
        return records(self.path)

    def write(self, record: Record, columns: Mapping[str, np.ndarray]) -> None:
        """Save a chunk: its arrays first, then its record. `columns[name]`: one entry per lane of the chunk.

        Raises `StoreError`.
        """
        region = self.grid.chunks.region(record.index)
        shape = tuple(s.stop - s.start for s in region)
        corner = self.grid.chunks.corner(record.index)
        try:
            for column in self.columns:
                values = columns[column.name].reshape(*shape, *columns[column.name].shape[1:])
                self._arrays[column.name][(*region, ...)] = values
            for column in self.columns:
                _sync_chunk(self.path / column.name, (*corner, *([0] if column.curve else [])))
            _write_json(self.path / PRIVATE / f"{record.index:08d}.json", record.as_dict())
        except OSError as error:
            raise StoreError(f"{self.path}: {_reason(error)}; what was computed before is kept") from error

    def sign(self, provenance: Mapping[str, Any]) -> None:
        """Write down, once for each process that writes, where its numbers come from."""
        if self._signed:
            return
        before = json.loads((self.path / "zarr.json").read_text())["attributes"].get("provenance")
        signatures = [*(json.loads(before) if before else []), provenance]
        self.annotate({"provenance": _dumps(signatures)})
        self._signed = True

    def annotate(self, attributes: Mapping[str, Any]) -> None:
        """Add to the attributes of the whole store."""
        meta = self.path / "zarr.json"
        try:
            content = json.loads(meta.read_text())
            content["attributes"] |= attributes
            _write_json(meta, content)
        except OSError as error:
            raise StoreError(f"{self.path}: {_reason(error)}; what was computed before is kept") from error


def is_store(path: str | Path) -> bool:
    """A folder that `Store.create` made."""
    return (Path(path) / PRIVATE / "design.json").is_file()


def stored_design(path: str | Path) -> dict[str, Any]:
    """What a store was made for. Raises InputError if gflow did not make it."""
    try:
        design = json.loads((Path(path) / PRIVATE / "design.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{path} is not the store of a sweep that gflow wrote; check the path") from None
    if design.get("format") != FORMAT:
        raise InputError(
            f"{path} was written by another version of gflow (format {design.get('format')}, not {FORMAT})"
        )
    return design


def stored_settings(path: str | Path) -> dict[str, Any]:
    """The sweep file that a store was made from. Raises InputError if gflow did not make it."""
    design = stored_design(path)
    return {section: _numbers(design[section]) for section in SECTIONS}


def records(path: str | Path) -> dict[int, Record]:
    """The complete chunks of a store, by number."""
    found = {}
    for file in sorted((Path(path) / PRIVATE).glob("[0-9]*.json")):
        try:
            content = json.loads(file.read_text())
        except ValueError:  # damaged by something else than a crash: computed again
            continue
        record = Record.from_dict(content)
        found[record.index] = record
    return found


def open_dataset(path: str | Path) -> Any:
    """The store as an `xarray.Dataset`, read from disk where it is used. Raises InputError for anything else."""
    import xarray as xr

    if not is_store(path):
        raise InputError(f"{path} is not the store of a sweep that gflow wrote; check the path")
    return xr.open_dataset(path, engine="zarr", chunks=None, consolidated=True)


def _layout(path: Path, grid: Grid, columns: Sequence[Column], curve_times: np.ndarray | None) -> None:
    """Arrays without values, coordinates with theirs."""
    import warnings

    import zarr

    group = zarr.open_group(path, mode="w-", zarr_format=3, attributes={"source": "gflow", "kind": KIND})
    dims = [dim.name for dim in grid.dims]
    coordinates = [key for dim in grid.dims for key in dim.keys if key != dim.name]
    for dim in grid.dims:
        for key, values in dim.keys.items():
            about, units = AXES.get(key, (f"{key} of gflow integrate", ""))
            labels = values.labels()
            told: dict[str, Any] = (
                {"long_name": about, "units": units} if units and values.numbers is not None else {"long_name": about}
            )
            kind: Any = "str" if values.numbers is None else labels.dtype
            array = group.create_array(
                key, shape=labels.shape, chunks=labels.shape, dtype=kind, attributes=told, dimension_names=[dim.name],
                fill_value="" if values.numbers is None else 0,
            )  # fmt: skip
            array[:] = labels
    if curve_times is not None:
        array = group.create_array(
            CURVE_TIME, shape=curve_times.shape, dtype="float64", dimension_names=[CURVE_TIME], fill_value=0,
            attributes={"long_name": "time of the curves", "units": "time of the flow"},
        )  # fmt: skip
        array[:] = curve_times
    for column in columns:
        extra = (len(curve_times),) if column.curve and curve_times is not None else ()
        kept = column.attributes() | ({"coordinates": " ".join(coordinates)} if coordinates else {})
        group.create_array(
            column.name,
            shape=(*grid.shape, *extra),
            chunks=(*grid.chunks.chunk, *extra),
            chunk_key_encoding={"name": "default", "separator": "."},  # one folder per array: less to sync
            dtype=column.dtype,
            fill_value=column.fill,
            dimension_names=[*dims, *([CURVE_TIME] if extra else [])],
            attributes=kept,
        )
    with warnings.catch_warnings():
        # Zarr's third version does not have consolidated metadata yet, and says so; without it each opening would list
        # the folder, and complain about what is not Zarr's
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(path)


def _replaceable(path: Path, overwrite: bool) -> Lock | None:
    """The lock of the store that is to be replaced; None if nothing is there."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise OutputError(f"{path}: there is no folder {folder}; make it first, or give another path")
    if not os.path.lexists(path):
        return None
    if not is_store(path):
        raise OutputError(f"{path} exists, and is not the store of a sweep that gflow wrote; give another path")
    if not overwrite:
        raise OutputError(f"{path} exists; go on with it by --resume, replace it by --overwrite, or give another path")
    return Lock.take(path / PRIVATE / "lock", path)


def _discard(path: Path) -> None:
    """Remove a store: out of sight first, so that no half of it is ever there."""
    aside = path.with_name(f".gflow-{uuid.uuid4().hex[:12]}.old")
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _same_design(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    wanted = json.loads(_dumps(wanted))
    for section in [key for key in (*wanted, *stored) if key != "format"]:
        was, now = stored.get(section), wanted.get(section)
        if was == now:
            continue
        keys = [section]
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [key for key in (*now, *was) if was.get(key) != now.get(key)]
            was, now = (None if x.get(keys[0]) is None else x[keys[0]] for x in (was, now)) if keys else (was, now)
        told = ["nothing" if x is None else _short(x) for x in (was, now)]
        name = keys[0] if keys else f"the order of [{section}]"
        raise InputError(
            f"{path} is a sweep of another design: {name} is {told[0]} there and {told[1]} here; "
            "use the file it was made from, another --out, or --overwrite"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dumps(value: Any) -> str:
    """JSON; numbers that it does not have as text."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _numbers(value: Any) -> Any:
    """Numbers that JSON does not have, as numbers again."""
    if isinstance(value, dict):
        return {key: _numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) and not np.isfinite(value) else value


def _write_json(path: Path, content: Any) -> None:
    """Atomically and durably."""
    with atomic_path(path, overwrite=True) as temporary:
        temporary.write_text(_dumps(content), encoding="utf-8")


def _sync_chunk(array: Path, corner: tuple[int, ...]) -> None:
    with contextlib.suppress(FileNotFoundError):  # a chunk of nothing but fill values has no file
        _sync(array / ".".join(["c", *map(str, corner)]))
    _sync(array)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _reason(error: BaseException) -> str:
    if isinstance(error, OutputError) and error.__cause__ is not None:
        error = error.__cause__
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return text[0].lower() + text[1:]
