"""A claim of the theory: a statement, what is measured, the law it must obey, and a wrong law that must be rejected.

Measuring and judging are apart: `measure` gives rows of numbers with their errors and knows no theory; a law says for
each row in which interval the number must lie. The same rows judge the claim, its control, and any sabotaged law.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"


@dataclasses.dataclass(frozen=True)
class Row:
    """One number: `measured` (None: never reached) is right within `error`, at the point of parameter space `point`.

    `inside`: the point lies in the regime of the claim; the others are shown, to see where it ends, and decide nothing.
    """

    quantity: str
    point: Mapping[str, Any]
    measured: float | None
    error: float
    inside: bool = True


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a law allows: `low <= number <= high`; `value` is its best guess, None for a mere bound."""

    value: float | None
    low: float = -math.inf
    high: float = math.inf


def about(value: float, relative: float = 0.0, absolute: float = 0.0) -> Expected:
    """`value` up to `relative * |value| + absolute`: how far the theory itself is allowed to be off."""
    slack = relative * abs(value) + absolute
    return Expected(value, value - slack, value + slack)


def between(low: float, high: float) -> Expected:
    """A bound without a best guess."""
    return Expected(None, low, high)


@dataclasses.dataclass(frozen=True)
class Law:
    """`expect[quantity](point)`: what is allowed; a quantity that it does not name, it says nothing about."""

    name: str
    statement: str
    expect: Mapping[str, Callable[[Mapping[str, Any]], Expected]]


@dataclasses.dataclass(frozen=True)
class Plot:
    """Which rows a figure shows, against which coordinate of their points."""

    quantity: str
    x: str
    ylabel: str
    xscale: str = "log"
    yscale: str = "linear"
    by: str | None = None  # one curve for each value of this coordinate


@dataclasses.dataclass(frozen=True)
class Claim:
    """See the module. `measure(lab)` gives its rows; `rule` says in words when they count as support."""

    name: str
    title: str
    statement: str
    formula: str
    source: str
    assumptions: str
    rule: str
    measure: Callable[[Any], Sequence[Row]]
    law: Callable[[Any], Law]
    control: Callable[[Any], Law]
    expected_verdict: str = SUPPORTED
    plot: Plot | None = None


@dataclasses.dataclass(frozen=True)
class Judged:
    """A row, what a law expects of it, and whether it agrees."""

    row: Row
    expected: Expected | None
    verdict: str

    @property
    def strain(self) -> float:
        """How close to its bounds: 0 in the middle, 1 on a bound, more beyond; a claim is as good as its worst row."""
        e, m = self.expected, self.row.measured
        if e is None or m is None or not math.isfinite(m):
            return math.inf
        beyond = max(e.low - m, m - e.high, 0.0)
        if e.value is None:
            bound = e.low if m < e.low else e.high
            return 1.0 + beyond / (abs(bound) + 1e-300) if beyond else 0.0
        room = (e.high - e.value) if m >= e.value else (e.value - e.low)
        return abs(m - e.value) / room if 0.0 < room < math.inf else (math.inf if beyond else 0.0)


def judge_row(row: Row, law: Law) -> Judged:
    """Supported: the whole error bar is inside the law's interval. Refuted: none of it is. Otherwise undecided."""
    expect = law.expect.get(row.quantity)
    if expect is None:
        return Judged(row, None, UNDECIDED)
    allowed = expect(row.point)
    m, e = row.measured, row.error
    if m is None or not math.isfinite(m) or not math.isfinite(e):
        return Judged(row, allowed, UNDECIDED)
    if allowed.low <= m - e and m + e <= allowed.high:
        return Judged(row, allowed, SUPPORTED)
    if m + e < allowed.low or m - e > allowed.high:
        return Judged(row, allowed, REFUTED)
    return Judged(row, allowed, UNDECIDED)


def judge(rows: Sequence[Row], law: Law) -> tuple[str, list[Judged]]:
    """One refuting row of the regime is enough; all must support; rows that the law is silent about do not count."""
    judged = [judge_row(row, law) for row in rows]
    counted = [one.verdict for one in judged if one.row.inside and one.expected is not None]
    if REFUTED in counted:
        return REFUTED, judged
    return (SUPPORTED if counted and set(counted) == {SUPPORTED} else UNDECIDED), judged


def decisive(judged: Sequence[Judged]) -> Judged | None:
    """The row that decides: of those in the regime the worst refuted one, else an undecided one, else the tightest."""
    counted = [one for one in judged if one.row.inside and one.expected is not None]
    for verdict in (REFUTED, UNDECIDED, SUPPORTED):
        some = [one for one in counted if one.verdict == verdict]
        if some:
            return max(some, key=lambda one: one.strain)
    return None
