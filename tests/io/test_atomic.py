"""Case 19: an output path that exists, cannot be written, or lies on a full disk is found out before computing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gflow.errors import OutputError
from gflow.io import atomic
from gflow.io.atomic import atomic_path, check_writable


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """A disk that is full after `size` bytes of one file, also for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_case_19_existing_output_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"exists.*--overwrite"):
        check_writable(path)
    with pytest.raises(OutputError, match=r"exists.*--overwrite"), atomic_path(path):
        pytest.fail("the block must not run")
    assert path.read_text() == "precious"
    assert check_writable(path, overwrite=True) == path


def test_case_19_folder_missing_or_output_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"):
        check_writable(tmp_path / "none" / "run.nc")
    with pytest.raises(OutputError, match="is a folder"):
        check_writable(tmp_path, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"no folder|cannot be written"):
        check_writable(tmp_path / "file" / "run.nc")
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(tmp_path / ("n" * 300 + ".nc"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write to")
def test_case_19_folder_not_writable() -> None:
    with pytest.raises(OutputError, match=r"/proc/run.nc cannot be written"):
        check_writable("/proc/run.nc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_case_19_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="permission denied"):
            check_writable(tmp_path / "run.nc")
    finally:
        tmp_path.chmod(0o700)


def test_case_19_devices_are_not_outputs() -> None:
    with pytest.raises(OutputError, match="device or a pipe"):
        check_writable("/dev/full", overwrite=True)


def test_case_19_disk_full_before_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files_limited_to(0), pytest.raises(OutputError, match="cannot be written"):
        check_writable(tmp_path / "run.nc")
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(OutputError, match="only 10 bytes are free"):
        check_writable(tmp_path / "run.nc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [None, "old"])
def test_case_19_disk_full_while_writing_leaves_what_was_there(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "run.nc"
    if before is not None:
        path.write_text(before)
    with (
        files_limited_to(1000),
        pytest.raises(OutputError, match="cannot be written"),
        atomic_path(path, overwrite=True) as temporary,
    ):
        temporary.write_bytes(b"x" * 5000)
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else ["run.nc"])
    assert before is None or path.read_text() == before


def test_checking_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "run.nc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_name_appears_when_the_contents_are_complete(tmp_path: Path, overwrite: bool) -> None:
    path = tmp_path / "run.nc"
    with atomic_path(path, overwrite) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".nc"
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]


def test_an_error_in_the_block_passes_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"

    def write() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.nc"

    def write() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(OutputError, match="appeared meanwhile"):
        write()
    assert path.read_text() == "theirs"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "run.nc", tmp_path / "run.nc"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_path(link, overwrite=True) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
