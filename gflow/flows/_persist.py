"""Trajectory <-> xarray.Dataset <-> netCDF. A file holds the path, its dense output, and where it comes from."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows import _clocks
from gflow.flows._adam import AdamFlow
from gflow.flows._charts import Coordinates
from gflow.flows._dense import DenseBlock, Leg, no_loss
from gflow.flows._flow import AbstractFlow, GradientFlow
from gflow.flows._heavy_ball import HeavyBallFlow
from gflow.flows._method import EXPLICIT, IMPLICIT, make_method
from gflow.flows._problem import FlatProblem, Layout
from gflow.flows._registry import PARAMS_TYPES
from gflow.flows._sign import SignFlow
from gflow.flows._status import Milestone, StationaryPoint, Status
from gflow.io import netcdf

if TYPE_CHECKING:
    from gflow.flows._trajectory import Trajectory

FORMAT = 1
_CLOCKS = {c.__name__: c for c in (_clocks.PlainClock, _clocks.ScaledClock, _clocks.LogClock)}
_SOLVERS = {cls.__name__: name for name, cls in (EXPLICIT | IMPLICIT).items()}


def leaf_names(params: PyTree) -> list[str]:
    """One name per leaf, its path joined by dots: "wK", "layers.0.weight"."""
    paths = [path for path, _ in jax.tree.leaves_with_path(params)]
    return [".".join(_key(key) for key in path) or "params" for path in paths]


def _key(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))


def to_dataset(trajectory: Trajectory) -> Any:
    """The trajectory as a dataset; `from_dataset` is its inverse."""
    import xarray as xr  # a quarter of a second that a solve need not wait for

    trajectory.complete()
    data: dict[str, Any] = {}
    names = leaf_names(trajectory.initial)
    for name, leaf in zip(names, jax.tree.leaves(trajectory.params), strict=True):
        if isinstance(leaf, np.ndarray):
            axes = [f"{name}_axis{i}" for i in range(leaf.ndim - 1)]
            data[name] = (["time", *axes], leaf, {"long_name": f"parameter {name}", "units": "1"})
    if trajectory.blocks is not None:
        state = trajectory.state
        for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
            axes = [f"{name}_axis{i}" for i in range(leaf.ndim - 1)]
            data[name] = (["time", *axes], leaf, {"long_name": f"state of the flow, {name}", "units": "1"})
    for part, values in trajectory.losses.items():
        data[f"loss_{part}"] = ("time", values, {"long_name": f"population loss, {part}", "units": "1"})
    found = trajectory.milestones
    number = lambda x: np.nan if x is None else x  # noqa: E731
    column = lambda pick, kind: ("milestone", np.array([pick(m) for m in found.values()], kind))  # noqa: E731
    data["milestone_time"] = column(lambda m: number(m.time), float)
    data["milestone_error"] = column(lambda m: number(m.error), float)
    data["milestone_level"] = column(lambda m: m.level, float)
    for field in ("error_kind", "status", "reason", "condition"):
        data[f"milestone_{field}"] = column(lambda m, f=field: getattr(m, f), str)
    blocks = [_describe(block, i, data) for i, block in enumerate(trajectory.blocks or [])]
    attrs = {
        "title": "gradient flow trajectory",
        "source": "gflow",
        "format": FORMAT,
        "status": trajectory.status.value,
        "message": trajectory.message,
        "t0": trajectory.t0,
        "t1_reached": trajectory.t1_reached,
        "params_type": type(trajectory.initial).__name__,
        "params_names": json.dumps(names),
        "blocks": json.dumps(blocks),
        "stationary": json.dumps({k: plain(vars(v)) for k, v in trajectory.stationary.items()}),
        "saddles": json.dumps({k: [plain(vars(p)) for p in v] for k, v in trajectory.saddles.items()}),
        "stats": json.dumps(plain(trajectory.stats)),
        "seconds": json.dumps(plain(trajectory.seconds)),
        "provenance": json.dumps(plain(trajectory.provenance)),
    }
    coords = {"time": ("time", trajectory.ts, {"long_name": "flow time", "units": "1"}), "milestone": list(found)}
    return xr.Dataset(data, coords if found else {"time": coords["time"]}, attrs)


def _describe(block: DenseBlock, i: int, data: dict[str, Any]) -> dict[str, Any] | None:
    """Put a block's dense output into `data`; returns what is needed to read it back, None if that is impossible."""
    problem = block.problem
    solvers = [type(leg.solver).__name__ for leg in block.legs]
    if problem.chart is not None or type(problem.clock).__name__ not in _CLOCKS or not set(solvers) <= set(_SOLVERS):
        return None
    moving, state = eqx.filter_eval_shape(problem.parts, jnp.asarray(block.z0))
    size = f"block{i}"
    data[f"{size}_z0"] = (f"{size}_size", block.z0)
    data[f"{size}_scale"] = (f"{size}_size", np.asarray(problem.coordinates.scale))
    data[f"{size}_curved"] = (f"{size}_size", np.asarray(problem.coordinates.curved).astype(np.int8))
    for j, leg in enumerate(block.legs):
        steps = f"{size}_leg{j}"
        data[f"{steps}_s0"], data[f"{steps}_s1"] = (steps, leg.s0), (steps, leg.s1)
        for key, value in leg.dense.items():
            stages = [f"{steps}_stage"] * (value.ndim - 2)
            data[f"{steps}_dense_{key}"] = ([steps, *stages, f"{size}_size"], value)
    return {
        "leaves": leaf_names(moving),
        "state": list(state),
        "clock": type(problem.clock).__name__,
        "unit": float(getattr(problem.clock, "unit", 1.0)),
        "solvers": solvers,
    }


