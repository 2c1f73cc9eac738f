"""`solve_stages`: flows one after another, such as layer-wise training, each on its own clock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffrax
from jaxtyping import PyTree

from gflow.errors import InputError, SolveError
from gflow.flows._interrupt import Interrupt
from gflow.flows._request import Request
from gflow.flows._run import Progress
from gflow.flows._staged import StagedTrajectory
from gflow.flows._status import Status
from gflow.flows._trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a schedule: `d params/dt = -rates * grad loss` of its own flow, from t = 0 of its own clock.

    Arguments:
    - `name`: no two stages of a schedule share one.
    - `flow`: a flow, or a loss. What is trained, at which rates, on which loss, may differ from stage to stage.
    - `milestones`: name -> condition, watched in this stage; "of initial" means the start of this stage.
    - `until`: name of the milestone that ends the stage. `t1`: its duration. Both: whichever comes first. Neither: it
      ends like `solve` without them, when every milestone is met (and `tail` times that long after), or at rest.
    - `enter`: `params at the end of the stage before -> params of this one` (of the first: applied to the given
      parameters), where leaves may change, appear, or become None: `lambda p: dataclasses.replace(p, p11=None)`.
    - `save`: which times to keep, as in `solve`, on this stage's clock.
    """

    name: str
    flow: Any
    milestones: Mapping[str, Any] | None = None
    until: str | None = None
    t1: float | None = None
    enter: Callable[[Any], Any] | None = None
    tail: float = 0.0
    save: Any = None


def solve_stages(
    stages: Sequence[Any],  # of Stage
    params: PyTree,
    *,
    solver: str | diffrax.AbstractSolver = "auto",
    rtol: float | None = None,
    atol: Any = None,
    max_steps: int = 1_000_000,
    estimate_error: bool = False,
    throw: bool = False,
    progress: Progress | None = None,
) -> StagedTrajectory:
    """Integrate `d params/dt = -rates_k * grad loss_k(params)` for stage k = 1, 2, ..., each from where the last ended.

    Every stage is a `solve` of its own with its time starting at 0, so a second stage's times keep all their digits
    however long the first one lasted. The schedule goes on when a stage ends at its milestone, its `t1`, or in a
    minimum; it ends early, with what there is and a message that says so, when a stage fails, is interrupted (Ctrl-C
    as in `solve`), or comes to rest before the milestone it was to end at. Relatives of the flow start every stage
    afresh, with no momentum.

    Arguments: `stages`, `params` (of the first); the others as in `solve`, for every stage. `progress` also gets
    "stage". `max_steps`: per stage and block.

    Raises `InputError` for arguments that cannot be used, before anything runs where they can be told by then;
    `SolveError` (with `.trajectory`, the partial `StagedTrajectory`) if a later stage cannot start from what the
    earlier ones left, or, with `throw`, if the schedule did not finish.
    """
    requests = _requests(stages, solver, rtol, atol, max_steps, estimate_error)
    planned = tuple(stage.name for stage in stages)
    done: dict[str, Trajectory] = {}
    started = time.perf_counter()

    def result(finished: bool, message: str) -> StagedTrajectory:
        left = [name for name in planned if name not in done]
        message += f"; not begun: {', '.join(left)}" if left else ""
        return StagedTrajectory(done, planned, finished, message, {"solve": time.perf_counter() - started})

    finished, message = True, ""
    with Interrupt() as interrupt:
        for number, stage in enumerate(stages, 1):
            told = None if progress is None else _named(progress, stage.name)
            try:
                start = params if stage.enter is None else stage.enter(params)
                trajectory = requests[number - 1].run(start, interrupt, told)
            except Exception as error:
                if not done:
                    raise
                # hours of earlier stages must not be lost with this one
                text = f"stage {stage.name!r} could not start: {error}"
                raise SolveError(text, result(False, text)) from error
            done[stage.name] = trajectory
            if number < len(stages):
                params = trajectory.final  # completes the path, which may be interrupted in its turn
            finished = _went_well(stage, trajectory)
            message = f"stage {stage.name!r} ({number} of {len(stages)}): {trajectory.message}"
            if interrupt.asked and finished and number < len(stages):
                finished, message = False, f"{message}; interrupted before the next stage"
            if not finished:
                break
    out = result(finished, message)
    if throw and not finished:
        raise SolveError(out.message, out)
    return out


def _went_well(stage: Stage, trajectory: Trajectory) -> bool:
    """Whether the next stage may start."""
    rested = trajectory.status is Status.converged and stage.until is not None
    return trajectory.status.ok and not rested


def _named(progress: Progress, name: str) -> Progress:
    return lambda line: progress({"stage": name, **line})


def _requests(
    stages: Sequence[Any], solver: Any, rtol: Any, atol: Any, max_steps: int, estimate_error: bool
) -> list[Request]:
    """The stages' integrations, checked: a mistake in the last one must not show after days of the first."""
    if not stages:
        raise InputError("stages: the schedule is empty; give at least one Stage")
    requests = []
    for stage in stages:
        if not isinstance(stage, Stage):
            raise InputError(f"stages: expected Stage(name, flow, ...), got {type(stage).__name__}")
        if not stage.name or "/" in stage.name:
            raise InputError(f"stages: {stage.name!r} is no name for a stage; give a word without '/'")
        if sum(other.name == stage.name for other in stages) > 1:
            raise InputError(f"stages: the name {stage.name!r} is used twice; every stage needs its own")
        request = Request(
            flow=stage.flow,
            milestones=dict(stage.milestones or {}),
            t1=stage.t1,
            until=stage.until,
            solver=solver,
            rtol=rtol,
            atol=atol,
            max_steps=max_steps,
            save=stage.save,
            tail=stage.tail,
            estimate_error=estimate_error,
        )
        try:
            request.check()
        except InputError as error:
            raise InputError(f"stage {stage.name!r}: {error}") from error
        requests.append(request)
    return requests
