"""Provenance: enough to repeat a run, in plain values."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from pathlib import Path

import jax
import pytest

import gflow
from gflow.io import provenance as module
from gflow.io.provenance import git_state, provenance


@pytest.fixture(autouse=True)
def forgotten():
    git_state.cache_clear()
    yield
    git_state.cache_clear()


def test_keys_and_values() -> None:
    found = provenance({"L": 40.0, "seed": 3})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["gflow"] == gflow.__version__
    assert found["versions"]["jax"] == jax.__version__
    assert found["precision"] == "float64"
    assert found["seed"] == 3
    assert found["config"] == {"L": 40.0, "seed": 3}
    assert found["device"].startswith(jax.devices()[0].platform)
    made = datetime.datetime.fromisoformat(found["created"])
    assert made.utcoffset() == datetime.timedelta(0)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_and_changes_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "provenance.py"
    file.write_text("one")
    monkeypatch.setattr(module, "__file__", str(file))
    assert git_state() is None  # no repository

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git_state.cache_clear()
    assert git_state() is None  # a repository that does not hold the package
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git_state.cache_clear()
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    file.write_text("two")
    git_state.cache_clear()
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state() is None
