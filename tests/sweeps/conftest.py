"""Cheap lanes for the tests of sweeps."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CHEAP = Path(__file__).with_name("cheap.py")


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `cheap`, with the driver computing its lanes."""
    from gflow.sweeps import driver

    spec = importlib.util.spec_from_file_location("cheap", CHEAP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(driver, "compute_chunk", module.compute)
    return module
