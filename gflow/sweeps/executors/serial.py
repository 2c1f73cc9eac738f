"""Tasks in this process, one after the other: for tests, debugging, and lanes too cheap for anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gflow.sweeps.executors._protocol import Finished, one_line


class Serial:
    """No process but this one; there is no sign of life while a task runs."""

    workers = 1

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Finished]:
        """`function` of every task, in their order."""
        for task in tasks:
            try:
                finished = Finished(task, function(task))
            except Exception as error:
                finished = Finished(task, error=one_line(error))
            yield finished

    def close(self, kill: bool = False) -> None:
        """Nothing is left running."""
