"""What every command that computes does last: save, draw, say what was written; a failure there costs no results."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED, unhurried
from gflow.errors import GflowError


def leave(output: Output) -> None:
    """Last words before a phase with nothing to save is cut short."""
    text = "interrupted; nothing was saved"
    output.warn(text)
    if output.json:
        output.document({"status": "interrupted", "message": text, "exit_status": INTERRUPTED})


def write(run: Any, settings: Any, output: Output, problems: dict[str, str], *, draw_too: bool) -> None:
    """Save and draw; what goes wrong is noted, so that a failing figure does not cost the data."""
    if settings.out is not None:
        output.phase(f"saving {settings.out}")
        with unhurried():
            attempt(problems, settings.out, lambda path: run.save(path, overwrite=settings.overwrite))
    if settings.plot is not None and draw_too:
        output.phase(f"drawing {settings.plot}")
        from gflow.cli.plot import draw

        attempt(problems, settings.plot, lambda path: draw(run, path, settings.overwrite))


def attempt(problems: dict[str, str], what: str, act: Callable[[str], Any]) -> None:
    """`act(what)`, where a failure must not keep the results from being told."""
    try:
        act(what)
    except GflowError as error:
        problems[what] = str(error)
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        problems[what] = f"{what}: {type(error).__name__}: {' '.join(str(error).split())}"


def say_written(settings: Any, output: Output, problems: dict[str, str]) -> None:
    """Which files there are now, and what went wrong."""
    for path in (settings.out, settings.plot):
        if path is not None and path not in problems and os.path.exists(path):
            output.remark(f"wrote {path}")
    for problem in problems.values():
        output.warn(problem)


def say_interrupted(where: str, settings: Any, output: Output, problems: dict[str, str]) -> None:
    """Where an interrupted run is kept."""
    if settings.out is None:
        output.warn(f"interrupted at {where}; give --out to keep what is computed")
    elif settings.out not in problems:
        output.warn(f"interrupted; the run up to {where} is in {settings.out}")
