"""A configuration from a TOML file and flags."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any, TypeVar

from gflow.config._base import Config
from gflow.config._checks import show, suggest
from gflow.config.integrate import IntegrateConfig
from gflow.errors import InputError

_LARGEST_FILE = 1 << 20  # bytes of a configuration; stops a wrong file name (a device, a data file) early

C = TypeVar("C", bound=Config)


def resolve(
    file: dict[str, Any] | None,
    flags: dict[str, Any],
    source: str = "the configuration",
    cls: type[C] = IntegrateConfig,
) -> C:
    """The configuration of `file` (keys of a TOML file) overridden by `flags` (None: not given) over the defaults."""
    names = [field.name for field in dataclasses.fields(cls)]
    given: dict[str, Any] = {}
    for key, value in (file or {}).items():
        name = key.replace("-", "_")
        if name not in names:
            raise InputError(f"{source}: unknown key {show(key)}; {suggest(name, names)}")
        if name in given:
            raise InputError(f"{source}: {name} is given twice (as {name} and {name.replace('_', '-')}); keep one")
        given[name] = value
    return cls.from_given(given | {key: value for key, value in flags.items() if value is not None})


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
        raise InputError(f"{show(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
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
