"""How a run ended, and what to do next."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class Status(enum.Enum):
    """Why the integration ended. `.remedy` says what to do next."""

    milestones_reached = "milestones_reached"
    converged = "converged"
    reached_t1 = "reached_t1"
    max_steps = "max_steps"
    stagnated = "stagnated"
    non_finite = "non_finite"
    interrupted = "interrupted"

    @property
    def ok(self) -> bool:
        """True when the run did all that was asked of it."""
        return self in (Status.milestones_reached, Status.converged, Status.reached_t1)

    @property
    def remedy(self) -> str:
        """What to do next, one sentence; empty when nothing needs doing."""
        return _REMEDY.get(self, "")


_REMEDY = {
    Status.max_steps: "raise max_steps, loosen rtol, or use an implicit solver (solver='rodas5p')",
    Status.stagnated: "use float64 parameters, or rescale time (rates=..., a clock) so that t does not dwarf the step",
    Status.non_finite: "the loss or its gradient is not finite there: check the loss near the last state, "
    "or start closer to the region you mean",
    Status.interrupted: "run it again to finish; what was integrated so far is kept",
}


@dataclasses.dataclass(frozen=True)
class Milestone:
    """A named condition and when it was first met.

    - `time`: first crossing, None when never seen; `Trajectory.at(name)` gives the parameters then.
    - `error`: estimated absolute error of `time`; None when unknown. `error_kind` says where it comes from:
      "tolerance" (the solver's tolerance mapped to time), "reintegration" (difference to a looser solve) or "sampling"
      (standard error over the scrambles of a sampled loss).
    - `status`: "reached", "not_reached_by_t1" or "solver_stopped"; `reason`: one sentence.
    """

    time: float | None
    error: float | None
    error_kind: str
    status: str
    reason: str
    level: float
    condition: str = ""

    def __repr__(self) -> str:
        if self.time is None:
            return f"{self.status}: {self.reason}"
        error = "" if not self.error else f" +- {self.error:.1g}"
        return f"t = {self.time:.9g}{error}"


@dataclasses.dataclass(frozen=True)
class StationaryPoint:
    """What the Hessian says where the flow came to rest, or paused.

    - `kind`: "minimum", "saddle", "degenerate saddle" or "unresolved".
    - `time`; `eigenvalues`: of the Hessian in the metric of the rates, ascending, numpy [m] (extreme ones only when m
      is large); minus them are the rates of the linearised flow.
    - `escape_time`: predicted time at which a saddle is left, None unless the unstable rate is constant while the
      displacement doubles. `stuck`: the flow never leaves, the gradient along the unstable direction is exactly zero.
    """

    kind: str
    time: float
    eigenvalues: Any
    escape_time: float | None = None
    note: str = ""
    stuck: bool = False
