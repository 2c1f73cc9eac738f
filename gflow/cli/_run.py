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
from gflow.cli._prepare import load_ahead, make_loss, watched
from gflow.cli._signals import prompt_exit
from gflow.config import IntegrateConfig
from gflow.errors import SolveError
from gflow.io.compilation import prefer_quick_compilation

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
        from gflow.losses.induction.plan import make_plan, make_problem

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        loading = time.perf_counter() - started
        output.phase("tabulating the loss (kept for next time)")
        started = time.perf_counter()
        load_ahead(config)
        problem = make_problem(config)
        plan = make_plan(config, problem, make_loss(problem, config, output))
        table = time.perf_counter() - started

    traj, seconds = _solve(plan.run, config, output, leave)
    return Run(traj, {"load": loading, "table": table, **seconds}, plan.problem, plan.loss)


def compare(finished: Run, config: IntegrateConfig, output: Output) -> None:
    """Fill in what theory says about the run, and what the run says about theory."""
    if finished.problem is None:
        return
    output.phase("comparing with theory")
    problem, traj = finished.problem, finished.traj
    finished.plateau = float(problem.plateau())
    # the theory is that of the second layer at p11 = inf, beside whatever was trained
    last = list(traj.stages.values())[-1] if hasattr(traj, "stages") else traj
    sampling = last.provenance.get("sampling")
    if sampling is not None:
        finished.error_bound = {"loss_standard_error": sampling["loss_standard_error"]}
    else:
        finished.error_bound = _error_bound(last, last.flow.loss)
    from gflow.theory import measured, predictions

    finished.measured = {"growth_rate": measured.growth_rate(last)}
    finished.predictions = plain(
        predictions.predict(problem, problem.population_loss(), config.sigma_init, balanced=config.balanced)
    )
    # into the file too, so that its figure can be drawn without computing them again
    for run in {id(run): run for run in (traj, last)}.values():
        run.provenance["predictions"] = {"plateau": finished.plateau, **finished.predictions}


def _run_own(config: IntegrateConfig, output: Output, leave: Callable[[], None]) -> Run:
    assert config.loss is not None
    assert config.init is not None
    with prompt_exit(leave):
        values, tables = _own.load_init(config.init)
        output.phase("loading JAX")
        started = time.perf_counter()
        import jax.numpy as jnp

        import gflow
        from gflow.losses.induction import plan

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        params = {name: jnp.asarray(value) for name, value in values.items()}
        function = _own.load_function(config.loss)
        _own.check_loss(function, config.loss, params)
        conditions = _own.conditions(function, tables)
        loading = time.perf_counter() - started

    def integrate(**policy: Any) -> Any:
        flow = gflow.GradientFlow(function)
        tail = plan.TAIL if config.t1 is None else 0.0
        return gflow.solve(flow, params, milestones=conditions, t1=config.t1, tail=tail, **policy)

    traj, seconds = _solve(integrate, config, output, leave)
    return Run(traj, {"load": loading, "table": 0.0, **seconds})


def _solve(
    integrate: Callable[..., Any], config: IntegrateConfig, output: Output, leave: Callable[[], None]
) -> tuple[Any, dict[str, float]]:
    from gflow.io.provenance import provenance
    from gflow.losses.induction.plan import policy_of

    def told(news: dict[str, Any]) -> None:
        alive()
        where = f"stage {news['stage']}, " if "stage" in news else ""
        where += "" if news["block"] == "all" else f"{news['block']} "
        found = f", {len(news['found'])} of {news['wanted']} milestones" if news["wanted"] else ""
        output.progress(f"{where}t = {news['t']:.4g}, loss {news['loss']:.4g}, {news['steps']} steps{found}")

    output.phase("integrating")
    seconds: dict[str, float] = {}
    with watched(leave, seconds) as alive:
        try:
            traj: Any = integrate(progress=told, estimate_error=True, **policy_of(config))
        except SolveError as error:
            # a stage that could not begin must not cost those before it
            if error.trajectory is None:
                raise
            traj = error.trajectory
        _ = traj.losses  # the rest of the path is filled in when asked for: here, where it is timed and guarded
    traj.provenance.update(provenance(config.as_dict()))
    return traj, seconds


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
