"""A sweep's dataset as figures see it: one value per lane of what varies, selected, in groups, with its fate."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gflow.config.integrate import IntegrateConfig
from gflow.errors import InputError

PENDING, NOT_REACHED, FAILED = 0, 2, 3  # of the variable `status`
MOST = 6  # groups of lanes on one figure
NEAR = 1e-3  # relative: values are named as they are printed
_WORDS = {
    "L": "$L$",
    "alpha_star": r"$\alpha^*$",
    "w_star": "$w^*$",
    "sigma_init": r"$\sigma_\mathrm{init}$",
    "d": "$d$",
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Lanes that agree in everything that is no axis of the figure; `name` says in what, "" if there is one group."""

    name: str
    data: Any


def needs_axes(data: Any, figure: str, wanted: Sequence[str], *, least: int = 2) -> None:
    """Are these keys dimensions, with at least so many values? Raises InputError."""
    lacking = [key for key in wanted if data.sizes.get(key, 0) < least]
    if lacking:
        has = ", ".join(f"{name} ({size})" for name, size in data.sizes.items() if name != "curve_time") or "none"
        raise InputError(
            f"the figure {figure} needs the axes {' and '.join(wanted)} with {least} values or more; "
            f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing, axes of the sweep: {has}"
        )


def needs_columns(data: Any, figure: str, wanted: Sequence[str]) -> None:
    """Are these variables there? Raises InputError."""
    lacking = [name for name in wanted if name not in data]
    if lacking:
        raise InputError(f"the figure {figure} needs {', '.join(lacking)}, which this sweep did not keep (milestones)")


def select(data: Any, chosen: Mapping[str, str]) -> Any:
    """The lanes in which keys have these values (as text). Raises InputError for what is not there."""
    for key, text in chosen.items():
        if key not in data.coords or data[key].ndim != 1:
            axes = ", ".join(name for name in data.coords if data[name].ndim == 1 and name != "curve_time")
            raise InputError(f"select = '{key}={text}': {key} is no axis of this sweep; its axes: {axes or 'none'}")
        values = data[key].values
        found = np.flatnonzero(_equal(values, text))
        if not len(found):
            raise InputError(f"select = '{key}={text}': {key} is never {text}; its values: {_listed(values)}")
        (dim,) = data[key].dims
        # of an axis of its own one value; of axes that move together those in which it has it
        data = data.isel({dim: int(found[0]) if len(found) == 1 or dim == key else found})
    return data


def _equal(values: np.ndarray, text: str) -> np.ndarray:
    if values.dtype.kind not in "if":
        return np.array([str(value) == text for value in values])
    try:
        wanted = float(text)
    except ValueError:
        return np.zeros(len(values), bool)
    distance = np.abs(values - wanted)
    best = np.nanmin(distance) if np.isfinite(distance).any() else math.inf
    return (distance <= NEAR * abs(wanted)) & (distance == best)


def _listed(values: np.ndarray) -> str:
    names = [f"{value:.4g}" if isinstance(value, int | float | np.number) else str(value) for value in values]
    return ", ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-5:]])


def value(data: Any, key: str) -> Any:
    """What a key is in the lanes of a group: one value, from a coordinate, the sweep's file, or its default."""
    if key in data.coords:
        return data[key].values.item() if data[key].ndim == 0 else None
    try:
        fixed = json.loads(data.attrs["provenance"])[0]["config"]["fixed"]
    except (KeyError, IndexError, TypeError, ValueError):
        fixed = {}
    return fixed.get(key, getattr(IntegrateConfig, key, None))


def groups(data: Any, figure: str, axes: Sequence[str]) -> list[Group]:
    """One dataset for each combination of values of the other dimensions. Raises InputError for too many."""
    others = [str(name) for name in data["status"].dims if name not in axes]
    count = math.prod(data.sizes[name] for name in others)
    if count > MOST:
        sizes = " x ".join(f"{name} {data.sizes[name]}" for name in others)
        largest = max(others, key=lambda name: data.sizes[name])
        example = _listed(data[largest].values[:1]) if largest in data.coords else "..."
        raise InputError(
            f"the figure {figure} shows up to {MOST} groups of lanes, here are {count} ({sizes}); "
            f"choose with --select, for example --select {largest}={example}"
        )
    found = []
    for at in itertools.product(*(range(data.sizes[name]) for name in others)):
        part = data.isel(dict(zip(others, at, strict=True)))
        keys = [str(k) for k in data.coords if data[k].ndim == 1 and data[k].dims[0] in others]
        found.append(Group(", ".join(named(key, part[key].values.item()) for key in keys), part))
    return found


def named(key: str, value: Any) -> str:
    """A key and its value in a legend; a name says by itself what it is."""
    return value if isinstance(value, str) else f"{word(key)} = {number(value)}"


def number(value: Any) -> str:
    """A value as it is printed in a figure."""
    if not isinstance(value, int | float):
        return str(value)
    text = f"{value:.4g}" if 1.0 <= abs(value) < 1e4 else f"{value:.3g}"
    if "e" not in text:
        return text
    mantissa, power = text.split("e")
    return f"$10^{{{int(power)}}}$" if mantissa == "1" else rf"${mantissa} \times 10^{{{int(power)}}}$"


def word(key: str) -> str:
    """A key as it is printed in a figure."""
    return _WORDS.get(key, key)


def rising(data: Any, key: str) -> Any:
    """The lanes of a group along an axis, its values ascending; those that no logarithmic axis shows are left out."""
    values = data[key].values
    with np.errstate(invalid="ignore"):
        keep = np.isfinite(values) & (values > 0)
    order = np.argsort(values, kind="stable")
    return data.isel({key: order[keep[order]]})


def fates(data: Any, milestone: str) -> str:
    """How many lanes have no place in the figure, and why; "" when all have."""
    status, missing = data["status"].values, np.isnan(data[milestone].values)
    counts = {
        "failed": status == FAILED,
        "pending": status == PENDING,
        f"without {milestone}": missing & (status != FAILED) & (status != PENDING),
    }
    told = [f"{int(mask.sum())} {what}" for what, mask in counts.items() if mask.any()]
    return f"of {status.size} lanes {', '.join(told)}" if told else ""
