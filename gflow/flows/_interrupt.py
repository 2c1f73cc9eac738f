"""Ctrl-C between segments: finish the piece in hand, keep everything, stop."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

_heard = 0


def heard() -> int:
    """How many Ctrl-C computations have answered so far: what calls several of them asks whether it should go on."""
    return _heard


class Interrupt:
    """Context manager: the first SIGINT only raises `.asked`; a second one is an ordinary KeyboardInterrupt.

    Outside the main thread, where Python delivers no signals, `.asked` can be set by hand.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        global _heard
        _heard += 1
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Grace(Interrupt):
    """The interruption `source`, heard some `seconds` later: the other blocks get that long to catch up."""

    def __init__(self, source: Interrupt, seconds: float) -> None:
        self._source, self._seconds = source, seconds
        self._deadline: float | None = None
        self._installed = False

    @property
    def asked(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the time is over."""
        if not self._source.asked:
            return False
        now = time.perf_counter()
        self._deadline = now + self._seconds if self._deadline is None else self._deadline
        return now > self._deadline
