"""The figure of the landscape: what it draws stands where the spectra say; and `gflow plot --kind landscape`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.text import Text

import gflow
from gflow.cli.main import run as command
from gflow.errors import InputError
from gflow.plots.landscape import landscape
from gflow.theory import plateau


@pytest.fixture(scope="module")
def problem() -> gflow.InductionProblem:
    return gflow.InductionProblem(40.0, 1.0, 0.8)


@pytest.fixture(scope="module")
def run(problem: gflow.InductionProblem) -> Any:
    flow = gflow.GradientFlow(problem.population_loss())
    return gflow.solve(flow, problem.initial_params(1e-3), milestones=problem.milestones(), tail=1.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("landscape") / "run.nc"
    words = ["integrate", "--quiet", "--L", "40", "--w-star", "0.8", "--sigma-init", "1e-3", "--out", str(path)]
    assert command(words) == 0
    return path


def texts(figure: Any) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if text.get_text()}


def test_curves_stand_where_the_numbers_are(run: Any, problem: gflow.InductionProblem) -> None:
    loss = problem.population_loss()
    figure = landscape(run, loss, problem)
    top, eigenvalues, sharpness, distance = figure.axes
    rho = plateau.rho(loss.induction)
    waits = slice(None)
    curves = {}
    for line in eigenvalues.lines:
        curves.setdefault(line.get_color(), []).append(line)
    theory = next(line for line in eigenvalues.lines if line.get_label() == "$-g$ (theory)")
    assert theory.get_ydata()[0] == pytest.approx(-rho)
    first = next(line for line in eigenvalues.lines if line.get_label() == "induction part")
    times, lowest = first.get_xdata(), first.get_ydata()
    waits = (times > 0.6 * run.milestones["T_II"].time) & (times < 0.8 * run.milestones["T_II"].time)
    assert lowest[waits] == pytest.approx(-rho, rel=0.05)
    assert eigenvalues.get_yscale() == "symlog"
    # sharpness ends at that of the 4-gram part, H_v1 -> 1
    assert sharpness.lines[0].get_ydata()[-1] == pytest.approx(1.0, abs=0.1)
    away = distance.lines[0].get_ydata()
    assert away[0] == pytest.approx(abs(float(problem.v_plateau()) - 1e-3), rel=0.02)
    assert np.min(away) < 0.02
    shown = texts(figure)
    assert {"$T_I$", "$T_{II}$", "$T_{III}$", "I", "II", "III", "IV", "sharpness", "Hessian eigenvalues"} <= shown
    assert len([text for text in figure.findobj(Text) if text.get_text() == "II"]) == 1
    whole = figure.get_tightbbox()
    assert whole.x0 >= 0
    assert whole.x1 <= figure.get_figwidth()
    assert whole.y0 >= 0
    assert whole.y1 <= figure.get_figheight()
    assert top.get_xlim() == distance.get_xlim()


def test_merged_says_that_there_is_no_saddle() -> None:
    problem = gflow.InductionProblem(40.0, 1.0, 0.8, parametrization="merged")
    flow = gflow.GradientFlow(problem.population_loss())
    merged = gflow.solve(flow, problem.initial_params(1e-2), milestones=problem.milestones())
    figure = landscape(merged, problem.population_loss(), problem)
    assert "to $(v_p, 0)$, here no saddle" in texts(figure)
    assert "$-g$ (theory)" not in texts(figure)


def test_runs_that_have_no_such_figure(run: Any, problem: gflow.InductionProblem) -> None:
    loss = problem.population_loss()
    other = gflow.solve(lambda p: (1 - p["w"]) ** 2, {"w": jnp.asarray(0.1)}, t1=1.0)
    with pytest.raises(InputError, match="induction head"):
        landscape(other, loss, problem)
    empty = gflow.solve(gflow.GradientFlow(loss), problem.initial_params(1e-3), t1=0.0)
    with pytest.raises(InputError, match="no length"):
        landscape(empty, loss, problem)


def test_through_the_command_line(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figure.png"
    assert command(["plot", str(saved), "--kind", "landscape", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == str(out)
    assert out.stat().st_size > 30_000


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["RUN", "--kind", "landscap"], "did you mean 'landscape'"),
        (["RUN", "OWN", "--kind", "landscape"], "one run"),
        (["RUN", "--kind", "landscape", "--overlay"], "one run"),
        (["RUN", "--kind", "ratio"], "store of a sweep"),
        (["OWN", "--kind", "landscape"], "another loss"),
    ],
)
def test_what_the_command_refuses_is_one_line(
    words: list[str], part: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.nc"
    gflow.solve(lambda p: (1 - p["w"]) ** 2, {"w": jnp.asarray(0.1)}, t1=1.0).save(own)
    names = {"RUN": str(saved), "OWN": str(own)}
    given = [names.get(word, word) for word in words]
    assert command(["plot", "--quiet", *given, "--out", str(tmp_path / "x.png")]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1
