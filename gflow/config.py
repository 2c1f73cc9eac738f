"""Configurations of the commands as frozen dataclasses; every value is checked here, before JAX is loaded."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from pathlib import Path
from typing import Any

from gflow.errors import InputError

_LARGEST_FILE = 1 << 20  # bytes of a configuration; stops a wrong file name (a device, a data file) early

# choices by key: what exists, and what is refused by name until it does
_CHOICES = {
    "tokens": (("gaussian", "rademacher", "uniform"), ()),
    "parametrization": (("untied", "tied", "merged"), ()),
    "training": (("second-layer",), ("layerwise", "joint")),
    "evaluate": (("exact",), ("sampled",)),
    "model": (("induction",), ("markov",)),
    "solver": (("auto", "tsit5", "dopri5", "dopri8", "rodas5p", "kvaerno3", "kvaerno5"), ()),
}
# limits by key: lowest, highest, is the lowest excluded, what the limit is about
_LIMITS = {
    "L": (4, 1e12, False, "the target needs at least 4 tokens"),
    "alpha_star": (0, 1e6, True, "alpha* weighs the 4-gram part, and at 0 there is none"),
    "w_star": (0, 10, True, "w*^2 is the target's logit scale, and at 0 there is nothing to learn"),
    "sigma_init": (1e-100, 10, False, "the flow starts from a small positive value; at 0 it never moves"),
    "d": (1, 4096, False, "tokens have d components"),
    "rtol": (1e-14, 0.1, False, "a tolerance below the rounding error cannot be met"),
    "atol": (0, 1, True, "a tolerance is positive"),
    "t1": (0, 1e300, False, "the flow starts at t = 0"),
    "max_steps": (1, 10**9, False, "a solve takes at least one step"),
    "seed": (0, 2**63 - 1, False, "a seed is a non-negative integer"),
}
_WHOLE = {"d", "max_steps", "seed"}
# what a user's own loss does not read
_PROBLEM_KEYS = (
    "L", "alpha_star", "w_star", "sigma_init", "tokens", "d", "parametrization", "training", "evaluate", "model",
)  # fmt: skip
_SUFFIXES = {"out": (".nc",), "plot": (".png", ".pdf", ".svg")}
_TEXT = {"loss": "module:function", "init": "init.toml"}


@dataclasses.dataclass(frozen=True)
class FiniteTokens:
    """A token law given as values and their probabilities: `tokens = {values = [...], probabilities = [...]}`."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class IntegrateConfig:
    """One trajectory: the problem, the policy of the solver, the outputs. Construction checks every value.

    Names are those of the flags with `_` for `-`. `None` leaves a choice to `solve`. Raises InputError: one line that
    names the value, the limit and the way out.
    """

    L: float = 40.0
    alpha_star: float = 1.0
    w_star: float = 0.49
    sigma_init: float = 1e-2
    tokens: str | FiniteTokens = "gaussian"
    d: int = 1
    parametrization: str = "untied"
    training: str = "second-layer"
    evaluate: str = "exact"
    model: str = "induction"
    solver: str = "auto"
    rtol: float | None = None
    atol: float | None = None
    t1: float | None = None
    max_steps: int | None = None
    seed: int = 0
    loss: str | None = None
    init: str | None = None
    out: str | None = None
    plot: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            checked = _check(field.name, getattr(self, field.name), optional=field.default is None)
            object.__setattr__(self, field.name, checked)  # the dataclass is frozen for everyone else
        if self.d > 1 and self.tokens != "gaussian":
            name = self.tokens if isinstance(self.tokens, str) else "finite"
            raise InputError(f"d = {self.d} needs gaussian tokens, and tokens = {name}; give d = 1 or gaussian tokens")
        if (self.loss is None) != (self.init is None):
            have, lack = ("loss", "init") if self.init is None else ("init", "loss")
            raise InputError(f"{have} = {_show(getattr(self, have))} needs {lack} too; add {lack} = {_TEXT[lack]!r}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON and for a TOML file (there, without the None's); keys that mean something."""
        values = dataclasses.asdict(self)
        unread = ("loss", "init") if self.loss is None else _PROBLEM_KEYS
        return {key: value for key, value in values.items() if key not in unread}


def resolve(file: dict[str, Any] | None, flags: dict[str, Any], source: str = "the configuration") -> IntegrateConfig:
    """The configuration of `file` (keys of a TOML file) overridden by `flags` (None: not given) over the defaults."""
    names = [field.name for field in dataclasses.fields(IntegrateConfig)]
    given: dict[str, Any] = {}
    for key, value in (file or {}).items():
        name = key.replace("-", "_")
        if name not in names:
            raise InputError(f"{source}: unknown key {_show(key)}; {_suggest(name, names)}")
        if name in given:
            raise InputError(f"{source}: {name} is given twice (as {name} and {name.replace('_', '-')}); keep one")
        given[name] = value
    given |= {key: value for key, value in flags.items() if value is not None}
    if given.get("loss") is not None:
        unread = [key for key in _PROBLEM_KEYS if key in given]
        if unread:
            raise InputError(f"{unread[0]} has no meaning for the loss {_show(given['loss'])}; leave it out")
    # checked here, where anything may come, so that the constructor gets values of the types it declares
    optional = {field.name for field in dataclasses.fields(IntegrateConfig) if field.default is None}
    return IntegrateConfig(**{key: _check(key, value, optional=key in optional) for key, value in given.items()})


def read_toml(path: str) -> dict[str, Any]:
    """The table of a TOML file. Raises InputError when it is missing, not a file, not text, not TOML, or empty."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; name a TOML file in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{_show(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST_FILE:
        raise InputError(f"{path} is larger than {_LARGEST_FILE} bytes; is it a TOML file?")
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file; write the settings as TOML, for example L = 100") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {' '.join(str(error).split())}") from None
    if not table:
        raise InputError(f"{path} is empty; write at least one setting, for example L = 100, or leave the file out")
    return table


def _check(key: str, value: Any, *, optional: bool) -> Any:
    """`value` in the type of `key`, or InputError."""
    if optional and value is None:
        return None
    if key == "tokens" and not isinstance(value, str):
        return _finite_tokens(value)
    if key in _CHOICES:
        return _choice(key, value)
    if key in _LIMITS:
        return number(key, value, *_LIMITS[key], whole=key in _WHOLE)
    if key == "overwrite":
        if not isinstance(value, bool):
            raise InputError(f"overwrite = {_show(value)} is not true or false; give one of them")
        return value
    return _text(key, value)


def number(
    key: str,
    value: Any,
    lowest: float | int = -math.inf,
    highest: float | int = math.inf,
    open_below: bool = False,
    about: str = "",
    *,
    whole: bool = False,
) -> float | int:
    """`value` as a finite number within its limits; booleans, text, inf, nan and overflow are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = ", without quotes" if isinstance(value, str) else ""
        raise InputError(f"{key} = {_show(value)} is {_kind(value)}, not a number; write it as a number{hint}")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    limit = f"{'>' if open_below else '>='} {lowest:g} and <= {highest:g}"
    if not math.isfinite(real):
        raise InputError(f"{key} = {_show(value)} is not a finite number; give a value {limit}")
    if whole and value != int(value):
        raise InputError(f"{key} = {_show(value)} is not a whole number; give one {limit}")
    if real < lowest or real > highest or (open_below and real == lowest):
        raise InputError(f"{key} = {_show(value)} is out of range ({about}); give a value {limit}")
    return int(value) if whole else real


def _choice(key: str, value: Any) -> str:
    exist, later = _CHOICES[key]
    if not isinstance(value, str):
        raise InputError(f"{key} = {_show(value)} is {_kind(value)}, not a name; give one of {', '.join(exist)}")
    if value in exist:
        return value
    if value in later:
        raise InputError(f"{key} = {value!r} is not available yet; use {exist[0]!r}")
    raise InputError(f"{key} = {_show(value)} is unknown; {_suggest(value, list(exist))}")


def _finite_tokens(value: Any) -> FiniteTokens:
    """Shape and type only: what makes values and probabilities a law is for `gflow.tokens` to say."""
    if isinstance(value, FiniteTokens):
        return value
    form = "write tokens = {values = [-1, 1], probabilities = [0.5, 0.5]} or a name"
    if not isinstance(value, dict):
        raise InputError(f"tokens = {_show(value)} is {_kind(value)}; {form}")
    keys = ["values", "probabilities"]
    for key in value:
        if key not in keys:
            raise InputError(f"tokens: unknown key {_show(key)}; {_suggest(key, keys)}")
    columns = []
    for key in keys:
        column = value.get(key)
        if not isinstance(column, list | tuple) or not column:
            raise InputError(f"tokens: {key} must be a list of numbers; {form}")
        columns.append(tuple(float(number(f"tokens.{key}", entry)) for entry in column))
    values, probabilities = columns
    if len(values) != len(probabilities):
        raise InputError(f"tokens: {len(values)} values and {len(probabilities)} probabilities; give one for each")
    return FiniteTokens(values, probabilities)


def _text(key: str, value: Any) -> str:
    example = _TEXT.get(key) or f"run{_SUFFIXES[key][0]}"
    if not isinstance(value, str):
        raise InputError(f"{key} = {_show(value)} is {_kind(value)}, not text; write {key} = {example!r}")
    if not value.strip() or not value.isprintable():
        raise InputError(f"{key} = {_show(value)} is not a usable name; write {key} = {example!r}")
    suffixes = _SUFFIXES.get(key)
    if suffixes and Path(value).suffix.lower() not in suffixes:
        raise InputError(f"{key} = {_show(value)} must end in {' or '.join(suffixes)}; for example {example!r}")
    return value


def _suggest(word: str, known: list[str]) -> str:
    """ "did you mean ...?" when one is near, else the whole list."""
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(name for name in known if name.lower() == near[0])!r}?"
    return f"known are {', '.join(known)}"


def _show(value: Any) -> str:
    """A short one-line rendering, in TOML's words for booleans."""
    text = str(value).lower() if isinstance(value, bool) else _repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _repr(value: Any) -> str:
    try:
        return f"{value:.15g}" if isinstance(value, float) else repr(value)
    except ValueError:  # an integer with more digits than Python is willing to print
        return "an integer of thousands of digits"


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", str: "text", dict: "a table", list: "a list", int: "a number", float: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")
