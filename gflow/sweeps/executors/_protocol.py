"""What every executor does: run one function on many tasks, somewhere, and give back what becomes of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

AHEAD = 2  # tasks per worker that are taken before they are asked for
ATTEMPTS = 3  # times that a task is begun whose worker dies
PULSE = 0.5  # seconds between signs of life


@dataclasses.dataclass(frozen=True)
class Finished:
    """A task and its result, or the `error` (one line) that it ended with; all None: a sign of life."""

    task: Any = None
    result: Any = None
    error: str | None = None


@runtime_checkable
class Executor(Protocol):
    """Runs tasks in any order, each to one result. The function is importable, tasks and results are plain data."""

    @property
    def workers(self) -> int:
        """How many tasks are computed at once, now."""
        ...

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Finished]:
        """`function` of every task, as they finish. Takes from `tasks` no more than it needs to keep workers busy.

        A function that raises gives an error, not an end. A task whose worker dies is run again, `ATTEMPTS` times in
        all. While nothing finishes, `Finished()` is given every `PULSE` seconds. Raises `WorkerError` when there is no
        hope of any further result.
        """
        ...

    def close(self, kill: bool = False) -> None:
        """Let the workers go; with `kill` at once, whatever they are doing."""
        ...


def one_line(error: BaseException) -> str:
    """An exception as text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
