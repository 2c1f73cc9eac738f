"""Rules for the values of a key: one small type per kind of key. A rule is called as `rule(key, value)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gflow.config._checks import kind, number, show, suggest
from gflow.errors import InputError

Rule = Callable[[str, Any], Any]  # the value in the type of its key, or InputError


@dataclasses.dataclass(frozen=True)
class FiniteTokens:
    """A token law given as values and their probabilities: `tokens = {values = [...], probabilities = [...]}`."""

    values: tuple[float, ...]
    probabilities: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of the names that `exist`; those that come `later` are refused by name."""

    exist: tuple[str, ...]
    later: tuple[str, ...] = ()

    def __call__(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InputError(f"{key} = {show(value)} is {kind(value)}, not a name; give one of {', '.join(self.exist)}")
        if value in self.exist:
            return value
        if value in self.later:
            raise InputError(f"{key} = {value!r} is not available yet; use {self.exist[0]!r}")
        raise InputError(f"{key} = {show(value)} is unknown; {suggest(value, list(self.exist))}")


@dataclasses.dataclass(frozen=True)
class Limit:
    """A finite number from `lowest` to `highest`, ends included unless `open_*`; `about` says what the limit is for."""

    lowest: float | int
    highest: float | int
    about: str
    open_below: bool = False
    open_above: bool = False
    whole: bool = False

    def __call__(self, key: str, value: Any) -> float | int:
        return number(
            key, value, self.lowest, self.highest, self.open_below, self.about,
            whole=self.whole, open_above=self.open_above,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Text:
    """Printable text, with one of the `suffixes` if there are any."""

    example: str
    suffixes: tuple[str, ...] = ()

    def __call__(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InputError(f"{key} = {show(value)} is {kind(value)}, not text; write {key} = {self.example!r}")
        if not value.strip() or not value.isprintable():
            raise InputError(f"{key} = {show(value)} is not a usable name; write {key} = {self.example!r}")
        if self.suffixes and Path(value).suffix.lower() not in self.suffixes:
            ends = " or ".join(self.suffixes)
            raise InputError(f"{key} = {show(value)} must end in {ends}; for example {self.example!r}")
        return value


def flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"{key} = {show(value)} is not true or false; give one of them")
    return value


def token_law(key: str, value: Any) -> str | FiniteTokens:
    """A law by name, or a finite one. What makes values and probabilities a law is for `gflow.tokens` to say."""
    if isinstance(value, str):
        return Choice(("gaussian", "rademacher", "uniform"))(key, value)
    if isinstance(value, FiniteTokens):
        return value
    form = f"write {key} = {{values = [-1, 1], probabilities = [0.5, 0.5]}} or a name"
    if not isinstance(value, dict):
        raise InputError(f"{key} = {show(value)} is {kind(value)}; {form}")
    names = ["values", "probabilities"]
    for name in value:
        if name not in names:
            raise InputError(f"{key}: unknown key {show(name)}; {suggest(name, names)}")
    columns = []
    for name in names:
        column = value.get(name)
        if not isinstance(column, list | tuple) or not column:
            raise InputError(f"{key}: {name} must be a list of numbers; {form}")
        columns.append(tuple(float(number(f"{key}.{name}", entry)) for entry in column))
    values, probabilities = columns
    if len(values) != len(probabilities):
        raise InputError(f"{key}: {len(values)} values and {len(probabilities)} probabilities; give one for each")
    return FiniteTokens(values, probabilities)
