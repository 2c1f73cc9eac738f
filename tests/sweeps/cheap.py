"""Lanes that cost nothing: numbers that depend on a lane's values alone, for tests of what happens around them.

As a script: `cheap.py SLEEP FILE OUT [--resume]` runs a sweep of them, SLEEP seconds per chunk.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from gflow.sweeps.tasks import ChunkResult, ChunkTask

SLEEP = 0.0


def compute(task: ChunkTask) -> ChunkResult:
    """sigma_init above 0.09 fails; L = 7 raises."""
    time.sleep(SLEEP)
    sigma = np.asarray(task.column("sigma_init", 0.01), dtype=float)
    L = np.asarray(task.column("L", 40.0), dtype=float)
    if np.any(L == 7.0):
        raise RuntimeError("seven is too much")
    columns = {name: np.sin(L * 1e3 + 1e5 * sigma + i) for i, name in enumerate(task.columns)}
    columns["T_III"] = np.where(sigma < 1e-3, np.nan, L / sigma)
    columns["steps"] = np.rint(1e3 * L)
    columns["status"] = np.where(sigma < 1e-3, 2.0, 1.0)
    failures = [(int(i), f"sigma_init = {sigma[i]:g} is too much") for i in np.flatnonzero(sigma > 0.09)]
    seconds = {"tables": 0.25, "compile": 0.5, "solve": 0.125}
    return ChunkResult(task.index, columns, failures, seconds, {"size": task.size}, {"gflow": "cheap", "worker": "w"})


if __name__ == "__main__":
    from gflow.sweeps import driver

    SLEEP = float(sys.argv[1])
    driver.compute_chunk = compute
    driver.sweep(sys.argv[2], sys.argv[3], executor="serial", resume="--resume" in sys.argv)
    assert "jax" not in sys.modules
