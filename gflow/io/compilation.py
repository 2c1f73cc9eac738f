"""The persistent compilation cache: what JAX compiled in one process is loaded, not compiled, in the next."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from gflow.io.cache import cache_dir


def compilation_folder() -> Path:
    """The folder of compiled programs for this jaxlib on this processor.

    Programs compiled for one processor may use instructions that another lacks, and a home folder may be shared.
    """
    processor = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            processor += next((line for line in stream if line.startswith(("flags", "Features"))), "")
    except OSError:
        processor += platform.processor()
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    return cache_dir() / "compiled" / f"jaxlib-{importlib.metadata.version('jaxlib')}-{digest}"


def enable_compilation_cache() -> Path | None:
    """Let JAX keep compiled programs in the user's cache folder; returns the folder, or None if it cannot be written.

    Call it before the first compilation. A cache already chosen by JAX_COMPILATION_CACHE_DIR is left alone.
    """
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    folder = compilation_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,  # many small programs make up a cold start
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    if "jax" in sys.modules:
        for name, value in settings.items():
            sys.modules["jax"].config.update(name, value)
    else:
        os.environ.update({name.upper(): str(value) for name, value in settings.items()})
    return folder


# What these flags do was measured on these versions only; XLA aborts on a flag that it does not know.
_QUICK = {"0.10": "--xla_cpu_use_fusion_emitters=false"}


def prefer_quick_compilation() -> None:
    """Trade nothing measurable in running time for a third less compiling on the CPU, by an XLA flag.

    For processes that solve one problem and end (the command line). Call it before JAX runs anything; a choice made in
    XLA_FLAGS for the same flag is left alone, and other versions of jaxlib than those it was measured on are too.
    """
    flag = _QUICK.get(".".join(importlib.metadata.version("jaxlib").split(".")[:2]))
    chosen = os.environ.get("XLA_FLAGS", "")
    if flag is not None and flag.split("=")[0] not in chosen:
        os.environ["XLA_FLAGS"] = f"{chosen} {flag}".strip()


@contextlib.contextmanager
def compile_seconds() -> Iterator[list[float]]:
    """A list of one number: the seconds that JAX spends tracing, lowering and compiling (or loading) in the block."""
    import jax.monitoring

    total = [0.0]

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            total[0] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield total
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
