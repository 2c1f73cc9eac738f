"""The three compiled calls of a block: set it up, advance it, start afresh where it stands."""

from __future__ import annotations

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from gflow.flows._blocks import Block
from gflow.flows._charts import AbstractChart
from gflow.flows._initial import flat_problem
from gflow.flows._law import AbstractLaw
from gflow.flows._method import make_method
from gflow.flows._problem import FlatProblem
from gflow.flows._segment import Method, State, begin, restart, segment
from gflow.flows._stationary import spectral_radius
from gflow.flows._watch import Marks, Watch, make_watch


def definite(tree: PyTree) -> PyTree:
    """The same values without weak types: a weakly typed state would be one more kind of input to compile for."""
    return jax.tree.map(lambda x: x.astype(x.dtype) if eqx.is_array(x) else x, tree)


class Launch(eqx.Module):
    """All that starts a block, as one argument of one compiled call. Numbers are arrays: new ones compile nothing."""

    block: Block
    params: PyTree
    moves: PyTree
    shown: PyTree
    law: AbstractLaw
    rates: PyTree
    chart: AbstractChart | None
    t0: Any
    rtol: Any
    atol: Any
    marks: Marks
    solver: str | diffrax.AbstractSolver
    quiet: Any
    stop_at: Any


@eqx.filter_jit
def launch_block(
    launch: Launch, t1: Any, capacity: int
) -> tuple[FlatProblem, Watch, Method, State, jax.Array, jax.Array]:
    """Set up a block: all before its first step. Stepping is compiled apart, once, for first and later segments.

    Problem and watch come back without their functions; `with_functions` puts them in.
    """
    la = launch
    problem, z0 = flat_problem(
        la.block, la.params, la.moves, la.shown, la.law, la.rates, la.chart, la.t0, la.rtol, la.atol
    )
    watch = make_watch(problem, la.marks, z0)
    method = make_method(la.solver, la.rtol, problem.solver_time(t1), la.quiet, la.stop_at)
    state = begin(problem, watch, method, problem.solver_time(problem.t0), z0, capacity)
    velocity = problem.velocity(state.s, z0)
    # outputs of a compiled call are copies, and a loss may hold a large sample: the caller has it, and puts it back
    problem, watch = eqx.tree_at(lambda x: (x[0].loss, x[1].functions), (problem, watch), (None, None))
    return definite((problem, watch, method, state, z0, velocity))


def with_functions(launch: Launch, problem: FlatProblem, watch: Watch) -> tuple[FlatProblem, Watch]:
    """Problem and watch of `launch_block` with the loss and the watched functions of `launch`."""
    functions = definite((launch.block.loss, launch.marks.functions))
    there = lambda x: (x[0].loss, x[1].functions)  # noqa: E731
    return eqx.tree_at(there, (problem, watch), functions, is_leaf=lambda x: x is None)


class Summary(eqx.Module):
    """What the host wants to know after a segment, brought over in one piece."""

    halt: Any
    accepted: Any
    rejected: Any
    t: Any
    loss: Any
    fallen: Any
    loss_rise: Any
    reached: Any
    times: Any  # of the milestones, with their errors
    errors: Any
    stiffness: Any  # step size times the largest eigenvalue: beyond some bound, stability limits an explicit step
    remaining: Any  # steps of the present size still to go


def _summarise(problem: FlatProblem, method: Method, state: State) -> Summary:
    found = state.found
    h = state.s_next - state.s
    return Summary(
        halt=state.halt,
        accepted=state.accepted,
        rejected=state.rejected,
        t=problem.time(state.s),
        loss=state.loss,
        fallen=state.loss_first - state.loss,
        loss_rise=state.loss_rise,
        reached=found.reached,
        times=problem.time(found.s),
        errors=found.error * problem.clock.rate(found.s),
        stiffness=h * spectral_radius(problem, state.s, state.z),
        remaining=(method.s_end - state.s) / jnp.where(h > 0, h, 1.0),
    )


@eqx.filter_jit
def advance_block(
    problem: FlatProblem, watch: Watch, method: Method, state: State, budget: Any
) -> tuple[State, Summary]:
    """Step on by at most `budget` steps; the new state, and what the host wants to know of it."""
    state = definite(segment(problem, watch, method, state, budget))
    return state, _summarise(problem, method, state)


@eqx.filter_jit
def resume_block(problem: FlatProblem, watch: Watch, method: Method, state: State, capacity: int) -> State:
    """A fresh start at the present state (new solver, new end, grown table); what was found and counted is kept."""
    found = eqx.tree_at(lambda f: f.land, state.found, jnp.asarray(jnp.inf, state.s.dtype))
    # on a grown table the watched functions are the same up to its error; take them from the new one
    values = watch.values(problem, state.z)
    if watch.size:
        found = eqx.tree_at(lambda f: f.gap, found, watch.gap(values))
    state = dataclasses.replace(state, found=found, loss=values[0])
    return definite(restart(problem, method, state, capacity))
