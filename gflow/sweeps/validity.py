"""Which lanes have values that their keys accept, and that fit together, found without looking at lanes one by one.

A number is checked once per value of its axis; what depends on several keys at once, once per combination of names.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gflow.config._rules import Limit
from gflow.config.integrate import IntegrateConfig
from gflow.config.sweep import lane_config, read_by
from gflow.errors import InputError


@dataclasses.dataclass(frozen=True)
class Validity:
    """`within[i]` [n_i]: positions of dimension i whose numbers are in range. `kinds[i]` [n_i]: which combination of
    names and kinds of number (L whole or not, d = 1 or more) a position has; `refused`: combinations of these that do
    not fit together. `fast`: every lane that does is one of the exact loss at p11 = inf.
    """

    fixed: dict[str, Any]
    within: list[np.ndarray]
    kinds: list[np.ndarray]
    refused: np.ndarray  # [number of kinds along each dimension] of bool
    fast: bool

    @classmethod
    def of(cls, fixed: dict[str, Any], dims: Sequence[Mapping[str, Any]]) -> Validity:
        """Raises InputError where the names and the fixed values fit together in no lane."""
        within = [np.logical_and.reduce([_in_range(values) for values in dim.values()]) for dim in dims]
        split = [_kinds(dim, ok) for dim, ok in zip(dims, within, strict=True)]
        refused = np.zeros([len(examples) for _, examples in split], dtype=bool)
        failures: list[tuple[dict[str, Any], InputError]] = []
        exact, read = set(), set()
        for at, parts in zip(
            np.ndindex(*refused.shape), itertools.product(*(examples for _, examples in split)), strict=True
        ):
            lane = {key: value for part in parts for key, value in part.items()}
            read |= set(read_by(fixed, lane))
            try:
                config = lane_config(fixed, lane)
                exact.add(config.evaluate == "exact" and config.training == "second-layer")
            except InputError as error:
                refused[at] = True
                failures.append((lane, error))
        if refused.all():
            _blame_the_file(fixed, failures)
        if len(read) < len(fixed):  # a fixed value that no lane reads: let the first lane say so
            IntegrateConfig.from_given(fixed | {k: v for _, examples in split for k, v in examples[0].items()})
        return cls(fixed, within, [kinds for kinds, _ in split], refused, exact == {True})

    def mask(self, region: tuple[slice, ...]) -> np.ndarray:
        """Which lanes of a region, in C order, can be computed."""
        shape = tuple(s.stop - s.start for s in region)
        ok = np.ones(shape, dtype=bool)
        for i, (within, where) in enumerate(zip(self.within, region, strict=True)):
            ok &= within[where].reshape([-1 if j == i else 1 for j in range(len(shape))])
        if self.refused.any():
            ok &= ~self.refused[np.ix_(*(kinds[where] for kinds, where in zip(self.kinds, region, strict=True)))]
        return ok.ravel()

    def reasons(self, lanes: Mapping[str, Any]) -> list[str]:
        """What is wrong with each of the lanes that `mask` leaves out, in the words of the configuration."""
        count = len(next(iter(lanes.values())))
        found: list[str | None] = [None] * count
        numeric = {key: values for key, values in lanes.items() if isinstance(values, np.ndarray)}
        for key, values in numeric.items():
            bad = np.flatnonzero(~in_range(key, values))
            different, which = np.unique(values[bad], return_inverse=True)
            words = [_refusal(key, value.item()) for value in different]
            for lane, word in zip(bad.tolist(), which.tolist(), strict=True):
                found[lane] = found[lane] or words[word]
        # those whose values do not fit together: what a refusal tells are names, L and d
        telling = [key for key in lanes if key not in numeric or key in ("L", "d")]
        known: dict[Any, str] = {}
        for lane in [lane for lane in range(count) if found[lane] is None]:
            same = tuple(lanes[key][lane] for key in telling)
            if same not in known:
                values = {key: entries[lane] for key, entries in lanes.items()}
                known[same] = self._conflict(
                    {key: v.item() if isinstance(v, np.generic) else v for key, v in values.items()}
                )
            found[lane] = known[same]
        return [reason or "" for reason in found]

    def _conflict(self, lane: Mapping[str, Any]) -> str:
        try:
            lane_config(self.fixed, lane)
        except InputError as error:
            return str(error)
        raise AssertionError(f"nothing is wrong with {dict(lane)}")


def in_range(key: str, numbers: np.ndarray) -> np.ndarray:
    """Which of these numbers a key accepts."""
    rule = IntegrateConfig.rules[key]
    assert isinstance(rule, Limit)
    ok = np.isfinite(numbers)
    ok &= (numbers > rule.lowest) if rule.open_below else (numbers >= rule.lowest)
    ok &= (numbers < rule.highest) if rule.open_above else (numbers <= rule.highest)
    return ok & (numbers == np.rint(numbers)) if rule.whole else ok


def _refusal(key: str, value: Any) -> str:
    try:
        IntegrateConfig.rules[key](key, value)
    except InputError as error:
        return str(error)
    raise AssertionError(f"nothing is wrong with {key} = {value}")


def _in_range(values: Any) -> np.ndarray:
    """Which of an axis's values its key accepts."""
    if values.numbers is None:
        return np.ones(len(values.codes), dtype=bool)
    return in_range(values.key, values.numbers)


def _kinds(dim: Mapping[str, Any], within: np.ndarray) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Per position the number of its kind; per kind one lane's worth of values that stands for all of it."""
    columns = []
    for key, values in dim.items():
        if values.numbers is None:
            columns.append(values.codes)
        elif key == "L":
            columns.append((values.numbers == np.rint(values.numbers)).astype(np.int64))
        elif key == "d":
            columns.append((values.numbers > 1).astype(np.int64))
    table = np.stack(columns, axis=1) if columns else np.zeros((len(within), 1), dtype=np.int64)
    table = np.where(within[:, None], table, -1)  # out of range: a kind of its own, refused by `within`
    rows, first, kinds = np.unique(table, axis=0, return_index=True, return_inverse=True)
    examples = []
    for row, at in zip(rows, first, strict=True):
        good = row[0] != -1
        examples.append({key: _value(values, int(at)) for key, values in dim.items()} if good else _stand_in(dim))
    return kinds.reshape(-1), examples


def _value(values: Any, at: int) -> Any:
    return values.levels[values.codes[at]] if values.numbers is None else values.numbers[at].item()


def _stand_in(dim: Mapping[str, Any]) -> dict[str, Any]:
    """Names of the first position; the numbers are out of range, so defaults stand for them."""
    defaults = {field.name: field.default for field in dataclasses.fields(IntegrateConfig)}
    return {
        key: _value(values, 0) if values.numbers is None else defaults[key]
        for key, values in dim.items()
        if values.numbers is None or defaults[key] is not None
    }


def _blame_the_file(fixed: dict[str, Any], failures: list[tuple[dict[str, Any], InputError]]) -> None:
    """Raise if even other numbers would not help; else the lanes fail one by one."""
    for lane, _ in failures:
        try:
            lane_config(fixed, lane | {key: good for key, good in (("L", 40.0), ("d", 1)) if key in lane})
            return
        except InputError:
            continue
    raise failures[0][1]
