"""Parameter types that a saved trajectory can be rebuilt as (by name; nothing in a file is ever imported)."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=type)

PARAMS_TYPES: dict[str, type] = {}


def register_params(cls: T) -> T:
    """Class decorator: let `load` rebuild trajectories whose parameters are of this dataclass-like type."""
    PARAMS_TYPES[cls.__name__] = cls
    return cls
