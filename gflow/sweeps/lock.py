"""One writer per store: a lock that its process holds, and that vanishes with the process however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from gflow.errors import OutputError


class Lock:
    """An exclusive lock on a file, made by `take`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, file: Path, of: Path) -> Lock:
        """Lock `file`, which belongs to the store `of`. Raises `OutputError` while another process has it."""
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(f"{of} cannot be written: {error.strerror}; give another path") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            writer = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                who = f" (process {writer})" if writer else ""
                raise OutputError(
                    f"{of}: another sweep{who} is writing to it; wait for it, or give another path"
                ) from None
            raise OutputError(f"{of} is on a disk without locks ({error.strerror}); give another path") from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name on it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
