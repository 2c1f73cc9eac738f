"""A claim that has been judged, as plain values: verdict, evidence, regime, control, figure (docs/claims.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gflow.theory.claims._claim import REFUTED, SUPPORTED, UNDECIDED, Claim, Judged, Law, Row, decisive, judge
from gflow.theory.claims._lab import words


def outcome(claim: Claim, rows: Sequence[Row], law: Law, control: Law, seconds: float, effort: str) -> dict[str, Any]:
    """Judge the rows by the claim's law and by its control, and say why."""
    verdict, judged = judge(rows, law)
    wrong, misjudged = judge(rows, control)
    worst = decisive(judged)
    return _head(claim, effort) | {
        "verdict": verdict,
        "as_expected": verdict == claim.expected_verdict and wrong == REFUTED,
        "measured": worst and worst.row.measured,
        "expected": worst.expected.value if worst and worst.expected else None,
        "error": worst and worst.row.error,
        "quantity": worst.row.quantity if worst else None,
        "regime": _regime([one.row.point for one in judged if one.row.inside]),
        "fails": _fails(judged),
        "reason": _reason(verdict, worst),
        "control": {"name": control.name, "statement": control.statement, "rejected": wrong == REFUTED},
        "rows": [_row(one) for one in judged],
        "figure": _figure(claim, judged, misjudged),
        "seconds": seconds,
    }


def failed(claim: Claim, reason: str, seconds: float, effort: str) -> dict[str, Any]:
    """A claim that could not be measured: undecided, with the reason."""
    return _head(claim, effort) | {
        "verdict": UNDECIDED,
        "as_expected": False,
        **dict.fromkeys(("measured", "expected", "error", "quantity", "fails", "figure")),
        "regime": "",
        "reason": reason,
        "control": {"name": "", "statement": "not measured", "rejected": False},
        "rows": [],
        "seconds": seconds,
    }


def _head(claim: Claim, effort: str) -> dict[str, Any]:
    texts = ("name", "title", "statement", "formula", "source", "assumptions", "rule", "expected_verdict")
    return {name: getattr(claim, name) for name in texts} | {"reproduce": f"gflow verify {claim.name} --{effort}"}


def _row(one: Judged) -> dict[str, Any]:
    e = one.expected
    return {
        "quantity": one.row.quantity,
        "point": dict(one.row.point),
        "measured": one.row.measured,
        "error": one.row.error,
        "expected": None if e is None else e.value,
        "low": None if e is None or math.isinf(e.low) else e.low,
        "high": None if e is None or math.isinf(e.high) else e.high,
        "verdict": one.verdict,
        "inside": bool(one.row.inside),
    }


def _regime(points: Sequence[Mapping[str, Any]]) -> str:
    """Which values each coordinate takes."""
    values: dict[str, list[Any]] = {}
    for at in points:
        for key, value in at.items():
            kept = values.setdefault(key, [])
            if value not in kept:
                kept.append(value)
    parts = []
    for key, kept in values.items():
        if len(kept) > 4 and all(isinstance(value, float | int) for value in kept):
            parts.append(f"{key} = {min(kept):g} .. {max(kept):g}")
        else:
            parts.append(f"{key} = {', '.join(_short(value) for value in kept)}")
    return "; ".join(parts)


def _fails(judged: Sequence[Judged]) -> str | None:
    """Where the law is contradicted, inside the regime or beyond."""
    against = [one for one in judged if one.verdict == REFUTED]
    if not against:
        return None
    return "; ".join(dict.fromkeys(f"{one.row.quantity} at {words(one.row.point)}" for one in against[:6])) + (
        f"; and {len(against) - 6} more" if len(against) > 6 else ""
    )


def _reason(verdict: str, worst: Judged | None) -> str:
    if worst is None:
        return "nothing was measured that the law speaks of"
    row, e = worst.row, worst.expected
    assert e is not None
    if row.measured is None or not math.isfinite(row.measured):
        return f"{row.quantity} was not reached at {words(row.point)}"
    found = f"{row.quantity} = {row.measured:.8g} +- {row.error:.1g} at {words(row.point)}"
    allowed = f"allowed are {e.low:.8g} .. {e.high:.8g}"
    lead = {SUPPORTED: "all agree; nearest to its bounds", REFUTED: "contradicted", UNDECIDED: "the error decides"}
    return f"{lead[verdict]}: {found}; {allowed}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def _figure(claim: Claim, judged: Sequence[Judged], wrong: Sequence[Judged]) -> dict[str, Any] | None:
    """Measured points with their errors, and the lines of the law and of the control."""
    plot = claim.plot
    if plot is None:
        return _within_bounds(claim, judged)
    mine = [
        (one, other)
        for one, other in zip(judged, wrong, strict=True)
        if one.row.quantity == plot.quantity and plot.x in one.row.point
    ]
    if len(mine) < 2:
        return _within_bounds(claim, judged)
    series = []
    groups = list(dict.fromkeys(one.row.point.get(plot.by) if plot.by else None for one, _ in mine))
    for group in groups:
        some = [pair for pair in mine if not plot.by or pair[0].row.point.get(plot.by) == group]
        some.sort(key=lambda pair: pair[0].row.point[plot.x])
        name = f", {plot.by} = {_short(group)}" if plot.by and len(groups) > 1 else ""
        x = [one.row.point[plot.x] for one, _ in some]
        series.append(
            {
                "label": f"measured{name}",
                "kind": "measured",
                "x": x,
                "y": [one.row.measured for one, _ in some],
                "error": [one.row.error for one, _ in some],
            }
        )
        for label, kind, entries in (
            (f"theory{name}", "theory", [one.expected for one, _ in some]),
            (f"control{name}", "control", [other.expected for _, other in some]),
        ):
            y = [None if e is None else e.value for e in entries]
            if any(value is not None for value in y):
                series.append({"label": label, "kind": kind, "x": x, "y": y, "error": None})
    return {
        "title": claim.title,
        "xlabel": plot.x,
        "ylabel": plot.ylabel,
        "xscale": plot.xscale,
        "yscale": plot.yscale,
        "series": series,
        "bands": [],
    }


def _within_bounds(claim: Claim, judged: Sequence[Judged]) -> dict[str, Any] | None:
    """Every row on one scale: where its number lies between what the law allows, -1 and 1."""
    places: list[tuple[int, float, float]] = []
    for number, one in enumerate(judged, start=1):
        e, m = one.expected, one.row.measured
        if e is None or m is None or not (math.isfinite(m) and e.low < e.high < math.inf and e.low > -math.inf):
            continue
        half = 0.5 * (e.high - e.low)
        places.append((number, (m - 0.5 * (e.low + e.high)) / half, one.row.error / half))
    if not places:
        return None
    x, y, error = (list(column) for column in zip(*places, strict=True))
    return {
        "title": claim.title,
        "xlabel": "row of the table",
        "ylabel": "measured, from -1 to 1 as allowed",
        "xscale": "linear",
        "yscale": "linear",
        "series": [{"label": "measured", "kind": "measured", "x": x, "y": y, "error": error}],
        "bands": [{"label": "allowed", "low": -1.0, "high": 1.0}],
    }
