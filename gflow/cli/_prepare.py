"""What every command that computes does first, and around its computation."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from gflow.cli._output import Output
from gflow.cli._signals import check, prompt_exit
from gflow.io.compilation import compile_seconds

WORTH_KEEPING = 5.0  # seconds of a run for which a Ctrl-C waits, even if JAX is compiling just then


def make_loss(problem: Any, config: Any, output: Output) -> Any:
    """The loss that a configuration asks for: exact at p11 = inf or at finite p11, or sampled."""
    from gflow.losses.induction import plan

    if config.evaluate == "exact" and config.training != "second-layer":
        output.phase("tabulating the loss at finite p11 (minutes; kept for next time)")
    return plan.make_loss(problem, config, progress=lambda at: output.progress(f"{at.done} of {at.total}"))


def describe(config: Any) -> str:
    """The problem of a configuration in words."""
    law = config.tokens if isinstance(config.tokens, str) else f"{len(config.tokens.values)}-valued"
    return (
        f"the induction head: L = {config.L:g}, alpha* = {config.alpha_star:g}, "
        f"w* = {config.w_star:g}, sigma_init = {config.sigma_init:g}, {law} tokens"
        f"{f' in {config.d} dimensions' if config.d > 1 else ''}, {config.parametrization}"
    )


def load_ahead(config: Any) -> None:
    """Import what the outputs will need while XLA, which needs no Python, is busy."""
    wanted = (["xarray", "h5netcdf"] if config.out else []) + (
        ["gflow.plots", "matplotlib.backends.backend_agg"] if config.plot else []
    )

    def load() -> None:
        for name in wanted:
            # whatever is wrong with it is reported where it is used
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


@contextlib.contextmanager
def watched(leave: Callable[[], None], seconds: dict[str, float]) -> Iterator[Callable[[], None]]:
    """A computation that a signal may end: call what this gives at each of its signs of life.

    Until the first of them, and for WORTH_KEEPING seconds after, a signal ends the process by way of `leave`: JAX
    compiles, and little is lost; later it waits for the next sign of life. `seconds` gets "compile" and "solve".
    """
    began: list[float] = []

    def alive() -> None:
        check()  # a signal that was lost
        guard.alive()
        began.append(time.perf_counter())
        guard.precious = began[-1] - began[0] > WORTH_KEEPING
        del began[1:]

    started = time.perf_counter()
    with compile_seconds() as compiled, prompt_exit(leave) as guard:
        yield alive
    wall = time.perf_counter() - started
    seconds |= {"compile": min(compiled[0], wall), "solve": max(wall - compiled[0], 0.0)}
