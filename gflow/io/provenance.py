"""Where a result comes from: configuration, versions, commit, device, precision, flags, time."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "jaxlib", "diffrax", "optax", "equinox", "optimistix", "numpy", "scipy", "xarray", "h5netcdf")


def provenance(config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is needed to repeat a run, as plain values (text, numbers, booleans, None, lists, dictionaries).

    Keys: gflow, python, platform, versions {package: version}, git {commit, dirty} or None outside a checkout, device,
    device_count, precision ("float64" | "float32"), xla_flags, seed, config, created (UTC, ISO 8601).
    """
    import jax  # here, because provenance is imported by commands that must not wait for JAX

    import gflow

    config = dict(config or {})
    devices = jax.devices()
    return {
        "gflow": gflow.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions(),
        "git": git_state(),
        "device": f"{devices[0].platform}: {devices[0].device_kind}",
        "device_count": len(devices),
        "precision": "float64" if jax.config.jax_enable_x64 else "float32",  # pyright: ignore[reportAttributeAccessIssue]
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "seed": config.get("seed"),
        "config": config,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """The installed versions of the packages that decide a result."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


@cache
def git_state() -> dict[str, Any] | None:
    """The commit of gflow's own checkout and whether tracked files differ from it; None when there is no checkout."""
    folder = Path(__file__).resolve().parent
    # The package must itself be under version control: an environment inside somebody else's repository is not.
    if _git(folder, "ls-files", "--error-unmatch", "provenance.py") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
