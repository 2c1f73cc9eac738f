"""What a document of verdicts holds, as rules that are called `rule(where, value)` and return the value in one form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gflow.config._checks import kind, show as show
from gflow.errors import InputError

Rule = Callable[[str, Any], Any]

OWN_LOSS = "gflow own-loss verdicts"
KINDS = ("gflow verdicts", OWN_LOSS)
VERDICTS = ("supported", "refuted", "undecided")

# not allowed in HTML or XML, and never meant: controls but tab and newline, lone surrogates, non-characters
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` with a replacement mark for what no page can hold."""
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def anything(where: str, value: Any) -> Any:
    """Any JSON value; numbers that are not finite become None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean(str(key)): anything(where, entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [anything(where, entry) for entry in value]
    if value is None or isinstance(value, bool | int):
        return value
    raise InputError(f"{where} = {show(value)} is {kind(value)}, which JSON does not have")


def text(where: str, value: Any) -> str:
    """Text, not empty."""
    if not words(where, value).strip():
        raise InputError(f"{where} is empty; it must be text")
    return clean(value)


def words(where: str, value: Any) -> str:
    """Text, perhaps none."""
    if not isinstance(value, str):
        raise _wrong(where, value, "text")
    return clean(value)


def number(where: str, value: Any) -> float | int | None:
    """A number, or None for one that there is not or that is not finite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, value, "a number or null")
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


def flag(where: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")
    return value


def one_of(*names: str) -> Rule:
    """One of these words."""

    def rule(where: str, value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise InputError(f"{where} = {show(value)} is not one of {', '.join(names)}")
        return value

    return rule


def maybe(rule: Rule) -> Rule:
    """None, or what the rule says."""
    return lambda where, value: None if value is None else rule(where, value)


def table(where: str, value: Any) -> dict[str, Any]:
    """An object with any keys."""
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    return anything(where, value)


def each(rule: Rule) -> Rule:
    """A list, every entry by the rule."""

    def of_list(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _wrong(where, value, "a list")
        return [rule(f"{where}[{number}]", entry) for number, entry in enumerate(value)]

    return of_list


def fields(rules: Mapping[str, Rule], defaults: Mapping[str, Any] | None = None) -> Rule:
    """An object with these keys, those of `defaults` optional; further keys are kept as they are, behind."""
    missing = dict(defaults or {})

    def of_object(where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(where or "the document", value, "an object")
        dot = f"{where}." if where else ""
        found = {}
        for key, rule in rules.items():
            if key not in value and key not in missing:
                raise InputError(f"{dot}{key} is missing; the file is damaged, or of another version of gflow")
            found[key] = rule(f"{dot}{key}", value[key]) if key in value else missing[key]
        for key in value:
            if key not in rules:
                found[clean(str(key))] = anything(f"{dot}{key}", value[key])
        return found

    return of_object


def _curve(where: str, value: Any) -> dict[str, Any]:
    """A series of a figure: lists of one length."""
    kinds = one_of("measured", "theory", "control", "other")
    numbers = each(number)
    curve = fields(
        {"label": words, "kind": kinds, "x": numbers, "y": numbers, "error": maybe(numbers)}, {"error": None}
    )(where, value)
    for key in ("y", "error"):
        if curve[key] is not None and len(curve[key]) != len(curve["x"]):
            raise InputError(f"{where}.{key} has {len(curve[key])} entries, {where}.x {len(curve['x'])}")
    return curve


def _onset(where: str, value: Any) -> dict[str, Any]:
    """From where on a claim holds within a tolerance."""
    rules: dict[str, Rule] = {"claim": text, "quantity": text, "axis": text, "others": table}
    rules |= dict.fromkeys(("limit", "tolerance", "from", "previous", "tested_to"), number)
    entry = fields(rules | {"values": each(number), "ratios": each(number)})(where, value)
    if len(entry["values"]) != len(entry["ratios"]):
        raise InputError(f"{where}.ratios has {len(entry['ratios'])} entries, {where}.values {len(entry['values'])}")
    return entry


_SCALE = one_of("linear", "log")
_FIGURE = fields(
    {"title": words, "xlabel": words, "ylabel": words, "xscale": _SCALE, "yscale": _SCALE, "series": each(_curve)}
    | {"bands": each(fields({"label": words, "low": number, "high": number}))},
    {"bands": []},
)
_ROW = fields(
    {"quantity": text, "point": table, "measured": number, "error": number, "expected": number}
    | {"low": number, "high": number, "verdict": one_of(*VERDICTS), "inside": flag},
    {"inside": True},
)


def document(own_loss: bool) -> Rule:
    """The rule of a whole document; that of a loss of one's own need have no figures and no onsets."""
    prose = dict.fromkeys(("title", "statement", "formula", "source", "assumptions", "rule"), words)
    verdict = one_of(*VERDICTS)
    claim = {"name": text, **prose, "title": text, "verdict": verdict, "expected_verdict": verdict, "as_expected": flag}
    claim |= {"measured": number, "expected": number, "error": number, "quantity": maybe(words), "regime": words}
    claim |= {"fails": maybe(words), "reason": words}
    control = fields({"name": text, "statement": words, "rejected": flag})
    claim |= {"control": maybe(control) if own_loss else control, "rows": each(_ROW), "figure": maybe(_FIGURE)}
    claim |= {"reproduce": words, "seconds": number}
    rules = {"status": one_of("done", "interrupted"), "kind": one_of(*KINDS), "effort": words, "as_expected": flag}
    rules |= {"claims": each(fields(claim, {"figure": None, "control": None} if own_loss else None))}
    rules |= {"onset": each(_onset), "seconds": number, "provenance": table}
    return fields(rules, {"onset": []} if own_loss else None)


def _wrong(where: str, value: Any, wanted: str) -> InputError:
    given = "null" if value is None else f"{show(value)}, {kind(value)}"
    return InputError(f"{where} is {given}; it must be {wanted}")