def plain(value: Any) -> Any:
    """JSON without NaN or infinity."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def save(trajectory: Trajectory, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write netCDF-4, complete or not at all."""
    return netcdf.write(to_dataset(trajectory), path, overwrite=overwrite)


def read(path: str | Path) -> Any:
    """The dataset of a flow's file. Raises `InputError` as `load` does."""
    dataset = netcdf.read(path)
    if dataset.attrs.get("format") != FORMAT:
        raise InputError(f"{path} was not written by this version of gflow; write it again")
    return dataset


def load(path: str | Path, *, like: PyTree = None, loss: Any = None) -> Any:
    """Read what `save` wrote: a `Trajectory`, or the `StagedTrajectory` of a schedule.

    Parameters come back as the type they had if gflow knows it, as nested dicts and lists otherwise, or with the
    structure of `like`. With the `loss` they were computed from, `losses_at` works at any time. For a schedule each of
    the two may be a dict by name of the stage.

    Raises `InputError` when the file is missing, is no netCDF file, or was not written by gflow.
    """
    dataset = read(path)
    if "kind" in dataset.attrs:
        raise InputError(f"{path} holds a {dataset.attrs['kind']}, not a flow; gflow.load reads both")
    if "stages" in dataset.attrs:
        from gflow.flows import _staged_persist

        return _staged_persist.load(Path(path), dataset, like=like, loss=loss)
    return from_dataset(dataset, like=like, loss=loss)


def from_dataset(dataset: Any, *, like: PyTree = None, loss: Any = None) -> Trajectory:
    """The trajectory that `to_dataset` described."""
    from gflow.flows._trajectory import Trajectory

    attrs = dataset.attrs
    names = json.loads(attrs["params_names"])
    initial = rebuild(attrs["params_type"], names, [np.asarray(dataset[n])[0] for n in names], like)
    about = json.loads(attrs["blocks"])
    blocks = None if None in about else [_restore(dataset, i, b, initial, names) for i, b in enumerate(about)]
    trajectory = Trajectory(
        flow=None if loss is None else _flow(loss, json.loads(attrs["stats"]).get("flow", {})),
        initial=initial,
        blocks=blocks,
        milestones=_milestones(dataset),
        status=Status(attrs["status"]),
        message=attrs["message"],
        t0=float(attrs["t0"]),
        t1_reached=float(attrs["t1_reached"]),
        stationary={k: StationaryPoint(**v) for k, v in json.loads(attrs["stationary"]).items()},
        saddles={k: [StationaryPoint(**p) for p in v] for k, v in json.loads(attrs["saddles"]).items()},
        stats=json.loads(attrs["stats"]),
        seconds=json.loads(attrs["seconds"]),
        provenance=json.loads(attrs["provenance"]),
    )
    trajectory.select(np.asarray(dataset["time"]))
    saved = [np.asarray(dataset[n]) for n in names]
    trajectory.__dict__["params"] = rebuild(attrs["params_type"], names, saved, like)
    losses = [str(n) for n in dataset.data_vars if str(n).startswith("loss_")]
    trajectory.losses_saved({n.removeprefix("loss_"): np.asarray(dataset[n]) for n in losses})
    return trajectory


