"""The Zarr store of a sweep: created whole, filled chunk by chunk by one process, readable and resumable at any moment.

A chunk counts once its record is there, which is written last, atomically: kill the process when you like, a chunk is
either complete or not recorded.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gflow.errors import InputError, OutputError, StoreError
from gflow.sweeps.columns import Column
from gflow.sweeps.design import Grid
from gflow.sweeps.layout import lay_out, sync_chunk, sync_tree
from gflow.sweeps.lock import Lock
from gflow.sweeps.records import (
    DESIGN,
    FORMAT,
    PRIVATE,
    Record,
    dumps,
    is_store,
    records,
    same_design,
    stored_design,
    write_json,
)


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
        _check_new(path, overwrite)
        old = Lock.take(path / PRIVATE / "lock", path) if os.path.lexists(path) else None
        new = path.resolve().with_name(f".gflow-{uuid.uuid4().hex[:12]}.zarr")
        lock = None
        try:
            lay_out(new, grid, columns, curve_times)
            private = new / PRIVATE
            private.mkdir()
            write_json(private / DESIGN, {"format": FORMAT, **design})
            lock = Lock.take(private / "lock", path)
            sync_tree(new)
            if old is not None:
                _discard(path.resolve())
            os.rename(new, path.resolve())
        except BaseException as error:
            shutil.rmtree(new, ignore_errors=True)
            if lock is not None:
                lock.release()
            if not isinstance(error, OSError) or (isinstance(error, OutputError) and error.__cause__ is None):
                raise
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise OutputError(f"{path} has appeared meanwhile; give another path, or --resume") from None
            raise OutputError(f"{path} cannot be written: {_reason(error)}; give another path") from error
        finally:
            if old is not None:
                old.release()
        return cls(path, grid, columns, lock)

    @classmethod
    def resume(cls, path: str | Path, grid: Grid, columns: Sequence[Column], design: Mapping[str, Any]) -> Store:
        """An existing store, to be gone on with. Raises InputError when it is that of another design."""
        path = Path(path)
        same_design(path, stored_design(path), design)
        lock = Lock.take(path / PRIVATE / "lock", path)
        try:
            _sweep_up(path)
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
                sync_chunk(self.path / column.name, (*corner, *([0] if column.curve else [])))
            write_json(self.path / PRIVATE / f"{record.index:08d}.json", record.as_dict())
        except OSError as error:
            raise StoreError(f"{self.path}: {_reason(error)}; what was computed before is kept") from error

    def sign(self, provenance: Mapping[str, Any]) -> None:
        """Write down, once for each process that writes, where its numbers come from."""
        if self._signed:
            return
        before = json.loads((self.path / "zarr.json").read_text())["attributes"].get("provenance")
        signatures = [*(json.loads(before) if before else []), provenance]
        self.annotate({"provenance": dumps(signatures)})
        self._signed = True

    def annotate(self, attributes: Mapping[str, Any]) -> None:
        """Add to the attributes of the whole store."""
        meta = self.path / "zarr.json"
        try:
            content = json.loads(meta.read_text())
            content["attributes"] |= attributes
            write_json(meta, content)
        except OSError as error:
            raise StoreError(f"{self.path}: {_reason(error)}; what was computed before is kept") from error


def check(path: Path, design: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
    """Find out before anything else whether a sweep can write there. Raises InputError, OutputError; writes nothing."""
    if resume and overwrite:
        raise InputError("--resume goes on with a store and --overwrite replaces it; give one of them")
    if resume and os.path.lexists(path):
        same_design(path, stored_design(path), design)
    else:
        _check_new(path, overwrite)


def _check_new(path: Path, overwrite: bool) -> None:
    folder = path.resolve().parent
    if not folder.is_dir():
        raise OutputError(f"{path}: there is no folder {folder}; make it first, or give another path")
    if not os.path.lexists(path):
        return
    if not is_store(path):
        raise OutputError(f"{path} exists, and is not the store of a sweep that gflow wrote; give another path")
    if not overwrite:
        raise OutputError(f"{path} exists; go on with it by --resume, replace it by --overwrite, or give another path")


def _discard(path: Path) -> None:
    """Remove a store: out of sight first, so that no half of it is ever there."""
    aside = path.with_name(f".gflow-{uuid.uuid4().hex[:12]}.old")
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _sweep_up(path: Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    for pattern in ("*/*.partial", ".gflow-*.json", f"{PRIVATE}/.gflow-*.json"):
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    if isinstance(error, OutputError) and error.__cause__ is not None:
        error = error.__cause__
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return text[0].lower() + text[1:]
