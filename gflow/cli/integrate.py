"""`gflow integrate`: one trajectory, its milestones beside the theory's, its file and its figure."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Group

from gflow.cli import _run, _summary
from gflow.cli._finish import attempt, leave, say_interrupted, say_written, write
from gflow.cli._induction import stages_dict, went_well
from gflow.cli._options import PROBLEM, Common, FlowFlags, OutputFlags, ProblemFlags, flag, given
from gflow.cli._output import Output
from gflow.cli._prepare import describe
from gflow.cli._signals import INTERRUPTED
from gflow.config import IntegrateConfig, read_toml, resolve
from gflow.io.atomic import check_writable

OWN = Group("Your own loss", sort_key=30)


def integrate(
    *,
    config: Annotated[str | None, flag("--config", PROBLEM, "Settings from a TOML file; flags override it.")] = None,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008 - frozen
    model: Annotated[str | None, flag("--model", PROBLEM, "Which model. [default: induction]")] = None,
    flow: FlowFlags = FlowFlags(),  # noqa: B008 - frozen
    loss: Annotated[
        str | None, flag("--loss", OWN, "module:function, a pure JAX function of a dictionary of arrays.")
    ] = None,
    init: Annotated[
        str | None, flag("--init", OWN, "TOML file of initial values, with an optional [milestones].")
    ] = None,
    outputs: OutputFlags = OutputFlags(),  # noqa: B008 - frozen
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Integrate one gradient flow and find its milestones.

    Without flags: L = 40, alpha* = 1, w* = 0.49, sigma_init = 0.01. Nothing is written unless --out or --plot names it.
    """
    flags = given(problem, flow, outputs) | {"model": model, "loss": loss, "init": init}
    settings = resolve(None if config is None else read_toml(config), flags, source=config or "")
    for path in (settings.out, settings.plot):
        if path is not None:
            check_writable(path, settings.overwrite)
    output = Output(json=common.json, quiet=common.quiet)
    with output:
        output.remark(_opening(settings))
        finished = _run.run(settings, output, leave=lambda: leave(output))
        interrupted = finished.traj.status.value == "interrupted"
        problems: dict[str, str] = {}
        try:
            if not interrupted:
                attempt(problems, "theory", lambda _: _run.compare(finished, settings, output))
        except KeyboardInterrupt:
            interrupted = True
        write(finished.traj, settings, output, problems, draw_too=not interrupted)
    _report(finished, settings, output, problems)
    if interrupted:
        say_interrupted(f"t = {finished.traj.t1_reached:.6g}", settings, output, problems)
        return INTERRUPTED
    return 1 if problems or not went_well(finished.traj) else 0


def _opening(settings: IntegrateConfig) -> str:
    if settings.loss:
        return f"gradient flow of {settings.loss} from {settings.init}"
    return f"gradient flow of {describe(settings)}"


def _report(finished: _run.Run, settings: IntegrateConfig, output: Output, problems: dict[str, str]) -> None:
    traj = finished.traj
    if output.json:
        output.document(document(finished, settings, problems))
    else:
        losses = _losses(finished)
        lines = ["", _summary.milestone_table(traj, finished.predictions)] if traj.milestones else [""]
        lines += ["", _summary.losses_text(losses), *_remarks(finished, losses), ""]
        lines.append(f"ended at t = {traj.t1_reached:.6g}: {traj.message}")
        output.result("\n".join(lines))
    say_written(settings, output, problems)


def _remarks(finished: _run.Run, losses: dict[str, dict[str, float]]) -> list[str]:
    lines = []
    if finished.plateau is not None:
        start = losses["induction"]["initial"]
        lines.append(f"the plateau lies at {100 * finished.plateau / start:.3g}% of the starting induction loss")
    rate, measured = finished.predictions.get("growth_rate"), finished.measured.get("growth_rate")
    if rate:
        seen = "" if measured is None else f", measured {measured:.7g}"
        lines.append(f"growth rate on the plateau: predicted {rate:.7g}{seen}")
    seconds = finished.seconds
    steps = finished.traj.stats
    lines.append(
        f"{steps['accepted']} steps, {steps['rejected']} rejected; table {seconds['table']:.2g} s, "
        f"compilation {seconds['compile']:.2g} s, solve {seconds['solve']:.2g} s"
    )
    return lines


def _losses(finished: _run.Run) -> dict[str, dict[str, float]]:
    losses = _summary.losses_dict(finished.traj)
    if finished.plateau is not None and "induction" in losses:
        losses["induction"]["plateau"] = finished.plateau
    return losses


def document(finished: _run.Run, settings: IntegrateConfig, problems: dict[str, str]) -> dict[str, Any]:
    """What is known about a run, as its JSON object."""
    return _document(finished, settings, _losses(finished), problems)


def _document(
    finished: _run.Run, settings: IntegrateConfig, losses: dict[str, dict[str, float]], problems: dict[str, str]
) -> dict[str, Any]:
    traj = finished.traj
    return {
        "status": traj.status.value,
        "message": traj.message,
        "config": settings.as_dict(),
        "milestones": _summary.milestones_dict(traj),
        "milestone_details": _summary.details_dict(traj),
        "predictions": finished.predictions,
        "measured": finished.measured,
        "losses": losses,
        "stages": stages_dict(traj),
        "params": {
            "initial": _summary.params_dict(traj.params, 0),
            "final": _summary.params_dict(traj.params, -1),
        },
        "t1_reached": traj.t1_reached,
        "stationary": _summary.stationary_dict(traj),
        "saddles": _summary.saddles_dict(traj),
        "error_bound": finished.error_bound,
        "steps": {"accepted": traj.stats["accepted"], "rejected": traj.stats["rejected"]},
        "seconds": finished.seconds,
        "problems": list(problems.values()),
        "provenance": {key: value for key, value in traj.provenance.items() if key != "config"},
    }
