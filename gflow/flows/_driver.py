"""The host side of one block: segments, growth of tables, change of solver, saddle or minimum, Ctrl-C."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.errors import InputError
from gflow.flows._blocks import Block
from gflow.flows._compiled import Launch, Summary, advance_block, launch_block, resume_block, with_functions
from gflow.flows._dense import DenseBlock, Leg
from gflow.flows._flow import AbstractFlow
from gflow.flows._initial import precision
from gflow.flows._interrupt import Interrupt
from gflow.flows._method import is_explicit, make_method, stability_limit
from gflow.flows._pace import Pace
from gflow.flows._problem import FlatProblem
from gflow.flows._report import block_milestones, progress_line
from gflow.flows._segment import Halt, Log, Method, State
from gflow.flows._stationary import classify
from gflow.flows._status import Milestone, StationaryPoint, Status
from gflow.flows._watch import Watch, make_marks

CAPACITY = 256  # accepted steps logged per segment
IMPLICIT_LIMIT = 512  # parameters beyond which a dense Newton solve costs more than it saves
WORTH_A_SWITCH = 150  # steps still to go below which another solver would not repay its compilation


def grow(f: Any, params: PyTree) -> Any:
    """`f` on a table that holds `params`, if it has one."""
    return f.grow(params) if hasattr(f, "grow") else f


class BlockRun:
    """One block on its way: pure state on the device, the record of its path on the host."""

    # set by the first call of `advance`
    problem: FlatProblem
    watch: Watch
    method: Method
    state: State
    summary: Summary
    z0: jax.Array

    def __init__(
        self,
        flow: AbstractFlow,
        block: Block,
        params: PyTree,
        moves: PyTree,
        shown: PyTree,
        conditions: dict[str, Condition],
        policy: Any,
    ) -> None:
        self.name, self.conditions = block.name, conditions
        self.dtype = precision(params)
        self.auto, self.settle, self.rtol = policy.solver == "auto", policy.settle, policy.rtol
        self.t0 = float(policy.t0)
        # NumPy numbers go to the device with the call; making JAX arrays of them here would cost more than the call
        number = lambda x: np.asarray(x, self.dtype)  # noqa: E731
        rates = flow.rate_tree(params)
        self.moves_something = any(jax.tree.leaves(moves))
        self.grown_at: list[Any] = []  # parameters at which the loss's table had to grow
        domain = getattr(block.loss, "domain", None)
        if self.moves_something and domain is not None and not bool(domain(params)):
            self.grown_at.append(params)
            # what watches the block's own loss must go on doing so: that is told by identity
            larger = grow(block.loss, params)
            self.conditions = {
                n: dataclasses.replace(c, f=larger if c.f is block.loss else grow(c.f, params))
                for n, c in conditions.items()
            }
            block = dataclasses.replace(block, loss=larger)
        self._launch = Launch(
            block=block,
            params=params,
            moves=moves,
            shown=shown,
            law=flow.law(),
            rates=jax.tree.map(np.asarray, rates),
            chart=flow.chart,
            t0=number(self.t0),
            rtol=number(self.rtol),
            atol=policy.atol,
            marks=make_marks(list(self.conditions.values()), block.loss),
            solver=policy.solver,
            quiet=number(0.0),
            stop_at=np.zeros(len(self.conditions), bool),
        )
        self._pace = Pace(jax.tree.structure(self._launch))
        self.started = False
        self.stationary: StationaryPoint | None = None
        self.saddles: list[StationaryPoint] = []
        self.note = ""
        self.remedy = ""  # where the status's own would mislead
        self._legs: list[Leg] = []
        self._logs: list[Log] = []
        self._looked_at = -np.inf
        self._stop = np.zeros(len(self.conditions), bool)  # the milestones at the last of which it ends

    def advance(
        self,
        t1: float | None,
        stop: Collection[str],
        max_steps: int,
        interrupt: Interrupt,
        progress: Callable[[dict[str, Any]], None] | None,
        settle: bool = True,
    ) -> Status:
        """Integrate on: to t1, to the last of the milestones `stop`, or (`settle`) to rest, whichever comes first."""
        self._stop = np.array([name in stop for name in self.conditions], bool)
        quiet = self.settle if settle else 0.0
        end = np.asarray(np.inf if t1 is None else t1, self.dtype)
        if self.started:
            self._close_leg()
            s_end = self.problem.solver_time(jnp.asarray(end))
            solver = "rodas5p" if self._stability_limited(s_end) else self.method.solver
            self.method = make_method(solver, self.rtol, s_end, quiet, self._stop)
            self.state = resume_block(self.problem, self.watch, self.method, self.state, CAPACITY)
        else:
            self._begin(end, quiet)
        while True:
            started = time.perf_counter()
            # decisions fall at whole multiples of CAPACITY steps: how fast the machine is must not change the result
            budget = min(self._pace.budget(CAPACITY - self.steps % CAPACITY), max(max_steps - self.steps, 0))
            before, allowed = self.steps, np.asarray(budget)
            self.state, summary = advance_block(self.problem, self.watch, self.method, self.state, allowed)
            self.summary = jax.device_get(summary)
            self.started = True
            halt = Halt(int(self.summary.halt))
            self._pace.record(self.steps - before, time.perf_counter() - started)
            self._logs.append(self.state.log)  # pyright: ignore[reportArgumentType]
            if progress is not None:
                progress(progress_line(self.name, self.conditions, self.summary))
            ended = self._ended(halt)
            if ended is not None:
                return ended
            if interrupt.asked:
                return Status.interrupted
            if self.steps >= max_steps:
                return Status.max_steps

    def _begin(self, end: np.ndarray, quiet: float) -> None:
        numbers = {"quiet": np.asarray(quiet, self.dtype), "stop_at": self._stop}
        made = launch_block(dataclasses.replace(self._launch, **numbers), end, CAPACITY)
        problem, watch, self.method, self.state, self.z0, velocity = made
        self.problem, self.watch = with_functions(self._launch, problem, watch)
        loss, velocity = jax.device_get((self.state.loss, velocity))
        where = f"at the initial parameters ({self.name})"
        if not np.isfinite(loss):
            raise InputError(f"loss: its value {where} is {loss}, not a finite number")
        if not np.all(np.isfinite(velocity)):
            raise InputError(f"loss: its gradient {where} is not finite: {velocity}")

    def _ended(self, halt: Halt) -> Status | None:
        """Act on why the core stopped; None means: go on."""
        if halt == Halt.END:
            return Status.reached_t1
        if halt == Halt.FOUND:
            return Status.milestones_reached
        if halt == Halt.STAGNATED:
            name = self.z0.dtype.name
            self.note = f"at t = {self.time:.9g} a step no longer changes t at {name} precision"
            if self.time - self.t0 > 1e4 * float(np.finfo(name).eps) * abs(self.time):
                # t is small enough for its digits: it is the flow that has become infinitely fast
                self.note += f", after the loss fell to {float(self.summary.loss):.4g}: the flow seems to blow up there"
                self.remedy = "check that the loss is bounded below and smooth; end before that time with t1"
            return Status.stagnated
        if halt == Halt.NON_FINITE:
            self.note = f"no finite step exists from t = {self.time:.9g}"
            return Status.non_finite
        if halt == Halt.DOMAIN:
            self._grow()
            return None
        if halt == Halt.QUIET:
            return self._rest()
        # only the budget ended: now and then a good moment for questions too dear for every step
        if self.steps % CAPACITY:
            return None
        if self.time >= 2 * self._looked_at:
            self._set(armed=True)
        if self._stability_limited():
            self._change_solver("rodas5p")
        return None

    def _rest(self) -> Status | None:
        fallen, loss = float(self.summary.fallen), float(self.summary.loss)
        point = classify(self.problem, self.state.z, self.time, fallen, loss, self.settle)
        self.stationary = point
        self._looked_at = self.time
        if "saddle" in point.kind:
            self.saddles.append(point)
        if point.kind == "minimum":
            return Status.converged
        if point.stuck:
            self.note = f"at t = {self.time:.9g} the flow sits exactly on a saddle, where the gradient is zero"
            self.remedy = "start from a generic point"
            return Status.stagnated
        self._set(armed=False, halt=int(Halt.RUNNING))
        return None

    def _set(self, **values: Any) -> None:
        names = list(values)
        state = self.state
        new = [jnp.asarray(values[n], getattr(state, n).dtype) for n in names]
        self.state = eqx.tree_at(lambda st: [getattr(st, n) for n in names], state, new)

    def _stability_limited(self, s_end: jax.Array | None = None) -> bool:
        """Whether stability, not accuracy, sets an explicit solver's step, with many steps still to go."""
        solver = self.method.solver
        if not self.auto or not is_explicit(solver) or self.z0.size > IMPLICIT_LIMIT:
            return False
        remaining = float(self.summary.remaining)
        if s_end is not None:
            remaining = float((s_end - self.state.s) / (self.state.s_next - self.state.s))
        return remaining > WORTH_A_SWITCH and float(self.summary.stiffness) > stability_limit(solver)

    def _change_solver(self, name: str) -> None:
        self._close_leg()
        old = self.method
        self.method = make_method(name, self.rtol, old.s_end, float(old.quiet), self._stop)
        self.state = resume_block(self.problem, self.watch, self.method, self.state, CAPACITY)

    def _grow(self) -> None:
        """Replace the loss, and every watched function with a table of its own, by one on a larger domain."""
        params = self.problem.params(self.state.z)
        self.grown_at.append(params)
        self._close_leg()
        self.problem = dataclasses.replace(self.problem, loss=grow(self.problem.loss, params))
        self.watch = dataclasses.replace(self.watch, functions=tuple(grow(f, params) for f in self.watch.functions))
        self.state = resume_block(self.problem, self.watch, self.method, self.state, CAPACITY)

    def _close_leg(self) -> None:
        if self._logs:
            self._legs.append(Leg.collect(self.method.solver, self._logs))
            self._logs = []

    def used_solvers(self) -> list[str]:
        """Names of the solvers used, in order."""
        used = [leg.solver for leg in self._legs] + ([self.method.solver] if self._logs else [])
        names = [type(solver).__name__ for solver in used]
        return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]

    def milestones(self, t1: float | None, ended: Status) -> dict[str, Milestone]:
        """What is known of this block's milestones."""
        if not self.conditions:
            return {}
        watched = jax.device_get((self.watch.level, self.state.found.gap, self.watch.sign))
        return block_milestones(self.conditions, self.summary, watched, self.t0, t1, ended)

    def dense(self) -> DenseBlock:
        """The path so far."""
        if not self.started:  # interrupted before its first step
            self._begin(np.asarray(np.inf, self.dtype), 0.0)
        self._close_leg()
        return DenseBlock(self.problem, np.asarray(self.z0), self._legs)

    def last_milestone(self) -> float:
        """Flow time of the last of the milestones that ended the block."""
        return float(np.max(self.summary.times[self._stop]))

    @property
    def time(self) -> float:
        """Flow time reached."""
        return float(self.summary.t) if self.started else self.t0

    @property
    def steps(self) -> int:
        """Steps tried so far, accepted or rejected."""
        return self.count("accepted") + self.count("rejected")

    def count(self, what: str) -> int:
        """Steps "accepted" or "rejected" so far."""
        return int(getattr(self.summary, what)) if self.started else 0

    @property
    def loss_rise(self) -> float:
        """Largest increase of the loss over one step."""
        return float(self.summary.loss_rise) if self.started else 0.0
