"""Reading any file of results: flows, flows in stages, discrete-time training, the toy in R^d, sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxtyping import PyTree

import gflow.losses.induction  # noqa: F401 - so that its parameters come back as the types they had
from gflow import flows
from gflow.flows import _persist
from gflow.io import netcdf
from gflow.sweeps import records


def load(path: str | Path, *, like: PyTree = None, loss: Any = None) -> Any:
    """What `save` wrote: a `Trajectory`, a `StagedTrajectory`, a `Descent` or a `MatrixRun`; of a sweep its dataset.

    Parameters come back as the type they had if gflow knows it, as nested dicts and lists otherwise, or with the
    structure of `like`. With the `loss` a flow was computed from, its `losses_at` works at any time.

    Raises `InputError` when the file is missing, is no netCDF file, or was not written by gflow.
    """
    if records.is_store(path):
        return records.open_dataset(path)
    kind = netcdf.read(path).attrs.get("kind")
    # with these comes optax, which a flow does not need
    if kind == "matrices":
        from gflow.training.matrices import _persist as toys

        return toys.from_dataset(netcdf.read(path))
    if kind == "descent":
        from gflow.training import _persist as descents

        return descents.from_dataset(_persist.read(path), like=like)
    return flows.load(path, like=like, loss=loss)
