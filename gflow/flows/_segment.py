"""The pure core: `segment(problem, watch, method, state, budget) -> state`, jittable, vmappable, of fixed memory."""

from __future__ import annotations

import dataclasses
import enum

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from gflow.flows._problem import FlatProblem, field
from gflow.flows._watch import Found, Watch, examine, first_found, look_ahead

TERM = diffrax.ODETerm(field)


class Halt(enum.IntEnum):
    """Why the core stopped stepping (RUNNING: only the step budget ended)."""

    RUNNING = 0
    END = 1  # reached s_end
    FOUND = 2  # every milestone of this block found, and the method asks to stop there
    QUIET = 3  # the loss has stopped changing: a minimum or a saddle, the driver tells which
    STAGNATED = 4  # time no longer advances at this precision
    NON_FINITE = 5  # no finite step exists from here
    DOMAIN = 6  # the loss's table must grow


class Method(eqx.Module):
    """How to step: solver, step size controller, tolerances, and when to stop. Numbers are data, not constants."""

    solver: diffrax.AbstractSolver
    controller: diffrax.PIDController
    s_end: Float[Array, ""]
    quiet: Float[Array, ""]  # stop when the loss would fall by less than this fraction of its fall so far; 0: never
    stop_at: Bool[Array, " M"]  # stop when all of these milestones are found; none marked: never


class Log(eqx.Module):
    """The accepted steps of one segment: their ends [N] and the solver's dense output, `count` of them valid."""

    s0: Float[Array, " N"]
    s1: Float[Array, " N"]
    dense: PyTree
    count: Int[Array, ""]


class State(eqx.Module):
    """Everything carried from step to step."""

    s: Float[Array, ""]
    z: Float[Array, " m"]
    s_next: Float[Array, ""]
    solver_state: PyTree
    controller_state: PyTree
    found: Found
    loss_first: Float[Array, ""]
    loss: Float[Array, ""]
    loss_rise: Float[Array, ""]  # largest increase of the loss over one step
    armed: Bool[Array, ""]  # whether a quiet step may halt (disarmed by the driver on a saddle, re-armed off it)
    halt: Int[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    log: Log | None


def begin(
    problem: FlatProblem, watch: Watch, method: Method, s0: Float[Array, ""], z0: Float[Array, " m"], capacity: int = 0
) -> State:
    """The state before the first step; with `capacity` > 0 each segment logs up to that many accepted steps."""
    loss = problem.loss_at(z0)
    found = first_found(watch, problem, s0, z0)
    state = State(
        s=s0,
        z=z0,
        s_next=s0,
        solver_state=None,
        controller_state=None,
        found=found,
        loss_first=loss,
        loss=loss,
        loss_rise=jnp.zeros_like(loss),
        armed=jnp.asarray(True),
        halt=jnp.asarray(int(Halt.RUNNING)),
        accepted=jnp.asarray(0),
        rejected=jnp.asarray(0),
        log=None,
    )
    return restart(problem, method, state, capacity)


def restart(problem: FlatProblem, method: Method, state: State, capacity: int) -> State:
    """Choose the first step afresh, with an empty log: at the start, after a change of solver, end or table."""
    solver, controller = method.solver, method.controller
    s_end = jnp.maximum(method.s_end, state.s)
    s_next, controller_state = controller.init(
        TERM, state.s, s_end, state.z, None, problem, solver.func, solver.error_order(TERM)
    )
    # a stationary or non-finite start makes the first-step heuristic return inf or nan
    h = s_next - state.s
    h = jnp.where(jnp.isfinite(h) & (h > 0), h, jnp.asarray(1e-3, h.dtype))
    # h must move s, or the first step is over before it begins
    s_next = jnp.minimum(state.s + h, s_end)
    solver_state = solver.init(TERM, state.s, s_next, state.z, problem)
    halt = jnp.where(state.s >= s_end, int(Halt.END), int(Halt.RUNNING))
    found_all = _all_found(method, state.found, state.s)
    new = (jnp.asarray(s_next, state.s.dtype), solver_state, jax.tree.map(jnp.asarray, controller_state))
    log = None
    if capacity:
        z = state.z
        step = lambda: solver.step(TERM, state.s, s_next, z, problem, solver_state, made_jump=False)[2]  # noqa: E731
        dense = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), eqx.filter_eval_shape(step))
        times = jnp.zeros(capacity, z.dtype)
        log = Log(times, times, dense, jnp.asarray(0))
    return dataclasses.replace(
        state,
        s_next=new[0],
        solver_state=new[1],
        controller_state=new[2],
        halt=jnp.where(found_all, int(Halt.FOUND), halt),
        log=log,
    )


def segment(problem: FlatProblem, watch: Watch, method: Method, state: State, budget: Int[Array, ""]) -> State:
    """Advance by at most `budget` steps (accepted or rejected), or until something halts the flow."""
    limit = state.accepted + state.rejected + budget
    if state.log is not None:
        state = eqx.tree_at(lambda st: st.log.count, state, jnp.asarray(0))

    def going(state: State) -> Bool[Array, ""]:
        return (state.halt == int(Halt.RUNNING)) & (state.accepted + state.rejected < limit)

    return jax.lax.while_loop(going, lambda st: _step(problem, watch, method, st), state)


