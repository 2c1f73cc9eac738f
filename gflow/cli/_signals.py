"""Ctrl-C and SIGTERM: the same thing, answered within seconds even while compiled code is running."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
PATIENCE = 2.0  # seconds that Python code gets to notice a signal before the process leaves


def treat_sigterm_as_interrupt() -> None:
    """SIGTERM does what Ctrl-C does at that moment: KeyboardInterrupt, or the driver's own orderly stop."""

    def forward(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, forward)


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


@contextlib.contextmanager
def prompt_exit(say: Callable[[], None]) -> Iterator[threading.Event]:
    """Inside the block, a signal ends the process within `PATIENCE`, whatever the main thread is doing.

    Python raises KeyboardInterrupt only between its own instructions, which a long compilation or a compiled loop does
    not reach. The signal also arrives as a byte on a pipe; if the block has not been left some time later, a thread
    calls `say` and ends the process with status 130. For phases in which there is nothing to save: the block sets the
    event that it is given as soon as there is.
    """
    left = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield left
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while True:
            received = os.read(reader, 1)
            if not received:
                break
            if received[0] in (signal.SIGINT, signal.SIGTERM) and not left.wait(PATIENCE):
                say()
                os._exit(INTERRUPTED)
        os.close(reader)

    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True, name="gflow-signals").start()
    try:
        yield left
    finally:
        left.set()
        signal.set_wakeup_fd(previous)
        os.close(writer)
