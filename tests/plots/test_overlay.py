"""Several runs on one figure: what is drawn is what was computed, for flows and for descents, from files too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gflow
from gflow.cli.main import run
from gflow.errors import InputError
from gflow.plots import overlay


class Chain:
    """wK = wQ grow as a chain of depth 2; v1 decays at rate 1."""

    def parts(self, p: Any) -> dict[str, Any]:
        return {"fourgram": 0.5 * p["v1"] ** 2, "induction": 0.5 * (1 - p["wK"] * p["wQ"]) ** 2}

    def __call__(self, p: Any) -> Any:
        return sum(self.parts(p).values())


START = {"v1": 1.0, "wK": 0.1, "wQ": 0.1}


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    loss = Chain()
    conditions = {"T_III": gflow.Below(lambda p: loss.parts(p)["induction"], 0.005)}
    return {
        "flow": gflow.solve(loss, START, t1=20.0, milestones=conditions),
        "gd": gflow.descend(loss, START, "gd", 400, lr=0.05, milestones=conditions),
        "adam": gflow.descend(loss, START, "adam", 2000, lr=1e-3, milestones=conditions),
    }


def test_each_run_is_a_curve_of_its_own_numbers(runs: dict[str, Any]) -> None:
    top, middle, bottom = overlay(runs).axes
    for axes, part in ((top, "fourgram"), (middle, "induction")):
        drawn = {line.get_label(): line.get_xydata() for line in axes.get_lines() if line.get_linestyle() != "None"}
        assert set(drawn) == set(runs)
        for name in ("gd", "adam"):
            values = runs[name].losses[part] / runs[name].losses[part][0]
            np.testing.assert_allclose(
                drawn[name][1:], np.stack([runs[name].ts, values], 1)[1:][-len(drawn[name]) + 1 :]
            )
        # gradient descent lies on the flow
        on_flow = np.interp(drawn["gd"][:, 0], drawn["flow"][:, 0], drawn["flow"][:, 1])
        near = on_flow > 1e-3
        np.testing.assert_allclose(drawn["gd"][near, 1], on_flow[near], rtol=0.3)
    (scale,) = (line for line in bottom.get_lines() if line.get_label() == "adam")
    assert np.asarray(scale.get_ydata())[-1] == pytest.approx(runs["adam"].final["wK"] * runs["adam"].final["wQ"])
    points = [line.get_xydata()[0] for line in middle.get_lines() if line.get_linestyle() == "None"]
    for (t, level), milestone in zip(points, (r.milestones["T_III"] for r in runs.values()), strict=True):
        assert t == pytest.approx(milestone.time)
        assert level == pytest.approx(0.01 / 0.99**2, rel=0.1)


def test_runs_without_named_parts_show_their_total() -> None:
    run = gflow.descend(lambda w: 0.5 * w**2, 1.0, "gd", 50, lr=0.1)
    (axes,) = overlay({"a": run, "b": run}).axes
    assert len(axes.get_lines()) == 2


def test_what_cannot_be_drawn_together(runs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="0 runs given"):
        overlay({})
    with pytest.raises(InputError, match="7 runs given; give 1 to 6"):
        overlay({str(k): runs["gd"] for k in range(7)})
    with pytest.raises(InputError, match="still ended where it began"):
        overlay({"gd": runs["gd"], "still": gflow.descend(Chain(), START, "gd", 0)})


def test_saved_runs_on_one_figure(runs: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(r.save(tmp_path / f"{name}.nc")) for name, r in runs.items()]
    figure = tmp_path / "all.svg"
    assert run(["plot", *files, "--out", str(figure), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [told["run"], *told["others"]] == files
    assert figure.stat().st_size > 5000
    assert run(["plot", files[0], files[0], "--out", str(tmp_path / "twice.svg"), "--quiet"]) == 2
    assert "given twice" in capsys.readouterr().err
