"""The table cache: shared by processes, rebuilt when damaged, done without when it cannot be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gflow.io import cache

NAMES = {"a", "b"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path / "deep" / "store"))
    return tmp_path / "deep" / "store"


class Builder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"a": np.arange(1000.0), "b": np.array(3.0)}


def test_built_once(folder: Path) -> None:
    build = Builder()
    for _ in range(3):
        arrays = cache.load_or_build("t", {"L": 4.0}, build, NAMES)
        np.testing.assert_array_equal(arrays["a"], np.arange(1000.0))
        assert float(arrays["b"]) == 3.0
    assert build.calls == 1
    cache.load_or_build("t", {"L": np.nextafter(4.0, 5.0).item()}, build, NAMES)
    assert build.calls == 2
    assert not list(folder.glob(".*"))


def test_digest_tells_arrays_and_names_apart() -> None:
    base = {"law": "finite", "nodes": np.array([1.0, 2.0]), "d": 1}
    assert cache.digest(base) == cache.digest(dict(reversed(base.items())))
    assert cache.digest(base) != cache.digest({**base, "nodes": np.array([1.0, 2.0 + 1e-15])})
    assert cache.digest(base) != cache.digest({**base, "law": "uniform"})


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "flipped"])
def test_damaged_entry_is_rebuilt(folder: Path, damage: str) -> None:
    build = Builder()
    cache.load_or_build("t", {"L": 4.0}, build, NAMES)
    (path,) = folder.glob("*.npz")
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "garbage":
        data = bytearray(b"not a zip file")
    elif damage == "empty":
        data = bytearray()
    else:
        data[len(data) // 2] ^= 0x40
    path.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="rebuilt"):
        arrays = cache.load_or_build("t", {"L": 4.0}, build, NAMES)
    np.testing.assert_array_equal(arrays["a"], np.arange(1000.0))
    cache.load_or_build("t", {"L": 4.0}, build, NAMES)
    assert build.calls == 2


def test_unwritable_folder_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a file where the folder should be: no permission bits involved, so it holds for root too
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path / "blocked"))
    build = Builder()
    for _ in range(2):
        assert float(cache.load_or_build("t", {"L": 4.0}, build, NAMES)["b"]) == 3.0
    assert build.calls == 2


WRITER = """
import numpy as np
from gflow.io import cache
for i in range(60):
    build = lambda: {"a": np.full(200_000, 1.0), "b": np.array(float(i))}
    name = cache.cache_dir() / f"t-{cache.digest({'i': i})}.npz"
    cache._write(name, build())
    got = cache.load_or_build("t", {"i": i}, build, {"a", "b"})
    assert got["a"].sum() == 200_000 and float(got["b"]) == i
"""


def test_two_processes_at_once(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert len(list(folder.glob("*.npz"))) == 60
    assert not list(folder.glob(".*"))
