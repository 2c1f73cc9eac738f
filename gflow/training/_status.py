"""How a descent ended, and what to do next."""

from __future__ import annotations

import dataclasses
import enum

from gflow.flows import Milestone


class Outcome(enum.Enum):
    """Why the descent ended. `.remedy` says what to do next."""

    milestones_reached = "milestones_reached"
    reached_steps = "reached_steps"
    max_steps = "max_steps"
    diverged = "diverged"
    non_finite = "non_finite"
    interrupted = "interrupted"

    @property
    def ok(self) -> bool:
        """True when the run did all that was asked of it."""
        return self in (Outcome.milestones_reached, Outcome.reached_steps)

    @property
    def remedy(self) -> str:
        """What to do next, one sentence; empty when nothing needs doing."""
        return _REMEDY.get(self, "")


_REMEDY = {
    Outcome.max_steps: "raise max_steps or lr, or give steps to end there",
    Outcome.diverged: "use a smaller lr",
    Outcome.non_finite: "use a smaller lr, or check the loss near the last state",
    Outcome.interrupted: "run it again to finish; what was done so far is kept",
}


@dataclasses.dataclass(frozen=True, repr=False)
class StepMilestone(Milestone):
    """A milestone of a descent: `step` (real) and `time`, the sum of the learning rates up to it.

    `first` is the first whole step at which the condition holds; between it and the step before, `step` is where the
    watched function, taken as linear there, passes the level. `error` (in time) is None: there are only whole steps.
    """

    step: float | None = None
    first: int | None = None

    def __repr__(self) -> str:
        if self.step is None:
            return f"{self.status}: {self.reason}"
        return f"step {self.step:.9g}, t = {self.time:.9g}"
