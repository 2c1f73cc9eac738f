"""The loop that executors share: a bounded number of tasks as futures, given back as they finish."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gflow.sweeps.executors._protocol import PULSE, Finished


class Again(Exception):
    """What `outcome` raises to have its task submitted once more, with nothing else under way."""


def drive(
    submit: Callable[[Any], Any],
    tasks: Iterable[Any],
    room: Callable[[], int],
    outcome: Callable[[Any, Any], Iterator[Finished]],
) -> Iterator[Finished]:
    """Keep `room()` tasks under way; `outcome(task, future)` says what became of one, after any signs of life.

    Futures are anything with `add_done_callback` and `cancel`; those left when the caller goes are cancelled.
    """
    waiting = iter(tasks)
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    under_way: dict[Any, Any] = {}
    suspects: list[Any] = []
    more = True

    def begin(task: Any) -> None:
        future = submit(task)
        under_way[future] = task
        future.add_done_callback(done.put)

    try:
        while more or suspects or under_way:
            while more and not suspects and len(under_way) < max(1, room()):
                try:
                    task = next(waiting)
                except StopIteration:
                    more = False
                    break
                begin(task)
            if suspects and not under_way:
                begin(suspects.pop())
            if not under_way:
                break
            try:
                future = done.get(timeout=PULSE)
            except queue.Empty:
                yield Finished()
                continue
            task = under_way.pop(future)
            try:
                yield from outcome(task, future)
            except Again:
                suspects.append(task)
    finally:
        for future in under_way:
            future.cancel()
