"""On a terminal: one progress line that is rewritten and then gone, results afterwards, Ctrl-C from the keyboard."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

pexpect = pytest.importorskip("pexpect")
pytestmark = [
    pytest.mark.skipif(not os.path.exists("/dev/ptmx"), reason="needs pseudo-terminals"),
    # pexpect forks and becomes another program at once, so JAX's threads do no harm
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

MODULE = "def bowl(p):\n    return 0.5 * p['b'] ** 2\n"
OWN = ["-m", "gflow", "integrate", "--loss", "terminal_bowl:bowl", "--init", "init.toml"]


def spawn(folder: Path, *flags: str):
    (folder / "terminal_bowl.py").write_text(MODULE)
    (folder / "init.toml").write_text("b = 2\n[milestones]\nhalf = {below_fraction = 0.5}\n")
    size = {"dimensions": (40, 120), "encoding": "utf-8", "timeout": 90}
    return pexpect.spawn(sys.executable, [*OWN, *flags], cwd=str(folder), env={**os.environ, "TERM": "xterm"}, **size)


def test_progress_then_results(tmp_path: Path) -> None:
    child = spawn(tmp_path)
    child.expect("loading JAX")
    child.expect("0.3465736")  # b^2 halves at t = log(2)/2
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before or "")
    assert "every milestone was found" in shown
    assert "integrating" not in shown.split("ended at")[-1]


def test_case_16_ctrl_c_from_the_keyboard(tmp_path: Path) -> None:
    child = spawn(tmp_path, "--t1", "1e9", "--solver", "tsit5", "--max-steps", "1e9", "--out", "run.nc")
    child.expect(r"integrating: t = \d\.\d+e\+05")
    child.sendcontrol("c")
    child.expect(r"interrupted; the run up to t = \S+ is in run\.nc")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert (tmp_path / "run.nc").stat().st_size > 0


SWEEP = """
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


@pytest.mark.parametrize("stop", [False, True])
def test_a_sweep_draws_a_bar_and_takes_it_away(tmp_path: Path, stop: bool) -> None:
    (tmp_path / "s.toml").write_text("[axes]\nL = {linspace = [10, 14, 5]}\n[options]\nchunk = 1\n")
    words = ["-c", SWEEP, "sweep", "s.toml", "--out", "s.zarr", "--executor", "serial"]
    size = {"dimensions": (40, 120), "encoding": "utf-8", "timeout": 60}
    child = pexpect.spawn(sys.executable, words, cwd=str(tmp_path), env={**os.environ, "TERM": "xterm"}, **size)
    child.expect("━")
    child.expect(r"2/5.*lanes/s, \d+ s left")
    if stop:
        child.sendcontrol("c")
        child.expect("go on with: gflow sweep s.toml --out s.zarr")
    else:
        child.expect("5 lanes: 5 done, 0 failed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == (130 if stop else 0)
    assert "━" not in (child.before or "")
