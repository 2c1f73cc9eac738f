"""Until the executors are there."""

from __future__ import annotations

import types
from typing import Any


class Serial:
    workers = 1

    def run(self, function: Any, tasks: Any) -> Any:
        for task in tasks:
            try:
                result, error = function(task), None
            except Exception as problem:
                result, error = None, f"{type(problem).__name__}: {problem}"
            yield types.SimpleNamespace(task=task, result=result, error=error)

    def close(self, kill: bool = False) -> None:
        pass


def make_executor(kind: str, workers: int | None, scheduler: str | None) -> Any:
    from gflow.io.compilation import enable_compilation_cache

    enable_compilation_cache()
    return Serial()
