"""`gflow integrate --json` against reference runs of an independent implementation (relative error below 1e-5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gflow
from gflow.cli.main import run

KEYS = ("T_I", "T_o", "T_II", "T_III", "T_III_of_initial", "growth_rate")
REFERENCE = {
    "default": ("", (205.459, 87.3923, 878.466, 3181.31, 2667.72, 1.523829e-3)),
    "flagship": (
        "--L 100 --w-star 1 --sigma-init 1e-6",
        (208.4286, 225.653, 5203.435, 6066.08, 6040.97, 2.271529e-3),
    ),
    "tied": (
        "--L 64 --w-star 0.8 --sigma-init 1e-3 --parametrization tied",
        (207.289, 142.752, 946.457, 1495.65, 1459.87, 4.819605e-3),
    ),
    "rademacher": ("--w-star 0.8 --tokens rademacher", (205.459, 87.1861, 494.215, 1653.11, 1453.54, 3.669751e-3)),
}


def no_constant(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def integrate(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    status = run(["integrate", "--json", *words])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return json.loads(printed.out, parse_constant=no_constant)


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, expected = REFERENCE[name]
    found = integrate(flags.split(), capsys)
    values = {**found["milestones"], "growth_rate": found["predictions"]["growth_rate"]}
    for key, value in zip(KEYS, expected, strict=True):
        assert values[key] == pytest.approx(value, rel=1e-5), key
    assert found["status"] == "milestones_reached"
    # each time lies within a few of its own errors of the truth, which is known to the digits printed
    assert all(0 < d["error"] < 1e-5 * values[k] + 1e-9 for k, d in found["milestone_details"].items())


def test_the_object_has_the_promised_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.nc"
    found = integrate(["--L", "100", "--w-star", "1", "--sigma-init", "1e-6", "--out", str(out)], capsys)
    assert set(found["milestones"]) == {"T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial"}
    assert set(found["losses"]["induction"]) == {"initial", "plateau", "final"}
    assert set(found["losses"]["fourgram"]) == {"initial", "final"}
    for end in ("initial", "final"):
        assert set(found["params"][end]) == {"p11", "p21", "v1", "v2", "wK", "wQ"}
        assert found["params"][end]["p11"] == "inf"
    assert found["params"]["initial"]["wK"] == 1e-6
    assert found["params"]["final"]["wK"] == pytest.approx(1.0, rel=1e-6)
    assert found["params"]["final"]["v2"] == pytest.approx(0.5, rel=1e-6)
    assert 0 < found["error_bound"]["loss_relative"] < 1e-6
    assert set(found["seconds"]) >= {"table", "compile", "solve"}
    assert found["steps"]["accepted"] > 0
    assert found["config"]["L"] == 100.0
    # the plateau is long here, so the rate measured on it is the rate of its theory
    assert found["measured"]["growth_rate"] == pytest.approx(found["predictions"]["growth_rate"], rel=1e-5)
    saved = gflow.load(out)
    assert saved.milestones["T_III"].time == found["milestones"]["T_III"]
    assert isinstance(saved.params, gflow.UntiedParams)
    assert saved.provenance["config"]["w_star"] == 1.0


def test_a_level_never_crossed_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    found = integrate(["--t1", "300"], capsys)
    assert found["status"] == "reached_t1"
    assert found["t1_reached"] == 300.0
    assert found["milestones"]["T_III"] is None
    assert found["milestone_details"]["T_III"]["status"] == "not_reached_by_t1"
    assert found["milestones"]["T_I"] == pytest.approx(205.459, rel=1e-5)


def test_merged_has_no_growth_rate(capsys: pytest.CaptureFixture[str]) -> None:
    found = integrate(["--parametrization", "merged", "--w-star", "0.8"], capsys)
    assert found["predictions"]["growth_rate"] is None
    assert found["measured"]["growth_rate"] is None
    assert set(found["params"]["final"]) == {"p11", "p21", "v1", "v2", "w"}
    assert found["params"]["final"]["w"] == pytest.approx(0.64, rel=0.02)  # still closing in on w*^2


def test_a_configuration_file_with_a_law_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fair coin given by its values is the Rademacher law by name."""
    file = tmp_path / "run.toml"
    file.write_text("w_star = 0.8\nL = 64\ntokens = {values = [-1, 1], probabilities = [0.5, 0.5]}\n")
    found = integrate(["--config", str(file), "--L", "40"], capsys)
    for key, value in zip(KEYS[:-1], REFERENCE["rademacher"][1], strict=False):
        assert found["milestones"][key] == pytest.approx(value, rel=1e-5), key
    assert found["config"]["tokens"] == {"values": [-1.0, 1.0], "probabilities": [0.5, 0.5]}


def test_the_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "run.png"
    assert run(["integrate", "--quiet", "--plot", str(figure)]) == 0
    out = capsys.readouterr().out
    for word in ("predicted", "measured/predicted", "3181.3", "every milestone was found", "plateau", "growth rate"):
        assert word in out
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_plot_of_a_saved_run(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, figure = tmp_path / "run.nc", tmp_path / f"run{suffix}"
    integrate(["--out", str(saved)], capsys)
    assert run(["plot", str(saved), "--out", str(figure)]) == 0
    assert figure.stat().st_size > 5000
    assert run(["plot", str(saved), "--out", str(figure)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(["plot", str(saved), "--out", str(figure), "--overwrite"]) == 0


def test_plot_of_something_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "not.nc").write_text("hello")
    for name in ("not.nc", "none.nc"):
        assert run(["plot", str(tmp_path / name), "--out", str(tmp_path / "a.png"), "--quiet"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert name in err


def test_keys_and_queries_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """wK^2 - wQ^2 is conserved; what theory says about wK = wQ is left out."""
    found = integrate(["--w-star", "1", "--sigma-init", "0.01", "--wK-init", "0.3", "--wQ-init", "0.02"], capsys)
    start, end = found["params"]["initial"], found["params"]["final"]
    assert (start["v2"], start["wK"], start["wQ"]) == (0.01, 0.3, 0.02)
    assert end["wK"] ** 2 - end["wQ"] ** 2 == pytest.approx(0.3**2 - 0.02**2, rel=1e-6)
    assert end["wK"] * end["wQ"] == pytest.approx(1.0, rel=1e-2)
    told = {name for name, value in found["predictions"].items() if value is not None}
    assert told == {"T_I", "T_o", "growth_rate"}
    assert (found["config"]["wK_init"], found["config"]["wQ_init"]) == (0.3, 0.02)
