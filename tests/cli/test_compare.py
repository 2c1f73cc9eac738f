"""`gflow compare`: what an ablation runs, prints and keeps; against references, and against runs made one by one."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gflow
from gflow.cli import _ablation
from gflow.cli.main import run
from gflow.config import IntegrateConfig, TrainConfig
from gflow.config.compare import comparison
from gflow.errors import InputError

# L = 40, alpha* = 1, w* = .49, sigma = .01 (independent implementation)
FLOW = {"T_I": 205.459, "T_o": 87.3923, "T_II": 878.466, "T_III": 3181.31, "T_III_of_initial": 2667.72}


def no_constant(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def compare(words: list[str], capsys: pytest.CaptureFixture[str], expected: int = 0) -> dict[str, Any]:
    status = run(["compare", *words, "--json"])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return json.loads(printed.out, parse_constant=no_constant)


def test_merged_has_no_time_scale_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "fig.png"
    found = compare(["parametrization", "untied", "merged", "--out", str(tmp_path), "--plot", str(figure)], capsys)
    assert (found["status"], found["key"], found["values"]) == ("done", "parametrization", ["untied", "merged"])
    untied, merged = found["runs"]
    for name, time in FLOW.items():
        assert untied["milestones"][name] == pytest.approx(time, rel=1e-5), name
        one, ratio = found["ratios"][name]
        assert one == 1.0
        assert ratio == pytest.approx(merged["milestones"][name] / time, rel=1e-5)
    # both relax the same 4-gram part
    assert found["ratios"]["T_I"][1] == pytest.approx(1.0, rel=1e-9)
    assert untied["config"]["parametrization"] == "untied"
    assert merged["config"]["parametrization"] == "merged"
    length, per_log = found["plateau"]["length"], found["plateau"]["per_log"]
    assert length[0] == pytest.approx(FLOW["T_II"] - FLOW["T_o"], rel=1e-5)
    assert per_log[0] == pytest.approx(length[0] / math.log(100.0))
    assert found["plateau"]["separated"] == [True, False]
    assert "no time-scale separation: merged" in found["shows"][0]
    assert found["problems"] == []
    files = [tmp_path / "parametrization-untied.nc", tmp_path / "parametrization-merged.nc"]
    assert found["files"] == [*map(str, files), str(figure)]
    assert figure.read_bytes().startswith(b"\x89PNG")
    for file, told in zip(files, (untied, merged), strict=True):
        assert gflow.load(file).milestones["T_III"].time == told["milestones"]["T_III"]
    # nothing is computed, and nothing lost, when an output exists
    before = files[0].read_bytes()
    assert run(["compare", "parametrization", "tied", "untied", "--out", str(tmp_path)]) == 2
    assert "parametrization-untied.nc exists" in capsys.readouterr().err
    assert files[0].read_bytes() == before


def test_one_variant_diverges_and_the_others_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, figure = tmp_path / "run", tmp_path / "fig.svg"
    words = [
        "optimizer",
        "flow",
        "gd",
        "adam",
        "--lr",
        "8",
        "--steps",
        "30",
        "--out",
        str(start),
        "--plot",
        str(figure),
    ]
    found = compare([*words, "--quiet"], capsys, expected=1)
    assert found["status"] == "failed"
    flow, gd, _ = found["runs"]
    assert flow["milestones"]["T_III"] == pytest.approx(FLOW["T_III"], rel=1e-5)
    assert gd["status"] == "diverged"
    assert any("optimizer = gd" in problem and "stable below lr" in problem for problem in found["problems"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig.svg", "run-adam.nc", "run-flow.nc", "run-gd.nc"]


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "optimizer", "gd", "sgd", "--lr", "0.5", "--steps", "400", "--quiet"]) == 0
    out = capsys.readouterr().out
    heading, _, *rows = [line.split() for line in out.strip().splitlines()]
    assert heading == ["milestone", "gd", "sgd", "sgd/gd"]
    (early,) = (row for row in rows if row[:1] == ["T_o"])
    # without batches the two are the same, and near the flow
    assert float(early[1]) == float(early[2]) == pytest.approx(FLOW["T_o"], abs=0.6)
    assert early[3] == "1"
    assert ["T_III", "-", "-", "-"] in rows


@pytest.mark.slow
def test_an_interruption_keeps_what_is_finished(tmp_path: Path) -> None:
    words = ["compare", "optimizer", "flow", "gd", "--steps", "1e9", "--lr", "1e-3", "--out", ".", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "gflow", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        reports = 0
        for line in process.stderr:
            reports += "training: step" in line
            if reports == 4:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert found["status"] == "interrupted"
    assert [told["status"] for told in found["runs"]] == ["milestones_reached", "interrupted"]
    assert gflow.load(tmp_path / "optimizer-flow.nc").milestones["T_III"].time == pytest.approx(FLOW["T_III"], rel=1e-5)
    assert 0 < gflow.load(tmp_path / "optimizer-gd.nc").steps[-1] < 1e9
    assert "optimizer-flow.nc" in err


WRONG = [
    ("alpha 1 2", "did you mean 'alpha-star'"),
    ("alpha-star 1", "1 value of alpha-star given; give 2 to 6"),
    ("alpha-star 1 one", "is not a number"),
    ("alpha-star 1 1.0", "given twice"),
    ("alpha-star 1 -2", "alpha_star = -2 is out of range"),
    ("alpha-star 1 2 --alpha-star 3", "is what is compared"),
    ("alpha-star 1 2 --lr 0.1", "use gflow compare optimizer"),
    ("tokens gaussian cauchy", "known are gaussian"),
    ("optimizer flow sdg", "did you mean 'sgd'"),
    ("optimizer flow gd --batch 8", "add a value that reads it"),
    ("optimizer gd adam --rtol 1e-4", "rtol = 0.0001 is read by none"),
    ("optimizer flow gd --training layerwise", "known are second-layer, joint"),
    ("training second-layer joint --p11-until 2", "p11_until = 2"),
    ("L 20 40.5 --training joint", "L = 40.5 is not a whole number"),
    ("L 20 30 --out one.nc", "is one file, for 2 runs"),
    ("L 20 30 --out nowhere/run", "there is no folder"),
    ("L 20 30 --plot fig.gif", "must end in .png"),
]


def test_wrong_words_are_one_line_each_before_jax_is_loaded(tmp_path: Path) -> None:
    code = f"""
