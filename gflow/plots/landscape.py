"""The landscape under a run of the induction head: Hessian eigenvalues, sharpness, and the plateau's saddle."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.errors import InputError
from gflow.losses.induction.exact import fourgram_leaves, induction_leaves
from gflow.plots._axes import sample, scale_time, time_label
from gflow.plots._panels import axis_start, draw_losses, draw_phases, draw_plateau, draw_times, limit_losses
from gflow.plots.style import COLOURS, DASHED, new_figure, paper
from gflow.theory import plateau as theory
from gflow.theory.landscape import POINTS, SpectrumPath, distance_to, plateau_saddle, spectrum_along

MARGINS = {"left": 0.115, "right": 0.985, "bottom": 0.07, "top": 0.96, "hspace": 0.08}
LINEAR = 0.1  # of the growth rate: eigenvalues smaller than that are drawn on a linear scale


def landscape(traj: Any, loss: Any, problem: Any) -> Any:
    """Losses, Hessian eigenvalues of each part (symmetric logarithm), sharpness, distance to the plateau's saddle.

    - `traj`: a run of the induction head with one stage, solved or loaded, with its dense output.
    - `loss`: the exact loss it belongs to; `problem`: its `InductionProblem`.

    Eigenvalues below zero are unstable directions. Dashed: `-g`, which the lowest one takes at the plateau's saddle
    (untied and tied). At p11 = inf the loss splits and each part has its own eigenvalues; with p11 they are those of
    the whole. Raises `InputError` when the run has no length, or is of another kind.
    """
    if hasattr(traj, "stages") or not {"fourgram", "induction"} <= set(traj.losses):
        raise InputError("the landscape is drawn for a run of the induction head with one stage")
    if not traj.t1_reached > traj.t0:
        raise InputError(f"the run has no length: it ends where it starts, at t = {traj.t0:g}")
    times = _times(traj)
    since = times - traj.t0
    spectra = _spectra(traj, loss, times)
    distances = distance_to(plateau_saddle(problem, params=traj.initial), traj, times)
    rate = theory.growth_rate(problem.population_loss().induction, problem.parametrization)
    predictions = dict(traj.provenance.get("predictions") or {})
    level = float(problem.plateau())
    with paper():
        figure = new_figure(height=6.2, margins=MARGINS)
        top, middle, sharp, bottom = figure.subplots(4, 1, sharex=True, height_ratios=(1.15, 1.35, 0.6, 0.7))
        losses, _ = sample(traj, first=axis_start(traj))
        scale_time(top, losses.where)
        limit_losses(top, draw_losses(top, losses))
        draw_plateau(top, losses, level)
        top.set_ylabel("loss / its start")
        draw_times(top, traj, losses, level, predictions)
        top.legend(loc="lower left", handlelength=2.8)
        _eigenvalues(middle, since, spectra, rate)
        highest = np.max([s.sharpness for s in spectra.values()], axis=0)
        sharp.plot(since, highest, color=COLOURS[0])
        if np.min(highest) > 0 and np.max(highest) > 10 * np.min(highest):
            sharp.set_yscale("log")
        sharp.set_ylabel("sharpness")
        what = "to the saddle $(v_p, 0)$" if rate is not None else "to $(v_p, 0)$, here no saddle"
        bottom.plot(since, distances, color=COLOURS[2], label=what)
        bottom.set_yscale("log")
        bottom.set_ylabel("distance")
        bottom.legend(loc="lower left")
        draw_phases((top, middle), traj, losses.where)
        draw_phases((sharp, bottom), traj, losses.where)
        for name in list(sharp.texts):  # the phases are named once, above the first panel
            name.remove()
        bottom.set_xlabel(time_label(traj))
        figure.align_ylabels()
    return figure


def _times(traj: Any) -> np.ndarray:
    """Log-spaced over the axis that the losses have."""
    span = traj.t1_reached - traj.t0
    first = axis_start(traj) or 1e-6 * span
    times = traj.t0 + np.geomspace(min(first, 0.1 * span), span, POINTS)
    times[-1] = traj.t1_reached
    return times


def _spectra(traj: Any, loss: Any, times: np.ndarray) -> dict[str, SpectrumPath]:
    """Name -> eigenvalues; of each part by itself where they do not meet."""
    if getattr(traj.initial, "p11", None) is not None:
        return {"whole": spectrum_along(traj, loss, times)}
    return {
        "4-gram part": spectrum_along(traj, loss.fourgram, times, trainable=fourgram_leaves),
        "induction part": spectrum_along(traj, loss.induction, times, trainable=induction_leaves),
    }


def _eigenvalues(axes: Any, since: np.ndarray, spectra: dict[str, SpectrumPath], rate: float | None) -> None:
    largest = max(float(np.max(np.abs(s.eigenvalues))) for s in spectra.values())
    unit = LINEAR * (rate if rate is not None and rate > 0 else 1e-2 * largest)
    decade = int(np.clip(np.floor(np.log10(unit)), -14, np.log10(largest) - 1))
    looks = {
        "4-gram part": (COLOURS[0], (0, (1.2, 1.2))),
        "induction part": (COLOURS[2], "-"),
        "whole": (COLOURS[2], "-"),
    }
    for name, found in spectra.items():
        colour, style = looks[name]
        for k, values in enumerate(found.eigenvalues.T):
            axes.plot(since, values, color=colour, linestyle=style, linewidth=1.1, label=name if k == 0 else None)
    axes.axhline(0.0, color="0.35", linewidth=0.6, zorder=1.5)
    if rate is not None:
        axes.axhline(-rate, color="0.35", linewidth=0.8, linestyle=DASHED, label="$-g$ (theory)", zorder=1.5)
    axes.set_yscale("symlog", linthresh=10.0**decade, linscale=0.6)
    powers = np.arange(decade + 1, int(np.ceil(np.log10(largest))) + 1)
    powers = powers[:: max(1, len(powers) // 4)]
    axes.set_yticks([*(-(10.0**powers))[::-1], 0.0, *10.0**powers])
    axes.minorticks_off()
    axes.set_ylabel("Hessian eigenvalues")
    axes.legend(loc="best", handlelength=2.8)
