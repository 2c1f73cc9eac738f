"""Flows of a sampled loss with the sampling error of their milestones (MATH section 6)."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from gflow.conditions import Condition
from gflow.errors import InputError, TableError
from gflow.flows import AbstractFlow, GradientFlow, StagedTrajectory, Status, Trajectory, solve
from gflow.losses.induction.params import MatrixParams
from gflow.losses.induction.sampled._loss import LEVEL, SampledLoss, student_factor
from gflow.losses.induction.sampled._table import TabulatedInductionLoss, is_inside, logit_range

WIDENINGS = 4  # times a table that a flow has left is made anew


def solve_sampled(
    flow: AbstractFlow | SampledLoss,
    params: Any,
    *,
    milestones: Callable[[SampledLoss], Mapping[str, Condition]] | None = None,
    level: float = LEVEL,
    table: bool = True,
    rtol: float | None = None,
    solver: Any = "rodas5p",
    **policy: Any,
) -> Trajectory:
    """Integrate the flow of the whole sample, and that of every scramble by itself for the errors of the milestones.

    A milestone's `error` is the standard error of its time, `sd / sqrt(S)` over the S scrambles' own times
    (`error_kind` "sampling"); `provenance["sampling"]` also holds Student's interval at `level` around the whole
    sample's time, each scramble's time, and the standard errors of the loss at both ends.

    - `flow`: a flow of a `SampledLoss` (rates, trainable leaves and the like are kept), or just the loss.
    - `milestones`: a function from a loss to conditions, since every scramble is watched through its own loss.
    - `table`: see `run_scrambles`. `rtol`: 1e-6 (1e-5 in single precision, or without a table), far below the sampling
      error. `policy`: further arguments of `gflow.solve`.

    Raises `InputError`. Source: MATH section 6.
    """
    flow = flow if isinstance(flow, AbstractFlow) else GradientFlow(flow)
    fine = table and not isinstance(params, MatrixParams) and jax.tree.leaves(params)[0].dtype == np.float64
    policy |= {"rtol": rtol or (1e-6 if fine else 1e-5), "solver": solver}

    def run(loss: SampledLoss) -> Trajectory:
        conditions = milestones(loss) if milestones is not None else None
        return solve(dataclasses.replace(flow, loss=loss), params, milestones=conditions, **policy)

    return run_scrambles(flow.loss, params, run, level=level, table=table)


def run_scrambles(
    loss: Any, params: Any, run: Callable[[SampledLoss], Any], *, level: float = LEVEL, table: bool = True
) -> Any:
    """`run(loss)` for the whole sample, then for each scramble; the first trajectory, with sampling errors attached.

    - `run`: any integration from `params`: `solve`, or `solve_stages` (each stage then has its own errors).
    - `table`: put the overlaps of isotropic parameters in a Chebyshev table first (`SampledLoss.tabulated`): some
      hundred evaluations, after which the flows cost next to nothing. A flow that leaves the table gets a wider one.
      Where no table is accurate enough, and for `MatrixParams`, the flows go through the sample itself.

    Raises `InputError` for a loss without scrambles.
    """
    if not isinstance(loss, SampledLoss) or loss.scrambles < 2:
        raise InputError(f"sampling errors need a SampledLoss with at least 2 scrambles, got {loss!r}")
    factor = student_factor(loss.scrambles, level)
    started = time.perf_counter()
    whole, note = _on_table(loss, params) if table and not isinstance(params, MatrixParams) else (loss, "")
    table_seconds = time.perf_counter() - started
    for widening in range(WIDENINGS):
        runs = [run(whole.pooled())]
        for i in range(loss.scrambles):
            if runs[-1].status is Status.interrupted:
                break
            runs.append(run(whole.scramble(i)))
        lost = [r for r in runs if _left(whole, r)]
        if not lost:
            break
        width = 4.0 ** (widening + 1)
        again = time.perf_counter()
        whole, note = _on_table(loss, params, width)
        table_seconds += time.perf_counter() - again
    trajectory, others = runs[0], runs[1:]
    about = {
        "samples": loss.samples,
        "scrambles": loss.scrambles,
        "level": level,
        "table_error": [float(e) for e in getattr(whole.induction, "error", [])] or None,
        "note": note,
    }
    if isinstance(trajectory, StagedTrajectory):
        for name, stage in trajectory.stages.items():
            _attach(stage, [r.stages[name] for r in others if name in r.stages], whole, factor, about)
    else:
        _attach(trajectory, others, whole, factor, about)
    trajectory.provenance["sampling"] = trajectory.provenance.get("sampling", {}) | about
    trajectory.seconds["table"] = table_seconds
    trajectory.seconds["solve"] = time.perf_counter() - started - table_seconds
    return trajectory


def _on_table(loss: SampledLoss, params: Any, width: float = 1.0) -> tuple[SampledLoss, str]:
    """The loss on a table `width` times as wide as usual, or the loss itself and the reason why."""
    if isinstance(loss.induction, TabulatedInductionLoss):
        return loss, ""
    reach = logit_range(float(loss.w_star) ** 2, float(params.logit_scale), width)
    try:
        return loss.tabulated(params, w_range=reach), ""
    except TableError as error:
        return loss, str(error)


def _left(loss: SampledLoss, run: Any) -> bool:
    """Whether a run ended at the edge of the table."""
    if run.status is not Status.non_finite or not isinstance(loss.induction, TabulatedInductionLoss):
        return False
    last = list(run.stages.values())[-1] if isinstance(run, StagedTrajectory) else run
    return not is_inside(loss.induction, float(last.final.logit_scale))


@eqx.filter_jit
def _errors(loss: SampledLoss, params: Any) -> dict[str, Any]:
    return loss.standard_error(params)


def _attach(
    trajectory: Trajectory, others: Sequence[Trajectory], loss: SampledLoss, factor: float, about: dict[str, Any]
) -> None:
    """Errors of the milestones from the scrambles' times; the whole sample's loss, which knows its error, as loss."""
    S = loss.scrambles
    rows: dict[str, Any] = {}
    for name, milestone in trajectory.milestones.items():
        times = [other.milestones[name].time for other in others]
        seen = [t for t in times if t is not None]
        error = float(np.std(seen, ddof=1)) / math.sqrt(S) if len(seen) == S else None
        reason = milestone.reason if len(seen) == S else f"{milestone.reason}; in {len(seen)} of {S} scrambles"
        interval = None
        if milestone.time is not None and error is not None:
            interval = [milestone.time - factor * error, milestone.time + factor * error]
        rows[name] = {"standard_error": error, "interval": interval, "times": times}
        trajectory.milestones[name] = dataclasses.replace(
            milestone, error=error, error_kind="" if error is None else "sampling", reason=reason
        )
    flow = trajectory.flow
    assert flow is not None  # a fresh trajectory has one
    trajectory.flow = dataclasses.replace(flow, loss=loss)
    ends = {"initial": trajectory.initial, "final": trajectory.final}
    errors = {end: {k: float(v) for k, v in _errors(loss, p).items()} for end, p in ends.items()}
    trajectory.provenance["sampling"] = about | {"milestones": rows, "loss_standard_error": errors}