import sys
from gflow.cli.main import run
for words, part in {WRONG!r}:
    print("#", words, "|", part, file=sys.stderr)
    assert run(["compare", *words.split()]) == 2, words
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(WRONG)
    for asked, told in zip(lines[::2], lines[1::2], strict=True):
        assert asked.split(" | ")[1] in told


def test_each_run_gets_the_settings_that_it_reads() -> None:
    given = {"rtol": 1e-6, "lr": 0.05, "batch": 4, "b1": 0.8, "w_star": 0.8}
    config = comparison("optimizer", ["flow", "gd", "adam"], given, file={"L": 30, "out": "x"})
    flow, gd, adam = config.runs
    assert isinstance(flow, IntegrateConfig)
    assert isinstance(gd, TrainConfig)
    assert isinstance(adam, TrainConfig)
    assert {run.L for run in config.runs} == {30.0}
    assert {run.w_star for run in config.runs} == {0.8}
    assert flow.rtol == 1e-6
    assert (gd.lr, gd.batch, gd.b1) == (0.05, None, None)
    assert (adam.lr, adam.batch, adam.b1) == (0.05, 4, 0.8)
    assert config.overlay
    assert [run.out for run in config.runs] == list(config.outs) == ["x-flow.nc", "x-gd.nc", "x-adam.nc"]
    # a file may set what is compared; its other keys must be known
    config = comparison("alpha_star", ["0.3", "3"], {}, file={"alpha-star": 7, "sigma_init": 0.1})
    assert [run.alpha_star for run in config.runs] == [0.3, 3.0] == list(config.numbers)
    assert not config.overlay
    config = comparison("training", ["layerwise", "joint"], {"p11_until": 2.0})
    assert [run.p11_until for run in config.runs] == [2.0, None]
    for file, part in (({"alpha": 1}, "unknown key 'alpha'"), ({"loss": "a:b"}, "is for gflow integrate")):
        with pytest.raises(InputError, match=part):
            comparison("L", ["20", "30"], {}, file=file)


def test_what_the_numbers_show() -> None:
    """Times made up so that every answer is known."""
    runs: list[Any] = [{"T_o": 10.0, "T_II": 40.0, "T_III": 100.0}, None, {"T_o": 20.0, "T_II": 25.0, "T_III": None}]
    assert _ablation.ratios(runs) == {"T_o": [1, None, 2], "T_II": [1, None, 0.625], "T_III": [1, None, None]}
    waits = _ablation.plateau(runs, [math.exp(-2.0), 0.1, 2.0])
    assert waits["length"] == [30.0, None, 5.0]
    assert waits["per_log"] == [pytest.approx(15.0), None, None]
    assert waits["over_T_o"] == [3.0, None, 0.25]
    (line,) = _ablation.shows("parametrization", ["a", "b", "c"], [], runs, waits)
    assert "a 3, c 0.25" in line
    assert "time scales separate: a; no time-scale separation: c" in line
    rows = _ablation.comparison_table(["a", "b", "c"], runs, waits).splitlines()
    assert rows[0].split() == ["milestone", "a", "b", "c", "b/a", "c/a"]
    assert rows[2].split() == ["T_o", "10", "-", "20", "-", "2"]
    # T_III four times as long for alpha* = 3 as for 1, exactly what the leading order says
    two: list[Any] = [{"T_I": 7.0, "T_III": 5.0}, {"T_I": 6.0, "T_III": 20.0}]
    none = _ablation.plateau(two, [0.1, 0.1])
    scale, order = _ablation.shows("alpha-star", ["1", "3"], [1.0, 3.0], two, none)
    assert "T_III goes as 1, 4;" in scale
    assert scale.endswith("(1 + alpha*)^2: 1, 4")
    assert order == "4-gram part learned (T_I) before the induction part is (T_III): 3"
    two = [{"A": 1.0, "B": 2.0}, {"A": 1.1, "B": 1.0}]
    (change,) = _ablation.shows("tokens", ["x", "y"], [], two, none)
    assert change == "y against x: no time changes by more than that of B, -50%"
