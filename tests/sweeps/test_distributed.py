"""What docs/cluster.md says of `jax.distributed`: two processes share an ensemble, and find what one finds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster" / "two_processes.py"


@pytest.mark.slow
def test_two_processes_find_what_one_finds() -> None:
    words = [sys.executable, str(SCRIPT), "--processes", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, **pipes, text=True, start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=240)
        finally:
            if process.poll() is None:  # one that waits for another would wait long
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out
    assert "4096 lanes by 2 processes: largest relative difference to one process" in out
