"""What every configuration does: check each value at construction, then whether the values fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from gflow.config._checks import show
from gflow.config._rules import Rule
from gflow.errors import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of the configurations: `rules` has one rule per field. A field whose default is None may be left open."""

    rules: ClassVar[Mapping[str, Rule]] = {}
    # keys that only one value of another key gives a meaning to: {(key, value): keys}
    conditional: ClassVar[Mapping[tuple[str, str], tuple[str, ...]]] = {}

    def __post_init__(self) -> None:
        for name, value in self._settled(vars(self)).items():
            object.__setattr__(self, name, value)
        for name, default in self._defaults().items():
            checked = self._check(name, getattr(self, name))
            object.__setattr__(self, name, checked)  # the dataclass is frozen for everyone else
            if checked != default:
                self._meaningful([name], vars(self))
        self._agree()

    @classmethod
    def _settled(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values that were left open and follow from the others. For subclasses."""
        return {}

    def _agree(self) -> None:
        """Do the values fit together? For subclasses. Raises InputError."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON and for a TOML file (there, without the None's); keys that mean something."""
        values = dataclasses.asdict(self)
        unread = {key for (other, value), keys in self.conditional.items() if values[other] != value for key in keys}
        return {key: value for key, value in values.items() if key not in unread}

    @classmethod
    def from_given(cls, given: Mapping[str, Any]) -> Any:
        """The configuration with these values over the defaults; also refuses a value given where nothing reads it."""
        # checked here, where anything may come, so that the constructor gets values of the types it declares
        checked = {key: cls._check(key, value) for key, value in given.items()}
        values = cls._defaults() | checked
        cls._meaningful(checked, values | cls._settled(values))
        return cls(**checked)

    @classmethod
    def _meaningful(cls, names: Iterable[str], values: Mapping[str, Any]) -> None:
        for (other, needed), keys in cls.conditional.items():
            for name in names:
                if name in keys and values[name] is not None and values[other] != needed:
                    raise InputError(
                        f"{name} = {show(values[name])} has no meaning with {other} = {show(values[other])}; "
                        f"add {other} = {needed!r}, or leave {name} out"
                    )

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in dataclasses.fields(cls)}

    @classmethod
    def _check(cls, key: str, value: Any) -> Any:
        """`value` in the type of `key`, or InputError."""
        if value is None and cls._defaults()[key] is None:
            return None
        return cls.rules[key](key, value)
