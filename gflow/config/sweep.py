"""The configuration of `gflow sweep`: fixed values, axes, axes that move together, options."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gflow.config._axes import Axis, axis
from gflow.config._checks import kind, show, suggest
from gflow.config._rules import Choice, Limit
from gflow.config.integrate import IntegrateConfig
from gflow.errors import InputError

SECTIONS = ("fixed", "axes", "zip", "options")
MOST_LANES = 10**8
MILESTONES = ("T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
_NOT_HERE = ("out", "plot", "overwrite", "loss", "init", "model")
KEYS = tuple(field.name for field in dataclasses.fields(IntegrateConfig) if field.name not in _NOT_HERE)
_EXAMPLE = "for example [axes] and L = [100, 1000]"
_OPTIONS = {
    "chunk": Limit(1, 10**7, "a chunk is what is computed and saved at once", whole=True),
    "rtol": IntegrateConfig.rules["rtol"],
    "precision": Choice(("float64", "float32")),
    "check": Limit(0, 10**6, "lanes that are computed again by gflow.solve", whole=True),
}


@dataclasses.dataclass(frozen=True)
class Curves:
    """Losses at `points` times, log-spaced from `first` to `last` (None: beyond the slowest lane's milestones)."""

    points: int
    first: float = 0.1
    last: float | None = None


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """A sweep file, checked (`sweep_config` makes it): keys of `IntegrateConfig`, each fixed or an axis.

    `axes` form a product, `zipped` move together along one dimension more. `chunk`: lanes computed and saved at once
    (None: chosen from the design); `milestones`: those that are asked for; `precision`; `curves`; `check`: how many
    lanes of each chunk are computed again by `gflow.solve`.
    """

    fixed: dict[str, Any]
    axes: dict[str, Axis]
    zipped: dict[str, Axis] = dataclasses.field(default_factory=dict)
    chunk: int | None = None
    milestones: tuple[str, ...] = MILESTONES
    precision: str = "float64"
    curves: Curves | None = None
    check: int = 0

    @property
    def varied(self) -> dict[str, Axis]:
        """Every key that is an axis, alone or with others."""
        return self.axes | self.zipped

    @property
    def shape(self) -> tuple[int, ...]:
        """Lanes along each axis, and along those that move together."""
        together = [len(next(iter(self.zipped.values())))] if self.zipped else []
        return (*(len(axis) for axis in self.axes.values()), *together)

    @property
    def lanes(self) -> int:
        """How many trajectories there are."""
        return math.prod(self.shape)

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the form of a sweep file; `sweep_config` makes the same configuration of them."""
        fixed = {
            key: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # pyright: ignore[reportArgumentType]
            for key, value in self.fixed.items()
        }
        options: dict[str, Any] = {"milestones": list(self.milestones), "precision": self.precision}
        options |= {} if self.chunk is None else {"chunk": self.chunk}
        options |= {"check": self.check} if self.check else {}
        if self.curves is not None:
            options["curves"] = {k: v for k, v in dataclasses.asdict(self.curves).items() if v is not None}
        return {
            "fixed": fixed,
            "axes": {key: axis.as_dict() for key, axis in self.axes.items()},
            "zip": {key: axis.as_dict() for key, axis in self.zipped.items()},
            "options": options,
        }


def sweep_config(table: Mapping[str, Any], source: str = "the sweep") -> SweepConfig:
    """The configuration of the tables of a sweep file. Raises InputError: one line with the key and the way out."""
    for name in table:
        if name not in SECTIONS:
            here = name.replace("-", "_") in KEYS
            way = "put it under [fixed] or [axes]" if here else suggest(name, list(SECTIONS))
            raise InputError(f"{source}: unknown table {show(name)}; {way}")
    sections = {name: _section(table.get(name, {}), name, source) for name in SECTIONS}
    seen: dict[str, str] = {}
    for section in ("fixed", "axes", "zip"):
        for key in sections[section]:
            if key in seen:
                raise InputError(f"{source}: {key} is in [{seen[key]}] and in [{section}]; keep one")
            seen[key] = section
    fixed = {key: IntegrateConfig.rules[key](key, value) for key, value in sections["fixed"].items()}
    axes = {key: axis(key, value) for key, value in sections["axes"].items()}
    zipped = {key: axis(key, value) for key, value in sections["zip"].items()}
    if not axes and not zipped:
        raise InputError(f"{source} has no axis, so there is nothing to sweep; name one, {_EXAMPLE}")
    _same_length(zipped)
    options = _options(sections["options"], source)
    rtol = options.pop("rtol", None)
    if rtol is not None:
        if "rtol" in seen:
            raise InputError(f"{source}: rtol is in [{seen['rtol']}] and in [options]; keep one")
        fixed["rtol"] = rtol
    config = SweepConfig(fixed, axes, zipped, **options)
    if config.lanes > MOST_LANES:
        sizes = " x ".join(str(n) for n in config.shape)
        raise InputError(f"{source}: {sizes} = {config.lanes} lanes; the limit is {MOST_LANES:.0e}, use shorter axes")
    return config


def lane_config(fixed: Mapping[str, Any], lane: Mapping[str, Any]) -> IntegrateConfig:
    """The configuration of one lane: its own values, and those of the fixed ones that it reads. Raises InputError.

    A fixed key that only other lanes give a meaning to (`p11_until`, where `training` is an axis) is left out.
    """
    return IntegrateConfig.from_given(read_by(fixed, lane) | dict(lane))


def read_by(fixed: Mapping[str, Any], lane: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed values that this lane reads."""
    values = {field.name: field.default for field in dataclasses.fields(IntegrateConfig)} | dict(fixed) | dict(lane)
    values |= IntegrateConfig._settled(values)
    unread = {
        key for (other, value), keys in IntegrateConfig.conditional.items() if values[other] != value for key in keys
    }
    return {key: value for key, value in fixed.items() if key not in unread}


def _section(value: Any, name: str, source: str) -> dict[str, Any]:
    """A table with known keys, by their names in the configuration."""
    if not isinstance(value, Mapping):
        raise InputError(f"{source}: {name} = {show(value)} is {kind(value)}, not a table; write [{name}]")
    known = list(KEYS) if name != "options" else [*_OPTIONS, "milestones", "curves"]
    out: dict[str, Any] = {}
    for word, entry in value.items():
        key = word.replace("-", "_")
        if key in _NOT_HERE and name != "options":
            raise InputError(f"{source}: {key} in [{name}] is for gflow integrate; a sweep has its own flags for files")
        if key not in known:
            raise InputError(f"{source}: unknown key {show(word)} in [{name}]; {suggest(key, known)}")
        if key in out:
            raise InputError(f"{source}: {key} is given twice in [{name}]; keep one")
        out[key] = entry
    return out


def _same_length(zipped: Mapping[str, Axis]) -> None:
    lengths = {key: len(axis) for key, axis in zipped.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} {n}" for key, n in lengths.items())
        raise InputError(f"the axes of [zip] move together and need one length, not {told}")


def _options(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    out: dict[str, Any] = {key: _OPTIONS[key](key, value) for key, value in given.items() if key in _OPTIONS}
    if "milestones" in given:
        names = given["milestones"]
        if not isinstance(names, list | tuple) or not names:
            raise InputError(f"{source}: milestones = {show(names)} is not a list; write milestones = ['T_III']")
        out["milestones"] = tuple(dict.fromkeys(Choice(MILESTONES)("milestones", name) for name in names))
    if "curves" in given:
        out["curves"] = _curves(given["curves"])
    return out


def _curves(value: Any) -> Curves:
    form = "write curves = {points = 100}"
    if not isinstance(value, Mapping):
        raise InputError(f"curves = {show(value)} is {kind(value)}; {form}")
    limits = {
        "points": Limit(2, 10**5, "a curve has at least two points", whole=True),
        "first": Limit(0, 1e300, "times are on a logarithmic grid", open_below=True),
        "last": Limit(0, 1e300, "times are on a logarithmic grid", open_below=True),
    }
    for key in value:
        if key not in limits:
            raise InputError(f"curves: unknown key {show(key)}; {suggest(key, list(limits))}")
    if "points" not in value:
        raise InputError(f"curves has no points; {form}")
    checked: dict[str, Any] = {key: limits[key](f"curves.{key}", entry) for key, entry in value.items()}
    curves = Curves(**checked)
    if curves.last is not None and curves.last <= curves.first:
        raise InputError(f"curves: last = {curves.last:g} is not after first = {curves.first:g}; give a later one")
    return curves
