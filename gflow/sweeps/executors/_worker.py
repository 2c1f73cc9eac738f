"""What runs in a worker process: prepare for JAX, then answer requests until the connection ends.

Everything here is imported by processes that have not loaded JAX yet, and must not load it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from gflow.io.compilation import enable_compilation_cache
from gflow.sweeps.executors._protocol import one_line

ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PJRT_NPROC": "1"}
XLA_ALONE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_ready = threading.Event()
_turn = threading.Lock()


def single_threaded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which JAX and BLAS compute in one thread, for a process that has a core to itself."""
    flags = environment.get("XLA_FLAGS", "")
    if "--xla_cpu_multi_thread_eigen" not in flags:
        flags = f"{flags} {XLA_ALONE}".strip()
    return {**environment, **ALONE, "XLA_FLAGS": flags}


def load(modules: Iterable[str]) -> None:
    """Import what tasks are going to need; what fails here fails again, and is told, in a task."""
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def remote(function: Callable[[Any], Any], task: Any) -> Any:
    """`function(task)` in a worker that somebody else started; one task at a time, whatever its number of threads."""
    with _turn:
        if not _ready.is_set():
            if "jax" not in sys.modules:
                os.environ.update(single_threaded(os.environ))
            enable_compilation_cache()
            _ready.set()
        return function(task)


def serve(handle: int, core: int | None, modules: tuple[str, ...], ask_backend: bool) -> None:
    """Answer requests on a connection: pickled (function, task) in, pickled (True, result) or (False, text) out.

    The first word is (True, backend): None, or the platform that JAX computes on if asked for. Ctrl-C belongs to the
    coordinator. When it dies the connection ends, and so does this process, in the middle of a task if need be.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if core is not None:
        with contextlib.suppress(OSError):  # the core may have been taken away meanwhile
            os.sched_setaffinity(0, {core})
    connection = Connection(handle)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    enable_compilation_cache()
    load(modules)
    backend = importlib.import_module("jax").default_backend() if ask_backend else None
    reply = pickle.dumps((True, backend))
    while True:
        try:
            connection.send_bytes(reply)
        except OSError:
            os._exit(1)
        reply = _answer(requests.get())


def _receive(connection: Connection, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def _answer(request: bytes) -> bytes:
    try:
        function, task = pickle.loads(request)
        return pickle.dumps((True, function(task)), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return pickle.dumps((False, one_line(error)))
