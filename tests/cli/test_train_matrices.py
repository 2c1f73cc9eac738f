"""`gflow train matrices`: what it prints and writes, the mechanism's verdicts, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gflow import load
from gflow.cli.main import run
from gflow.training.matrices import start_ranks

SMALL = ["--d", "3", "--L", "8", "--batch", "16", "--evaluation", "32"]


def no_constant(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def train(words: list[str], capsys: pytest.CaptureFixture[str], expected: int = 0) -> dict[str, Any]:
    status = run(["train", "matrices", "--json", *words])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return json.loads(printed.out, parse_constant=no_constant)


def test_a_run_with_its_file_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figure = tmp_path / "run.nc", tmp_path / "run.png"
    words = [*SMALL, "--steps", "300", "--seeds", "3", "--seed", "7", "--lr", "0.01"]
    found = train([*words, "--out", str(out), "--plot", str(figure)], capsys)
    saved = load(out)
    assert found["status"] == "reached_steps"
    assert found["config"]["d"] == 3
    assert found["steps"] == 300 == saved.steps[-1]
    assert [row["seed"] for row in found["seeds"]] == [7, 8, 9] == saved.seeds.tolist()
    assert [row["start_rank"] for row in found["seeds"]] == start_ranks(np.arange(7, 10), 3).tolist()
    for i, row in enumerate(found["seeds"]):
        assert row["final"]["induction"] == saved.induction[i, -1]
        assert row["singular_KQ"] == saved.singular_KQ[i, -1].tolist()
        assert row["steps_to"]["50%"] == pytest.approx(saved.passage(0.5)[i])
    assert set(found["steps_to"]) == {"50%", "10%", "1%"}
    assert found["seconds"]["train"] > 0
    assert saved.provenance["config"]["seeds"] == 3
    assert saved.provenance["seed"] == 7
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert run(["train", "matrices", *words, "--out", str(out), "--quiet"]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "matrices", *SMALL, "--steps", "300", "--seeds", "3", "--lr", "0.01", "--quiet"]) == 0
    out = capsys.readouterr().out
    for word in ("seed", "rank", "50%", "1%", "interior plateaus of the induction loss", "median"):
        assert word in out


def test_divergence_is_told_and_what_came_before_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.nc"
    words = [*SMALL, "--optimizer", "sgd", "--lr", "60", "--steps", "300", "--seeds", "3", "--out", str(out)]
    status = run(["train", "matrices", "--json", *words])
    printed = capsys.readouterr()
    found = json.loads(printed.out, parse_constant=no_constant)
    assert status == 1
    assert found["status"] == "failed"
    assert [f["seed"] for f in found["failures"]] == [0, 1, 2]
    for failure in found["failures"]:
        assert f"seed {failure['seed']}: {failure['quantity'].removesuffix(' (exploded)')}" in printed.err
        assert f"step {failure['step']}" in printed.err
    assert np.all(np.isfinite(load(out).induction[:, 0]))


def test_the_mechanism_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds of each rank, too short to finish: every claim is there, none is decided, nothing is a surprise."""
    words = ["--test-mechanism", "--d", "3", "--L", "8", "--batch", "16", "--steps", "10", "--seeds", "2"]
    found = train([*words, "--evaluation", "32"], capsys)
    about = found["mechanism"]
    assert about["d"] == 3
    assert about["seeds"] == len(found["seeds"]) == 6
    assert about["unfinished"] == [row["seed"] for row in found["seeds"]]
    names = {(claim["matrix"], claim["name"]) for claim in about["claims"]}
    assert names >= {(m, n) for m in ("initial", "formed") for n in ("association", "exactly", "level", "number")}
    assert all(claim["verdict"] == "undecided" for claim in about["claims"])
    assert about["control"] == {"name": "rank of sign(W_V1)", "rejected": True}
    assert about["surprises"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batch 0", "batch = 0 is out of range"),
        ("--L 3", "needs at least 4 tokens"),
        ("--optimizer adm", "did you mean 'adam'"),
        ("--optimizer sgd --eps 1e-3", "eps = 0.001 has no meaning"),
        ("--optimizer sgd --test-mechanism", "leave one of the two out"),
        ("--test-mechanism --d 1", "give d >= 2"),
        ("--d 200 --seeds 4000", "do not fit"),
        ("--lr 0", "lr = 0"),
        ("--out run.txt", "must end in .nc"),
    ],
)
def test_what_is_wrong_is_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "matrices", "--quiet", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
