"""Outputs that are either complete or absent: checked before computing, written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from gflow.errors import OutputError

_SPACE_NEEDED = 1 << 20  # bytes that must be free before a run: a trajectory of some thousand steps and its figure


def check_writable(path: str | Path, overwrite: bool = False) -> Path:
    """Find out before a long computation whether `path` can be written at its end.

    Raises OutputError when it exists and `overwrite` is not set, is a folder, or when its folder is missing, is not
    writable, or has less than a mebibyte free. Leaves no trace.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise OutputError(f"{path} is a folder; name a file in it")
        if os.path.lexists(path) and not overwrite:
            raise OutputError(f"{path} exists; give another name, or --overwrite to replace it")
        if path.exists() and not path.is_file():
            raise OutputError(f"{path} is a device or a pipe; name a regular file")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise OutputError(f"{path}: there is no folder {folder}; make it first, or give another path")
    except (OSError, RuntimeError) as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"{path} cannot be written: {_reason(error)}; give another path") from None
    # Only trying tells: permission bits do not show read-only mounts, quotas or access lists.
    trial = _beside(path)
    try:
        with open(trial, "xb") as stream:
            stream.write(b"\0")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {_reason(error)}; give another path") from None
    finally:
        _remove(trial)
    free = shutil.disk_usage(folder).free
    if free < _SPACE_NEEDED:
        raise OutputError(f"{path}: only {free} bytes are free on its disk; free {_SPACE_NEEDED} or give another path")
    return path


@contextlib.contextmanager
def atomic_path(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path in the folder of `path`, moved to `path` when the block ends well and removed when it does not.

    The bytes reach the disk (fsync) before the name does, so that a crash leaves the old file or the new one. Without
    `overwrite` a file that has appeared meanwhile is not replaced. Raises OutputError for whatever the disk refuses.
    """
    path = Path(path)
    if os.path.lexists(path) and not overwrite:
        raise OutputError(f"{path} exists; give another name, or --overwrite to replace it")
    target = path.resolve() if path.is_symlink() else path  # a link stays a link: its target is replaced
    temporary = _beside(target)
    try:
        yield temporary
        sync(temporary)
        if overwrite:
            os.replace(temporary, target)
        else:
            _rename_new(temporary, target)
        sync(target.parent)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {_reason(error)}; give another path") from error
    finally:
        _remove(temporary)


def _beside(path: Path) -> Path:
    """A new hidden name in the same folder (a rename is atomic within a file system only); the suffix is kept."""
    return path.with_name(f".gflow-{uuid.uuid4().hex[:12]}{path.suffix}")


def _rename_new(source: Path, target: Path) -> None:
    """Rename without replacing: a hard link fails if the name exists; where links do not, looking has to do."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise OutputError(f"{target} has appeared meanwhile; give another name, or --overwrite to replace it") from None
    except OSError:
        if os.path.lexists(target):
            raise OutputError(f"{target} has appeared meanwhile; give another name, or --overwrite") from None
        os.rename(source, target)


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, reach the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return text[0].lower() + text[1:]
