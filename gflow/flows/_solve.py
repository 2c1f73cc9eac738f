"""`solve`: integrate a gradient flow, find its milestones, say why it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import diffrax
import jax.numpy as jnp
from jaxtyping import PyTree

from gflow.errors import SolveError
from gflow.flows._flow import AbstractFlow, GradientFlow
from gflow.flows._initial import as_arrays, block_masks, check_finite, flat_problem, make_blocks, precision
from gflow.flows._interrupt import Interrupt
from gflow.flows._request import Request
from gflow.flows._run import Progress
from gflow.flows._stationary import classify
from gflow.flows._status import StationaryPoint
from gflow.flows._trajectory import Trajectory


def solve(
    flow: AbstractFlow | Callable[[Any], Any],
    params: PyTree,
    *,
    milestones: Mapping[str, Any] | None = None,
    t0: float = 0.0,
    t1: float | None = None,
    until: str | None = None,
    solver: str | diffrax.AbstractSolver = "auto",
    rtol: float | None = None,
    atol: Any = None,
    max_steps: int = 1_000_000,
    save: Any = None,
    tail: float = 0.0,
    estimate_error: bool = False,
    throw: bool = False,
    progress: Progress | None = None,
) -> Trajectory:
    """Integrate `d params/dt = -rates * grad loss(params)`, or the equation of another flow, from `params` at t0.

    Without `t1` the run ends when every milestone is found (then goes on for `tail` times that time), or when the flow
    is at rest in a minimum. With `t1` it ends exactly there; with `until`, exactly at that milestone, whichever comes
    first. It always returns what it has, with a status that says why it ended; only `throw=True` raises.

    Arguments:
    - `flow`: a `GradientFlow`, a relative (`HeavyBallFlow`, `AdamFlow`, `SignFlow`), or just a loss.
    - `params`: any PyTree of float32 or float64 arrays.
    - `milestones`: name -> `Below`, `Above` or `Crosses`; each is found to the solver's accuracy.
    - `until`: name of the milestone that ends the run, though others are unmet.
    - `solver`: "auto" (explicit Dopri8, changing to Rodas5P where stability limits its steps), "tsit5", "dopri5",
      "dopri8", "rodas5p", "kvaerno3", "kvaerno5", or a diffrax solver instance.
    - `rtol`: relative tolerance per step, 3e-9 in float64 and 1e-5 in float32 by default. `atol`: absolute tolerance,
      a number or a PyTree; by default rtol times the size of each leaf's initial value.
    - `max_steps`: steps tried per independent block of the loss.
    - `save`: None for every accepted step, an array of times, or `LogSpaced(n)`. `at(t)` gives any other time.
    - `estimate_error`: solve a second time with a looser tolerance; the difference is each milestone's error.
    - `progress`: called with a dict (block, t, loss, steps, found, wanted) now and then.

    Raises `InputError` for arguments that cannot be used, `SolveError` (with `.trajectory`) if `throw`.
    """
    request = Request(
        flow, dict(milestones or {}), t0, t1, until, solver, rtol, atol, max_steps, save, tail, estimate_error
    )
    request.check()
    with Interrupt() as interrupt:
        trajectory = request.run(params, interrupt, progress)
    if throw and not trajectory.status.ok:
        raise SolveError(trajectory.message, trajectory)
    return trajectory


def stationary_point(flow: AbstractFlow | Callable[[Any], Any], params: PyTree, t: float = 0.0) -> StationaryPoint:
    """Minimum, saddle or neither: eigenvalues of `R^{1/2} Hess R^{1/2}` at `params`, R the rates of the flow.

    For a saddle also the time at which a flow that is at `params` at time `t` leaves it, if its rate is constant while
    the displacement doubles ("degenerate saddle" otherwise).
    """
    flow = flow if isinstance(flow, AbstractFlow) else GradientFlow(flow)
    params = as_arrays(params)
    eps = float(jnp.finfo(precision(params)).eps)
    check_finite(params)
    whole = make_blocks(dataclasses.replace(flow, loss=lambda p: flow.loss(p)))
    ((moves, shown),) = block_masks(flow, whole, params)
    problem, z0 = flat_problem(
        whole[0], params, moves, shown, flow.law(), flow.rate_tree(params), flow.chart, t, 1e-9, None
    )
    loss = float(flow.loss(params))
    return classify(problem, z0, t, abs(loss), loss, eps**0.65)
