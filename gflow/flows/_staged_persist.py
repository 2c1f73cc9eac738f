"""StagedTrajectory <-> netCDF: one group per stage, each what a `Trajectory` alone would be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gflow.flows import _persist
from gflow.io import netcdf

if TYPE_CHECKING:
    from gflow.flows._staged import StagedTrajectory


def to_dataset(staged: StagedTrajectory) -> Any:
    """All samples along "sample", for tables and figures; a file holds more (`save`)."""
    import xarray as xr

    staged.complete()
    data: dict[str, Any] = {}
    for name, leaf in zip(_persist.leaf_names(staged.params), jax.tree.leaves(staged.params), strict=True):
        if isinstance(leaf, np.ndarray):
            axes = [f"{name}_axis{i}" for i in range(leaf.ndim - 1)]
            data[name] = (["sample", *axes], leaf, {"long_name": f"parameter {name}", "units": "1"})
    for part, values in staged.losses.items():
        data[f"loss_{part}"] = ("sample", values, {"long_name": f"population loss, {part}", "units": "1"})
    coords = {
        "time": ("sample", staged.ts, {"long_name": "flow time since the first stage began", "units": "1"}),
        "local_time": ("sample", staged.local_ts, {"long_name": "flow time since the stage began", "units": "1"}),
        "stage": ("sample", staged.stage_of),
    }
    return xr.Dataset(data, coords, _attributes(staged))


def _attributes(staged: StagedTrajectory) -> dict[str, Any]:
    return {
        "title": "gradient flow trajectory in stages",
        "source": "gflow",
        "format": _persist.FORMAT,
        "stages": json.dumps(list(staged.stages)),
        "planned": json.dumps(list(staged.planned)),
        "finished": int(staged.finished),
        "status": staged.status.value,
        "message": staged.message,
        "seconds": json.dumps(_persist.plain(staged.seconds)),
        "provenance": json.dumps(_persist.plain(staged.provenance)),
    }


def save(staged: StagedTrajectory, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write netCDF-4 with a group per stage, complete or not at all."""
    import xarray as xr

    groups = {f"/{name}": _persist.to_dataset(trajectory) for name, trajectory in staged.stages.items()}
    # completing a stage may have been interrupted, so the attributes come after
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=_attributes(staged)), **groups})
    return netcdf.write(tree, path, overwrite=overwrite)


def load(path: Path, root: Any, *, like: Any = None, loss: Any = None) -> StagedTrajectory:
    """Read what `save` wrote; `root` is the file's root group. `like` and `loss` may be dicts by stage."""
    from gflow.flows._staged import StagedTrajectory

    pick = lambda given, name: given.get(name) if isinstance(given, dict) and name in given else given  # noqa: E731
    stages = {}
    for name in json.loads(root.attrs["stages"]):
        stages[name] = _persist.from_dataset(netcdf.read(path, name), like=pick(like, name), loss=pick(loss, name))
    return StagedTrajectory(
        stages=stages,
        planned=tuple(json.loads(root.attrs["planned"])),
        finished=bool(root.attrs["finished"]),
        message=str(root.attrs["message"]),
        seconds=json.loads(root.attrs["seconds"]),
        provenance=json.loads(root.attrs["provenance"]),
    )
