"""Worker processes on this machine: one per core, or one in all that computes on every GPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pkgutil
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from gflow.errors import WorkerError
from gflow.sweeps.executors._drive import drive
from gflow.sweeps.executors._process import TaskError, WorkerProcess
from gflow.sweeps.executors._protocol import AHEAD, Finished, one_line

PRELOAD = ("gflow.sweeps.compute", "gflow.sweeps.fast")


class Local:
    """`workers` processes (default: one per core this process may use, each bound to its core).

    Each computes in one thread. On a machine with a GPU or TPU there is one, for all its devices. They start when the
    executor is made, and import `modules` while the caller does other things.
    """

    def __init__(self, workers: int | None = None, modules: tuple[str, ...] = PRELOAD) -> None:
        self._crew = _accelerated(modules) if workers is None and may_have_accelerator() else []
        if not self._crew:
            cores = available_cores()
            wanted = workers or len(cores)
            # fewer workers than cores stay unbound: another sweep's would else sit on the same cores
            places = cores if wanted == len(cores) else [None] * wanted
            self._crew = [WorkerProcess(core, modules) for core in places]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._crew:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self._crew), thread_name_prefix="gflow-worker")

    @property
    def workers(self) -> int:
        """How many processes compute."""
        return len(self._crew)

    @property
    def pids(self) -> list[int]:
        """Their numbers, now: one that dies is replaced."""
        return [worker.pid for worker in self._crew]

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Finished]:
        """As `Executor.run`. A worker that dies is replaced, and its task run again."""

        def submit(task: Any) -> Future[Any]:
            return self._threads.submit(self._call, function, task)

        return drive(submit, tasks, lambda: AHEAD * self.workers, _outcome)

    def _call(self, function: Callable[[Any], Any], task: Any) -> Any:
        worker = self._idle.get()  # as many threads as workers: there is one
        try:
            return worker.call(function, task)
        finally:
            self._idle.put(worker)

    def close(self, kill: bool = False) -> None:
        """Let what is running finish, then end the processes; with `kill` end them at once."""
        if kill:
            for worker in self._crew:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._crew:
            worker.close()


def _outcome(task: Any, future: Future[Any]) -> Iterator[Finished]:
    try:
        finished = Finished(task, future.result())
    except TaskError as error:
        finished = Finished(task, error=str(error))
    except (WorkerError, CancelledError):
        raise
    except Exception as error:  # a task or a result that cannot be pickled
        finished = Finished(task, error=one_line(error))
    yield finished


def available_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def may_have_accelerator() -> bool:
    """Could JAX find a GPU or TPU? Asked without loading it: is one of its plugins here, and not ruled out?"""
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return False
    if importlib.metadata.entry_points(group="jax_plugins") or importlib.util.find_spec("libtpu"):
        return True
    namespace = importlib.util.find_spec("jax_plugins")
    return namespace is not None and any(pkgutil.iter_modules(namespace.submodule_search_locations))


def _accelerated(modules: tuple[str, ...]) -> list[WorkerProcess]:
    """One worker for all devices, if JAX computes on anything but the CPU; otherwise none."""
    worker = WorkerProcess(None, modules, alone=False)
    try:
        if worker.ready() not in (None, "cpu"):
            return [worker]
    except BaseException:
        worker.kill()
        raise
    worker.close()
    return []
