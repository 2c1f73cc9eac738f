"""Where tasks run: this process, processes on this machine, or a Dask cluster."""

from __future__ import annotations

from gflow.errors import InputError
from gflow.sweeps.executors._protocol import Executor as Executor, Finished as Finished

KINDS = ("local", "serial", "dask")


def make_executor(kind: str = "local", workers: int | None = None, scheduler: str | None = None) -> Executor:
    """An executor of a kind, its workers starting: "local", "serial" or "dask". Close it in the end.

    `workers`: how many processes (default: as many as there are cores; "dask" with a `scheduler`: those it has).
    Raises `InputError` for anything else, or when the scheduler does not answer.
    """
    if kind not in KINDS:
        raise InputError(f"executor = {kind!r} must be one of {', '.join(KINDS)}")
    if scheduler is not None and kind != "dask":
        raise InputError(f"scheduler = {scheduler!r} is for the executor 'dask', not {kind!r}")
    if workers is not None and workers < 1:
        raise InputError(f"workers = {workers} is out of range; give at least 1")
    if kind == "serial":
        from gflow.sweeps.executors.serial import Serial

        return Serial()
    if kind == "local":
        from gflow.sweeps.executors.local import Local

        return Local(workers)
    from gflow.sweeps.executors.dask import Dask

    return Dask(workers, scheduler)
