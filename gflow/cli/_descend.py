"""From a checked configuration of `gflow train` to a finished run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from gflow.cli._output import Output
from gflow.cli._prepare import load_ahead, make_loss, watched
from gflow.cli._signals import prompt_exit
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
        from gflow.losses.induction.plan import make_problem
        from gflow.training import optimizer
        from gflow.training._optimizers import LEARNING_RATES

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        problem = make_problem(config)
        loading = time.perf_counter() - started
        output.phase("preparing the loss")
        started = time.perf_counter()
        load_ahead(config)
        trained, loss, params, conditions = _prepare(problem, config, output)
        batches = _batches(problem, config, trained, loss)
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
    gradient = repr(trained) if config.batch is None else f"fresh batches of {config.batch} sequences"
    return Trained(
        descent,
        {"load": loading, "table": table, **seconds},
        {"name": config.optimizer, "lr": lr, **numbers},
        gradient,
        repr(loss),
    )


def _prepare(problem: Any, config: TrainConfig, output: Output) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The loss that is trained, the one that is reported, initial parameters and milestones.

    At p11 = inf the exact loss costs nothing, so it is what is reported. At finite p11 the two are the same.
    """
    from gflow.losses.induction.plan import start

    trained = make_loss(problem, config, output)
    params = start(problem, config)
    if config.training == "joint":
        return trained, trained, params, problem.milestones(trained) | problem.emergence(trained)
    return trained, problem.population_loss(), params, problem.milestones()


def _batches(problem: Any, config: TrainConfig, trained: Any, reported: Any) -> Any:
    """What drives the steps where it is not the reported loss."""
    from gflow.training import FixedSample, FreshBatches

    if config.batch is not None:
        return FreshBatches.of(problem, config.batch)
    return None if trained is reported else FixedSample(trained)


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

    def told(news: dict[str, Any]) -> None:
        alive()
        found = f", {len(news['found'])} of {news['wanted']} milestones" if news["wanted"] else ""
        output.progress(f"step {news['step']}, t = {news['t']:.4g}, loss {news['loss']:.4g}{found}")

    output.phase("training")
    seconds: dict[str, float] = {}
    with watched(leave, seconds) as alive:
        descent = gflow.descend(loss, params, rule, config.steps, progress=told, **policy)
    descent.provenance.update(provenance(config.as_dict() | {"lr": policy["lr"]}))
    return descent, seconds
