"""The arrays of a store: one per column over the grid, chunked as the grid is, and the coordinates of its axes."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gflow.io.atomic import sync
from gflow.sweeps.columns import AXES, CURVE_TIME, Column
from gflow.sweeps.design import Grid

KIND = "sweep"


def lay_out(path: Path, grid: Grid, columns: Sequence[Column], curve_times: np.ndarray | None) -> None:
    """Arrays without values, coordinates with theirs."""
    import zarr

    about: dict[str, Any] = {"source": "gflow", "kind": KIND, "status": "unfinished"}
    group = zarr.open_group(path, mode="w-", zarr_format=3, attributes=about)
    dims = [dim.name for dim in grid.dims]
    coordinates = [key for dim in grid.dims for key in dim.keys if key != dim.name]
    for dim in grid.dims:
        for key, values in dim.keys.items():
            words, units = AXES.get(key, (f"{key} of gflow integrate", ""))
            labels = values.labels()
            told: dict[str, Any] = (
                {"long_name": words, "units": units} if units and values.numbers is not None else {"long_name": words}
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


def sync_tree(path: Path) -> None:
    """Let everything in a folder reach the disk."""
    for folder, _, files in os.walk(path):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))


def sync_chunk(array: Path, corner: tuple[int, ...]) -> None:
    """Let a chunk of an array reach the disk."""
    with contextlib.suppress(FileNotFoundError):  # a chunk of nothing but fill values has no file
        sync(array / ".".join(["c", *map(str, corner)]))
    sync(array)
