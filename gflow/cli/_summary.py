"""A finished run as one JSON object, and as a table to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

MEANING = {
    "T_I": "4-gram loss at 1% of its start",
    "T_o": "induction loss down to its plateau (+1%)",
    "T_II": "induction loss leaves the plateau (99%)",
    "T_III": "induction loss at 1% of the plateau",
    "T_II_of_initial": "induction loss at 99% of its start",
    "T_III_of_initial": "induction loss at 1% of its start",
    "T_p11": "p11 reaches the end of stage I",
    "T_v2": "v2 at 90% of its final value",
    "T_fourgram_half": "4-gram loss at half of that without output",
    "T_induction_half": "induction loss at half of that without output",
    "T_induction_half_of_initial": "induction loss at 50% of its start",
    "T_induction_tenth_of_initial": "induction loss at 10% of its start",
}

LABELS = {"not_reached_by_t1": "not by t1", "solver_stopped": "not reached"}  # of a milestone without a time


def params_dict(params: Any, index: int | None = None) -> dict[str, Any]:
    """Parameters by name; a p11 that is not there is infinite, which JSON spells "inf"."""
    if isinstance(params, dict):
        named = dict(params)
    else:
        named = {name: getattr(params, name) for name in vars(params)}
    out: dict[str, Any] = {"p11": "inf"} if "p11" in named and named["p11"] is None else {}
    for name, value in named.items():
        if value is not None:
            entry = value if index is None else value[index]
            infinite = getattr(entry, "ndim", 0) == 0 and not isinstance(entry, str) and math.isinf(float(entry))
            out[name] = "inf" if infinite else entry
    return out


def milestones_dict(traj: Any) -> dict[str, Any]:
    """Time by name, None for a level never crossed."""
    return {name: moment(found) for name, found in traj.milestones.items()}


def moment(found: Any) -> float | None:
    """Time of a milestone, in a schedule since its stage began."""
    return getattr(found, "local", found.time)


def details_dict(traj: Any) -> dict[str, Any]:
    """What is known about each milestone besides its time."""
    return {
        name: {"error": found.error, "status": found.status, "reason": found.reason, "level": found.level}
        for name, found in traj.milestones.items()
    }


def stationary_dict(traj: Any) -> dict[str, Any]:
    """The Hessian's verdict per block, where the flow last rested."""
    return {name: _point(point) for name, point in _last(traj).stationary.items()}


def saddles_dict(traj: Any) -> dict[str, Any]:
    """The saddles that the flow paused at and left, per block."""
    return {name: [_point(point) for point in points] for name, points in _last(traj).saddles.items()}


def _last(traj: Any) -> Any:
    """The trajectory itself, or that of the last stage of a schedule."""
    return list(traj.stages.values())[-1] if hasattr(traj, "stages") else traj


def _point(point: Any) -> dict[str, Any]:
    names = ("kind", "time", "eigenvalues", "escape_time", "note")
    return {name: getattr(point, name) for name in names}


def losses_dict(traj: Any) -> dict[str, dict[str, float]]:
    """First and last value of every part of the loss."""
    return {name: {"initial": float(v[0]), "final": float(v[-1])} for name, v in traj.losses.items()}


def milestone_table(traj: Any, predictions: dict[str, Any]) -> str:
    """Name, meaning, measured time with its error, predicted time, measured / predicted."""
    rows = [("milestone", "meaning", "measured", "+-", "predicted", "measured/predicted")]
    for name, found in traj.milestones.items():
        guess = predictions.get(name)
        guess = guess if isinstance(guess, int | float) and math.isfinite(guess) else None
        when = moment(found)
        ratio = when / guess if when is not None and guess else None
        meaning = MEANING.get(name) or found.condition or ""
        measured = LABELS[found.status] if when is None else f"{when:.7g}"
        error = "-" if not found.error else f"{found.error:.1g}"
        rows.append((name, meaning, measured, error, _number(guess, 5), _number(ratio, 4)))
    return table(rows, left=2)


def step_table(descent: Any) -> str:
    """Name, meaning, step and time of the milestones of a discrete-time run."""
    rows = [("milestone", "meaning", "step", "time")]
    for name, found in descent.milestones.items():
        meaning = MEANING.get(name) or found.condition
        step = "not reached" if found.step is None else f"{found.step:.7g}"
        rows.append((name, meaning, step, _number(found.time, 7)))
    return table(rows, left=2)


def table(rows: Sequence[Sequence[str]], left: int) -> str:
    """Aligned text; the first row is a heading, the first `left` columns are flush left, the rest flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def losses_text(losses: dict[str, dict[str, float]]) -> str:
    """One line per part of the loss: first value, plateau where there is one, last value."""
    rows: list[tuple[str, ...]] = [("loss", "start", "plateau", "end")]
    for name, values in losses.items():
        rows.append((name, *(_number(values.get(key), 6) for key in ("initial", "plateau", "final"))))
    if all(row[2] == "-" for row in rows[1:]):
        rows = [(row[0], row[1], row[3]) for row in rows]
    return table(rows, left=1)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
