"""MatrixRun <-> xarray.Dataset <-> netCDF."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from gflow.io import netcdf
from gflow.training.matrices._run import Failure, MatrixRun

KIND, FORMAT = "matrices", 1
_TRACKS = {
    "fourgram": "4-gram part of the loss, per component",
    "induction": "induction part of the loss, per component",
    "fourgram_error": "standard error of fourgram from the evaluation sample",
    "induction_error": "standard error of induction from the evaluation sample",
    "p21": "position weight of the second layer",
    "singular_KQ": "singular values of W_K^T W_Q",
    "singular_V1": "singular values of W_V1",
    "singular_V2": "singular values of W_V2",
    "singular_sign": "singular values of sign(W_K + W_Q)",
}


def to_dataset(run: MatrixRun) -> Any:
    """Everything that the run holds, along "seed", "step" and "mode"; `from_dataset` is its inverse."""
    import xarray as xr

    data: dict[str, Any] = {}
    for name, text in _TRACKS.items():
        values = getattr(run, name)
        data[name] = (["seed", "step", "mode"][: values.ndim], values, {"long_name": text, "units": "1"})
    data["start_rank"] = ("seed", run.start_rank, {"long_name": "rank of sign(W_K0 + W_Q0)", "units": "1"})
    coords = {
        "seed": ("seed", run.seeds, {"long_name": "seed of initial matrices and batches"}),
        "step": ("step", run.steps, {"long_name": "steps of the optimiser", "units": "1"}),
        "mode": ("mode", np.arange(run.singular_KQ.shape[-1]), {"long_name": "index, largest singular value first"}),
    }
    attrs = {
        "title": "high-dimensional toy in discrete time",
        "source": "gflow",
        "kind": KIND,
        "format": FORMAT,
        "status": run.status,
        "failures": json.dumps([dataclasses.asdict(failure) for failure in run.failures]),
        "seconds": json.dumps(run.seconds),
        "provenance": json.dumps(run.provenance, default=str),
    }
    return xr.Dataset(data, coords, attrs)


def from_dataset(dataset: Any) -> MatrixRun:
    """The run that `to_dataset` described."""
    attrs = dataset.attrs
    return MatrixRun(
        seeds=np.asarray(dataset["seed"]),
        steps=np.asarray(dataset["step"]),
        start_rank=np.asarray(dataset["start_rank"]),
        failures=[Failure(**entry) for entry in json.loads(attrs["failures"])],
        status=str(attrs["status"]),
        seconds=json.loads(attrs["seconds"]),
        provenance=json.loads(attrs["provenance"]),
        **{name: np.asarray(dataset[name]) for name in _TRACKS},
    )


def save(run: MatrixRun, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write netCDF-4, complete or not at all."""
    return netcdf.write(to_dataset(run), path, overwrite=overwrite)
