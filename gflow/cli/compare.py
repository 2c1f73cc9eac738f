"""`gflow compare`: an ablation. The same problem with one thing changed, run by run, side by side."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from gflow.cli import _ablation
from gflow.cli._compare import Ablation, run_all
from gflow.cli._finish import attempt
from gflow.cli._options import OUTPUT, PROBLEM, Common, FlowFlags, ProblemFlags, StepFlags, flag, given
from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED
from gflow.config import read_toml
from gflow.config.compare import comparison
from gflow.io.atomic import check_writable


def compare(
    key: Annotated[
        str,
        Parameter(
            help="parametrization, alpha-star, tokens, training, w-star, sigma-init, L or optimizer "
            "(flow, gd, sgd, momentum, adam, adamw)."
        ),
    ],
    *values: Annotated[str, Parameter(help="Two to six values of it; the first is what the others are compared with.")],
    config: Annotated[str | None, flag("--config", PROBLEM, "Settings from a TOML file; flags override it.")] = None,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008 - frozen
    flow: FlowFlags = FlowFlags(),  # noqa: B008 - frozen
    stepping: StepFlags = StepFlags(),  # noqa: B008 - frozen
    out: Annotated[
        str | None, flag("--out", OUTPUT, "Save each run: a folder, or the start of the names, -VALUE.nc is added.")
    ] = None,
    plot: Annotated[str | None, flag("--plot", OUTPUT, "One figure of all runs (.png, .pdf or .svg).")] = None,
    overlay: Annotated[
        bool | None,
        Parameter(
            negative="--side-by-side",
            group=OUTPUT,
            help="Runs over each other in the figure, or side by side. [default: over each other for optimizer]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace existing outputs.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Run the same problem with one thing changed, and compare milestones.

    All other flags are those of gflow integrate and, for optimizer, of gflow train; a run gets those it reads.
    """
    flags = given(problem, flow, stepping) | {
        name: value for name, value in (("out", out), ("plot", plot), ("overwrite", overwrite)) if value
    }
    file = None if config is None else read_toml(config)
    settings = comparison(key, values, flags, file=file, source=config or "", overlay=overlay)
    for path in (*settings.outs, *([settings.plot] if settings.plot else [])):
        check_writable(path, settings.overwrite)
    output = Output(json=common.json, quiet=common.quiet)
    ablation = Ablation(settings)

    def leave() -> None:
        ablation.interrupted = True
        _say_interrupted(ablation, output)
        if output.json:
            output.document(_document(ablation))

    with output:
        run_all(ablation, output, leave, debug=common.debug)
        if settings.plot is not None and ablation.drawn() and not ablation.interrupted:
            output.phase(f"drawing {settings.plot}")
            from gflow.cli.plot import draw_together

            over, again = settings.overlay, settings.overwrite
            known = set(ablation.problems)
            attempt(ablation.problems, settings.plot, lambda at: draw_together(ablation.drawn(), at, again, over=over))
            for what in set(ablation.problems) - known:
                output.warn(ablation.problems[what])
    _report(ablation, output)
    if ablation.interrupted:
        _say_interrupted(ablation, output)
        return INTERRUPTED
    return 1 if ablation.problems else 0


def _say_interrupted(ablation: Ablation, output: Output) -> None:
    done = ", ".join(variant.value for variant in ablation.variants) or "none"
    kept = f"; kept in {', '.join(ablation.files)}" if ablation.files else "; nothing was saved"
    output.warn(f"interrupted; runs so far: {done}{kept}")


def _report(ablation: Ablation, output: Output) -> None:
    if output.json:
        output.document(_document(ablation))
    else:
        values = ablation.config.values
        lines = [""]
        if any(ablation.times):
            lines += [_ablation.comparison_table(values, ablation.times, ablation.plateau), "", *ablation.shows, ""]
        lines += [f"{v.value}: {v.document['status']}: {v.document['message']}" for v in ablation.variants]
        output.result("\n".join(lines))
    for path in ablation.files:
        output.remark(f"wrote {path}")


def _document(ablation: Ablation) -> dict[str, Any]:
    return {
        "status": ablation.status,
        "key": ablation.config.key,
        "values": list(ablation.config.numbers or ablation.config.values),
        "runs": [variant.document for variant in ablation.variants],
        "ratios": _ablation.ratios(ablation.times),
        "plateau": ablation.plateau,
        "shows": ablation.shows,
        "files": ablation.files,
        "problems": list(ablation.problems.values()),
    }