def _flow(loss: Any, about: dict[str, Any]) -> AbstractFlow:
    """The flow that was integrated, as far as the file knows it: its type and numbers."""
    known = {cls.__name__: cls for cls in (HeavyBallFlow, AdamFlow, SignFlow)}
    numbers = {key: value for key, value in about.items() if key != "type"}
    return known[about["type"]](loss, **numbers) if about.get("type") in known else GradientFlow(loss)


def _milestones(dataset: Any) -> dict[str, Milestone]:
    if "milestone" not in dataset.coords:
        return {}
    found = {}
    for name in dataset["milestone"].values:
        row = dataset.sel(milestone=name)
        value = lambda key, row=row: row[f"milestone_{key}"].item()  # noqa: E731
        number = lambda key, v=value: None if np.isnan(v(key)) else float(v(key))  # noqa: E731
        text = [str(value(key)) for key in ("error_kind", "status", "reason")]
        found[str(name)] = Milestone(
            number("time"), number("error"), *text, level=float(value("level")), condition=str(value("condition"))
        )
    return found


def rebuild(kind: str, names: Sequence[str], leaves: Sequence[Any], like: PyTree) -> PyTree:
    """Parameters from named leaves."""
    if like is not None:
        if leaf_names(like) != list(names):
            raise InputError(f"like: its leaves are {', '.join(leaf_names(like))}; the file has {', '.join(names)}")
        return jax.tree.unflatten(jax.tree.structure(like), leaves)
    if kind in PARAMS_TYPES:
        return PARAMS_TYPES[kind](**dict(zip(names, leaves, strict=True)))
    if list(names) == ["params"]:
        return leaves[0]
    nested = _nested(dict, names, leaves)
    # JAX sorts the keys of a dict; dense output is in the order of the class that was saved
    return nested if leaf_names(nested) == list(names) else _nested(collections.OrderedDict, names, leaves)


def _nested(table: type[dict], names: Sequence[str], leaves: Sequence[Any]) -> dict[str, Any]:
    root = table()
    for name, leaf in zip(names, leaves, strict=True):
        *folders, last = name.split(".")
        place = root
        for folder in folders:
            place = place.setdefault(folder, table())
        place[last] = leaf
    return root


def _restore(dataset: Any, i: int, about: dict[str, Any], initial: PyTree, names: list[str]) -> DenseBlock:
    """One block's dense output."""
    moves = jax.tree.unflatten(jax.tree.structure(initial), [n in about["leaves"] for n in names])
    moving, frozen = eqx.partition(initial, moves)
    array = lambda name: np.asarray(dataset[f"block{i}_{name}"])  # noqa: E731
    z0 = array("z0")
    clock_type = _CLOCKS[about["clock"]]
    unit = jnp.asarray(about["unit"], z0.dtype)
    clock = clock_type() if clock_type is _clocks.PlainClock else clock_type(unit)  # pyright: ignore[reportCallIssue]
    coordinates = Coordinates(jnp.asarray(array("scale")), jnp.asarray(array("curved").astype(bool)))
    t0 = jnp.asarray(dataset.attrs["t0"], z0.dtype)
    layout = Layout.of((moving, dict.fromkeys(about.get("state", []), moving)))
    problem = FlatProblem(no_loss, frozen, layout, None, None, None, coordinates, clock, t0)
    legs = []
    for j, name in enumerate(about["solvers"]):
        prefix = f"leg{j}_dense_"
        keys = [str(k).removeprefix(f"block{i}_{prefix}") for k in dataset.data_vars if f"block{i}_{prefix}" in str(k)]
        dense = {key: array(f"{prefix}{key}") for key in keys}
        solver = make_method(_SOLVERS[name], 1e-3, jnp.asarray(0.0, z0.dtype), 0.0, np.zeros(0, bool)).solver
        legs.append(Leg(solver, array(f"leg{j}_s0"), array(f"leg{j}_s1"), dense))
    return DenseBlock(problem, z0, legs)
