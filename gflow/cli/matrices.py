"""`gflow train matrices`: the high-dimensional toy, many seeds side by side, and the test of Adam's sign matrix."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Group, Parameter

from gflow.cli import _matrices
from gflow.cli._finish import attempt, leave, say_interrupted, say_written
from gflow.cli._options import PROBLEM, Common, OutputFlags, flag, given, whole
from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED, unhurried
from gflow.config import read_toml, resolve
from gflow.config.matrices import MatricesConfig
from gflow.io.atomic import check_writable

OPTIMIZER = Group("Optimiser", sort_key=20)


def matrices(
    *,
    config: Annotated[str | None, flag("--config", PROBLEM, "Settings from a TOML file; flags override it.")] = None,
    d: Annotated[
        int | None, whole("--d", PROBLEM, "Dimension of a token. [default: 10; with --test-mechanism 4]")
    ] = None,
    L: Annotated[int | None, whole("--L", PROBLEM, "Sequence length, >= 4. [default: 32]")] = None,
    alpha_star: Annotated[
        float | None,
        flag("--alpha-star", PROBLEM, "Weight of the 4-gram part against the induction part. [default: 1]"),
    ] = None,
    w_star: Annotated[
        float | None, flag("--w-star", PROBLEM, "Square root of the target's logit scale. [default: 1]")
    ] = None,
    sigma_init: Annotated[
        float | None, flag("--sigma-init", PROBLEM, "Standard deviation of the initial entries. [default: 0.01]")
    ] = None,
    optimizer: Annotated[
        str | None, flag("--optimizer", OPTIMIZER, "adam, sgd or momentum. [default: adam]")
    ] = None,
    lr: Annotated[
        float | None, flag("--lr", OPTIMIZER, "Learning rate. [default: adam 1e-3, sgd 1, momentum 0.1]")
    ] = None,
    eps: Annotated[float | None, flag("--eps", OPTIMIZER, "Of adam. [default: 1e-8]")] = None,
    batch: Annotated[int | None, whole("--batch", OPTIMIZER, "Fresh sequences in each step. [default: 256]")] = None,
    steps: Annotated[
        int | None,
        whole("--steps", OPTIMIZER, "[default: adam 600, else 1500; with --test-mechanism enough for every seed]"),
    ] = None,
    every: Annotated[int | None, whole("--every", OPTIMIZER, "Steps between records. [default: 5]")] = None,
    evaluation: Annotated[
        int | None, whole("--evaluation", OPTIMIZER, "Sequences on which losses are recorded. [default: 2048]")
    ] = None,
    seeds: Annotated[
        int | None, whole("--seeds", OPTIMIZER, "How many. [default: 4; with --test-mechanism 20 of each rank]")
    ] = None,
    seed: Annotated[int | None, whole("--seed", OPTIMIZER, "The first seed. [default: 0]")] = None,
    precision: Annotated[str | None, flag("--precision", OPTIMIZER, "float64 or float32. [default: float64]")] = None,
    test_mechanism: Annotated[
        bool,
        Parameter(
            name="--test-mechanism", negative="", show_default=False, group=OPTIMIZER,
            help="Choose seeds by the rank of sign(W_K + W_Q), and judge whether it decides where Adam waits.",
        ),
    ] = False,
    outputs: OutputFlags = OutputFlags(),  # noqa: B008 - frozen
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:  # fmt: skip
    """Train matrices W_K, W_Q, W_V in R^(d x d) on tokens in R^d, for many seeds, and find where the loss waits.

    Loss per component, fresh batches, target with W* = I. With --test-mechanism the exit status is 1 when a verdict is
    not the expected one.
    """
    flags = given(outputs) | {
        "d": d, "L": L, "alpha_star": alpha_star, "w_star": w_star, "sigma_init": sigma_init, "optimizer": optimizer,
        "lr": lr, "eps": eps, "batch": batch, "steps": steps, "every": every, "evaluation": evaluation, "seeds": seeds,
        "seed": seed, "precision": precision, "test_mechanism": test_mechanism or None,
    }  # fmt: skip
    settings = resolve(None if config is None else read_toml(config), flags, source=config or "", cls=MatricesConfig)
    for path in (settings.out, settings.plot):
        if path is not None:
            check_writable(path, settings.overwrite)
    output = Output(json=common.json, quiet=common.quiet)
    with output:
        output.remark(_matrices.opening(settings))
        trained = _matrices.run(settings, output, leave=lambda: leave(output))
        interrupted = trained.run.status == "interrupted"
        problems: dict[str, str] = {}
        _write(trained, settings, output, problems, draw_too=not interrupted)
    document = _matrices.document(trained, settings) | {"problems": list(problems.values())}
    if output.json:
        output.document(document)
    else:
        output.result(_matrices.table(trained, document))
    say_written(settings, output, problems)
    if interrupted:
        say_interrupted(f"step {trained.run.steps[-1]}", settings, output, problems)
        return INTERRUPTED
    for failure in trained.run.failures:
        output.warn(str(failure))
    for surprise in trained.surprises:
        output.warn(surprise)
    return 1 if problems or trained.run.failures or trained.surprises else 0


def _write(trained: Any, settings: Any, output: Output, problems: dict[str, str], *, draw_too: bool) -> None:
    """Save and draw; what goes wrong is noted, so that a failing figure does not cost the data."""
    if settings.out is not None:
        output.phase(f"saving {settings.out}")
        with unhurried():
            attempt(problems, settings.out, lambda path: trained.run.save(path, overwrite=settings.overwrite))
    if settings.plot is not None and draw_too:
        output.phase(f"drawing {settings.plot}")
        attempt(problems, settings.plot, lambda path: _matrices.draw(trained.run, settings, path))
