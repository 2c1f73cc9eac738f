"""`gflow sweep`: what it prints, writes and returns, and how it is stopped."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gflow
from gflow.cli.main import run
from gflow.sweeps import driver
from gflow.sweeps.tasks import ChunkResult, ChunkTask

FILE = """
[fixed]
w_star = 1.0
[axes]
L = [10, 20, 3]
sigma_init = {logspace = [1e-4, 1e-1, 8]}
tokens = ["gaussian", {values = [-1, 1], probabilities = [0.5, 0.5]}]
[options]
chunk = 6
"""


def no_constant(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def compute(task: ChunkTask) -> ChunkResult:
    """Lanes that cost nothing; of those from 1e-4, T_III is not reached."""
    sigma = np.asarray(task.column("sigma_init"), dtype=float)
    columns = {name: np.full(task.size, 2.0) for name in task.columns}
    columns["T_III"] = np.where(sigma < 2e-4, np.nan, 1.0 / sigma)
    columns["status"] = np.where(sigma < 2e-4, 2.0, 1.0)
    seconds = {"tables": 0.0, "compile": 0.0, "solve": 0.5}
    return ChunkResult(task.index, columns, [], seconds, provenance={"worker": "w"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "compute_chunk", compute)
    (tmp_path / "sweep.toml").write_text(FILE)
    return tmp_path


def sweep(words: str, capsys: pytest.CaptureFixture[str], expected: int = 0) -> dict[str, Any]:
    status = run(["sweep", *shlex.split(words), "--executor", "serial", "--json"])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return json.loads(printed.out, parse_constant=no_constant)


def test_the_object_and_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep("sweep.toml --out s.zarr --table t.parquet", capsys, expected=1)
    assert (found["status"], found["lanes"], found["failed"], found["not_reached"], found["pending"]) == (
        "failed", 48, 16, 4, 0,
    )  # fmt: skip
    assert set(found["seconds"]) == {"tables", "compile", "solve", "store", "total"}
    # 32 lanes in eight chunks of half a second
    assert (found["seconds"]["solve"], found["lanes_per_second"], found["workers"]) == (4.0, 8.0, 1)
    assert (found["store"], found["table"], found["problems"]) == ("s.zarr", "t.parquet", [])
    assert found["ranges"]["T_III"] == {"min": pytest.approx(10.0), "max": pytest.approx(1e4 / 10 ** (3 / 7))}
    reason = "L = 3 is out of range (the target needs at least 4 tokens); give a value >= 4 and <= 1e+12"
    assert found["reasons"] == {reason: 16}
    assert found["failures"][4] == {"L": 3, "sigma_init": 1e-4, "tokens": "-1:0.5,1:0.5", "reason": reason}
    table: Any = pd.read_parquet("t.parquet")
    with gflow.load("s.zarr") as store:
        assert len(table) == 48
        for row in (0, 17, 30, 47):
            one = table.iloc[row]
            lane = store.sel(L=one["L"], sigma_init=one["sigma_init"], tokens=one["tokens"])
            for name, value in lane.data_vars.items():
                if name != "status":
                    np.testing.assert_equal(float(value), float(one[str(name)]))
    assert table["status"].value_counts().to_dict() == {
        "done": 28, "failed": 16, "done_some_milestone_not_reached": 4, "pending": 0,
    }  # fmt: skip
    assert set(table.loc[table["L"] == 3, "reason"]) == {reason}
    assert table.loc[table["L"] != 3, "reason"].isna().all()
    # again: refused; with --resume nothing is left to do, and the exit status is that of the sweep
    assert "go on with it by --resume" in sweep("sweep.toml --out s.zarr", capsys, expected=2)["message"]
    again = sweep("sweep.toml --out s.zarr --resume --table t.csv", capsys, expected=1)
    assert (again["computed"], again["lanes_per_second"], again["failed"]) == (0, None, 16)
    csv: Any = pd.read_csv("t.csv")
    np.testing.assert_array_equal(csv["T_III"], table["T_III"])
    assert csv["reason"][32] == reason
    # the store knows its file
    assert sweep("--out s.zarr --resume", capsys, expected=1)["lanes"] == 48
    assert sweep("sweep.toml --out s.zarr --overwrite --chunk 48", capsys, expected=1)["computed"] == 48


def test_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sweep.toml").write_text("[axes]\nsigma_init = [0.1, 0.2]\n[options]\nmilestones = ['T_III']")
    assert run(["sweep", "sweep.toml", "--out", "s.zarr", "--executor", "serial"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1:5] == [
        "2 lanes: 2 done, 0 failed",
        "",
        "milestone  earliest  latest",
        "---------  --------  ------",
    ]
    assert "T_III             5      10" in told.out
    assert re.search(r"2 lanes computed in \d+ s: tables 0 s, compilation 0 s, solve 0.5 s", told.out)
    lines = told.err.splitlines()
    assert lines[0] == "sweep of 2 lanes (sigma_init 2) in one chunk"
    assert lines[1] == "0 of 2 lanes, starting"
    assert lines[-1] == "wrote s.zarr"
    assert run(["sweep", "--out", "s.zarr", "--resume", "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "nothing was left to compute" in told.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("sweep.toml", "--out is missing"),
        ("--out s.zarr", "the sweep file is missing"),
        ("none.toml --out s.zarr", "no such file"),
        ("sweep.toml --out s.zarr --table t.txt", "must end in .parquet or .csv"),
        ("sweep.toml --out s.zarr --table none/t.csv", "there is no folder"),
        ("sweep.toml --out none/s.zarr", "there is no folder"),
        ("sweep.toml --out sweep.toml", "is not the store of a sweep"),
        ("sweep.toml --out s.zarr --resume --overwrite", "give one of them"),
        ("sweep.toml --out s.zarr --executor clsuter", "executor = 'clsuter' is unknown"),
        ("sweep.toml --out s.zarr --scheduler tcp://a:1", "needs --executor dask"),
        ("sweep.toml --out s.zarr --workers 0", "workers = 0 is out of range"),
        ("sweep.toml --out s.zarr --workers 1.5", "not a whole number"),
        ("sweep.toml --out s.zarr --chunk 0", "chunk = 0 is out of range"),
        ("--out none.zarr --resume", "is not the store of a sweep"),
    ],
)
def test_wrong_words_are_one_line(folder: Path, words: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *words.split()]) == 2
    told = capsys.readouterr()
    assert part in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert [path.name for path in folder.iterdir()] == ["sweep.toml"]


def test_a_table_that_cannot_be_written_costs_no_lane(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gflow.sweeps import table

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    (folder / "sweep.toml").write_text("[axes]\nsigma_init = [0.1, 0.2]")
    monkeypatch.setattr(table, "write", full)
    found = sweep("sweep.toml --out s.zarr --table t.csv", capsys, expected=1)
    assert (found["status"], found["failed"], found["table"]) == ("failed", 0, None)
    assert "No space left on device" in found["problems"][0]


def test_a_full_disk_is_one_line_and_says_how_to_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr

    put = zarr.storage._local._put
    left = [100]

    def full(path: Path, *rest: Any, **kind: Any) -> Any:
        left[0] -= path.name.startswith("c.")
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return put(path, *rest, **kind)

    monkeypatch.setattr(zarr.storage._local, "_put", full)
    assert run(["sweep", "sweep.toml", "--out", "s.zarr", "--executor", "serial", "--json", "--quiet"]) == 1
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["status"], told["error"], told["exit_status"]) == ("failed", "StoreError", 1)
    # the lanes that no worker is needed for come first, in four chunks whose columns are all empty
    assert 16 <= told["done"] < 48 == told["lanes"] == told["done"] + told["pending"]
    line = (
        "gflow: s.zarr: no space left on device; what was computed before is kept; free some space, "
        "then go on with: gflow sweep sweep.toml --out s.zarr --resume --executor serial\n"
    )
    assert printed.err == line
    left[0] = 10**6
    assert sweep("sweep.toml --out s.zarr --resume", capsys, expected=1)["computed"] == 48 - told["done"]


def test_lanes_are_computed_again_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.toml").write_text(
        "[axes]\nsigma_init = [1e-3, 1e-2]\nalpha_star = [0.5, 2]\n[options]\ncheck = 2\n"
    )
    words = f"{tmp_path}/sweep.toml --out {tmp_path}/s.zarr"
    told = sweep(words, capsys)["check"]
    assert (told["lanes"], told["unlike"]) == (2, 0)
    assert 0 < told["largest_difference"] < 3e-6
    assert sweep(f"{words} --resume", capsys)["check"] == told


def test_case_18_one_bad_lane_of_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """63 results that are those of `gflow integrate`, one failure by name, exit status 1."""
    values = np.geomspace(1e-4, 1e-1, 64).tolist()
    values[40] = 0.0
    (tmp_path / "sweep.toml").write_text(f"[fixed]\nw_star = 1\n[axes]\nsigma_init = {values!r}\n")
    found = sweep(f"{tmp_path}/sweep.toml --out {tmp_path}/s.zarr", capsys, expected=1)
    assert (found["lanes"], found["failed"]) == (64, 1)
    (failure,) = found["failures"]
    assert failure["sigma_init"] == 0
    assert "sigma_init = 0 is out of range" in failure["reason"]
    with gflow.load(tmp_path / "s.zarr") as store:
        assert np.flatnonzero(np.isnan(store["T_III"])).tolist() == [40]
        assert np.flatnonzero(store["status"] != 1).tolist() == [40]
        for lane in (0, 63):
            words = ["--w-star", "1", "--sigma-init", repr(values[lane]), "--json"]
            assert run(["integrate", *words]) == 0
            alone = json.loads(capsys.readouterr().out)
            row = store.isel(sigma_init=lane)
            for name, when in alone["milestones"].items():
                assert float(row[name]) == pytest.approx(when, rel=1e-6), name
            assert float(row["growth_rate"]) == pytest.approx(alone["predictions"]["growth_rate"], rel=1e-7)
            assert float(row["plateau"]) == pytest.approx(alone["losses"]["induction"]["plateau"], rel=1e-9)
            assert float(row["loss_induction_initial"]) == pytest.approx(
                alone["losses"]["induction"]["initial"], rel=1e-9
            )


SLOW = """
import sys, time
from gflow.sweeps import driver
def slow(task):
    time.sleep(0.2)
    import numpy as np
    from gflow.sweeps.tasks import ChunkResult
    return ChunkResult(task.index, {n: np.ones(task.size) for n in task.columns}, [], {"solve": 0.2})
