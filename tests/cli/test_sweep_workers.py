"""`gflow sweep` with worker processes and lanes that are real: killed, resumed, interrupted, the same bit for bit."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import gflow

pytestmark = pytest.mark.slow
FILE = """
[fixed]
w_star = 1.0
[axes]
L = [20, 30]
sigma_init = {logspace = [1e-3, 1e-1, 8]}
parametrization = ["untied", "tied"]
[options]
chunk = 4
"""
WORDS = [sys.executable, "-m", "gflow", "sweep", "sweep.toml", "--workers", "2"]


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "sweep.toml").write_text(FILE)
    return subprocess.Popen(
        [*WORDS, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def done(out: Path) -> int:
    return len(list((out / "status" / ".gflow").glob("0*.json")))


def wait_for(process: subprocess.Popen[str], out: Path, chunks: int) -> None:
    deadline = time.monotonic() + 120
    while done(out) < chunks and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def test_killed_and_resumed_it_is_the_same_and_leaves_no_worker(tmp_path: Path) -> None:
    with begin(tmp_path, "--out", "whole.zarr", "--json") as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert (told["lanes"], told["failed"], told["workers"]) == (32, 0, 2)
    kept = 0
    for _ in range(3):
        with begin(tmp_path, "--out", "killed.zarr", "--resume") as process:
            wait_for(process, tmp_path / "killed.zarr", kept + 1)
            workers = family(process)
            process.kill()
            process.communicate()
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert alive == []
        kept = done(tmp_path / "killed.zarr")
    with begin(tmp_path, "--out", "killed.zarr", "--resume", "--json") as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out)["computed"] == 32 - 4 * kept
    with gflow.load(tmp_path / "whole.zarr") as whole, gflow.load(tmp_path / "killed.zarr") as killed:
        for name, values in whole.variables.items():
            np.testing.assert_array_equal(values.values, killed[name].values, err_msg=str(name))


def test_case_16_ctrl_c_stops_the_workers_too(tmp_path: Path) -> None:
    with begin(tmp_path, "--out", "s.zarr") as process:
        wait_for(process, tmp_path / "s.zarr", 1)
        workers = family(process)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - asked < 3.0
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert alive == []
    assert process.returncode == 130, err
    assert "go on with: gflow sweep sweep.toml --out s.zarr --resume --workers 2" in err


def test_a_dask_worker_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    with begin(tmp_path, "--out", "local.zarr", "--json") as process:
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    with begin(tmp_path, "--out", "dask.zarr", "--executor", "dask", "--json") as process:
        wait_for(process, tmp_path / "dask.zarr", 2)
        # not the resource tracker of multiprocessing
        workers = [child for child in family(process) if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 2
        workers[0].kill()
        left = done(tmp_path / "dask.zarr")
        out, err = process.communicate(timeout=240)
    assert left < 8
    assert process.returncode == 0, err
    told = json.loads(out)  # nothing of Dask's own on stdout
    assert (told["lanes"], told["computed"], told["failed"], told["pending"]) == (32, 32, 0, 0)
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    with gflow.load(tmp_path / "local.zarr") as local, gflow.load(tmp_path / "dask.zarr") as dask:
        for name, values in local.variables.items():
            np.testing.assert_array_equal(values.values, dask[name].values, err_msg=str(name))
