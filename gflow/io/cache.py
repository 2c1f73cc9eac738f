"""A content-addressed store of arrays on disk: overlap tables survive the process that computed them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def cache_dir() -> Path:
    """Folder of the store: GFLOW_CACHE_DIR, or the platform's user cache directory."""
    override = os.environ.get("GFLOW_CACHE_DIR")
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("gflow"))


def digest(description: Mapping[str, Any]) -> str:
    """Name of the entry for `description`: a hash of its exact content (floats to the last bit, arrays included)."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, np.ndarray):
            return [
                str(value.dtype),
                list(value.shape),
                hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
            ]
        if isinstance(value, (str, int, bool)) or value is None:
            return value
        raise TypeError(f"cannot hash {type(value).__name__}")

    text = json.dumps({key: plain(value) for key, value in description.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def load_or_build(kind: str, description: Mapping[str, Any], build: Callable[[], Arrays], names: set[str]) -> Arrays:
    """The arrays of this description, from disk if there, else from `build()`, which is then stored.

    `names`: the arrays an entry must hold. A damaged entry is rebuilt, with a warning; a folder that cannot be read or
    written is done without. Two processes may do this at once: an entry appears whole, by renaming, or not at all.
    """
    path = cache_dir() / f"{kind}-{digest(description)}.npz"
    stored = _read(path, names)
    if stored is not None:
        return stored
    arrays = build()
    _write(path, arrays)
    return arrays


def _read(path: Path, names: set[str]) -> Arrays | None:
    try:
        data = path.read_bytes()
    except OSError:  # not there, or not ours to read
        return None
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
            total = str(file["checksum"])
        reason = None if total == _checksum(arrays) else "wrong checksum"
    except (OSError, ValueError, KeyError, EOFError, TypeError, zlib.error, zipfile.BadZipFile) as error:
        arrays, reason = None, type(error).__name__
    if reason is not None:
        warnings.warn(f"damaged cache entry {path} ({reason}) is rebuilt", stacklevel=4)
        return None
    return arrays


def _write(path: Path, arrays: Arrays) -> None:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, checksum=np.array(_checksum(arrays)), **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(temporary, path)
    except OSError:  # no cache, no harm
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _checksum(arrays: Arrays) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()
