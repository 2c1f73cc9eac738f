"""`gflow train`: training in discrete time, and the commands for other models below it."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App

from gflow.cli import _descend, _summary
from gflow.cli._finish import leave, say_interrupted, say_written, write
from gflow.cli._options import OPTIMIZER, PROBLEM, Common, OutputFlags, ProblemFlags, StepFlags, flag, given
from gflow.cli._output import Output
from gflow.cli._prepare import describe
from gflow.cli._signals import INTERRUPTED
from gflow.config import TrainConfig, read_toml, resolve
from gflow.io.atomic import check_writable

app = App(
    name="train",
    help="Train the induction head in discrete time, and find its milestones in steps.\n\n"
    "Without flags: L = 40, alpha* = 1, w* = 0.49, sigma_init = 0.01, full gradient, learning rate 0.5. Time is the "
    "sum of the learning rates. Nothing is written unless --out or --plot names it.",
)


@app.default
def train(
    *,
    config: Annotated[str | None, flag("--config", PROBLEM, "Settings from a TOML file; flags override it.")] = None,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008 - frozen
    optimizer: Annotated[
        str | None, flag("--optimizer", OPTIMIZER, "gd, sgd, momentum, adam or adamw. [default: sgd]")
    ] = None,
    stepping: StepFlags = StepFlags(),  # noqa: B008 - frozen
    outputs: OutputFlags = OutputFlags(),  # noqa: B008 - frozen
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """One run of the six-parameter model; the help of the command is that of `app`."""
    flags = given(problem, stepping, outputs) | {"optimizer": optimizer}
    settings = resolve(None if config is None else read_toml(config), flags, source=config or "", cls=TrainConfig)
    for path in (settings.out, settings.plot):
        if path is not None:
            check_writable(path, settings.overwrite)
    output = Output(json=common.json, quiet=common.quiet)
    with output:
        output.remark(f"{settings.optimizer} on {describe(settings)}")
        trained = _descend.run(settings, output, leave=lambda: leave(output))
        interrupted = trained.descent.status.value == "interrupted"
        problems: dict[str, str] = {}
        write(trained.descent, settings, output, problems, draw_too=not interrupted)
    _report(trained, output, problems)
    say_written(settings, output, problems)
    status = trained.descent.status
    if interrupted:
        say_interrupted(f"step {trained.descent.steps[-1]}", settings, output, problems)
        return INTERRUPTED
    if not status.ok:
        output.warn(trained.descent.message)
    return 1 if problems or not status.ok else 0


def _report(trained: _descend.Trained, output: Output, problems: dict[str, str]) -> None:
    descent = trained.descent
    if output.json:
        output.document(document(trained, problems))
        return
    losses = _summary.losses_dict(descent)
    lines = ["", _summary.step_table(descent)] if descent.milestones else [""]
    lines += ["", _summary.losses_text(losses)]
    if trained.gradient == trained.measured_on:
        lines.append(f"gradient, losses and milestones of {trained.gradient}")
    else:
        lines.append(f"gradient of {trained.gradient}; losses and milestones of {trained.measured_on}")
    seconds = trained.seconds
    lines.append(
        f"{descent.steps[-1]} steps; loss {seconds['table']:.2g} s, compilation {seconds['compile']:.2g} s, "
        f"training {seconds['solve']:.2g} s"
    )
    lines += ["", f"ended at step {descent.steps[-1]}, t = {descent.t1_reached:.6g}: {descent.message}"]
    output.result("\n".join(lines))


def document(trained: _descend.Trained, problems: dict[str, str]) -> dict[str, Any]:
    """What is known about a run, as its JSON object."""
    return _document(trained, _summary.losses_dict(trained.descent), problems)


def _document(
    trained: _descend.Trained, losses: dict[str, dict[str, float]], problems: dict[str, str]
) -> dict[str, Any]:
    descent = trained.descent
    return {
        "status": descent.status.value,
        "message": descent.message,
        "config": descent.provenance["config"],
        "optimizer": trained.optimizer,
        "gradient": trained.gradient,
        "measured_on": trained.measured_on,
        "milestones": {name: {"step": m.step, "time": m.time} for name, m in descent.milestones.items()},
        "milestone_details": {
            name: {"status": m.status, "reason": m.reason, "level": m.level, "first": m.first}
            for name, m in descent.milestones.items()
        },
        "losses": losses,
        "params": {
            "initial": _summary.params_dict(descent.params, 0),
            "final": _summary.params_dict(descent.params, -1),
        },
        "steps": int(descent.steps[-1]),
        "t1_reached": descent.t1_reached,
        "seconds": trained.seconds,
        "problems": list(problems.values()),
        "provenance": {key: value for key, value in descent.provenance.items() if key != "config"},
    }
