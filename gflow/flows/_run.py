"""All blocks of a flow, run to their common end: which block runs when, what the milestones came to, why it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import diffrax
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.flows._driver import BlockRun, grow
from gflow.flows._flow import AbstractFlow
from gflow.flows._initial import block_masks, make_blocks
from gflow.flows._interrupt import Grace, Interrupt
from gflow.flows._joint import locate
from gflow.flows._report import cut
from gflow.flows._status import Milestone, Status
from gflow.flows._trajectory import Trajectory

Progress = Callable[[dict[str, Any]], None]
FAILED = (Status.interrupted, Status.non_finite, Status.stagnated, Status.max_steps)
GRACE = 1.0  # seconds in which the other blocks may catch up after an interruption


@dataclasses.dataclass(frozen=True)
class Policy:
    """How to run: the arguments of `solve`, checked and resolved."""

    solver: str | diffrax.AbstractSolver
    rtol: float
    atol: Any
    t0: float
    t1: float | None
    tail: float
    max_steps: int
    settle: float
    until: str | None = None


class FlowRun:
    """The blocks of one flow on their way."""

    def __init__(
        self,
        flow: AbstractFlow,
        params: PyTree,
        conditions: dict[str, Condition],
        policy: Policy,
        progress: Progress | None,
    ) -> None:
        self.flow, self.params, self.conditions = flow, params, conditions
        self.policy, self.progress = policy, progress
        self.status: dict[str, Status] = {}
        self.runs: list[BlockRun] = []
        blocks = make_blocks(flow)
        for block, (moves, shown) in zip(blocks, block_masks(flow, blocks, params), strict=True):
            mine = {n: c for n, c in conditions.items() if len(blocks) == 1 or c.block == block.name}
            run = BlockRun(flow, block, params, moves, shown, mine, policy)
            if run.moves_something:
                self.runs.append(run)
        seen = {name for run in self.runs for name in run.conditions}
        # what reads several blocks, or one that does not move, is looked for on the joint path
        self.joint = {n: c for n, c in conditions.items() if n not in seen}

    def run(self, interrupt: Interrupt) -> Trajectory:
        """Run every block as far as the answer needs it; the rest of the path is filled in when it is asked for."""
        t1, until = self.policy.t1, self.policy.until
        for run in self.runs:
            if until is not None and until not in self.joint and until not in run.conditions:
                continue  # the block that watches it decides how far the others go
            # without t1 a block stops at the last of its milestones; cross-block ones need the whole path
            stop: Collection[str] = run.conditions if t1 is None and not self.joint else ()
            if until is not None:
                stop = {until}
            if t1 is None and not stop and self.conditions and not self.joint:
                continue
            self.status[run.name] = run.advance(t1, stop, self.policy.max_steps, interrupt, self.progress)
        end = t1 if t1 is not None and not self._met() else self._common_end()
        later = t1 is None and until is None and not self.joint and bool(self.conditions) and not interrupt.asked
        if not later:
            end = self._catch_up(end, interrupt)
        found = self._milestones(end)
        if until is not None and (when := found[until].time) is not None:
            end = min(end, when)
            found = cut(found, end, until)
        status = self._overall(found, interrupt)
        trajectory = Trajectory(
            flow=self._grown_flow(),
            initial=self.params,
            blocks=None if later else [run.dense() for run in self.runs],
            milestones=found,
            status=status,
            message=self._message(status, end, found),
            t0=self.policy.t0,
            t1_reached=end,
        )
        self._describe(trajectory)
        if later:
            trajectory.pending = self._fill_in
        return trajectory

    def _catch_up(self, end: float, interrupt: Interrupt) -> float:
        """Bring every block to `end`; returns how far all of them got."""
        # an interrupted run gets a moment, so that the blocks end together where that is quick
        patient = Grace(interrupt, GRACE)
        for run in self.runs:
            done = self.status.get(run.name)
            if end <= run.time or done in FAILED:
                continue
            last = run.advance(end, (), self.policy.max_steps, patient, self.progress, settle=False)
            # without t1, what ended the block first is why the run ended; going on only fills it up
            self.status[run.name] = last if self.policy.t1 is not None or done is None or last in FAILED else done
        short = [run.time for run in self.runs if run.time < end and self.status[run.name] in FAILED]
        return min([end, *short])

    def _fill_in(self, trajectory: Trajectory) -> None:
        """Complete a trajectory whose milestones are known: the blocks that stopped early go on to its end."""
        with Interrupt() as interrupt:
            end = self._catch_up(trajectory.t1_reached, interrupt)
        trajectory.blocks = [run.dense() for run in self.runs]
        trajectory.flow = self._grown_flow()
        if end < trajectory.t1_reached:
            trajectory.t1_reached = end
            trajectory.status = self._overall(trajectory.milestones, interrupt)
            trajectory.message = self._message(trajectory.status, end, trajectory.milestones)
        self._describe(trajectory)

    def _describe(self, trajectory: Trajectory) -> None:
        runs = self.runs
        trajectory.stationary = {run.name: run.stationary for run in runs if run.stationary is not None}
        trajectory.saddles = {run.name: run.saddles for run in runs if run.saddles}
        trajectory.stats |= {
            "accepted": sum(run.count("accepted") for run in runs),
            "rejected": sum(run.count("rejected") for run in runs),
            "loss_rise": max((run.loss_rise for run in runs), default=0.0),
            "rtol": self.policy.rtol,
            "steps": {run.name: {kind: run.count(kind) for kind in ("accepted", "rejected")} for run in runs},
            "solvers": {run.name: run.used_solvers() for run in runs},
            "flow": {"type": type(self.flow).__name__, **self.flow.numbers()},
            "dtype": next((run.dtype.name for run in runs), ""),
        }

    def _grown_flow(self) -> AbstractFlow:
        flow = self.flow
        for run in self.runs:
            for where in run.grown_at:
                flow = dataclasses.replace(flow, loss=grow(flow.loss, where))
        return flow

    def _common_end(self) -> float:
        """Without t1: the time up to which every block is shown."""
        times = [self.policy.t0]
        for run in self.runs:
            ended = self.status.get(run.name)
            if ended is Status.milestones_reached:
                times.append(run.last_milestone())
            elif ended is not None:
                times.append(run.time)
        end = max(times)
        if self.conditions and not self.joint and all(s is Status.milestones_reached for s in self.status.values()):
            end = end + self.policy.tail * (end - self.policy.t0)
        return end

    def _met(self) -> bool:
        """Whether a block ended with the milestone or milestones it was to end at."""
        return Status.milestones_reached in self.status.values()

    def _milestones(self, end: float) -> dict[str, Milestone]:
        t1 = None if self._met() else self.policy.t1
        found: dict[str, Milestone] = {}
        for run in self.runs:
            if run.name in self.status:
                found |= run.milestones(t1, self.status[run.name])
        if self.joint:
            joint = self.joint
            for where in (w for run in self.runs for w in run.grown_at):
                joint = {n: dataclasses.replace(c, f=grow(c.f, where)) for n, c in joint.items()}
            found |= locate([run.dense() for run in self.runs], joint, self.params, end, t1, self.policy.t0)
        return {name: found[name] for name in self.conditions}

    def _overall(self, found: dict[str, Milestone], interrupt: Interrupt) -> Status:
        if interrupt.asked:
            return Status.interrupted
        for bad in FAILED:
            if bad in self.status.values():
                return bad
        until = self.policy.until
        if until is not None and found[until].status == "reached":
            return Status.milestones_reached
        if self.policy.t1 is not None:
            return Status.reached_t1
        if self.conditions and all(m.status == "reached" for m in found.values()):
            return Status.milestones_reached
        return Status.converged

    def _message(self, status: Status, end: float, found: dict[str, Milestone]) -> str:
        missing = [name for name, m in found.items() if m.status != "reached"]
        text = {
            Status.milestones_reached: f"{self.policy.until or 'every milestone'} was found",
            Status.converged: "the flow is at rest in a minimum",
            Status.reached_t1: "t1 was reached",
            Status.max_steps: f"max_steps ran out at t = {end:.6g}",
            Status.stagnated: "the flow stopped advancing",
            Status.non_finite: "the flow left the region where the loss is finite",
            Status.interrupted: f"interrupted at t = {end:.6g}",
        }[status]
        parts = [text, *(run.note for run in self.runs if run.note)]
        if missing and status.ok:
            parts.append(f"never met: {', '.join(missing)}")
        remedy = next((run.remedy for run in self.runs if run.remedy), status.remedy)
        if remedy and not status.ok:
            parts.append(f"what to do: {remedy}")
        return "; ".join(parts)
