"""One axis of a sweep: a list of values, or a rule that makes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from gflow.config._checks import kind, number, show, suggest
from gflow.config._rules import Choice, FiniteTokens, Limit
from gflow.config.integrate import IntegrateConfig
from gflow.errors import InputError

MAKERS = ("linspace", "logspace", "random")
MOST_VALUES = 10**8
# law -> its two numbers
LAWS = {
    "uniform": ("low", "high"),
    "loguniform": ("low", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("mean", "sd"),
}
_FORMS = (
    "a list, {linspace = [first, last, n]}, {logspace = [first, last, n]} or "
    "{random = {law = 'loguniform', low = 1e-6, high = 0.1, n = 100, seed = 0}}"
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """The values of one key: `values` as written, or `size` numbers made by a rule (`gflow.sweeps` makes them).

    `maker`: "list", "linspace" or "logspace" (`numbers`: first and last value), or "random" (`law` with its two
    `numbers` and a `seed`). `whole`: numbers are rounded to whole ones.
    """

    key: str
    maker: str
    size: int
    values: tuple[Any, ...] = ()
    numbers: tuple[float, float] = (0.0, 0.0)
    law: str = ""
    seed: int = 0
    whole: bool = False

    def __len__(self) -> int:
        return self.size

    @property
    def numeric(self) -> bool:
        """Its values are numbers, not names."""
        return isinstance(IntegrateConfig.rules[self.key], Limit)

    def as_dict(self) -> Any:
        """As it is written in a sweep file."""
        if self.maker == "list":
            return [dataclasses.asdict(v) if isinstance(v, FiniteTokens) else v for v in self.values]
        rounded = {"round": True} if self.whole else {}
        if self.maker != "random":
            return {self.maker: [*self.numbers, self.size], **rounded}
        law = dict(zip(LAWS[self.law], self.numbers, strict=True))
        return {"random": {"law": self.law, **law, "n": self.size, "seed": self.seed}, **rounded}


def axis(key: str, value: Any) -> Axis:
    """The axis that a sweep file describes. A number out of its key's range is left to fail in its own lanes.

    Raises InputError for what cannot be a value of the key at all, and for an axis without values.
    """
    if isinstance(value, list | tuple):
        return _listed(key, value)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} = {show(value)} is {kind(value)}, not an axis; write [{show(value)}], or {_FORMS}")
    if not isinstance(IntegrateConfig.rules[key], Limit):
        raise InputError(f"{key} has names for values; give a list of them, not {show(dict(value))}")
    makers = [word for word in value if word != "round"]
    for word in makers:
        if word not in MAKERS:
            raise InputError(f"{key}: unknown key {show(word)}; {suggest(word, [*MAKERS, 'round'])}")
    if len(makers) != 1:
        raise InputError(f"{key}: give exactly one of {', '.join(MAKERS)}")
    whole = value.get("round", False)
    if not isinstance(whole, bool):
        raise InputError(f"{key}: round = {show(whole)} is not true or false; give one of them")
    maker = makers[0]
    made = _random(key, value[maker]) if maker == "random" else _spaced(key, maker, value[maker])
    return dataclasses.replace(made, whole=whole)


def _listed(key: str, values: Any) -> Axis:
    if not values:
        raise InputError(f"{key} = [] is an axis without values; give at least one, or leave {key} out")
    rule = IntegrateConfig.rules[key]
    if isinstance(rule, Limit):
        checked = [_a_number(key, value, rule) for value in values]
    else:
        checked = [rule(key, value) for value in values]
    return Axis(key, "list", len(checked), tuple(checked))


def _a_number(key: str, value: Any, rule: Callable[[str, Any], Any]) -> Any:
    """`value`, which may lie out of range; anything but a number is refused in the rule's own words."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        rule(key, value)
    try:
        float(value)
    except OverflowError:
        rule(key, value)
    return value


def _spaced(key: str, maker: str, value: Any) -> Axis:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise InputError(f"{key}: {maker} = {show(value)}; give first value, last value, how many: [1, 10, 5]")
    first, last = (float(number(f"{key}.{maker}", entry)) for entry in value[:2])
    if maker == "logspace":
        for entry in (first, last):
            number(f"{key}.logspace", entry, 0, open_below=True, about="a logarithmic axis has positive values")
    return Axis(key, maker, _count(key, value[2]), numbers=(first, last))


def _random(key: str, value: Any) -> Axis:
    if not isinstance(value, Mapping):
        raise InputError(f"{key}: random = {show(value)} is {kind(value)}, not a table; write {_FORMS}")
    if "law" not in value:
        raise InputError(f"{key}: random has no law; give law = one of {', '.join(LAWS)}")
    law = Choice(tuple(LAWS))(f"{key}.law", value["law"])
    known = ["law", *LAWS[law], "n", "seed"]
    for word in value:
        if word not in known:
            raise InputError(f"{key}: unknown key {show(word)} of law = {law!r}; {suggest(word, known)}")
    for word in (*LAWS[law], "n"):
        if word not in value:
            raise InputError(f"{key}: random has no {word}; law = {law!r} needs {', '.join(known[1:-1])}")
    one, two = (float(number(f"{key}.{word}", value[word])) for word in LAWS[law])
    if law == "loguniform":
        number(f"{key}.low", one, 0, open_below=True, about="a logarithm needs a positive value")
    if LAWS[law][0] == "low" and two < one:
        raise InputError(f"{key}: high = {two:g} is below low = {one:g}; exchange them")
    if LAWS[law][1] == "sd":
        number(f"{key}.sd", two, 0, about="a standard deviation is not negative")
    seed = number(f"{key}.seed", value.get("seed", 0), 0, 2**63 - 1, about="a seed is not negative", whole=True)
    return Axis(key, "random", _count(key, value["n"]), numbers=(one, two), law=law, seed=int(seed))


def _count(key: str, value: Any) -> int:
    if value == 0 and not isinstance(value, bool):
        raise InputError(f"{key}: n = 0 is an axis without values; give at least one, or leave {key} out")
    return int(number(f"{key}.n", value, 1, MOST_VALUES, about="how many values the axis has", whole=True))
