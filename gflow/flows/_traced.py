"""`integrate`: the pure core as one traceable function, for `jit`, `vmap` and forward-mode differentiation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from gflow.conditions import Condition
from gflow.errors import InputError
from gflow.flows._flow import AbstractFlow
from gflow.flows._initial import as_arrays, block_masks, flat_problem, make_blocks, precision
from gflow.flows._method import make_method, resolve_rtol
from gflow.flows._segment import Halt, begin, segment
from gflow.flows._watch import make_marks, make_watch


class Endpoint(eqx.Module):
    """Where a traced run ended.

    - `t`, `params`: the end; `ok`: False when a block ran out of steps, stagnated or met a non-finite loss.
    - `times`: milestone -> first crossing, valid where `reached[name]`; `steps`: steps tried, all blocks together.
    """

    t: Float[Array, ""]
    params: PyTree
    ok: Bool[Array, ""]
    times: dict[str, Float[Array, ""]]
    reached: dict[str, Bool[Array, ""]]
    steps: Int[Array, ""]


def integrate(
    flow: AbstractFlow,
    params: PyTree,
    *,
    t1: Any,
    milestones: Mapping[str, Condition] | None = None,
    t0: Any = 0.0,
    solver: str | diffrax.AbstractSolver = "dopri8",
    rtol: float | None = None,
    max_steps: int = 100_000,
    stop_when_found: bool = False,
) -> Endpoint:
    """The flow (`d params/dt = -rates * grad loss`, or a relative) from t0 to t1, without the host: for `jit`, `vmap`.

    Memory does not depend on `max_steps`. `stop_when_found` ends each block at its last milestone, so that under
    `vmap` no lane steps on after it is done (`t` is then t1 all the same, `params` the state where each block stopped).
    Forward-mode derivatives (`jax.jacfwd`, `jax.jvp`) of end state and milestone times are those of the flow.

    Raises `InputError` at trace time for a milestone that reads several independent blocks (use `solve` there).
    """
    params = as_arrays(params)
    conditions = dict(milestones or {})
    tolerance = resolve_rtol(rtol, precision(params))
    blocks = make_blocks(flow)
    known = {block.name for block in blocks}
    for name, condition in conditions.items():
        if len(blocks) > 1 and condition.block not in known:
            raise InputError(f"milestone {name!r} reads several blocks; integrate() watches one at a time, use solve()")
    rates = flow.rate_tree(params)
    moving, times, reached, ok, steps = [], {}, {}, jnp.asarray(True), jnp.asarray(0)
    for block, (moves, shown) in zip(blocks, block_masks(flow, blocks, params), strict=True):
        if not any(jax.tree.leaves(moves)):
            continue
        problem, z0 = flat_problem(block, params, moves, shown, flow.law(), rates, flow.chart, t0, tolerance, None)
        mine = {n: c for n, c in conditions.items() if len(blocks) == 1 or c.block == block.name}
        s_end = problem.solver_time(jnp.asarray(t1, z0.dtype))
        method = make_method(solver, tolerance, s_end, 0.0, np.full(len(mine), stop_when_found))
        watch = make_watch(problem, make_marks(list(mine.values()), block.loss), z0)
        state = begin(problem, watch, method, problem.solver_time(problem.t0), z0)
        state = segment(problem, watch, method, state, jnp.asarray(max_steps))
        moving.append(problem.moving(state.z))
        when = problem.time(state.found.s)
        times |= {name: when[i] for i, name in enumerate(mine)}
        reached |= {name: state.found.reached[i] for i, name in enumerate(mine)}
        ok = ok & ((state.halt == int(Halt.END)) | (state.halt == int(Halt.FOUND)))
        steps = steps + state.accepted + state.rejected
    end = jax.tree.map(lambda x: x, eqx.combine(*moving, params))
    return Endpoint(jnp.asarray(t1, precision(params)), end, ok, times, reached, steps)
