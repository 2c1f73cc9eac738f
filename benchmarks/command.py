"""Seconds and peak memory of the command line on a fresh machine: help, first integrate, second integrate.

    python benchmarks/command.py

Each run is a process of its own with a cache folder that is empty at first; memory is the child's peak resident size.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLAGSHIP = [
    "integrate",
    "--L",
    "100",
    "--alpha-star",
    "1",
    "--w-star",
    "1",
    "--sigma-init",
    "1e-6",
    "--json",
    "--overwrite",
]


def main() -> None:
    """Print one line per command."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = ["--out", str(Path(folder) / "run.nc"), "--plot", str(Path(folder) / "run.png")]
        runs = [
            ("gflow --help", ["--help"]),
            ("gflow --help, again", ["--help"]),
            ("gflow integrate, first time on a machine", [*FLAGSHIP, *outputs]),
            ("gflow integrate, second time", [*FLAGSHIP, *outputs]),
            ("gflow integrate, third time", [*FLAGSHIP, *outputs]),
        ]
        environment = os.environ | {"GFLOW_CACHE_DIR": str(Path(folder) / "cache")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        print(f"{'command':<42} {'seconds':>8} {'peak MB so far':>15} exit")
        for name, arguments in runs:
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "gflow", *arguments], env=environment, stdout=subprocess.PIPE, check=False
            )
            seconds = time.perf_counter() - started
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"{name:<42} {seconds:8.2f} {peak:15.0f} {done.returncode:4d}", flush=True)


if __name__ == "__main__":
    main()
