"""Documents of verdicts to make reports of; each test has its own copy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def beside(name: str) -> ModuleType:
    """A module of this folder."""
    full = f"report_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@pytest.fixture
def document() -> dict[str, Any]:
    return beside("sample").verdicts()


@pytest.fixture
def own_loss() -> dict[str, Any]:
    return beside("sample").own_loss()


@pytest.fixture(scope="session")
def devtools() -> ModuleType:
    return beside("devtools")
