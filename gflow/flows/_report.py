"""What the host tells of one block: its milestones, as found or as missed, and a line of progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gflow.conditions import Condition
from gflow.flows._compiled import Summary
from gflow.flows._status import Milestone, Status

_WHY = {
    Status.reached_t1: "the run ended",
    Status.milestones_reached: "the run ended",
    Status.converged: "the flow came to rest in a minimum",
}


def block_milestones(
    conditions: Mapping[str, Condition],
    summary: Summary,
    watched: tuple[np.ndarray, np.ndarray, np.ndarray],
    t0: float,
    t1: float | None,
    ended: Status,
) -> dict[str, Milestone]:
    """The milestones of a block that ended so; `watched` are their levels, gaps and signs, each [M]."""
    out = {}
    levels, gaps, signs = watched
    for i, (name, condition) in enumerate(conditions.items()):
        level = float(levels[i])
        text = f"{condition.word} {level:.6g}"
        if bool(summary.reached[i]):
            time = float(summary.times[i])
            reason = "already true at the start" if time == t0 else "found on the solution"
            out[name] = Milestone(time, float(summary.errors[i]), "tolerance", "reached", reason, level, text)
            continue
        kind = "not_reached_by_t1" if t1 is not None and ended is Status.reached_t1 else "solver_stopped"
        value = level + float(gaps[i] * signs[i])
        why = f"{_WHY.get(ended, ended.value)} at t = {float(summary.t):.6g}"
        out[name] = Milestone(None, None, "", kind, f"{why} with the value {value:.6g}, level {level:.6g}", level, text)
    return out


def cut(found: dict[str, Milestone], end: float, until: str) -> dict[str, Milestone]:
    """The milestones of a run that ended at `end`, where `until` was met: nothing later was reached."""
    out = {}
    for name, milestone in found.items():
        out[name] = milestone
        if milestone.time is not None and milestone.time > end:
            reason = f"the run ended at t = {end:.6g}, with {until}"
            out[name] = Milestone(None, None, "", "solver_stopped", reason, milestone.level, milestone.condition)
    return out


def progress_line(name: str, conditions: Mapping[str, Condition], summary: Summary) -> dict[str, Any]:
    """Where a block stands, for whoever shows progress."""
    found = [n for n, hit in zip(conditions, summary.reached, strict=True) if hit]
    return {
        "block": name,
        "t": float(summary.t),
        "loss": float(summary.loss),
        "steps": int(summary.accepted) + int(summary.rejected),
        "found": found,
        "wanted": len(conditions),
    }
