"""The cache of compiled programs: where it is, and that it never stands in the way."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from gflow.io.cache import cache_dir
from gflow.io.compilation import compilation_folder, enable_compilation_cache


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch):
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_folder_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    folder = enable_compilation_cache()
    assert folder == compilation_folder()
    assert folder is not None
    assert folder.is_relative_to(tmp_path)
    assert jax.config.jax_compilation_cache_dir == str(folder)  # pyright: ignore[reportAttributeAccessIssue]


def test_without_a_choice_it_is_the_user_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFLOW_CACHE_DIR")
    assert cache_dir().name == "gflow"


def test_a_cache_chosen_for_jax_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    assert enable_compilation_cache() == tmp_path
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    assert enable_compilation_cache() is None


def test_a_folder_that_cannot_be_made_means_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path / "file"))
    assert enable_compilation_cache() is None
