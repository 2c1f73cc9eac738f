"""netCDF files, written complete or not at all, and read whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gflow.errors import InputError
from gflow.io.atomic import atomic_path


def write(content: Any, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write an xarray Dataset or DataTree as netCDF-4. Raises `OutputError` for a file that exists."""
    with atomic_path(path, overwrite) as temporary:
        # by way of memory: on a full disk HDF5's own writing does not fail, it crashes the process
        temporary.write_bytes(content.to_netcdf(engine="h5netcdf"))
    return Path(path)


def read(path: str | Path, group: str | None = None) -> Any:
    """The dataset of a file (or of a group in it) that gflow wrote, in memory. Raises `InputError` for any other."""
    import xarray as xr

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path")
    try:
        with xr.open_dataset(path, group=group, engine="h5netcdf") as dataset:
            dataset.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{path} is not a readable netCDF file: {error}".splitlines()[0]) from error
    if dataset.attrs.get("source") != "gflow":
        raise InputError(f"{path} is a netCDF file, but gflow did not write it")
    return dataset
