"""A user's own problem: `--loss module:function --init file.toml`.

The function is any pure JAX function of a dictionary name -> array, returning one scalar. The file gives the initial
values by name, numbers or nested lists, and optionally milestones, each a level of the loss or of a scalar parameter:

    w = 0.001
    [milestones]
    half = {below_fraction = 0.5}
    grown = {above = 0.5, of = "w"}
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from gflow.config import number, read_toml
from gflow.errors import GflowError, InputError

_KINDS = ("below", "above", "crosses")
_FORM = 'write name = {below = 0.1}, or above, crosses, below_fraction, ..., with of = "parameter" if not of the loss'


def load_function(spec: str) -> Callable[[Any], Any]:
    """The function that `module:function` names; modules of the current folder count. Raises InputError."""
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        raise InputError(f"loss = {spec!r} must have the form module:function, for example mymodel:loss")
    if module_name.endswith(".py") or "/" in module_name:
        name = os.path.basename(module_name).removesuffix(".py")
        raise InputError(f"loss: {module_name} is a file; go to its folder and name the module, {name}:{path}")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InputError(f"loss: there is no module {module_name} in {folder} or among the installed") from None
        raise InputError(f"loss: module {module_name} needs {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"loss: importing {module_name} failed: {_words(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")]
            listed = f"; it has {', '.join(known[:8])}" if known else ""
            raise InputError(f"loss: {module_name} has no function {part}{listed}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"loss: {spec} is {type(found).__name__}, not a function of the parameters")
    return found


def load_init(path: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Initial values {name: array} and milestone tables {name: table} of an init file. Raises InputError."""
    import numpy as np

    table = read_toml(path)
    milestones = table.pop("milestones", {})
    if not isinstance(milestones, dict):
        raise InputError(f"{path}: milestones must be a table; {_FORM}")
    if not table:
        raise InputError(f"{path} gives no initial values; write for example w = 0.001")
    values: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            raise InputError(f"{path}: {name} is a table; give a number or (nested) lists of numbers")
        _check_numbers(f"{path}: {name}", value)
        try:
            values[name] = np.asarray(value, dtype=float)
        except ValueError:
            raise InputError(f"{path}: the rows of {name} differ in length; make it rectangular") from None
        if values[name].size == 0:
            raise InputError(f"{path}: {name} is empty; give at least one number")
    for name, entry in milestones.items():
        _check_milestone(f"{path}: milestone {name}", entry, values)
    return values, milestones


def check_loss(function: Callable[[Any], Any], spec: str, params: dict[str, Any]) -> None:
    """That `function(params)` can be traced, and gives one real, finite number. Raises InputError."""
    import jax
    import jax.numpy as jnp

    try:
        shape = jax.eval_shape(function, params)
    except KeyError as error:
        raise InputError(f"loss: {spec} reads {error}, and the init file has {', '.join(params)}") from error
    except GflowError:
        raise
    except Exception as error:
        raise InputError(f"loss: JAX cannot trace {spec}(params): {_words(error)}") from error
    if getattr(shape, "shape", None) != ():
        got = f"shape {shape.shape}" if hasattr(shape, "shape") else type(shape).__name__
        raise InputError(f"loss: {spec} must return one scalar, and returns {got}; sum or average it")
    if not jnp.issubdtype(shape.dtype, jnp.floating):
        raise InputError(f"loss: {spec} must return a real number, and returns {shape.dtype}")
    value = float(function(params))
    if not jnp.isfinite(value):
        raise InputError(f"loss: {spec} is {value} at the initial values; start where it is finite")


def conditions(function: Callable[[Any], Any], tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The milestones as conditions; `tables` come checked from `load_init`."""
    from gflow import conditions as kinds

    made: dict[str, Any] = {}
    for name, table in tables.items():
        of = table.get("of", "loss")
        watched = function if of == "loss" else _reader(of)
        key, level = next((k, v) for k, v in table.items() if k != "of")
        cls = getattr(kinds, key.removesuffix("_fraction").capitalize())
        made[name] = cls(watched, fraction=level) if key.endswith("_fraction") else cls(watched, level)
    return made


def _reader(name: str) -> Callable[[Any], Any]:
    def read(params: dict[str, Any]) -> Any:
        return params[name]

    return read


def _check_milestone(label: str, entry: Any, values: dict[str, Any]) -> None:
    known = [*_KINDS, *(f"{kind}_fraction" for kind in _KINDS)]
    if not isinstance(entry, dict):
        raise InputError(f"{label} = {entry!r} is not a table; {_FORM}")
    levels = [key for key in entry if key != "of"]
    if len(levels) != 1 or levels[0] not in known:
        raise InputError(f"{label} has the keys {', '.join(entry) or 'none'}; {_FORM}")
    number(f"{label}: {levels[0]}", entry[levels[0]])
    of = entry.get("of", "loss")
    if of != "loss" and of not in values:
        raise InputError(f"{label}: of = {of!r} is neither 'loss' nor one of {', '.join(values)}")
    if of != "loss" and values[of].shape != ():
        raise InputError(f"{label}: {of} is an array of shape {values[of].shape}; a milestone watches a scalar")


def _check_numbers(label: str, value: Any) -> None:
    if isinstance(value, list):
        for entry in value:
            _check_numbers(label, entry)
    else:
        number(label, value)


def _words(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
