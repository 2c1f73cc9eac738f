"""Case 16: Ctrl-C and SIGTERM stop a run, keep what is done, and say where it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gflow

# explicit steps of a decaying flow, limited by stability: 1e9 units of time would take hours
MODULE = "def bowl(p):\n    return 0.5 * p['b'] ** 2\n"
COMMAND = [
    *(sys.executable, "-m", "gflow", "integrate", "--loss", "endless_bowl:bowl", "--init", "init.toml"),
    *("--t1", "1e9", "--solver", "tsit5", "--max-steps", "1e9", "--out", "run.nc"),
]


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    (folder / "endless_bowl.py").write_text(MODULE)
    (folder / "init.toml").write_text("b = 2\n")
    return subprocess.Popen(
        [*COMMAND, *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    pytest.fail(f"{word!r} was never printed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_case_16_partial_results_are_saved_and_named(number: signal.Signals, tmp_path: Path) -> None:
    with start(tmp_path, "--json") as process:
        # the third report comes after some seconds of integration
        for _ in range(2):
            wait_for(process, "integrating: ")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "run.nc" in err
    assert "Traceback" not in err
    found = json.loads(out)
    assert found["status"] == "interrupted"
    saved = gflow.load(tmp_path / "run.nc")
    assert saved.status is gflow.Status.interrupted
    assert 0 < saved.t1_reached == found["t1_reached"] < 1e9
    assert saved.params["b"][0] == 2.0


def test_case_16_before_there_is_anything_to_save(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        wait_for(process, "loading JAX")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "interrupted; nothing was saved" in err
    assert "Traceback" not in err
    assert not (tmp_path / "run.nc").exists()
    assert not list(tmp_path.glob(".gflow*"))
