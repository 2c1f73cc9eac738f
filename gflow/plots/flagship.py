"""The flagship figure: how an induction head is learned, phase by phase."""

from __future__ import annotations

from typing import Any

from gflow.plots._axes import sample, scale_time, time_label
from gflow.plots._panels import (
    PARTS,
    axis_start,
    draw_losses,
    draw_parameters,
    draw_phases,
    draw_plateau,
    draw_times,
    limit_losses,
)  # fmt: skip
from gflow.plots.style import new_figure, paper
from gflow.plots.trajectory import trajectory

# of the figure's size; tick labels and titles of every run fit
MARGINS = {"left": 0.095, "right": 0.985, "bottom": 0.095, "top": 0.945, "hspace": 0.08}


def flagship(traj: Any, problem: Any = None, predictions: dict[str, Any] | None = None) -> Any:
    """Both losses relative to their start, and the parameters, on a logarithmic time axis, with the phases shaded.

    - `traj`: a run of the induction-head loss, solved or loaded, complete or interrupted, of any parametrisation.
      A run of another loss is drawn by `plots.trajectory`.
    - `problem`: the `InductionProblem`, if at hand: gives the plateau when `predictions` does not.
    - `predictions`: as returned by `theory.predictions.predict`, with "plateau" if known; None entries are skipped.
      By default those that the run carries in `traj.provenance["predictions"]`.

    Phases: I until the 4-gram part is learned (T_I), II until the plateau is left (T_II), III until the induction part
    is learned (T_III), IV convergence. A phase that takes no time is left out, as are those the run did not get to.
    Filled markers: measured times, on the curves; open ones: predicted times, at the same level. Returns a `Figure`.
    """
    if not set(PARTS) <= set(traj.losses):
        return trajectory(traj)
    if predictions is None:
        predictions = traj.provenance.get("predictions")
    predictions = dict(predictions or {})
    plateau = predictions.get("plateau")
    if plateau is None and problem is not None:
        plateau = float(problem.plateau())
    with paper():
        figure = new_figure(height=4.8, margins=MARGINS)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1.0))
        losses, params = sample(traj, first=axis_start(traj))
        scale_time(top, losses.where)
        limit_losses(top, draw_losses(top, losses))
        draw_plateau(top, losses, plateau)
        top.set_ylabel("loss / its start" if traj.ts[0] == traj.t0 else "loss / its first value")
        draw_times(top, traj, losses, plateau, predictions)
        top.legend(loc="lower left", handlelength=2.8)
        if draw_parameters(bottom, params):
            bottom.legend(loc="upper left", ncols=2, handlelength=3.2)
        bottom.set_ylabel("parameters")
        draw_phases((top, bottom), traj, losses.where)
        bottom.set_xlabel(time_label(traj))
        figure.align_ylabels()
    return figure
