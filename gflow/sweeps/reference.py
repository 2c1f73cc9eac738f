"""One lane through `gflow.solve`, as `gflow integrate` does it: any training, any loss. Slow, and what is right."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gflow.config import IntegrateConfig
from gflow.config.sweep import lane_config
from gflow.errors import GflowError
from gflow.io.compilation import compile_seconds
from gflow.losses.induction.near_plateau import growth_rate
from gflow.losses.induction.plan import make_loss, make_plan, make_problem, policy_of
from gflow.losses.induction.problem import plateau
from gflow.sweeps.columns import DONE, FAILED, NOT_REACHED
from gflow.sweeps.tasks import ChunkResult, ChunkTask


class LaneError(GflowError):
    """A lane did not finish; the message says why."""


def solve_lanes(task: ChunkTask) -> ChunkResult:
    """Every lane by itself; one that fails is named and costs no other."""
    rows: list[dict[str, Any]] = []
    failures: list[tuple[int, str]] = []
    seconds: dict[str, float] = dict.fromkeys(("tables", "compile", "solve"), 0.0)
    problems: dict[Any, Any] = {}
    for number in range(task.size):
        try:
            rows.append(_lane(lane_config(task.fixed, task.lane(number)), task, problems, seconds))
        except GflowError as error:
            failures.append((number, " ".join(str(error).split())))
            rows.append({"status": FAILED})
        except Exception as error:  # whatever happens in one lane must not cost the others
            failures.append((number, f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"))
            rows.append({"status": FAILED})
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        example = next(row[name] for row in rows if name in row)
        missing = np.full_like(example, np.nan) if isinstance(example, np.ndarray) else None
        columns[name] = np.array([row.get(name, missing) for row in rows], dtype=float)
    return ChunkResult(task.index, columns, failures, seconds, {"reference_lanes": task.size})


def _lane(config: IntegrateConfig, task: ChunkTask, problems: dict[Any, Any], seconds: dict[str, float]) -> Any:
    started = time.perf_counter()
    key = (config.L, config.alpha_star, config.w_star, config.tokens, config.d, config.parametrization)
    if key not in problems:  # of neighbouring lanes, which differ in where they start
        problems.clear()
        problems[key] = make_problem(config)
    problem = problems[key]
    plan = make_plan(config, problem, make_loss(problem, config))
    seconds["tables"] += time.perf_counter() - started
    started = time.perf_counter()
    with compile_seconds() as compiled:
        traj = plan.run(**policy_of(config))
        row = _row(traj, problem, config, task)
    wall = time.perf_counter() - started
    seconds["compile"] += min(compiled[0], wall)
    seconds["solve"] += max(wall - compiled[0], 0.0)
    return row


def _row(traj: Any, problem: Any, config: IntegrateConfig, task: ChunkTask) -> dict[str, Any]:
    """What is kept of a trajectory."""
    if not (traj.status.ok and getattr(traj, "finished", True)):
        raise LaneError(traj.message)
    losses = traj.losses
    last = list(traj.stages.values())[-1] if hasattr(traj, "stages") else traj
    exact = problem.population_loss().induction
    level = float(plateau(exact))
    rate = growth_rate(exact, config.parametrization)
    wanted = [name for name in traj.milestones if name in task.columns]
    times = {name: getattr(traj.milestones[name], "local", traj.milestones[name].time) for name in wanted}
    row: dict[str, Any] = {name: np.nan if when is None else when for name, when in times.items()}
    row |= {
        "growth_rate": np.nan if rate is None else rate,
        "plateau": level,
        "plateau_fraction": level / float(losses["induction"][0]),
        "t_end": traj.t1_reached,
        "table_error": float(np.max(exact.table.relative_error)) if config.evaluate == "exact" else np.nan,
        "status": DONE if all(when is not None for when in times.values()) else NOT_REACHED,
    }
    final = last.final
    for name in (*vars(final), "logit_scale"):
        value = getattr(final, name)
        row[f"{name}_final"] = np.inf if value is None else float(value)
    for part in ("fourgram", "induction"):
        row[f"loss_{part}_initial"] = float(losses[part][0])
        row[f"loss_{part}_final"] = float(losses[part][-1])
    row |= _steps(last)
    if task.options.curve_times is not None:
        row |= _curves(traj, task.options.curve_times)
    return {name: value for name, value in row.items() if name in task.columns}


def _steps(run: Any) -> dict[str, int]:
    """Steps per block; a run that does not split into blocks has one count."""
    counts = run.stats["steps"]
    induction = counts.get("induction") or {
        kind: sum(count[kind] for count in counts.values()) for kind in ("accepted", "rejected")
    }
    return {
        "steps": induction["accepted"],
        "rejected": induction["rejected"],
        "steps_fourgram": counts.get("fourgram", induction)["accepted"],
    }


def _curves(traj: Any, times: np.ndarray) -> dict[str, np.ndarray]:
    """Losses at these times; NaN after the end."""
    inside = times <= traj.t1_reached
    values = traj.losses_at(times[inside]) if inside.any() else {}
    out = {}
    for part in ("fourgram", "induction"):
        out[f"curve_{part}"] = np.full(len(times), np.nan)
        out[f"curve_{part}"][inside] = values.get(part, np.nan)
    return out
