"""The figure of the toy: what it draws is what the run holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gflow.plots.matrices import matrices
from gflow.training.matrices import MatrixRun


def made_up() -> MatrixRun:
    """Three seeds, of which the second waits twice; its singular values arrive one after the other."""
    steps = np.arange(0, 1500, 5)
    drop = lambda at: 1 / (1 + np.exp((steps - at) / 20))  # noqa: E731
    loss = np.array([drop(300), 0.4 * drop(300) + 0.4 * drop(700) + 0.2 * drop(1200), 0.5 * (drop(300) + drop(600))])
    loss = 0.03 * (loss + 1e-3)
    modes = np.stack([1 - drop(at) for at in (300, 700, 1200)], axis=-1)[None].repeat(3, axis=0) + 1e-5
    ones = np.ones_like(loss)
    return MatrixRun(
        seeds=np.array([4, 9, 11]), steps=steps, fourgram=ones, induction=loss, fourgram_error=0 * ones,
        induction_error=0 * ones, singular_KQ=modes, singular_V1=modes, singular_V2=modes, singular_sign=modes,
        p21=ones, start_rank=np.array([3, 1, 2]), failures=[], status="reached_steps",
    )  # fmt: skip


def test_curves_plateaus_and_staircase(tmp_path: Path) -> None:
    run = made_up()
    figure = matrices(run)
    top, bottom = figure.axes
    heavy = next(line for line in top.lines if line.get_label() == "seed 9")  # it has the longest plateau
    np.testing.assert_allclose(heavy.get_ydata(), run.induction[1] / run.induction[1, 0])
    bars = [line for line in top.lines if (line.get_gid() or "").startswith("plateau")]
    found = run.plateaus()
    assert [len(p) for p in found] == [0, 2, 1]
    assert sorted(bar.get_gid() for bar in bars) == ["plateau 11", "plateau 9", "plateau 9"]
    drawn = [(*bar.get_xdata(), bar.get_ydata()[0]) for bar in bars if bar.get_gid() == "plateau 9"]
    assert drawn == [(p.start, p.end, p.level) for p in found[1]]
    curves = [line for line in bottom.lines if len(line.get_xdata()) == len(run.steps)]
    assert len(curves) == 3
    for k, curve in enumerate(curves):
        np.testing.assert_array_equal(curve.get_ydata(), run.singular_KQ[1, :, k])
    assert "seed 9" in bottom.get_ylabel()
    figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.parametrize("part", ["induction", "fourgram", "total"])
def test_any_seed_any_part_also_a_failed_run(part: str) -> None:
    run = made_up()
    induction = run.induction.copy()
    induction[0, 100:] = np.nan
    figure = matrices(dataclasses.replace(run, induction=induction), seed=4, part=part)
    assert "seed 4" in figure.axes[1].get_ylabel()


def test_a_run_of_one_record() -> None:
    run = made_up()
    one = {f.name: getattr(run, f.name)[:, :1] for f in dataclasses.fields(run) if np.ndim(getattr(run, f.name)) >= 2}
    figure = matrices(dataclasses.replace(run, steps=run.steps[:1], **one))
    figure.savefig("/dev/null", format="png")
    assert all(len(line.get_xdata()) == 1 for line in figure.axes[0].lines[: len(run.seeds)])
