"""What a caller asks of one integration: checked first, then run under somebody's Ctrl-C."""

from __future__ import annotations

import dataclasses
import difflib
import time
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.errors import InputError
from gflow.flows._flow import AbstractFlow, GradientFlow
from gflow.flows._initial import as_arrays, check_finite, precision
from gflow.flows._interrupt import Interrupt
from gflow.flows._method import resolve_rtol
from gflow.flows._run import FlowRun, Policy, Progress
from gflow.flows._trajectory import LogSpaced, Trajectory

ERROR_CHECK = 32.0  # the second solve that measures the error uses a tolerance this much looser


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `solve`, but for the parameters to start from."""

    flow: Any  # an AbstractFlow, or a loss
    milestones: dict[str, Any]  # Conditions, which `check` makes sure of
    t0: float = 0.0
    t1: float | None = None
    until: str | None = None
    solver: str | diffrax.AbstractSolver = "auto"
    rtol: float | None = None
    atol: Any = None
    max_steps: int = 1_000_000
    save: Any = None
    tail: float = 0.0
    estimate_error: bool = False

    def check(self) -> None:
        """Refuse what cannot be used, as far as that can be told without the parameters."""
        t0, t1, tail = self.t0, self.t1, self.tail
        if not np.isfinite(t0):
            raise InputError(f"t0={t0} must be a finite number")
        if t1 is not None and not (np.isfinite(t1) and t1 >= t0):
            raise InputError(f"t1={t1} must be finite and not before t0={t0}; leave it out to run to the milestones")
        if self.max_steps < 1:
            raise InputError(f"max_steps={self.max_steps} must be at least 1")
        if not (np.isfinite(tail) and tail >= 0):
            raise InputError(f"tail={tail} must be zero or positive")
        for name, condition in self.milestones.items():
            if not isinstance(condition, Condition):
                kind = type(condition).__name__
                raise InputError(f"milestone {name!r}: expected Below, Above or Crosses, got {kind}")
        if self.until is not None and self.until not in self.milestones:
            near = difflib.get_close_matches(str(self.until), self.milestones, 1)
            known = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.milestones) or 'none'}"
            raise InputError(f"until={self.until!r} is no milestone of this run; {known}")
        if self.until is not None and tail > 0:
            raise InputError(f"tail={tail:g} with until={self.until!r}: the run ends exactly there; leave tail out")
        for a in jax.tree.leaves(self.atol):
            if not (np.all(np.isfinite(a)) and np.all(np.asarray(a) > 0)):
                raise InputError(f"atol={a}: an absolute tolerance must be a positive finite number")

    def run(self, params: PyTree, interrupt: Interrupt, progress: Progress | None) -> Trajectory:
        """Integrate from `params`; the caller has called `check`."""
        flow = self.flow if isinstance(self.flow, AbstractFlow) else GradientFlow(self.flow)
        params = as_arrays(params)
        dtype = precision(params)
        check_finite(params)
        # what counts as nothing left to fall: well above rounding, far below anything a figure shows
        settle = float(jnp.finfo(dtype).eps) ** 0.65
        absolute = None if self.atol is None else jax.tree.map(np.asarray, self.atol)
        tolerance = resolve_rtol(self.rtol, dtype)
        policy = Policy(
            self.solver, tolerance, absolute, float(self.t0), self.t1, self.tail, self.max_steps, settle, self.until
        )
        started = time.perf_counter()
        trajectory = FlowRun(flow, params, self.milestones, policy, progress).run(interrupt)
        if self.estimate_error and self.milestones and trajectory.status.ok:
            loose = dataclasses.replace(policy, rtol=min(policy.rtol * ERROR_CHECK, 0.1), tail=0.0)
            _attach_errors(trajectory, FlowRun(flow, params, self.milestones, loose, None).run(interrupt))
        if self.save is not None:
            trajectory.select(_save_times(self.save, trajectory))
        trajectory.seconds["solve"] = time.perf_counter() - started
        return trajectory


def _attach_errors(fine: Trajectory, loose: Trajectory) -> None:
    """Each milestone's error: its distance to the same milestone of a looser solve, never less than the tolerance's."""
    for name, milestone in fine.milestones.items():
        other = loose.milestones[name]
        if milestone.time is not None and other.time is not None:
            error = max(abs(milestone.time - other.time), milestone.error or 0.0)
            fine.milestones[name] = dataclasses.replace(milestone, error=error, error_kind="reintegration")


def _save_times(save: Any, trajectory: Trajectory) -> np.ndarray:
    if isinstance(save, LogSpaced):
        return save.times(trajectory)
    ts = np.asarray(save, dtype=float)
    if ts.ndim != 1 or not np.all(np.isfinite(ts)) or np.any(np.diff(ts) < 0):
        raise InputError("save: expected an increasing one-dimensional array of finite times, or LogSpaced(n)")
    if len(ts) and ts[0] < trajectory.t0:
        raise InputError(f"save: the time {ts[0]:g} lies before t0 = {trajectory.t0:g}")
    return ts[ts <= trajectory.t1_reached]