driver.compute_chunk = slow
from gflow.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_case_16_an_interruption_keeps_what_is_done(tmp_path: Path, number: int) -> None:
    (tmp_path / "a b.toml").write_text("[axes]\nL = {linspace = [10, 99, 90]}\n[options]\nchunk = 1\n")
    words = ["sweep", "a b.toml", "--out", "s.zarr", "--executor", "serial", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        records = tmp_path / "s.zarr" / "status" / ".gflow"
        while len(list(records.glob("0*.json"))) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        asked = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - asked < 3.0
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["status"] == "interrupted"
    assert told["lanes"] == 90
    assert 3 <= told["done"] == len(list(records.glob("0*.json"))) < 90
    again = "gflow sweep 'a b.toml' --out s.zarr --resume --executor serial"
    assert again in told["message"]
    assert again in err
    assert "Traceback" not in err


def test_case_16_an_interruption_while_jax_is_busy(tmp_path: Path) -> None:
    """The lanes are real, and nothing of theirs is in a cache: the first minute is tables and compilation."""
    import os

    (tmp_path / "s.toml").write_text("[axes]\nL = [1000]\nw_star = [1.3]\n")
    words = [sys.executable, "-m", "gflow", "sweep", "s.toml", "--out", "s.zarr", "--executor", "serial"]
    environment = {**os.environ, "GFLOW_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as process:
        while not (tmp_path / "s.zarr").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(4.0)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert time.monotonic() - asked < 3.0
    assert process.returncode == 130, err
    assert "go on with: gflow sweep s.toml --out s.zarr --resume --executor serial" in err
    with gflow.load(tmp_path / "s.zarr") as found:
        assert found["status"].values.tolist() == [[0]]
