"""Work for worker processes: cheap, and with traces in a folder.

As a script: `chores.py KIND FOLDER` lets two workers sleep, and says who they are.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any


def power(x: int) -> Any:
    """x^2; below 0 it fails, and 0 gives what cannot be sent."""
    if x < 0:
        raise ValueError(f"{x} is\ntoo little")
    return x * x if x else threading.Lock()


def trace(task: tuple[str, int, float]) -> int:
    """Leave a file behind, then take `seconds`."""
    folder, number, seconds = task
    (Path(folder) / f"{number}-{os.getpid()}-{uuid.uuid4().hex[:6]}").touch()
    time.sleep(seconds)
    return number


def die_at_first(task: tuple[str, int]) -> int:
    """The first time it is run it ends its process, as the kernel does when memory is short."""
    folder, number = task
    before = list(Path(folder).glob(f"{number}-*"))
    trace((folder, number, 0.0))
    if not before:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(task: int) -> int:
    """3 always ends its process."""
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def surroundings(_: Any) -> dict[str, Any]:
    """What a task finds."""
    time.sleep(0.2)  # so that no worker is quick enough for all of them
    names = ("XLA_FLAGS", "OMP_NUM_THREADS", "JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_X64")
    return {
        "pid": os.getpid(),
        "jax": "jax" in sys.modules,
        "affinity": sorted(os.sched_getaffinity(0)),
        "environment": {name: os.environ.get(name) for name in names},
    }


def product(size: int) -> tuple[float, str]:
    """Something that JAX computes, and in which precision."""
    import jax.numpy as jnp

    x = jnp.ones((size, size)) @ jnp.ones((size, size))
    return float(x.sum()), str(x.dtype)


if __name__ == "__main__":
    import psutil

    from gflow.sweeps.executors.dask import Dask
    from gflow.sweeps.executors.local import Local

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import chores

    kind, folder = sys.argv[1:]
    executor = Dask(2, modules=()) if kind == "dask" else Local(2, modules=())
    for finished in executor.run(chores.trace, [(folder, n, 0.2 if n == 0 else 60.0) for n in range(8)]):
        if finished.task is not None:
            print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
