"""Figures have what they promise, in every format, for complete, partial and foreign runs."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import gflow
from gflow.plots import flagship, trajectory
from gflow.plots.style import COLOURS, STYLES, luminance
from gflow.theory.predictions import predict


@pytest.fixture(scope="module")
def run() -> Any:
    problem = gflow.InductionProblem(L=20, alpha_star=1.0, w_star=0.8)
    loss = problem.population_loss()
    traj = gflow.solve(
        gflow.GradientFlow(loss), problem.initial_params(1e-2), milestones=problem.milestones(), t1=3000.0
    )
    return problem, traj, predict(problem, loss, 1e-2)


def words(figure: Any) -> set[str]:
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()}


@pytest.mark.parametrize(("suffix", "first"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_formats(run: Any, suffix: str, first: bytes, tmp_path: Path) -> None:
    problem, traj, expected = run
    path = tmp_path / f"figure.{suffix}"
    before = dict(matplotlib.rcParams)
    flagship(traj, problem, expected).savefig(path)
    data = path.read_bytes()
    assert data.startswith(first)
    if suffix == "pdf":
        assert b"/FontFile2" in data  # TrueType, embedded
        assert b"/Type3" not in data
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []


def test_the_flagship_shows_what_it_promises(run: Any) -> None:
    problem, traj, expected = run
    figure = flagship(traj, problem, expected)
    top, _ = figure.axes
    assert top.get_xscale() == "log"
    assert top.get_yscale() == "log"
    assert {"4-gram part", "induction part", "plateau (theory)", "measured time", "predicted time"} <= words(figure)
    assert {"I", "II", "III", "IV", "$T_I$", "$T_o$", "$T_{II}$", "$T_{III}$", "$w_K = w_Q$", "$p_{21}$"} <= words(
        figure
    )
    curve = next(line for line in top.lines if line.get_label() == "induction part")
    assert np.all(np.asarray(curve.get_xdata()) > 0)
    assert curve.get_ydata()[0] == pytest.approx(1.0, abs=0.02)
    level = next(line for line in top.lines if line.get_label() == "plateau (theory)")
    assert level.get_ydata()[0] == pytest.approx(float(problem.plateau()) / traj.losses["induction"][0])


def test_nothing_is_cut_off_or_on_top_of_each_other(run: Any) -> None:
    problem, traj, expected = run
    figure = flagship(traj, problem, expected)
    figure.canvas.draw()
    frame = figure.bbox
    phases = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text() in ("I", "II", "III", "IV")]
    boxes = [t.get_window_extent() for t in phases]
    assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 and frame.y0 <= b.y0 and b.y1 <= frame.y1 for b in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_curves_differ_without_colour() -> None:
    used = [luminance(c) for c in COLOURS[:5]]
    assert used == sorted(used)
    assert min(np.diff(used)) > 0.03
    assert len({str(s) for s in STYLES[:5]}) == 5


def test_missing_milestones_and_predictions(run: Any) -> None:
    problem, _, _ = run
    loss = problem.population_loss()
    short = gflow.solve(
        gflow.GradientFlow(loss), problem.initial_params(1e-2), milestones=problem.milestones(), t1=100.0
    )
    assert short.milestones["T_III"].time is None
    for predictions in (None, {}, {"T_I": None, "plateau": None, "T_III": 1e9}):
        assert not {"III", "IV"} & words(flagship(short, predictions=predictions))
    none = gflow.solve(gflow.GradientFlow(loss), problem.initial_params(1e-2), t1=0.0)
    flagship(none, problem).canvas.draw()


@pytest.mark.parametrize(("kind", "label"), [("tied", "$w_{KQ}$"), ("merged", "$w$")])
def test_other_parametrisations(kind: str, label: str) -> None:
    problem = gflow.InductionProblem(L=20, alpha_star=1.0, w_star=0.8, parametrization=kind)
    traj = gflow.solve(gflow.GradientFlow(problem.population_loss()), problem.initial_params(1e-2), t1=50.0)
    assert label in words(flagship(traj))


def test_a_loss_of_ones_own_with_arrays(tmp_path: Path) -> None:
    def loss(p: dict[str, Any]) -> Any:
        return jnp.sum((p["w"] - 1.0) ** 2) + jnp.sum(p["many"] ** 2) + p["b"] ** 4

    start = {"w": jnp.zeros(3), "many": jnp.ones((4, 4)), "b": jnp.asarray(0.5)}
    traj = gflow.solve(gflow.GradientFlow(loss), start, milestones={"half": gflow.Below(loss, 9.0)}, t1=5.0)
    figure = flagship(traj)  # falls back to the general figure
    assert {"loss", "parameters", "w", "b", "many (mean, range)", "half"} <= words(figure)
    figure.savefig(tmp_path / "own.svg")
    trajectory(traj).savefig(tmp_path / "own.pdf")


def test_a_saved_run_is_enough(run: Any, tmp_path: Path) -> None:
    _, traj, expected = run
    loaded = gflow.load(traj.save(tmp_path / "run.nc"))
    assert {"I", "II", "III", "IV"} <= words(flagship(loaded, predictions=expected))


def test_a_negative_loss_gets_a_linear_axis() -> None:
    steps = np.array([0.0, 1.0, 2.0])
    fake = types.SimpleNamespace(ts=steps, t0=0.0, losses={"total": 1 - steps}, params={"x": steps}, milestones={})
    assert trajectory(fake).axes[0].get_yscale() == "linear"
