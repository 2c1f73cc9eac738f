"""From a checked configuration to a finished run: the only part of the command line that computes."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

from gflow.cli import _own
from gflow.cli._output import Output, plain
from gflow.cli._prepare import WORTH_KEEPING, compile_seconds, load_ahead, make_problem
from gflow.cli._signals import check, prompt_exit
from gflow.config import IntegrateConfig
from gflow.io.compilation import prefer_quick_compilation

TAIL = 1.0  # how far a run goes on after its last milestone, in units of that milestone's time: shows the convergence
BOUND_STATES = 256  # states along the run at which the loss's error bound is evaluated


@dataclasses.dataclass
class Run:
    """A trajectory and what is known about it; the fields below `seconds` stay empty for a user's own loss."""

    traj: Any
    seconds: dict[str, float]
    problem: Any = None
    loss: Any = None
    predictions: dict[str, Any] = dataclasses.field(default_factory=dict)
    measured: dict[str, Any] = dataclasses.field(default_factory=dict)
    plateau: float | None = None
    error_bound: dict[str, float] | None = None


def run(config: IntegrateConfig, output: Output, leave: Callable[[], None]) -> Run:
    """Integrate what `config` describes; `leave` is called before a phase with nothing to save is cut short."""
    if not config.loss:
        return _run_induction(config, output, leave)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's loss prints is no part of the result
        return _run_own(config, output, leave)


def _run_induction(config: IntegrateConfig, output: Output, leave: Callable[[], None]) -> Run:
    with prompt_exit(leave):
        output.phase("loading JAX")
        started = time.perf_counter()
        import gflow

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        problem = make_problem(config)
        params = problem.initial_params(config.sigma_init)
        loading = time.perf_counter() - started
        output.phase("tabulating the loss (kept for next time)")
        started = time.perf_counter()
        load_ahead(config)
        loss = problem.population_loss()
        conditions = problem.milestones()
        table = time.perf_counter() - started
    traj, seconds = _solve(loss, params, conditions, config, output, leave)
    return Run(traj, {"load": loading, "table": table, **seconds}, problem, loss)


def compare(finished: Run, config: IntegrateConfig, output: Output) -> None:
    """Fill in what theory says about the run, and what the run says about theory."""
    if finished.problem is None:
        return
    output.phase("comparing with theory")
    problem, loss = finished.problem, finished.loss
    finished.plateau = float(problem.plateau())
    finished.error_bound = _error_bound(finished.traj, loss)
    from gflow.theory import measured, predictions

    finished.measured = {"growth_rate": measured.growth_rate(finished.traj)}
    finished.predictions = plain(predictions.predict(problem, loss, config.sigma_init))
    # into the file too, so that its figure can be drawn without computing them again
    finished.traj.provenance["predictions"] = {"plateau": finished.plateau, **finished.predictions}


def _run_own(config: IntegrateConfig, output: Output, leave: Callable[[], None]) -> Run:
    assert config.loss is not None
    assert config.init is not None
    with prompt_exit(leave):
        values, tables = _own.load_init(config.init)
        output.phase("loading JAX")
        started = time.perf_counter()
        import jax.numpy as jnp

        import gflow

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        params = {name: jnp.asarray(value) for name, value in values.items()}
        function = _own.load_function(config.loss)
        _own.check_loss(function, config.loss, params)
        conditions = _own.conditions(function, tables)
        loading = time.perf_counter() - started
    traj, seconds = _solve(function, params, conditions, config, output, leave)
    return Run(traj, {"load": loading, "table": 0.0, **seconds})


def _solve(
    loss: Any,
    params: Any,
    conditions: dict[str, Any],
    config: IntegrateConfig,
    output: Output,
    leave: Callable[[], None],
) -> tuple[Any, dict[str, float]]:
    import gflow
    from gflow.io.provenance import provenance

    began: dict[str, float] = {}

    def told(news: dict[str, Any]) -> None:
        # at each sign of life the driver also looks for a signal of its own
        check()
        guard.alive()
        now = time.perf_counter()
        began.setdefault("integrating", now)
        guard.precious = now - began["integrating"] > WORTH_KEEPING
        where = "" if news["block"] == "all" else f"{news['block']} "
        found = f", {len(news['found'])} of {news['wanted']} milestones" if news["wanted"] else ""
        output.progress(f"{where}t = {news['t']:.4g}, loss {news['loss']:.4g}, {news['steps']} steps{found}")

    policy: dict[str, Any] = {"solver": config.solver, "rtol": config.rtol, "atol": config.atol, "t1": config.t1}
    if config.max_steps is not None:
        policy["max_steps"] = config.max_steps
    output.phase("integrating")
    started = time.perf_counter()
    # for its first steps the driver compiles for seconds: a signal then ends the process, and loses little
    with compile_seconds() as compiled, prompt_exit(leave) as guard:
        traj = gflow.solve(
            gflow.GradientFlow(loss),
            params,
            milestones=conditions,
            tail=TAIL if config.t1 is None else 0.0,
            estimate_error=True,
            progress=told,
            **policy,
        )
        _ = traj.losses  # the rest of the path is filled in when asked for: here, where it is timed and guarded
    wall = time.perf_counter() - started
    traj.provenance.update(provenance(config.as_dict()))
    return traj, {"compile": min(compiled[0], wall), "solve": max(wall - compiled[0], 0.0)}


def _bounds(loss: Any, states: Any) -> Any:
    import jax

    return jax.vmap(loss.error_bound)(states)


def _error_bound(traj: Any, loss: Any) -> dict[str, float]:
    """Bound on the error of the loss along the run, absolute and as a fraction of the loss at the start."""
    import equinox as eqx
    import jax
    import numpy as np

    # always as many states, so that the program compiled for them serves every run
    rows = np.linspace(0, len(traj.ts) - 1, BOUND_STATES).astype(int)
    states = jax.tree.map(lambda x: x[rows], traj.params)
    bounds = np.asarray(eqx.filter_jit(_bounds)(loss, states))
    absolute = float(np.max(bounds))
    return {"loss_absolute": absolute, "loss_relative": absolute / float(traj.losses["total"][0])}
