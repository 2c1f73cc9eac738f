"""The configuration of `gflow compare`: one key, several values, and the configuration of each run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gflow.config._base import Config
from gflow.config._checks import show, suggest
from gflow.config._rules import Text
from gflow.config.integrate import IntegrateConfig
from gflow.config.train import OPTIMIZERS, TrainConfig
from gflow.errors import InputError

KEYS = ("parametrization", "alpha-star", "tokens", "training", "w-star", "sigma-init", "L", "optimizer")
NUMBERS = ("alpha-star", "w-star", "sigma-init", "L")
FLOW = "flow"  # the value of optimizer that means gflow integrate
MOST = 6  # values: as many as a figure shows
_OWN = ("out", "plot", "overwrite")
_NOT_HERE = ("loss", "init", "model")
_EXAMPLES = {
    "parametrization": "untied merged",
    "tokens": "gaussian rademacher",
    "training": "layerwise joint",
    "optimizer": "flow gd adam",
    "L": "40 100",
}


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """An ablation: `runs[i]` is the configuration with `key` at `values[i]`, all else the same. Made by `comparison`.

    `outs`: where each run is saved, or nothing. `overlay`: curves over each other rather than side by side.
    """

    key: str
    values: tuple[str, ...]
    runs: tuple[IntegrateConfig | TrainConfig, ...]
    outs: tuple[str, ...] = ()
    plot: str | None = None
    overlay: bool = False
    overwrite: bool = False

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values as numbers; empty for a key whose values are names."""
        return tuple(float(value) for value in self.values) if self.key in NUMBERS else ()


def comparison(
    key: str,
    values: Sequence[str],
    given: Mapping[str, Any],
    *,
    file: Mapping[str, Any] | None = None,
    source: str = "the configuration",
    overlay: bool | None = None,
) -> CompareConfig:
    """Check everything that can be checked before JAX is loaded.

    `given`: flags by name; `file`: keys of a TOML file, which flags override. Raises InputError: one line that names
    the value, the limit and the way out.
    """
    key = _key(key)
    name = key.replace("-", "_")
    words = _values(key, values)
    if name in given:
        raise InputError(f"{name} is what is compared; leave --{key} out")
    settings = _of_file(file or {}, source, name) | dict(given)
    own = {k: settings.pop(k) for k in _OWN if settings.get(k) is not None}
    outs = _outs(own.get("out"), key, words)
    runs = _runs(key, words, settings, outs, {"overwrite": own.get("overwrite", False)})
    plot = own.get("plot")
    if plot is not None:
        plot = Text("compare.png", (".png", ".pdf", ".svg"))("plot", plot)
    over = key == "optimizer" if overlay is None else overlay
    return CompareConfig(key, words, runs, outs, plot, over, bool(own.get("overwrite", False)))


def _key(key: str) -> str:
    spelled = key.replace("_", "-")
    if spelled not in KEYS:
        raise InputError(f"key = {show(key)} cannot be compared; {suggest(spelled, list(KEYS))}")
    return spelled


def _values(key: str, values: Sequence[str]) -> tuple[str, ...]:
    example = _EXAMPLES.get(key, "0.5 1")
    if not 2 <= len(values) <= MOST:
        raise InputError(
            f"{len(values)} value{'' if len(values) == 1 else 's'} of {key} given; "
            f"give 2 to {MOST}, for example gflow compare {key} {example}"
        )
    seen: dict[Any, str] = {}
    for value in values:
        same: Any = value
        if key in NUMBERS:
            try:
                same = float(value)
            except ValueError:
                raise InputError(f"{key} = {show(value)} is not a number; write, for example, {example}") from None
        if same in seen:
            raise InputError(f"{key} = {value} is given twice; give each value once")
        seen[same] = value
    return tuple(values)


def _of_file(file: Mapping[str, Any], source: str, compared: str) -> dict[str, Any]:
    """Keys of a file by name; the key that is compared gives way to its values."""
    known = [f.name for cls in (IntegrateConfig, TrainConfig) for f in dataclasses.fields(cls)]
    known = [name for name in dict.fromkeys(known) if name not in (*_NOT_HERE, "optimizer")]
    out: dict[str, Any] = {}
    for word, value in file.items():
        name = word.replace("-", "_")
        if name in _NOT_HERE:
            raise InputError(f"{source}: {name} is for gflow integrate; gflow compare runs the induction head")
        if name not in known and name != compared:
            raise InputError(f"{source}: unknown key {show(word)}; {suggest(name, known)}")
        if name in out:
            raise InputError(f"{source}: {name} is given twice; keep one")
        out[name] = value
    out.pop(compared, None)
    return out


def _runs(
    key: str, words: tuple[str, ...], settings: dict[str, Any], outs: tuple[str, ...], policy: dict[str, Any]
) -> tuple[IntegrateConfig | TrainConfig, ...]:
    name = key.replace("-", "_")
    kept: set[str] = set()
    plans: list[tuple[type[Config], dict[str, Any]]] = []
    for word in words:
        if key == "optimizer" and word != FLOW:
            cls, mine = TrainConfig, {name: word}
            if word not in OPTIMIZERS:
                raise InputError(f"{key} = {show(word)} is unknown; {suggest(word, [FLOW, *OPTIMIZERS])}")
        else:
            cls, mine = IntegrateConfig, {} if key == "optimizer" else {name: float(word) if key in NUMBERS else word}
        wanted = _read(cls, settings | mine)
        kept |= set(wanted)
        plans.append((cls, wanted))
    for setting in settings:
        if setting not in kept:
            elsewhere = key != "optimizer" and setting in _steps_only()
            way = "use gflow compare optimizer" if elsewhere else "add a value that reads it"
            raise InputError(
                f"{setting} = {show(settings[setting])} is read by none of {key} = {', '.join(words)}; "
                f"leave --{setting.replace('_', '-')} out, or {way}"
            )
    places = [{"out": out} for out in outs] or [{}] * len(plans)
    return tuple(cls.from_given(wanted | place | policy) for (cls, wanted), place in zip(plans, places, strict=True))


def _steps_only() -> set[str]:
    flow = {field.name for field in dataclasses.fields(IntegrateConfig)}
    return {field.name for field in dataclasses.fields(TrainConfig)} - flow


def _read(cls: type[Config], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that this variant reads; what only another one does is for that one."""
    known = {field.name for field in dataclasses.fields(cls)}
    found = {name: value for name, value in settings.items() if name in known}
    optimizer = found.get("optimizer")
    if optimizer is not None:
        others = {number for numbers in OPTIMIZERS.values() for number in numbers} - set(OPTIMIZERS[optimizer])
        others |= {"batch"} if optimizer == "gd" else set()
        found = {name: value for name, value in found.items() if name not in others}
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    values = defaults | found
    values |= cls._settled(values)
    unread = {name for (other, value), names in cls.conditional.items() if values[other] != value for name in names}
    return {name: value for name, value in found.items() if name not in unread}


def _outs(out: Any, key: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """`FOLDER/KEY-VALUE.nc`, or `PREFIX-VALUE.nc`."""
    if out is None:
        return ()
    out = Text("runs/")("out", out)
    if Path(out).suffix == ".nc":
        raise InputError(
            f"out = {out!r} is one file, for {len(words)} runs; give a folder, or the start of their names"
        )
    start = os.path.join(out, key) if out.endswith(("/", os.sep)) or os.path.isdir(out) else out
    return tuple(f"{start}-{word}.nc" for word in words)