def _step(problem: FlatProblem, watch: Watch, method: Method, state: State) -> State:
    solver, controller = method.solver, method.controller
    s0, z0 = state.s, state.z
    planned = state.s_next
    target = jnp.minimum(method.s_end, state.found.land)
    # a remainder of under 1% of a step is not worth a step of its own
    s1 = jnp.where(planned >= target - 0.01 * (planned - s0), target, planned)
    z1, error, dense, solver_state, result = solver.step(TERM, s0, s1, z0, problem, state.solver_state, made_jump=False)
    assert error is not None  # an adaptive solver estimates it
    interpolation = solver.interpolation_cls(t0=s0, t1=s1, **dense)
    values = look_ahead(watch, problem, interpolation.evaluate, s0, s1, z1)
    loss1 = values[-1, 0]
    finite = jnp.all(jnp.isfinite(z1)) & jnp.isfinite(loss1) & jnp.all(jnp.isfinite(error))
    usable = finite & diffrax.is_okay(result)  # a Newton iteration that fails only shortens the step
    error = jnp.where(usable, error, jnp.inf)
    order: PyTree = solver.error_order(TERM)
    keep, _, s_next, _, controller_state, _ = controller.adapt_step_size(
        s0, s1, z0, z1, problem, error, order, state.controller_state
    )
    keep = jnp.asarray(keep) & usable

    scale = jnp.asarray(controller.atol + controller.rtol * jnp.abs(z1))
    landing = keep & (s1 >= state.found.land)
    found, keep = examine(watch, problem, state.found, interpolation.evaluate, values, s0, s1, z1, scale, keep)

    # next step: the controller's, but to the landing point when one was just set, and as before it afterwards
    land_set = found.land < jnp.inf
    landed = keep & landing & ~land_set
    s_next = jnp.where(landed, jnp.maximum(s_next, s1 + found.resume), s_next)
    s_next = jnp.where(land_set, jnp.where(landing, s1, jnp.maximum(s_next, s1)), s_next)
    pick = lambda new, old: jnp.where(keep, new, old)  # noqa: E731
    s, z, loss = pick(s1, s0), pick(z1, z0), pick(loss1, state.loss)

    quiet, loud = _quietness(problem, method, state, s0, s1, loss1)
    halt = jnp.where(keep & quiet & state.armed, int(Halt.QUIET), int(Halt.RUNNING))
    armed = state.armed | (keep & loud)
    stuck = (s_next - s) <= 4 * jnp.finfo(s.dtype).eps * jnp.abs(s)
    halt = jnp.where(stuck, jnp.where(finite, int(Halt.STAGNATED), int(Halt.NON_FINITE)), halt)
    halt = jnp.where(keep & ~problem.inside(z1), int(Halt.DOMAIN), halt)
    halt = jnp.where(keep & (s1 >= method.s_end), int(Halt.END), halt)
    halt = jnp.where(_all_found(method, found, s), int(Halt.FOUND), halt)
    return State(
        s=s,
        z=z,
        s_next=s_next,
        solver_state=jax.tree.map(pick, solver_state, state.solver_state),
        controller_state=jax.tree.map(
            lambda new, old: jnp.where(land_set | landing, old, new), controller_state, state.controller_state
        ),
        found=found,
        loss_first=state.loss_first,
        loss=loss,
        loss_rise=pick(jnp.maximum(state.loss_rise, loss1 - state.loss), state.loss_rise),
        armed=armed,
        halt=halt,
        accepted=state.accepted + keep.astype(int),
        rejected=state.rejected + (~keep).astype(int),
        log=None if state.log is None else _write(state.log, s0, s1, dense, keep),
    )


def _all_found(method: Method, found: Found, s: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether every milestone that the method stops at is found, and covered by the path up to s.

    The last one may lie a hair beyond the step that landed on it.
    """
    wanted = method.stop_at
    covered = s >= jnp.max(jnp.where(wanted, found.s, -jnp.inf), initial=-jnp.inf)
    return jnp.any(wanted) & jnp.all(found.reached | ~wanted) & covered


def _quietness(
    problem: FlatProblem, method: Method, state: State, s0: Array, s1: Array, loss1: Array
) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether another doubling of the elapsed time would lower the loss by less than `quiet` of its fall so far.

    A flow that has only just begun to fall (the start of a plateau) is never quiet by this rule alone: its fall is
    compared with itself. A loss that is constant to the last digit counts as quiet too; the Hessian then decides.
    The second answer, "loud", is well beyond the first's threshold: what re-arms the test after a saddle.
    """
    t0, t1 = problem.time(s0), problem.time(s1)
    fall = jnp.abs(state.loss - loss1)
    still_to_fall = fall * (t1 - problem.t0) / jnp.maximum(t1 - t0, jnp.finfo(t1.dtype).tiny)
    threshold = method.quiet * (state.loss_first - loss1)
    noise = 2 * jnp.finfo(loss1.dtype).eps * jnp.abs(loss1)
    quiet = (still_to_fall <= threshold) | (fall <= noise)
    loud = (still_to_fall > 10 * threshold) & (fall > 50 * noise)
    return quiet & (method.quiet > 0), loud


def _write(log: Log, s0: Array, s1: Array, dense: PyTree, keep: Bool[Array, ""]) -> Log:
    index = jnp.where(keep, log.count, log.s0.shape[0])  # out of range: dropped
    put = lambda buffer, value: buffer.at[index].set(value, mode="drop")  # noqa: E731
    return Log(
        put(log.s0, s0), put(log.s1, s1), jax.tree.map(put, log.dense, dense), log.count + keep.astype(log.count.dtype)
    )
