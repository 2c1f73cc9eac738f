"""The figure of the high-dimensional toy: losses with their plateaus, above the staircase of singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.plots.style import COLOURS, STYLES, halo, new_figure, paper

MARGINS = {"left": 0.095, "right": 0.985, "bottom": 0.095, "top": 0.94, "hspace": 0.1}
FLOOR = 1e-4  # lowest loss shown, relative to the start
SMALL = 1e-6  # lowest singular value shown
MOST_NAMED = 6  # singular values that get a name


def matrices(run: Any, seed: int | None = None, part: str = "induction") -> Any:
    """A loss of every seed over steps, its interior plateaus as bars, above the singular values of `W_K^T W_Q`.

    - `run`: a `MatrixRun`, trained or loaded, complete or interrupted.
    - `seed`: whose singular values are shown, and whose curve is drawn heavily: by default the seed with the longest
      plateau, otherwise the first.
    - `part`: "induction", "fourgram" or "total".

    Bands mark the plateaus of that seed in both panels. Returns a matplotlib `Figure`.
    """
    found = run.plateaus(part)
    row = _chosen(run, seed, found)
    with paper():
        figure = new_figure(height=4.8, margins=MARGINS)
        top, bottom = figure.subplots(2, 1, sharex=True)
        _losses(top, run, row, part, found)
        _singular_values(bottom, run, row)
        for plateau in found[row]:
            for axes in (top, bottom):
                axes.axvspan(plateau.start, plateau.end, color="#ececec", linewidth=0, zorder=0)
        top.set_xlim(0, max(int(run.steps[-1]), 1))
        bottom.set_xlabel("steps of the optimiser")
        figure.align_ylabels()
    return figure


def _chosen(run: Any, seed: int | None, found: list[Any]) -> int:
    """Row of the seed that is shown in full."""
    if seed is not None:
        return int(np.flatnonzero(np.asarray(run.seeds) == seed)[0])
    longest = [max((p.length for p in plateaus), default=0.0) for plateaus in found]
    return int(np.argmax(longest))


def _losses(axes: Any, run: Any, row: int, part: str, found: list[Any]) -> None:
    share = run.loss(part) / run.loss(part)[:, :1]
    for i in (*(i for i in range(len(share)) if i != row), row):
        heavy = i == row
        axes.plot(
            run.steps,
            share[i],
            color=COLOURS[1] if heavy else "0.6",
            linewidth=1.6 if heavy else 0.6,
            zorder=3 if heavy else 2,
            label=f"seed {run.seeds[i]}" if heavy else None,
        )
        for k, plateau in enumerate(found[i]):
            (bar,) = axes.plot(
                [plateau.start, plateau.end], [plateau.level] * 2, color=COLOURS[2], linewidth=2.6 if heavy else 1.3,
                solid_capstyle="butt", alpha=1.0 if heavy else 0.5, zorder=4,
                label="interior plateau" if heavy and k == 0 else None,
            )  # fmt: skip
            bar.set_gid(f"plateau {run.seeds[i]}")
            if heavy:
                axes.annotate(
                    f"{plateau.level:.2f}", (0.5 * (plateau.start + plateau.end), plateau.level), xytext=(0, 7),
                    textcoords="offset points", ha="center", va="center", fontsize=7, path_effects=halo(), zorder=5,
                )  # fmt: skip
    if len(share) > 1:
        axes.plot([], [], color="0.6", linewidth=0.6, label=f"{len(share) - 1} other seeds")
    axes.set_yscale("log")
    lowest = float(np.nanmin(share, initial=1.0))
    axes.set_ylim(max(FLOOR, 0.5 * lowest), 1.6)
    name = {"induction": "induction loss", "fourgram": "4-gram loss", "total": "loss"}[part]
    axes.set_ylabel(f"{name} / its start")
    axes.legend(loc="lower left")


def _singular_values(axes: Any, run: Any, row: int) -> None:
    values = run.singular_KQ[row]
    for k in range(values.shape[-1]):
        axes.plot(
            run.steps, np.where(values[:, k] > 0, values[:, k], np.nan), color=COLOURS[k % 5],
            linestyle=STYLES[k % 5], label=f"$s_{{{k + 1}}}$" if k < MOST_NAMED else None,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(max(SMALL, 0.5 * float(np.nanmin(values, initial=1.0))), 4.0)
    axes.axhline(1.0, color="0.35", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.5)
    axes.set_ylabel(f"singular values of $W_K^T W_Q$, seed {run.seeds[row]}")
    axes.legend(loc="lower right", ncols=2, handlelength=2.8)
