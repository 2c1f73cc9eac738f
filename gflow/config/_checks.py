"""What a single value must be, and the words that say what is wrong with it."""

from __future__ import annotations

import difflib
import math
from typing import Any

from gflow.errors import InputError


def number(
    key: str,
    value: Any,
    lowest: float | int = -math.inf,
    highest: float | int = math.inf,
    open_below: bool = False,
    about: str = "",
    *,
    whole: bool = False,
    open_above: bool = False,
) -> float | int:
    """`value` as a finite number within its limits; booleans, text, inf, nan and overflow are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = ", without quotes" if isinstance(value, str) else ""
        raise InputError(f"{key} = {show(value)} is {kind(value)}, not a number; write it as a number{hint}")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    limit = f"{'>' if open_below else '>='} {lowest:.8g} and {'<' if open_above else '<='} {highest:.8g}"
    if not math.isfinite(real):
        raise InputError(f"{key} = {show(value)} is not a finite number; give a value {limit}")
    if whole and value != int(value):
        raise InputError(f"{key} = {show(value)} is not a whole number; give one {limit}")
    beyond = value < lowest or value > highest  # not `real`, which rounds large whole numbers
    if beyond or (open_below and value == lowest) or (open_above and value == highest):
        raise InputError(f"{key} = {show(value)} is out of range ({about}); give a value {limit}")
    return int(value) if whole else real


def suggest(word: str, known: list[str]) -> str:
    """ "did you mean ...?" when one is near, else the whole list."""
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(name for name in known if name.lower() == near[0])!r}?"
    return f"known are {', '.join(known)}"


def show(value: Any) -> str:
    """A short one-line rendering, in TOML's words for booleans."""
    text = str(value).lower() if isinstance(value, bool) else _repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _repr(value: Any) -> str:
    try:
        return f"{value:.15g}" if isinstance(value, float) else repr(value)
    except ValueError:  # an integer with more digits than Python is willing to print
        return "an integer of thousands of digits"


def kind(value: Any) -> str:
    """The kind of a value in a user's words."""
    kinds = {bool: "a boolean", str: "text", dict: "a table", list: "a list", int: "a number", float: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")
