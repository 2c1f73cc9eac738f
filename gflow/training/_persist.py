"""Descent <-> xarray.Dataset <-> netCDF: the names of a trajectory's file, with "step" beside "time"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from gflow.flows import _persist as flow_files
from gflow.io import netcdf
from gflow.training._status import Outcome, StepMilestone

if TYPE_CHECKING:
    from gflow.training._descent import Descent

KIND = "descent"
_TEXTS = ("error_kind", "status", "reason", "condition")


def to_dataset(descent: Descent) -> Any:
    """The descent as a dataset; `from_dataset` is its inverse."""
    import xarray as xr

    data: dict[str, Any] = {}
    names = flow_files.leaf_names(descent.params)
    for name, leaf in zip(names, jax.tree.leaves(descent.params), strict=True):
        if isinstance(leaf, np.ndarray):
            axes = [f"{name}_axis{i}" for i in range(leaf.ndim - 1)]
            data[name] = (["time", *axes], leaf, {"long_name": f"parameter {name}", "units": "1"})
    for part, values in descent.losses.items():
        data[f"loss_{part}"] = ("time", values, {"long_name": f"loss, {part}", "units": "1"})
    found = descent.milestones.values()
    for field in ("time", "step", "first", "level"):
        column = [np.nan if getattr(m, field) is None else float(getattr(m, field)) for m in found]
        data[f"milestone_{field}"] = ("milestone", np.array(column, float))
    for field in _TEXTS:
        data[f"milestone_{field}"] = ("milestone", np.array([getattr(m, field) for m in found], str))
    plain = flow_files.plain
    attrs = {
        "title": "discrete-time training",
        "source": "gflow",
        "kind": KIND,
        "format": flow_files.FORMAT,
        "status": descent.status.value,
        "message": descent.message,
        "optimizer": descent.optimizer,
        "t0": descent.t0,
        "t1_reached": descent.t1_reached,
        "params_type": type(descent.params).__name__,
        "params_names": json.dumps(names),
        "stats": json.dumps(plain(descent.stats)),
        "seconds": json.dumps(plain(descent.seconds)),
        "provenance": json.dumps(plain(descent.provenance)),
    }
    coords: dict[str, Any] = {
        "time": ("time", descent.ts, {"long_name": "sum of the learning rates", "units": "1"}),
        "step": ("time", descent.steps, {"long_name": "steps of the optimiser", "units": "1"}),
    }
    return xr.Dataset(data, coords | ({"milestone": list(descent.milestones)} if descent.milestones else {}), attrs)


def from_dataset(dataset: Any, *, like: PyTree = None) -> Descent:
    """The descent that `to_dataset` described; `like`: a PyTree whose structure its parameters get."""
    from gflow.training._descent import Descent

    attrs = dataset.attrs
    names = json.loads(attrs["params_names"])
    leaves = [np.asarray(dataset[name]) for name in names]
    losses = [str(name) for name in dataset.data_vars if str(name).startswith("loss_")]
    return Descent(
        steps=np.asarray(dataset["step"]),
        ts=np.asarray(dataset["time"]),
        params=flow_files.rebuild(attrs["params_type"], names, leaves, like),
        losses={name.removeprefix("loss_"): np.asarray(dataset[name]) for name in losses},
        milestones=_milestones(dataset),
        status=Outcome(attrs["status"]),
        message=attrs["message"],
        optimizer=attrs["optimizer"],
        stats=json.loads(attrs["stats"]),
        seconds=json.loads(attrs["seconds"]),
        provenance=json.loads(attrs["provenance"]),
    )


def _milestones(dataset: Any) -> dict[str, StepMilestone]:
    found = {}
    for name in dataset["milestone"].values if "milestone" in dataset.coords else []:
        row = dataset.sel(milestone=name)
        numbers = {key: float(row[f"milestone_{key}"]) for key in ("time", "step", "first", "level")}
        time, step = (None if np.isnan(numbers[key]) else numbers[key] for key in ("time", "step"))
        first = None if np.isnan(numbers["first"]) else int(numbers["first"])
        texts = {key: str(row[f"milestone_{key}"].item()) for key in _TEXTS}
        found[str(name)] = StepMilestone(time=time, error=None, level=numbers["level"], step=step, first=first, **texts)
    return found


def save(descent: Descent, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write netCDF-4, complete or not at all."""
    return netcdf.write(to_dataset(descent), path, overwrite=overwrite)
