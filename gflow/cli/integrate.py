"""`gflow integrate`: one trajectory, its milestones beside the theory's, its file and its figure."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Group

from gflow.cli import _run, _summary
from gflow.cli._options import PROBLEM, Common, OutputFlags, ProblemFlags, flag, given, whole
from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED, unhurried
from gflow.config import IntegrateConfig, read_toml, resolve
from gflow.errors import GflowError
from gflow.io.atomic import check_writable

SOLVER = Group("Solver", sort_key=20)
OWN = Group("Your own loss", sort_key=30)


def integrate(
    *,
    config: Annotated[str | None, flag("--config", PROBLEM, "Settings from a TOML file; flags override it.")] = None,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008 - frozen
    model: Annotated[str | None, flag("--model", PROBLEM, "Which model. [default: induction]")] = None,
    solver: Annotated[
        str | None,
        flag("--solver", SOLVER, "auto, tsit5, dopri5, dopri8, rodas5p, kvaerno3 or kvaerno5. [default: auto]"),
    ] = None,
    rtol: Annotated[float | None, flag("--rtol", SOLVER, "Relative tolerance of a step. [default: 3e-9]")] = None,
    atol: Annotated[
        float | None, flag("--atol", SOLVER, "Absolute tolerance. [default: rtol times the initial values]")
    ] = None,
    t1: Annotated[float | None, flag("--t1", SOLVER, "End exactly there. [default: after the last milestone]")] = None,
    max_steps: Annotated[int | None, whole("--max-steps", SOLVER, "Steps tried at most. [default: 1000000]")] = None,
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
    flags = given(problem, outputs) | {
        "model": model, "solver": solver, "rtol": rtol, "atol": atol, "t1": t1, "max_steps": max_steps,
        "loss": loss, "init": init,
    }  # fmt: skip
    settings = resolve(None if config is None else read_toml(config), flags, source=config or "")
    for path in (settings.out, settings.plot):
        if path is not None:
            check_writable(path, settings.overwrite)
    output = Output(json=common.json, quiet=common.quiet)
    with output:
        output.remark(_opening(settings))
        finished = _run.run(settings, output, leave=lambda: _leave(output))
        interrupted = finished.traj.status.value == "interrupted"
        problems: dict[str, str] = {}
        try:
            if not interrupted:
                _attempt(problems, "theory", lambda _: _run.compare(finished, settings, output))
        except KeyboardInterrupt:
            interrupted = True
        _write(finished, settings, output, problems, draw_too=not interrupted)
    _report(finished, settings, output, problems)
    if interrupted:
        _say_interrupted(finished, settings, output, problems)
        return INTERRUPTED
    return 1 if problems or not finished.traj.status.ok else 0


def _opening(settings: IntegrateConfig) -> str:
    if settings.loss:
        return f"gradient flow of {settings.loss} from {settings.init}"
    law = settings.tokens if isinstance(settings.tokens, str) else f"{len(settings.tokens.values)}-valued"
    return (
        f"gradient flow of the induction head: L = {settings.L:g}, alpha* = {settings.alpha_star:g}, "
        f"w* = {settings.w_star:g}, sigma_init = {settings.sigma_init:g}, {law} tokens"
        f"{f' in {settings.d} dimensions' if settings.d > 1 else ''}, {settings.parametrization}"
    )


def _leave(output: Output) -> None:
    """Last words before a phase with nothing to save is cut short."""
    text = "interrupted; nothing was saved"
    output.warn(text)
    if output.json:
        output.document({"status": "interrupted", "message": text, "exit_status": INTERRUPTED})


def _write(
    finished: _run.Run, settings: IntegrateConfig, output: Output, problems: dict[str, str], *, draw_too: bool
) -> None:
    """Save and draw; what goes wrong is noted, so that a failing figure does not cost the data."""
    if settings.out is not None:
        output.phase(f"saving {settings.out}")
        with unhurried():
            _attempt(problems, settings.out, lambda path: finished.traj.save(path, overwrite=settings.overwrite))
    if settings.plot is not None and draw_too:
        output.phase(f"drawing {settings.plot}")
        from gflow.cli.plot import draw

        _attempt(problems, settings.plot, lambda path: draw(finished.traj, path, settings.overwrite))


def _attempt(problems: dict[str, str], what: str, act: Callable[[str], Any]) -> None:
    """`act(what)`, where a failure must not keep the results from being told."""
    try:
        act(what)
    except GflowError as error:
        problems[what] = str(error)
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        problems[what] = f"{what}: {type(error).__name__}: {' '.join(str(error).split())}"


def _report(finished: _run.Run, settings: IntegrateConfig, output: Output, problems: dict[str, str]) -> None:
    traj = finished.traj
    losses = _summary.losses_dict(traj)
    if finished.plateau is not None and "induction" in losses:
        losses["induction"]["plateau"] = finished.plateau
    if output.json:
        output.document(_document(finished, settings, losses, problems))
    else:
        lines = ["", _summary.milestone_table(traj, finished.predictions)] if traj.milestones else [""]
        lines += ["", _summary.losses_text(losses), *_remarks(finished, losses), ""]
        lines.append(f"ended at t = {traj.t1_reached:.6g}: {traj.message}")
        output.result("\n".join(lines))
    for path in (settings.out, settings.plot):
        if path is not None and path not in problems and os.path.exists(path):
            output.remark(f"wrote {path}")
    for problem in problems.values():
        output.warn(problem)


def _say_interrupted(finished: _run.Run, settings: IntegrateConfig, output: Output, problems: dict[str, str]) -> None:
    reached = finished.traj.t1_reached
    if settings.out is None:
        output.warn(f"interrupted at t = {reached:.6g}; give --out to keep what is integrated")
    elif settings.out not in problems:
        output.warn(f"interrupted; the run up to t = {reached:.6g} is in {settings.out}")


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
