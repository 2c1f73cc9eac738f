"""Runs side by side and over each other: what is drawn is what was computed; shared axes; names; files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import h5py
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import gflow
from gflow.cli.main import run
from gflow.cli.plot import draw
from gflow.errors import InputError
from gflow.plots import overlay, side_by_side
from gflow.plots.style import COLOURS


class FourGram(eqx.Module):
    """Falls as exp(-2t)."""

    def __call__(self, p: Any) -> Any:
        return 0.5 * p["v1"] ** 2


class Induction(eqx.Module):
    """wK = wQ grow as a chain of depth 2."""

    def __call__(self, p: Any) -> Any:
        return 0.5 * (1 - p["wK"] * p["wQ"]) ** 2


class Model(eqx.Module):
    def parts(self, p: Any) -> dict[str, Any]:
        return {"fourgram": FourGram()(p), "induction": Induction()(p)}

    def __call__(self, p: Any) -> Any:
        return FourGram()(p) + Induction()(p)


START = {"v1": 1.0, "wK": 0.1, "wQ": 0.1}
TIMES = {
    "T_I": gflow.Below(FourGram(), fraction=0.01),
    "T_II": gflow.Below(Induction(), fraction=0.9),
    "T_III": gflow.Below(Induction(), fraction=0.01),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    model = Model()
    first = gflow.Stage("I", gflow.GradientFlow(model, trainable=lambda p: p["v1"]), t1=3.0)
    second = gflow.Stage("II", gflow.GradientFlow(model), milestones=TIMES, t1=12.0)
    return {
        "flow": gflow.solve(model, START, t1=20.0, milestones=TIMES),
        "gd": gflow.descend(model, START, "gd", 400, lr=0.05, milestones=TIMES),
        "adam": gflow.descend(model, START, "adam", 2000, lr=1e-3, milestones=TIMES),
        "stages": gflow.solve_stages([first, second], START),
    }


def curve(axes: Any, label: str) -> np.ndarray:
    (found,) = (line for line in axes.get_lines() if line.get_label() == label)
    return np.asarray(found.get_xydata())


def words(artist: Any) -> list[str]:
    return [text.get_text() for text in artist.findobj(Text) if text.get_text()]


def test_each_column_is_its_run_on_shared_heights(runs: dict[str, Any]) -> None:
    figure = side_by_side({"GF": runs["flow"], "GD": runs["gd"], "Adam": runs["adam"]})
    tops, bottoms = figure.axes[:3], figure.axes[3:]
    assert [axes.get_title() for axes in tops] == ["GF", "GD", "Adam"]
    for row in (tops, bottoms):
        assert len({axes.get_ylim() for axes in row}) == 1
    assert [axes.get_xlim()[1] for axes in tops] == [pytest.approx(run.ts[-1]) for run in list(runs.values())[:3]]
    # (1 - .05)^(2 k) for gradient descent, exp(-2 t) for the flow
    steps = curve(tops[1], "4-gram part")[1:]
    np.testing.assert_allclose(steps[:, 1], 0.95 ** (2 * np.round(steps[:, 0] / 0.05)), rtol=1e-9)
    flow = curve(tops[0], "4-gram part")
    np.testing.assert_allclose(flow[flow[:, 0] < 5, 1], np.exp(-2 * flow[flow[:, 0] < 5, 0]), rtol=1e-5)
    for bottom, name in zip(bottoms, ("flow", "gd", "adam"), strict=True):
        assert curve(bottom, "$w_K = w_Q$")[-1, 1] == pytest.approx(runs[name].final["wK"], rel=1e-6)
    # the same colour means the same parameter
    looks = {tuple(line.get_color() for line in axes.get_lines() if line.get_label()[0] == "$") for axes in bottoms}
    assert len(looks) == 1
    legend = [text for one in figure.legends for text in words(one)]
    assert legend == ["4-gram part", "induction part", "measured time", "$v_1$", "$w_K = w_Q$"]


def test_phases_are_those_of_each_run(runs: dict[str, Any]) -> None:
    figure = side_by_side({"GF": runs["flow"], "Adam": runs["adam"]})
    for top, drawn in zip(figure.axes[:2], (runs["flow"], runs["adam"]), strict=True):
        times = [drawn.milestones[name].time for name in TIMES]
        ends = sorted(p.get_x() + p.get_width() for p in top.patches)
        expected = [t for k, t in enumerate(times) if t == max(times[: k + 1])]  # a phase without length is left out
        np.testing.assert_allclose(ends[:-1], expected, rtol=1e-6)
        names = [w for w in words(top) if w in ("I", "II", "III", "IV")]
        assert len(names) == len(ends)
        assert names[-1] == "IV"


def test_a_schedule_alone_and_in_company(runs: dict[str, Any]) -> None:
    alone = side_by_side({"": runs["stages"]})
    assert [axes.get_title() for axes in alone.axes[:2]] == ["stage I", "stage II"]
    first, second = alone.axes[:2]
    assert first.get_xlim()[1] == pytest.approx(3.0)
    assert second.get_xlim()[1] == pytest.approx(12.0)
    # in stage I only v1 moves; stage II goes on from exp(-3)
    assert np.ptp(curve(alone.axes[2], "$w_K = w_Q$")[:, 1]) == 0
    first_time, value = curve(alone.axes[3], "$v_1$")[0]
    assert value == pytest.approx(np.exp(-3.0 - first_time), rel=1e-6)
    both = side_by_side({"staged": runs["stages"], "plain": runs["flow"]})
    assert [axes.get_title() for axes in both.axes[:2]] == ["staged, stage II", "plain"]
    figure = overlay({"staged": runs["stages"], "plain": runs["flow"]})
    assert curve(figure.axes[0], "staged")[-1, 0] == pytest.approx(12.0)


def test_parametrisations_share_the_look_of_the_logit_scale() -> None:
    class Merged(eqx.Module):
        def parts(self, p: Any) -> dict[str, Any]:
            return {"fourgram": 0.5 * p["v1"] ** 2, "induction": 0.5 * (1 - p["w"]) ** 2}

        def __call__(self, p: Any) -> Any:
            return sum(self.parts(p).values())

    merged = gflow.descend(Merged(), {"v1": 1.0, "w": 0.01}, "gd", 100, lr=0.05)
    untied = gflow.descend(Model(), START | {"wQ": 0.2}, "gd", 100, lr=0.05)
    figure = side_by_side({"a": untied, "b": merged})
    colours = [{line.get_label(): line.get_color() for line in axes.get_lines()} for axes in figure.axes[2:]]
    assert colours[0]["$w_K$"] == colours[1]["$w$"] != colours[0]["$w_Q$"]
    assert "$w_K$ or $w$" in words(figure.legends[-1])


def test_curves_of_an_overlay_differ_in_line_and_in_greyscale(runs: dict[str, Any]) -> None:
    many = {str(k): runs["gd"] for k in range(6)}
    figure = overlay(many)
    lines = [line for line in figure.axes[0].get_lines() if line.get_label() in many]
    assert len({str(line._dash_pattern) for line in lines[:5]}) == 5
    assert len({line.get_color() for line in lines}) == len(COLOURS)
    grey = sorted(float(np.dot(to_rgb(line.get_color()), [0.299, 0.587, 0.114])) for line in lines)
    assert min(np.diff(grey)) > 0.04
    # the first lies below the others, and is broader
    assert lines[0].get_linewidth() > 2 * max(line.get_linewidth() for line in lines[1:])


@pytest.mark.parametrize("names", [("flow",), ("flow", "gd", "adam"), ("flow", "gd", "adam", "flow2", "gd2")])
def test_nothing_is_clipped_and_no_names_overlap(names: tuple[str, ...], runs: dict[str, Any]) -> None:
    figure = side_by_side({name: runs[name.rstrip("2")] for name in names})
    figure.canvas.draw()
    whole = figure.get_tightbbox()
    assert whole.x0 >= 0
    assert whole.y0 >= 0
    assert whole.x1 <= figure.get_figwidth()
    assert whole.y1 <= figure.get_figheight()
    for top in figure.axes[: len(names)]:
        boxes = [t.get_window_extent() for t in top.findobj(Text) if t.get_text().startswith("$T_")]
        boxes += [t.get_window_extent() for t in top.texts if t.get_text() in ("I", "II", "III", "IV")]
        assert len(boxes) >= 4
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_what_cannot_stand_side_by_side(runs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="0 columns asked for"):
        side_by_side({})
    with pytest.raises(InputError, match="7 columns asked for; give 1 to 6"):
        side_by_side({str(k): runs["gd"] for k in range(7)})
    other = gflow.descend(lambda w: 0.5 * w**2, 1.0, "gd", 5, lr=0.1)
    with pytest.raises(InputError, match="the loss of other has the parts"):
        side_by_side({"gd": runs["gd"], "other": other})


def test_saved_runs(runs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(runs[name].save(tmp_path / f"{name}.nc")) for name in ("flow", "gd", "stages")]
    labels = ["--label", "gradient flow", "--label", "GD", "--label", "two stages"]
    for extra, suffix in ((labels, "svg"), (["--overlay"], "png")):
        figure = tmp_path / f"fig.{suffix}"
        assert run(["plot", *files, "--out", str(figure), *extra]) == 0, capsys.readouterr().err
        assert figure.stat().st_size > 5000
    draw(runs["stages"], str(tmp_path / "stages.png"), False)
    assert (tmp_path / "stages.png").stat().st_size > 5000
    loaded = side_by_side({name: gflow.load(file) for name, file in zip("abc", files, strict=True)})
    fresh_runs = side_by_side({"a": runs["flow"], "b": runs["gd"], "c": runs["stages"]})
    assert words(loaded) == words(fresh_runs)


def test_files_that_are_not_runs_are_refused_before_jax_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "text.nc").write_text("no run")
    with h5py.File(tmp_path / "other.nc", "w") as other:
        other.attrs["source"] = "another program"
    (tmp_path / "cut.nc").write_bytes((tmp_path / "other.nc").read_bytes()[:200])
    cases = [
        (["missing.nc"], "missing.nc: no such file"),
        (["text.nc"], "text.nc was not written by gflow"),
        (["other.nc"], "other.nc was not written by gflow"),
        (["cut.nc"], "cut.nc is damaged"),
        (["."], "is a folder"),
        (["a.nc", "--label", "x", "--label", "y"], "2 labels for 1 runs"),
        (["a.nc", "b.nc", "--label", "x", "--label", "x"], "given twice"),
        (["a.nc"] * 7, "7 runs given"),
    ]
    code = f"""
import sys
from gflow.cli.main import run
for words, part in {cases!r}:
    assert run(["plot", *words, "--out", "fig.png"]) == 2, words
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line, (_, part) in zip(done.stderr.splitlines(), cases, strict=True):
        assert part in line
    assert not (tmp_path / "fig.png").exists()
