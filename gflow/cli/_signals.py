"""Ctrl-C and SIGTERM: the same thing, answered within seconds even while compiled code is running.

Outside `solve`, a signal raises KeyboardInterrupt. Two things can keep that from ending the process: Python raises it
only between its own instructions, which a long compilation does not reach; and an exception raised inside a callback
(the garbage collector's, say) is dropped. So the fact is also noted (`check`), and a thread watches (`prompt_exit`).
Inside `solve` the driver has a handler of its own, and stops in an orderly way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
PATIENCE = 2.0  # seconds that Python code gets to notice a signal before the process leaves

_asked = threading.Event()


def listen() -> None:
    """Note every Ctrl-C, and let SIGTERM do what Ctrl-C does at that moment."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _asked.set()
        raise KeyboardInterrupt

    def forward(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    dropped = sys.unraisablehook

    def unraisable(report: sys.UnraisableHookArgs) -> None:
        # a KeyboardInterrupt dropped inside a callback is noted above, and raised again by `check`
        if not isinstance(report.exc_value, KeyboardInterrupt):
            dropped(report)

    sys.unraisablehook = unraisable
    # a shell that starts a job in the background has SIGINT ignored, and means it
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, forward)


def check() -> None:
    """Raise the KeyboardInterrupt that was asked for and lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Inside the block Ctrl-C waits: for the moment in which results are saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if asked:
        raise KeyboardInterrupt


class Guard:
    """What a block of `prompt_exit` tells the watching thread."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self.beats = 0
        self.precious = False

    def alive(self) -> None:
        """Python code is running, and will act on a signal that has come; `precious`: there are results to save."""
        self.beats += 1


@contextlib.contextmanager
def prompt_exit(say: Callable[[], None]) -> Iterator[Guard]:
    """Inside the block, a signal ends the process within `PATIENCE`, whatever the main thread is doing.

    The signal also arrives as a byte on a pipe. If the block is not left some time later, and has given no sign of
    life (`Guard.alive`), a thread calls `say` and ends the process with status 130; not once `Guard.precious` is set.
    """
    guard = Guard()
    if threading.current_thread() is not threading.main_thread():
        yield guard
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while received := os.read(reader, 1):
            beats = guard.beats
            if received[0] not in (signal.SIGINT, signal.SIGTERM) or guard.left.wait(PATIENCE):
                continue
            if not guard.precious and guard.beats == beats:
                say()
                os._exit(INTERRUPTED)
        os.close(reader)

    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True, name="gflow-signals").start()
    try:
        yield guard
    finally:
        guard.left.set()
        signal.set_wakeup_fd(previous)
        os.close(writer)
    check()
