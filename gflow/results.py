"""Reading any file of results: flows, flows in stages, and discrete-time training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from gflow import flows
from gflow.flows import _persist


def load(path: str | Path, *, like: PyTree = None, loss: Any = None) -> Any:
    """What `save` wrote: a `Trajectory`, a `StagedTrajectory` or a `Descent`.

    Parameters come back as the type they had if gflow knows it, as nested dicts and lists otherwise, or with the
    structure of `like`. With the `loss` a flow was computed from, its `losses_at` works at any time.

    Raises `InputError` when the file is missing, is no netCDF file, or was not written by gflow.
    """
    dataset = _persist.read(path)
    if dataset.attrs.get("kind") == "descent":
        from gflow.training import _persist as descents  # with it comes optax, which a flow does not need

        return descents.from_dataset(dataset, like=like)
    return flows.load(path, like=like, loss=loss)
