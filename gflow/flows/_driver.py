"""The host side of one block: segments, growth of tables, change of solver, saddle or minimum, Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gflow.conditions import Condition
from gflow.flows._dense import DenseBlock, Leg
from gflow.flows._interrupt import Interrupt
from gflow.flows._method import is_explicit, make_method
from gflow.flows._problem import FlatProblem
from gflow.flows._segment import Halt, Log, Method, State, begin, restart, segment
from gflow.flows._stationary import classify, stiffness
from gflow.flows._status import Milestone, StationaryPoint, Status
from gflow.flows._watch import Watch, make_watch

CAPACITY = 256  # accepted steps logged per segment
FIRST_BUDGET = 128
IMPLICIT_LIMIT = 512  # parameters beyond which a dense Newton solve costs more than it saves
STABILITY_LIMITED = 2.5  # h * |eigenvalue| above which an explicit step is taken to be limited by stability


@eqx.filter_jit
def _start(
    problem: FlatProblem, watch: Watch, method: Method, s0: Any, z0: Any, budget: Any, capacity: int
) -> State:
    return segment(problem, watch, method, begin(problem, watch, method, s0, z0, capacity), budget)


_segment = eqx.filter_jit(segment)


@eqx.filter_jit
def _resume(problem: FlatProblem, watch: Watch, method: Method, state: State, capacity: int) -> State:
    """A fresh start at the present state (new solver, new end, grown table); what was found and counted is kept."""
    fresh = begin(problem, watch, method, state.s, state.z, capacity)
    kept = eqx.tree_at(
        lambda st: (st.found, st.loss_first, st.loss_rise, st.accepted, st.rejected, st.armed),
        fresh,
        (
            eqx.tree_at(lambda f: f.land, state.found, jnp.asarray(jnp.inf, state.s.dtype)),
            state.loss_first,
            state.loss_rise,
            state.accepted,
            state.rejected,
            state.armed,
        ),
    )
    return restart(problem, method, kept)


@eqx.filter_jit
def _values(watch: Watch, problem: FlatProblem, z: Any) -> Any:
    return watch.values(problem, z)


class BlockRun:
    """One block on its way: pure state on the device, the record of its path on the host."""

    def __init__(
        self,
        name: str,
        problem: FlatProblem,
        z0: jax.Array,
        conditions: dict[str, Condition],
        solver: str | diffrax.AbstractSolver,
        rtol: float,
        settle: float,
    ) -> None:
        self.name, self.problem, self.conditions = name, problem, conditions
        self.solver, self.rtol, self.settle = solver, rtol, settle
        self.auto = solver == "auto"
        self.z0 = z0
        self.watch = make_watch(problem, list(conditions.values()), z0)
        self.state: State | None = None
        self.method: Method | None = None
        self.stationary: StationaryPoint | None = None
        self.saddles: list[StationaryPoint] = []
        self.note = ""
        self.grown_at: list[Any] = []  # parameters at which the loss's table had to grow
        self._legs: list[Leg] = []
        self._logs: list[Log] = []
        self._looked_at = -np.inf

    def advance(
        self,
        t1: float | None,
        stop_when_found: bool,
        max_steps: int,
        interrupt: Interrupt,
        progress: Callable[[dict[str, Any]], None] | None,
        settle: bool = True,
    ) -> Status:
        """Integrate on: to t1 exactly, to the last milestone, or (`settle`) to rest, whichever comes first."""
        problem = self.problem
        dtype = self.z0.dtype
        s_end = jnp.asarray(jnp.inf, dtype)
        if t1 is not None:
            s_end = problem.solver_time(jnp.asarray(t1, dtype))
        quiet = self.settle if settle else 0.0
        solver = self.solver if self.method is None else self.method.solver
        self.method = make_method(solver, self.rtol, s_end, quiet, stop_when_found)
        budget, fresh = FIRST_BUDGET, True
        if self.state is not None:
            self._close_leg()
            self.state = _resume(self.problem, self.watch, self.method, self.state, CAPACITY)
        while True:
            started = time.perf_counter()
            allowed = max(min(budget, max_steps - self.steps), 0)
            if self.state is None:
                s0 = problem.solver_time(problem.t0)
                args = (s0, self.z0, jnp.asarray(allowed), CAPACITY)
                self.state = _start(self.problem, self.watch, self.method, *args)
            else:
                self.state = _segment(self.problem, self.watch, self.method, self.state, jnp.asarray(allowed))
            halt = Halt(int(self.state.halt))
            seconds = time.perf_counter() - started
            self._logs.append(self.state.log)  # pyright: ignore[reportArgumentType]
            if progress is not None:
                progress(self.report())
            ended = self._ended(halt)
            if ended is not None:
                return ended
            if interrupt.asked:
                return Status.interrupted
            if self.steps >= max_steps:
                return Status.max_steps
            # long enough to keep the device busy, short enough to hear Ctrl-C
            if seconds < 0.1:
                budget = min(2 * budget, CAPACITY)
            elif seconds > 0.5 and not fresh:
                budget = max(budget // 2, 1)
            fresh = False

    def _ended(self, halt: Halt) -> Status | None:
        """Act on why the core stopped; None means: go on."""
        assert self.state is not None and self.method is not None
        if halt == Halt.END:
            return Status.reached_t1
        if halt == Halt.FOUND:
            return Status.milestones_reached
        if halt == Halt.STAGNATED:
            self.note = f"at t = {self.time:.9g} a step no longer changes t at {self.z0.dtype.name} precision"
            return Status.stagnated
        if halt == Halt.NON_FINITE:
            self.note = f"no finite step exists from t = {self.time:.9g}"
            return Status.non_finite
        if halt == Halt.DOMAIN:
            self._grow()
            return None
        if halt == Halt.QUIET:
            return self._rest()
        # only the budget ended: a good moment for questions too dear for every step
        if self.time >= 2 * self._looked_at:
            self._set(armed=True)
        if self.auto and is_explicit(self.method.solver) and self._stability_limited():
            self._change_solver("rodas5p")
        return None

    def _rest(self) -> Status | None:
        state = self.state
        assert state is not None
        fallen = float(state.loss_first - state.loss)
        point = classify(self.problem, state.z, self.time, fallen, float(state.loss), self.settle)
        self.stationary = point
        self._looked_at = self.time
        if "saddle" in point.kind:
            self.saddles.append(point)
        if point.kind == "minimum":
            return Status.converged
        if point.kind == "saddle" and point.escape_time is None:
            self.note = f"at t = {self.time:.9g} the flow sits exactly on a saddle; start from a generic point"
            return Status.stagnated
        self._set(armed=False, halt=int(Halt.RUNNING))
        return None

    def _set(self, **values: Any) -> None:
        names = list(values)
        state = self.state
        assert state is not None
        new = [jnp.asarray(values[n], getattr(state, n).dtype) for n in names]
        self.state = eqx.tree_at(lambda st: [getattr(st, n) for n in names], state, new)

    def _stability_limited(self) -> bool:
        state = self.state
        assert state is not None
        if self.z0.size > IMPLICIT_LIMIT:
            return False
        h = float(state.s_next - state.s)
        return h * float(stiffness(self.problem, state.s, state.z)) > STABILITY_LIMITED

    def _change_solver(self, name: str) -> None:
        assert self.method is not None and self.state is not None
        self._close_leg()
        old = self.method
        method = make_method(name, self.rtol, old.s_end, float(old.quiet), bool(old.stop_when_found))
        self.method = method
        self.state = _resume(self.problem, self.watch, method, self.state, CAPACITY)

    def _grow(self) -> None:
        """Replace the loss, and every watched function with a table of its own, by one on a larger domain."""
        assert self.method is not None and self.state is not None
        params = self.problem.params(self.state.z)
        self.grown_at.append(params)
        grow: Callable[[Any], Any] = lambda f: f.grow(params) if hasattr(f, "grow") else f  # noqa: E731
        self._close_leg()
        self.problem = eqx.tree_at(lambda p: p.loss, self.problem, grow(self.problem.loss), is_leaf=callable)
        functions = tuple(grow(f) for f in self.watch.functions)
        self.watch = eqx.tree_at(lambda w: w.functions, self.watch, functions, is_leaf=lambda x: x is None)
        self.state = _resume(self.problem, self.watch, self.method, self.state, CAPACITY)

    def _close_leg(self) -> None:
        if self._logs:
            assert self.method is not None
            self._legs.append(Leg.collect(self._used, self._logs))
            self._logs = []

    def used_solvers(self) -> list[str]:
        """Names of the solvers used, in order."""
        return [type(leg.solver).__name__ for leg in self._legs]

    def milestones(self, t1: float | None, ended: Status) -> dict[str, Milestone]:
        """What is known of this block's milestones."""
        state = self.state
        assert state is not None
        problem, out = self.problem, {}
        times = np.asarray(problem.time(state.found.s))
        errors = np.asarray(state.found.error * problem.clock.rate(state.found.s))
        values = np.asarray(_values(self.watch, problem, state.z)) if self.conditions else np.zeros(0)
        for i, (name, condition) in enumerate(self.conditions.items()):
            level = float(self.watch.level[i])
            text = f"{condition.word} {level:.6g}"
            if bool(state.found.reached[i]):
                at_start = times[i] == float(problem.t0)
                reason = "already true at the start" if at_start else "found on the solution"
                out[name] = Milestone(
                    float(times[i]), float(errors[i]), "tolerance", "reached", reason, level, text
                )
                continue
            kind = "not_reached_by_t1" if t1 is not None and ended is Status.reached_t1 else "solver_stopped"
            value = float(values[self.watch.index[i]])
            why = {Status.reached_t1: "the run ended", Status.converged: "the flow came to rest in a minimum"}
            reason = f"{why.get(ended, ended.value)} at t = {self.time:.6g} with the value {value:.6g}, level {level:.6g}"
            out[name] = Milestone(None, None, "", kind, reason, level, text)
        return out

    @property
    def _used(self) -> diffrax.AbstractSolver:
        assert self.method is not None
        return self.method.solver

    def dense(self) -> DenseBlock:
        """The path so far."""
        self._close_leg()
        return DenseBlock(self.problem, np.asarray(self.z0), self._legs)

    def last_milestone(self) -> float:
        """Flow time of the latest milestone found."""
        assert self.state is not None
        return float(np.max(np.asarray(self.problem.time(self.state.found.s))))

    @property
    def time(self) -> float:
        """Flow time reached."""
        s = self.problem.solver_time(self.problem.t0) if self.state is None else self.state.s
        return float(self.problem.time(s))

    @property
    def steps(self) -> int:
        """Steps tried so far, accepted or rejected."""
        return 0 if self.state is None else int(self.state.accepted + self.state.rejected)

    def report(self) -> dict[str, Any]:
        """Where it stands, for a progress line."""
        state = self.state
        assert state is not None
        found = np.asarray(state.found.reached)
        names = [n for n, hit in zip(self.conditions, found, strict=True) if hit]
        return {
            "block": self.name,
            "t": self.time,
            "loss": float(state.loss),
            "steps": self.steps,
            "found": names,
            "wanted": len(self.conditions),
        }


def total(runs: Sequence[BlockRun], count: str) -> int:
    """Sum of a counter ("accepted", "rejected") over blocks."""
    return sum(int(getattr(run.state, count)) for run in runs if run.state is not None)
