"""`solve`: integrate a gradient flow, find its milestones, say why it ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import diffrax

import jax.numpy as jnp
import numpy as np
import equinox as eqx
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.errors import InputError, SolveError
from gflow.flows._driver import BlockRun, total
from gflow.flows._flow import GradientFlow
from gflow.flows._initial import as_arrays, block_masks, check_finite, check_loss, flat_problem, make_blocks, precision
from gflow.flows._interrupt import Grace, Interrupt
from gflow.flows._joint import locate
from gflow.flows._method import resolve_rtol
from gflow.flows._stationary import classify
from gflow.flows._status import Milestone, StationaryPoint, Status
from gflow.flows._trajectory import LogSpaced, Trajectory

Progress = Callable[[dict[str, Any]], None]
ERROR_CHECK = 32.0  # the second solve that measures the error uses a tolerance this much looser
GRACE = 0.5  # seconds in which the other blocks may catch up after an interruption
_ORDER = (Status.interrupted, Status.non_finite, Status.stagnated, Status.max_steps)


@dataclasses.dataclass(frozen=True)
class _Policy:
    solver: str | diffrax.AbstractSolver
    rtol: float
    atol: Any
    t0: float
    t1: float | None
    tail: float
    max_steps: int
    settle: float


def solve(
    flow: GradientFlow | Callable[[Any], Any],
    params: PyTree,
    *,
    milestones: Mapping[str, Any] | None = None,
    t0: float = 0.0,
    t1: float | None = None,
    solver: str | diffrax.AbstractSolver = "auto",
    rtol: float | None = None,
    atol: Any = None,
    max_steps: int = 1_000_000,
    save: Any = None,
    tail: float = 0.0,
    estimate_error: bool = False,
    throw: bool = False,
    progress: Progress | None = None,
) -> Trajectory:
    """Integrate `d params/dt = -rates * grad loss(params)` from `params` at t0.

    Without `t1` the run ends when every milestone is found (then goes on for `tail` times that time), or when the flow
    is at rest in a minimum. With `t1` it ends exactly there. It always returns what it has, with a status that says
    why it ended; only `throw=True` raises.

    Arguments:
    - `flow`: a `GradientFlow`, or just a loss. `params`: any PyTree of float32 or float64 arrays; that precision is used.
    - `milestones`: name -> `Below`, `Above` or `Crosses`; each is found to the solver's accuracy.
    - `solver`: "auto" (explicit Dopri8, changing to Rodas5P where stability limits its steps), "tsit5", "dopri5",
      "dopri8", "rodas5p", "kvaerno3", "kvaerno5", "kencarp5", or a diffrax solver instance.
    - `rtol`: relative tolerance per step, 1e-9 in float64 and 1e-5 in float32 by default. `atol`: absolute tolerance,
      a number or a PyTree; by default rtol times the size of each leaf's initial value.
    - `max_steps`: steps tried per independent block of the loss.
    - `save`: None for every accepted step, an array of times, or `LogSpaced(n)`. `at(t)` gives any other time.
    - `estimate_error`: solve a second time with a looser tolerance; the difference is each milestone's error.
    - `progress`: called with a dict (block, t, loss, steps, found, wanted) now and then.

    Raises `InputError` for arguments that cannot be used, `SolveError` (with `.trajectory`) if `throw`.
    """
    flow = flow if isinstance(flow, GradientFlow) else GradientFlow(flow)
    params = as_arrays(params)
    conditions = dict(milestones or {})
    dtype = precision(params)
    check_finite(params)
    _check_times(t0, t1, max_steps, tail)
    for name, condition in conditions.items():
        if not isinstance(condition, Condition):
            raise InputError(f"milestone {name!r}: expected Below, Above or Crosses, got {type(condition).__name__}")
    tolerance = resolve_rtol(rtol, dtype)
    # what counts as nothing left to fall: well above rounding, far below anything a figure shows
    settle = float(jnp.finfo(dtype).eps) ** 0.65
    policy = _Policy(solver, tolerance, atol, float(t0), t1, tail, max_steps, settle)
    started = time.perf_counter()
    with Interrupt() as interrupt:
        trajectory = _solve(flow, params, conditions, policy, interrupt, progress)
        if estimate_error and conditions and trajectory.status.ok:
            loose = dataclasses.replace(policy, rtol=min(policy.rtol * ERROR_CHECK, 0.1), tail=0.0)
            _attach_errors(trajectory, _solve(flow, params, conditions, loose, interrupt, None))
    trajectory.select(_save_times(save, trajectory))
    trajectory.seconds["solve"] = time.perf_counter() - started
    if throw and not trajectory.status.ok:
        raise SolveError(trajectory.message, trajectory)
    return trajectory


def _check_times(t0: float, t1: float | None, max_steps: int, tail: float) -> None:
    if not np.isfinite(t0):
        raise InputError(f"t0={t0} must be a finite number")
    if t1 is not None and not (np.isfinite(t1) and t1 >= t0):
        raise InputError(f"t1={t1} must be finite and not before t0={t0}; leave it out to run to the milestones")
    if max_steps < 1:
        raise InputError(f"max_steps={max_steps} must be at least 1")
    if not (np.isfinite(tail) and tail >= 0):
        raise InputError(f"tail={tail} must be zero or positive")


def _solve(
    flow: GradientFlow,
    params: PyTree,
    conditions: dict[str, Condition],
    policy: _Policy,
    interrupt: Interrupt,
    progress: Progress | None,
) -> Trajectory:
    runs, joint = _make_runs(flow, params, conditions, policy)
    t1 = policy.t1
    status: dict[str, Status] = {}
    for run in runs:
        # without t1 a block with milestones of its own stops at the last of them; a cross-block one needs it all
        stop = t1 is None and bool(run.conditions) and not joint
        if t1 is None and not stop and conditions and not joint:
            continue
        status[run.name] = run.advance(t1, stop, policy.max_steps, interrupt, progress)
    # a run to t1 that came to rest early goes on without looking for rest, so that it ends exactly at t1
    end = t1 if t1 is not None else _common_end(runs, status, conditions, joint, policy)
    late = Grace(interrupt, GRACE)
    for run in runs:
        done = status.get(run.name)
        if end > run.time and done in (None, Status.converged, Status.milestones_reached):
            last = run.advance(end, False, policy.max_steps, late, progress, settle=False)
            # without t1, what ended the block first is why the run ended; going on only fills it up
            status[run.name] = last if t1 is not None or done is None or last in _ORDER else done
    reached = min((run.time for run in runs), default=policy.t0)
    reached = end if all(status[r.name] not in _ORDER for r in runs) else min(reached, end)
    found = _milestones(runs, conditions, joint, policy, status, params, reached)
    overall = _overall(status, found, policy, interrupt, conditions)
    for run in runs:
        for where in run.grown_at:
            flow = eqx.tree_at(lambda f: f.loss, flow, flow.loss.grow(where), is_leaf=callable)  # pyright: ignore
    return Trajectory(
        flow=flow,
        initial=params,
        blocks=[run.dense() for run in runs],
        milestones=found,
        status=overall,
        message=_message(overall, runs, reached, found),
        t0=policy.t0,
        t1_reached=reached,
        stationary={run.name: run.stationary for run in runs if run.stationary is not None},
        saddles={run.name: run.saddles for run in runs if run.saddles},
        stats={
            "accepted": total(runs, "accepted"),
            "rejected": total(runs, "rejected"),
            "loss_rise": max((float(r.state.loss_rise) for r in runs if r.state is not None), default=0.0),
            "rtol": policy.rtol,
            "solvers": {run.name: run.used_solvers() for run in runs},
            "dtype": runs[0].z0.dtype.name if runs else "",
        },
    )


def _make_runs(
    flow: GradientFlow, params: PyTree, conditions: dict[str, Condition], policy: _Policy
) -> tuple[list[BlockRun], dict[str, Condition]]:
    """One run per block that moves, each with the conditions it can see; the rest is looked for on the joint path."""
    blocks = make_blocks(flow)
    runs: list[BlockRun] = []
    for block, (moves, shown) in zip(blocks, block_masks(flow, blocks, params), strict=True):
        made = flat_problem(flow, block, params, moves, shown, policy.t0, policy.rtol, policy.atol)
        if made is None:
            continue
        problem, z0 = made
        check_loss(problem, z0, block.name)
        mine = {n: c for n, c in conditions.items() if len(blocks) == 1 or c.block == block.name}
        runs.append(BlockRun(block.name, problem, z0, mine, policy.solver, policy.rtol, policy.settle))
    seen = {name for run in runs for name in run.conditions}
    return runs, {n: c for n, c in conditions.items() if n not in seen}


def _common_end(
    runs: list[BlockRun],
    status: dict[str, Status],
    conditions: dict[str, Condition],
    joint: dict[str, Condition],
    policy: _Policy,
) -> float:
    """Without t1: the time up to which every block is shown."""
    times = [policy.t0]
    for run in runs:
        ended = status.get(run.name)
        if ended is Status.milestones_reached:
            times.append(run.last_milestone())
        elif ended is not None:
            times.append(run.time)
    end = max(times)
    if conditions and not joint and all(s is Status.milestones_reached for s in status.values()):
        end = end + policy.tail * (end - policy.t0)
    return end


def _milestones(
    runs: list[BlockRun],
    conditions: dict[str, Condition],
    joint: dict[str, Condition],
    policy: _Policy,
    status: dict[str, Status],
    params: PyTree,
    reached: float,
) -> dict[str, Milestone]:
    found: dict[str, Milestone] = {}
    for run in runs:
        found |= run.milestones(policy.t1, status[run.name])
    if joint:
        found |= locate([run.dense() for run in runs], joint, params, reached, policy.t1)
    return {name: found[name] for name in conditions}


def _overall(
    status: dict[str, Status],
    found: dict[str, Milestone],
    policy: _Policy,
    interrupt: Interrupt,
    conditions: dict[str, Condition],
) -> Status:
    if interrupt.asked:
        return Status.interrupted
    for bad in _ORDER:
        if bad in status.values():
            return bad
    if policy.t1 is not None:
        return Status.reached_t1
    if conditions and all(m.status == "reached" for m in found.values()):
        return Status.milestones_reached
    return Status.converged


def _message(status: Status, runs: list[BlockRun], reached: float, found: dict[str, Milestone]) -> str:
    notes = [run.note for run in runs if run.note]
    missing = [name for name, m in found.items() if m.status != "reached"]
    text = {
        Status.milestones_reached: "every milestone was found",
        Status.converged: "the flow is at rest in a minimum",
        Status.reached_t1: "t1 was reached",
        Status.max_steps: f"max_steps ran out at t = {reached:.6g}",
        Status.stagnated: "the flow stopped advancing",
        Status.non_finite: "the flow left the region where the loss is finite",
        Status.interrupted: f"interrupted at t = {reached:.6g}",
    }[status]
    parts = [text, *notes]
    if missing and status.ok:
        parts.append(f"never met: {', '.join(missing)}")
    if status.remedy:
        parts.append(f"what to do: {status.remedy}")
    return "; ".join(parts)


def _attach_errors(fine: Trajectory, loose: Trajectory) -> None:
    """Each milestone's error: its distance to the same milestone of a looser solve, never less than the tolerance's."""
    for name, milestone in fine.milestones.items():
        other = loose.milestones[name]
        if milestone.time is not None and other.time is not None:
            error = max(abs(milestone.time - other.time), milestone.error or 0.0)
            fine.milestones[name] = dataclasses.replace(milestone, error=error, error_kind="reintegration")


def stationary_point(flow: GradientFlow | Callable[[Any], Any], params: PyTree, t: float = 0.0) -> StationaryPoint:
    """Minimum, saddle or neither: eigenvalues of `R^{1/2} Hess R^{1/2}` at `params`, R the rates of the flow.

    For a saddle also the time at which a flow that is at `params` at time `t` leaves it, if its rate is constant while
    the displacement doubles ("degenerate saddle" otherwise).
    """
    flow = flow if isinstance(flow, GradientFlow) else GradientFlow(flow)
    params = as_arrays(params)
    eps = float(jnp.finfo(precision(params)).eps)
    check_finite(params)
    whole = make_blocks(dataclasses.replace(flow, loss=lambda p: flow.loss(p)))
    ((moves, shown),) = block_masks(flow, whole, params)
    made = flat_problem(flow, whole[0], params, moves, shown, t, 1e-9, None)
    assert made is not None  # the mask has at least one leaf
    problem, z0 = made
    check_loss(problem, z0, "stationary_point")
    loss = float(flow.loss(params))
    return classify(problem, z0, t, abs(loss), loss, eps**0.65)


def _save_times(save: Any, trajectory: Trajectory) -> np.ndarray | None:
    if save is None:
        return None
    if isinstance(save, LogSpaced):
        return save.times(trajectory)
    ts = np.asarray(save, dtype=float)
    if ts.ndim != 1 or not np.all(np.isfinite(ts)) or np.any(np.diff(ts) < 0):
        raise InputError("save: expected an increasing one-dimensional array of finite times, or LogSpaced(n)")
    if len(ts) and ts[0] < trajectory.t0:
        raise InputError(f"save: the time {ts[0]:g} lies before t0 = {trajectory.t0:g}")
    return ts[ts <= trajectory.t1_reached]


