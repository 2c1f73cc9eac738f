"""Runs of the induction head side by side: an ablation, or the stages of a schedule, at one glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gflow.errors import InputError
from gflow.plots._axes import sample, scale_time, time_label
from gflow.plots._panels import (
    APART,
    LABELS,
    PARTS,
    axis_start,
    draw_losses,
    draw_parameters,
    draw_phases,
    draw_plateau,
    draw_times,
    limit_losses,
    shown_parameters,
)
from gflow.plots.style import WIDTH, new_figure, paper

MOST = 6  # columns
COLUMN = 2.05  # inches of a column where they do not fit into the width of the text
# one look for what plays the same role in every parametrisation; wQ, where it differs from wK, has its own
ROLES = ("p11", "p21", "v1", "v2", "w", "wQ")
ROLE_OF = {"wK = wQ": "w", "wK": "w", "wKQ": "w"}
# inches
LEFT, RIGHT, TOP, GAP = 0.62, 0.1, 0.42, 0.1
LOSSES, PARAMETERS, TICKS, LEGEND = 1.9, 1.65, 0.5, 0.42


def side_by_side(runs: Mapping[str, Any]) -> Any:
    """One column per run: losses relative to their start above, parameters below, each on its own logarithmic time.

    - `runs`: label -> `Trajectory`, `StagedTrajectory` or `Descent`, solved or loaded, 1 to 6 columns in all. A
      schedule alone is drawn stage by stage; next to others it stands for its last stage. The time of a `Descent` is
      the sum of its learning rates.

    The vertical axes are shared, so that columns can be compared; phases, times and plateau are those of `flagship`,
    where a run has them (its own milestones, `provenance["predictions"]`). Returns a matplotlib `Figure`. Raises
    `InputError` for no run, too many, or one without the two parts of the induction head's loss.
    """
    columns = _columns(runs)
    if not 1 <= len(columns) <= MOST:
        raise InputError(f"side_by_side: {len(columns)} columns asked for; give 1 to {MOST}")
    for name, run in columns.items():
        if not set(PARTS) <= set(run.losses):
            parts = ", ".join(run.losses)
            raise InputError(
                f"side_by_side: the loss of {name} has the parts {parts}, not those of the induction head; "
                "use plots.overlay (--overlay), or plots.trajectory"
            )
    count = len(columns)
    width = max(WIDTH, LEFT + RIGHT + count * COLUMN)
    height = TOP + LOSSES + GAP + PARAMETERS + TICKS + LEGEND
    margins = {
        "left": LEFT / width,
        "right": 1 - RIGHT / width,
        "top": 1 - TOP / height,
        "bottom": (TICKS + LEGEND) / height,
        "hspace": 2 * GAP / (LOSSES + PARAMETERS),
        "wspace": 0.09,
    }
    with paper():
        figure = new_figure(height=height, margins=margins, width=width)
        axes = figure.subplots(2, count, sharex="col", sharey="row", squeeze=False, height_ratios=(LOSSES, PARAMETERS))
        paths = [sample(run, first=axis_start(run)) for run in columns.values()]
        # the range first: where a name finds room depends on it
        lowest = min(draw_losses(top, losses) for top, (losses, _) in zip(axes[0], paths, strict=True))
        limit_losses(axes[0, 0], lowest)
        looks = _looks([shown_parameters(params) for _, params in paths])
        drawn = []
        for top, bottom, (name, run), (losses, params) in zip(*axes, columns.items(), paths, strict=True):
            theory = dict(run.provenance.get("predictions") or {})
            scale_time(top, losses.where)
            draw_plateau(top, losses, theory.get("plateau"))
            draw_times(top, run, losses, theory.get("plateau"), theory)
            drawn.append(draw_parameters(bottom, params, looks))
            draw_phases((top, bottom), run, losses.where, apart=APART * count)
            top.set_title(name, pad=15)
            bottom.set_xlabel(time_label(run, short=True))
        axes[0, 0].set_ylabel("loss / its start")
        axes[1, 0].set_ylabel("parameters")
        figure.align_ylabels(axes[:, 0])
        _legends(figure, axes[0], drawn, looks, height)
    return figure


def _columns(runs: Mapping[str, Any]) -> dict[str, Any]:
    """What is drawn: the runs themselves, the stages of a schedule alone, the last stage of one in company."""
    if len(runs) == 1:
        ((label, run),) = runs.items()
        if hasattr(run, "stages"):
            return {f"{label}, stage {name}" if label else f"stage {name}": s for name, s in run.stages.items()}
    out = {}
    for label, run in runs.items():
        if hasattr(run, "stages"):
            name, last = list(run.stages.items())[-1]
            out[f"{label}, stage {name}"] = last
        else:
            out[label] = run
    return out


def _looks(present: list[dict[str, Any]]) -> dict[str, int]:
    """Name of a parameter -> its look, the same in every column."""
    roles = {name: ROLE_OF.get(name, name) for names in present for name in names}
    order = [role for role in ROLES if role in roles.values()]
    return {name: order.index(role) for name, role in roles.items()}


def _legends(figure: Any, tops: Any, drawn: list[dict[str, Any]], looks: dict[str, int], height: float) -> None:
    """One line for the losses, one for the parameters, below everything."""
    losses = {label: handle for top in tops for handle, label in zip(*top.get_legend_handles_labels(), strict=True)}
    parameters: dict[int, tuple[Any, list[str]]] = {}
    for curves in drawn:
        for name, curve in curves.items():
            _, names = parameters.setdefault(looks[name], (curve, []))
            if LABELS[name] not in names:
                names.append(LABELS[name])
    known = [(curve, " or ".join(names)) for _, (curve, names) in sorted(parameters.items())]
    for place, entries in ((0.22, [(h, label) for label, h in losses.items()]), (0.02, known)):
        if entries:
            figure.legend(
                *zip(*entries, strict=True), loc="lower center", bbox_to_anchor=(0.5, place / height),
                ncols=len(entries), handlelength=2.8, columnspacing=1.4, borderaxespad=0.0, borderpad=0.1,
            )  # fmt: skip
