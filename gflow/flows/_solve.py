"""`solve`: integrate a gradient flow, find its milestones, say why it ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.errors import InputError, SolveError
from gflow.flows._flow import GradientFlow
from gflow.flows._initial import as_arrays, block_masks, check_finite, flat_problem, make_blocks, precision
from gflow.flows._interrupt import Interrupt
from gflow.flows._method import resolve_rtol
from gflow.flows._run import FlowRun, Policy, Progress
from gflow.flows._stationary import classify
from gflow.flows._status import StationaryPoint
from gflow.flows._trajectory import LogSpaced, Trajectory

ERROR_CHECK = 32.0  # the second solve that measures the error uses a tolerance this much looser


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
    - `flow`: a `GradientFlow`, or just a loss. `params`: any PyTree of float32 or float64 arrays.
    - `milestones`: name -> `Below`, `Above` or `Crosses`; each is found to the solver's accuracy.
    - `solver`: "auto" (explicit Dopri8, changing to Rodas5P where stability limits its steps), "tsit5", "dopri5",
      "dopri8", "rodas5p", "kvaerno3", "kvaerno5", or a diffrax solver instance.
    - `rtol`: relative tolerance per step, 3e-9 in float64 and 1e-5 in float32 by default. `atol`: absolute tolerance,
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
    absolute = None if atol is None else _check_atol(atol)
    policy = Policy(solver, tolerance, absolute, float(t0), t1, tail, max_steps, settle)
    started = time.perf_counter()
    with Interrupt() as interrupt:
        trajectory = FlowRun(flow, params, conditions, policy, progress).run(interrupt)
        if estimate_error and conditions and trajectory.status.ok:
            loose = dataclasses.replace(policy, rtol=min(policy.rtol * ERROR_CHECK, 0.1), tail=0.0)
            _attach_errors(trajectory, FlowRun(flow, params, conditions, loose, None).run(interrupt))
    if save is not None:
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


def _check_atol(atol: Any) -> PyTree:
    for a in jax.tree.leaves(atol):
        if not (np.all(np.isfinite(a)) and np.all(np.asarray(a) > 0)):
            raise InputError(f"atol={a}: an absolute tolerance must be a positive finite number")
    return jax.tree.map(np.asarray, atol)


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
    problem, z0 = flat_problem(whole[0], params, moves, shown, flow.rate_tree(params), flow.chart, t, 1e-9, None)
    loss = float(flow.loss(params))
    return classify(problem, z0, t, abs(loss), loss, eps**0.65)


def _save_times(save: Any, trajectory: Trajectory) -> np.ndarray:
    if isinstance(save, LogSpaced):
        return save.times(trajectory)
    ts = np.asarray(save, dtype=float)
    if ts.ndim != 1 or not np.all(np.isfinite(ts)) or np.any(np.diff(ts) < 0):
        raise InputError("save: expected an increasing one-dimensional array of finite times, or LogSpaced(n)")
    if len(ts) and ts[0] < trajectory.t0:
        raise InputError(f"save: the time {ts[0]:g} lies before t0 = {trajectory.t0:g}")
    return ts[ts <= trajectory.t1_reached]
