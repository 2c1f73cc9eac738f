"""Workers of a Dask cluster: one made here for the time of the sweep, or that of a running scheduler.

Results come back to this process, so the workers need gflow, but no disk in common. Part of the extra gflow[cluster].
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gflow.errors import InputError, WorkerError
from gflow.sweeps.executors import _worker
from gflow.sweeps.executors._drive import Again, drive
from gflow.sweeps.executors._process import sigint_blocked
from gflow.sweeps.executors._protocol import AHEAD, ATTEMPTS, PULSE, Finished, one_line
from gflow.sweeps.executors.local import PRELOAD, available_cores

PATIENCE = 8.0  # seconds that a scheduler gets to answer
COUNT_EVERY = 1.0  # seconds between looks at how many workers there are


class Dask:
    """The workers of a scheduler at an address `tcp://...`, or `workers` processes of a cluster on this machine.

    Workers may come, die and return while it runs. Raises InputError when Dask is not installed or nobody answers.
    """

    def __init__(
        self, workers: int | None = None, scheduler: str | None = None, modules: tuple[str, ...] = PRELOAD
    ) -> None:
        try:
            import dask.config
            import distributed  # noqa: F401 - is it here?
        except ModuleNotFoundError as error:
            raise InputError(
                f"the executor 'dask' needs the package {error.name}; install it: pip install 'gflow[cluster]'"
            ) from None
        if scheduler is not None and workers is not None:
            raise InputError(f"workers = {workers} is for workers made here; those of {scheduler} are its own")
        _silence()
        self._cluster: Any = None
        self._counted = 0.0
        if scheduler is not None:
            self._connect(scheduler)
            return
        with dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1}), sigint_blocked():
            self._start(workers or len(available_cores()), modules)

    def _start(self, workers: int, modules: tuple[str, ...]) -> None:
        from distributed import Client, LocalCluster, fire_and_forget

        self._address = "on this machine"
        self._cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # a free port: the usual one may be taken
            silence_logs=logging.CRITICAL,
            env=_worker.single_threaded({"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}),
            memory_limit=0,
        )
        self._workers = workers
        self._client = Client(self._cluster)
        for address in self._client.scheduler_info(n_workers=-1)["workers"]:
            fire_and_forget(self._client.submit(_worker.remote, _worker.load, modules, workers=[address], pure=False))

    def _connect(self, scheduler: str) -> None:
        from distributed import Client

        self._address = f"at {scheduler}"
        try:
            self._client = Client(scheduler, timeout=PATIENCE)
        except OSError:
            raise InputError(
                f"no Dask scheduler answers at {scheduler} ({PATIENCE:.0f} s); "
                "check the address, or leave --scheduler out for workers on this machine"
            ) from None
        except Exception as error:  # no address, or something else answers there
            raise InputError(
                f"scheduler = {scheduler!r} cannot be used: {one_line(error)}; give the address of a Dask scheduler, "
                "like tcp://host:8786"
            ) from None
        self._workers = 0

    @property
    def workers(self) -> int:
        """How many the scheduler has now; 0 while all are away."""
        now = time.monotonic()
        if now - self._counted > COUNT_EVERY:
            self._counted = now
            with contextlib.suppress(Exception):  # a scheduler that is gone shows elsewhere
                self._workers = len(list(self._client.nthreads()))  # pyright: ignore[reportArgumentType]
        return self._workers

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Finished]:
        """As `Executor.run`; a task whose worker is gone is run by another one, or when one comes back."""

        def submit(task: Any) -> Any:
            return self._client.submit(_worker.remote, function, task, pure=False, retries=0)

        blamed: set[int] = set()
        return drive(submit, tasks, lambda: AHEAD * self.workers, functools.partial(self._outcome, blamed))

    def _outcome(self, blamed: set[int], task: Any, future: Any) -> Iterator[Finished]:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        while True:
            try:
                yield Finished(task, future.result(timeout=PULSE))
            except KilledWorker:
                # Dask blames every task that a dead worker had, begun or not: once more, alone
                if id(task) not in blamed:
                    blamed.add(id(task))
                    raise Again from None
                blamed.discard(id(task))
                yield Finished(task, error="every worker process that had it died")
            except FutureCancelledError:
                raise WorkerError(f"the Dask scheduler {self._address} is gone; what is saved stays") from None
            except TimeoutError as error:
                if future.status != "error":  # its worker went before the result could be fetched: computed again
                    yield Finished()
                    continue
                yield Finished(task, error=one_line(error))
            except Exception as error:
                yield Finished(task, error=one_line(error))
            return

    def close(self, kill: bool = False) -> None:
        """Leave the scheduler, or end the cluster that was made here; with `kill` at once."""
        if not kill:
            self._client.close()
            if self._cluster is not None:
                self._cluster.close()
            return
        nannies = [] if self._cluster is None else list(self._cluster.workers.values())
        for nanny in nannies:
            nanny.auto_restart = False
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(nanny.pid, signal.SIGKILL)
        ending = threading.Thread(target=self._leave, daemon=True)
        ending.start()
        ending.join(PULSE)

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close(timeout=PULSE)
        if self._cluster is not None:
            # without a limit of time: nobody waits for this thread, and a cluster left half closed complains
            with contextlib.suppress(Exception):
                self._cluster.close()


def _silence() -> None:
    """Dask's loggers, each with a level and an outlet of its own, are not heard: the sweep tells what happens."""
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
