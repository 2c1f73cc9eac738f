"""A worker process as its coordinator sees it: started, asked, replaced when it dies."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gflow.errors import WorkerError
from gflow.sweeps.executors._protocol import ATTEMPTS
from gflow.sweeps.executors._worker import single_threaded

# not multiprocessing's own way of starting: that runs the user's script once more in every worker
_START = (
    "import sys; sys.path[:] = {path!r}; from gflow.sweeps.executors._worker import serve; "
    "serve({handle}, {core}, {modules!r}, {ask_backend})"
)


class TaskError(Exception):
    """A task ended without a result; the text says why."""


class WorkerProcess:
    """One worker: `call` blocks, for use from a thread of its own.

    `core`: which one it is bound to; `modules`: imported before the first task. `alone`: one of several on the CPU.
    """

    def __init__(self, core: int | None, modules: tuple[str, ...], *, alone: bool = True) -> None:
        self._core, self._modules, self._alone = core, modules, alone
        self._closed = False
        self._starting = threading.Lock()
        self._start()

    def _start(self) -> None:
        here, there = multiprocessing.Pipe()
        code = _START.format(
            path=sys.path, handle=there.fileno(), core=self._core, modules=self._modules, ask_backend=not self._alone
        )
        with there, sigint_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a library prints there must not mix with results
                pass_fds=[there.fileno()],
                env=single_threaded(os.environ) if self._alone else None,
            )
        self._connection = here
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Process number of the worker now."""
        return self._process.pid

    def ready(self) -> str | None:
        """Wait until it has loaded what it needs; the platform it computes on, if it was asked. Raises WorkerError."""
        backend = None
        for _ in range(ATTEMPTS):
            if self._is_ready:
                return backend
            try:
                _, backend = pickle.loads(self._connection.recv_bytes())
                self._is_ready = True
                return backend
            except (EOFError, OSError):
                fate = self._replace()
        raise WorkerError(f"worker processes cannot be started: the last one {fate}; its own words are above")

    def call(self, function: Callable[[Any], Any], task: Any) -> Any:
        """`function(task)` over there. Raises TaskError when that fails, or kills its process again and again."""
        request = pickle.dumps((function, task), protocol=pickle.HIGHEST_PROTOCOL)
        for _ in range(ATTEMPTS):
            self.ready()
            try:
                self._connection.send_bytes(request)
                reply = self._connection.recv_bytes()
            except (EOFError, OSError):
                fate = self._replace()
                continue
            fine, value = pickle.loads(reply)
            if fine:
                return value
            raise TaskError(value)
        raise TaskError(f"its worker process died {ATTEMPTS} times: the last one {fate}")

    def _replace(self) -> str:
        """Start another process in the place of one that is gone; says how it ended."""
        self._connection.close()
        self._process.kill()  # it cannot be reached, should it still be there
        code = self._process.wait()
        with self._starting:
            if self._closed:
                raise WorkerError("the executor is closed")
            self._start()
        if code >= 0:
            return f"ended with status {code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        return f"was killed by signal {-code}"

    def kill(self) -> None:
        """End it at once; a call under way raises."""
        with self._starting:
            self._closed = True
            self._process.kill()

    def close(self) -> None:
        """End it; no call may be under way."""
        self._closed = True
        self._connection.close()  # which it takes as a sign to leave
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Processes and threads started in the block begin with SIGINT blocked; for this one it only waits a moment."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
