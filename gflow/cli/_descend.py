"""From a checked configuration of `gflow train` to a finished run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from gflow.cli._output import Output
from gflow.cli._prepare import WORTH_KEEPING, compile_seconds, load_ahead, make_problem
from gflow.cli._signals import check, prompt_exit
from gflow.config import TrainConfig
from gflow.io.compilation import prefer_quick_compilation

TAIL = 0.5  # how far a run goes on after its last milestone, in units of that milestone's step


@dataclasses.dataclass
class Trained:
    """A descent and what is known about it."""

    descent: Any
    seconds: dict[str, float]
    optimizer: dict[str, Any]
    gradient: str  # what drives the steps, in words
    measured_on: str  # what losses and milestones are read from, in words


def run(config: TrainConfig, output: Output, leave: Callable[[], None]) -> Trained:
    """Train what `config` describes; `leave` is called before a phase with nothing to save is cut short."""
    with prompt_exit(leave):
        output.phase("loading JAX")
        started = time.perf_counter()
        import gflow
        from gflow.training import FreshBatches, optimizer
        from gflow.training._optimizers import LEARNING_RATES

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        problem = make_problem(config)
        loading = time.perf_counter() - started
        output.phase("preparing the loss")
        started = time.perf_counter()
        load_ahead(config)
        loss, params, conditions = _prepare(problem, config)
        batches = None if config.batch is None else FreshBatches.of(problem, config.batch)
        table = time.perf_counter() - started
    lr = config.lr or LEARNING_RATES[config.optimizer]
    rule = optimizer(config.optimizer, **config.numbers)
    policy = {"lr": lr, "milestones": conditions, "batches": batches, "key": config.seed}
    if config.steps is None:
        policy["tail"] = TAIL
    descent, seconds = _train(loss, params, rule, config, policy, output, leave)
    if config.training == "second-layer":
        descent.provenance["predictions"] = {"plateau": float(problem.plateau())}  # for its figure
    numbers = {name: float(value) for name, value in rule.numbers.items()}
    measured_on = repr(loss)
    return Trained(
        descent,
        {"load": loading, "table": table, **seconds},
        {"name": config.optimizer, "lr": lr, **numbers},
        "the loss itself" if config.batch is None else f"fresh batches of {config.batch} sequences",
        measured_on,
    )


def _prepare(problem: Any, config: TrainConfig) -> tuple[Any, Any, dict[str, Any]]:
    """Loss, initial parameters and milestones."""
    if config.evaluate == "sampled":
        size = {"samples": config.samples, "accuracy": config.accuracy}
        known = {name: value for name, value in size.items() if value is not None}
        loss = problem.sampled_loss(scrambles=config.scrambles, seed=config.seed, **known)
    else:
        loss = problem.full_loss() if config.training == "joint" else problem.population_loss()
    if config.training == "joint":
        params = problem.initial_params(config.sigma_init, p11=config.sigma_init)
    else:
        params = problem.initial_params(config.sigma_init)
    return loss, params, _milestones(problem, loss, config)


def _milestones(problem: Any, loss: Any, config: TrainConfig) -> dict[str, Any]:
    """At p11 = inf those of the exact loss, which cost nothing; else halves and tenths, for there is no plateau."""
    from gflow import Below

    if config.training == "second-layer":
        return problem.milestones()
    parts = {"fourgram": loss.fourgram, "induction": loss.induction}
    shares = {"half": 0.5, "tenth": 0.1}
    return {
        f"{part}_{word}": Below(function, fraction=share)
        for part, function in parts.items()
        for word, share in shares.items()
    }


def _train(
    loss: Any,
    params: Any,
    rule: Any,
    config: TrainConfig,
    policy: dict[str, Any],
    output: Output,
    leave: Callable[[], None],
) -> tuple[Any, dict[str, float]]:
    import gflow
    from gflow.io.provenance import provenance

    began: dict[str, float] = {}

    def told(news: dict[str, Any]) -> None:
        # at each sign of life also look for a signal that was lost
        check()
        guard.alive()
        now = time.perf_counter()
        began.setdefault("training", now)
        guard.precious = now - began["training"] > WORTH_KEEPING
        found = f", {len(news['found'])} of {news['wanted']} milestones" if news["wanted"] else ""
        output.progress(f"step {news['step']}, t = {news['t']:.4g}, loss {news['loss']:.4g}{found}")

    output.phase("training")
    started = time.perf_counter()
    # for the first steps JAX compiles for seconds: a signal then ends the process, and loses little
    with compile_seconds() as compiled, prompt_exit(leave) as guard:
        descent = gflow.descend(loss, params, rule, config.steps, progress=told, **policy)
    wall = time.perf_counter() - started
    descent.provenance.update(provenance(config.as_dict() | {"lr": policy["lr"]}))
    return descent, {"compile": min(compiled[0], wall), "solve": max(wall - compiled[0], 0.0)}
