"""What every test runs under: float64, strict promotion, checked shapes, no display, a cache of its own."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

# Before JAX or gflow is imported by anything. GFLOW_TEST_CACHE_DIR keeps tables and compiled programs between runs.
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# The processes of pytest-xdist share what their parent made.
_worker = "PYTEST_XDIST_WORKER" in os.environ
_kept = os.environ["GFLOW_CACHE_DIR"] if _worker else os.environ.get("GFLOW_TEST_CACHE_DIR")
_cache = _kept or tempfile.mkdtemp(prefix="gflow-test-")
os.environ["GFLOW_CACHE_DIR"] = _cache
for _name in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

import importlib.metadata  # noqa: E402

# compiling is most of what the tests do; see gflow.io.compilation, which cannot be imported this early
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"

import jaxtyping  # noqa: E402

assert "gflow" not in sys.modules, "gflow was imported before its types could be checked"
jaxtyping.install_import_hook("gflow", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Remove the session's cache."""
    import shutil

    if not _kept:
        shutil.rmtree(_cache, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def few_programs_at_once() -> Iterator[None]:
    """Drops compiled programs when there are many: each maps memory, and Linux allows a process 65530 mappings."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()
