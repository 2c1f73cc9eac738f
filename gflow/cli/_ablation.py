"""What an ablation shows, from the milestones of its runs alone: ratios, the plateau's length, how times scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gflow.cli import _summary
from gflow.cli._summary import table

# leading order of T_III in one key, all else the same: L (1 + alpha*)^2 log(1/sigma_init) / w*^2 [MATH section 5]
SCALES: dict[str, tuple[str, Callable[[float], float]]] = {
    "alpha-star": ("(1 + alpha*)^2", lambda value: (1 + value) ** 2),
    "w-star": ("1 / w*^2", lambda value: value**-2),
    "L": ("L", lambda value: value),
    "sigma-init": ("log(1/sigma_init)", lambda value: -math.log(value)),
}
SEPARATE = 1.0  # the plateau lasts longer than the way to it

Times = dict[str, float | None]  # name of a milestone -> time, of one run


def times_of(run: Any) -> Times:
    """Times of a run's milestones; in a schedule, since the stage began."""
    return _summary.milestones_dict(run)


def names_of(runs: Sequence[Times | None]) -> list[str]:
    """Milestones that at least one run has."""
    return list(dict.fromkeys(name for times in runs if times for name in times))


def _all(runs: Sequence[Times | None], name: str) -> list[float | None]:
    return [None if times is None else times.get(name) for times in runs]


def _over(values: Sequence[float | None], others: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or not b else a / b for a, b in zip(values, others, strict=True)]


def ratios(runs: Sequence[Times | None]) -> dict[str, list[float | None]]:
    """Name -> each run's time divided by that of the first run; None where one of them is not known."""
    columns = {name: _all(runs, name) for name in names_of(runs)}
    return {name: _over(column, [column[0]] * len(column)) for name, column in columns.items()}


def plateau(runs: Sequence[Times | None], sigmas: Sequence[float]) -> dict[str, list[Any]]:
    """`length = T_II - T_o`; `per_log = length / log(1/sigma_init)`; `over_T_o`; `separated`: is it longer than T_o?"""
    start, end = _all(runs, "T_o"), _all(runs, "T_II")
    length = [None if a is None or b is None else b - a for a, b in zip(start, end, strict=True)]
    logs = [-math.log(sigma) if sigma < 1 else None for sigma in sigmas]
    over = _over(length, start)
    return {
        "length": length,
        "per_log": _over(length, logs),
        "over_T_o": over,
        "separated": [None if share is None else share > SEPARATE for share in over],
    }


def comparison_table(values: Sequence[str], runs: Sequence[Times | None], waits: dict[str, list[Any]]) -> str:
    """One row per milestone: the times, and their ratios to the first."""
    first = values[0]
    rows: list[tuple[str, ...]] = [("milestone", *values, *(f"{value}/{first}" for value in values[1:]))]
    known = ratios(runs)
    for name in names_of(runs):
        rows.append(_row(name, _all(runs, name), known[name]))
    for label, key in (("T_II - T_o", "length"), ("  / log(1/sigma)", "per_log"), ("  / T_o", "over_T_o")):
        column = waits[key]
        if any(entry is not None for entry in column):
            rows.append(_row(label, column, _over(column, [column[0]] * len(column))))
    return table(rows, left=1)


def _row(label: str, column: Sequence[float | None], ratio: Sequence[float | None]) -> tuple[str, ...]:
    cells = ["-" if entry is None else f"{entry:.6g}" for entry in column]
    return (label, *cells, *("-" if entry is None else f"{entry:.4g}" for entry in ratio[1:]))


def shows(
    key: str,
    values: Sequence[str],
    numbers: Sequence[float],
    runs: Sequence[Times | None],
    waits: dict[str, list[Any]],
) -> list[str]:
    """What the numbers say, a line each."""
    lines = _plateau_line(values, waits) + _scale_line(key, numbers, _all(runs, "T_III"))
    lines += _order_line(values, runs)
    if key == "training":
        lines.append("times of layerwise training count from the start of their stage")
    if key == "tokens":
        lines += _change_line(values, ratios(runs))
    return lines


def _plateau_line(values: Sequence[str], waits: dict[str, list[Any]]) -> list[str]:
    shares = {value: share for value, share in zip(values, waits["over_T_o"], strict=True) if share is not None}
    if not shares:
        return []
    longer = [value for value, share in shares.items() if share > SEPARATE]
    shorter = [value for value in shares if value not in longer]
    verdicts = [f"time scales separate: {', '.join(longer)}"] if longer else []
    verdicts += [f"no time-scale separation: {', '.join(shorter)}"] if shorter else []
    measured = ", ".join(f"{value} {share:.3g}" for value, share in shares.items())
    rule = f"above {SEPARATE:g} or not"
    return [f"plateau (T_II - T_o) / way to it (T_o): {measured}; {rule}: {'; '.join(verdicts)}"]


def _scale_line(key: str, numbers: Sequence[float], ends: list[float | None]) -> list[str]:
    if key not in SCALES or not ends or ends[0] is None:
        return []
    law, scale = SCALES[key]
    lines = []
    first = scale(numbers[0])
    measured = ", ".join("-" if ratio is None else f"{ratio:.4g}" for ratio in _over(ends, [ends[0]] * len(ends)))
    if first:
        expected = ", ".join(f"{scale(number) / first:.4g}" for number in numbers)
        lines.append(f"T_III goes as {measured}; to leading order theory has {law}: {expected}")
    return lines


def _order_line(values: Sequence[str], runs: Sequence[Times | None]) -> list[str]:
    """Which part of the loss is learned first."""
    texts = []
    for name, text in (("T_II", "the plateau is left (T_II)"), ("T_III", "the induction part is (T_III)")):
        starts, ends = _all(runs, "T_I"), _all(runs, name)
        known = [(v, a < b) for v, a, b in zip(values, starts, ends, strict=True) if a is not None and b is not None]
        if known:
            texts.append(f"before {text}: {', '.join(v for v, before in known if before) or 'none'}")
    return [f"4-gram part learned (T_I) {'; '.join(texts)}"] if texts else []


def _change_line(values: Sequence[str], known: dict[str, list[float | None]]) -> list[str]:
    lines = []
    for k, value in enumerate(values[1:], 1):
        pairs = [(name, column[k]) for name, column in known.items()]
        changes = {name: ratio - 1.0 for name, ratio in pairs if ratio is not None}
        if changes:
            most = max(changes, key=lambda name: abs(changes[name]))
            change = 100 * changes[most]
            lines.append(f"{value} against {values[0]}: no time changes by more than that of {most}, {change:+.3g}%")
    return lines
