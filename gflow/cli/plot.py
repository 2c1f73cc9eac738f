"""`gflow plot`: the figure of a saved run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gflow.cli._options import OUTPUT, Common
from gflow.cli._output import Output
from gflow.cli._signals import prompt_exit
from gflow.errors import InputError
from gflow.io.atomic import atomic_path, check_writable

SUFFIXES = (".png", ".pdf", ".svg")


def plot(
    run: Annotated[
        str, Parameter(help="A file written by gflow integrate or gflow train with --out; several for one figure.")
    ],
    *others: Annotated[str, Parameter(help="Further files.")],
    out: Annotated[str, Parameter(group=OUTPUT, help="The figure: .png, .pdf or .svg.")],
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace the figure if it exists.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Draw a saved run, or several on one figure."""
    output = Output(json=common.json, quiet=common.quiet)
    if Path(out).suffix.lower() not in SUFFIXES:
        raise InputError(f"out = {out!r} must end in {' or '.join(SUFFIXES)}; for example 'run.pdf'")
    check_writable(out, overwrite)
    with output, prompt_exit(lambda: output.warn("interrupted; nothing was saved")):
        output.phase(f"drawing {', '.join((run, *others))}")
        import gflow

        if others:
            draw_together((run, *others), out, overwrite)
        else:
            draw(gflow.load(run), out, overwrite)
    if common.json:
        output.document({"status": "done", "run": run, "others": list(others), "figure": out})
    else:
        output.result(f"figure: {out}")
    return 0


def draw(traj: Any, path: str, overwrite: bool) -> None:
    """Draw a trajectory to a file, whose suffix decides the format, without ever needing a display."""
    from gflow.plots import flagship

    _save(flagship(traj, predictions=traj.provenance.get("predictions")), path, overwrite)


def draw_together(files: Sequence[str], path: str, overwrite: bool) -> None:
    """Draw several saved runs on one figure; each is called by the name of its file."""
    import gflow
    from gflow.plots import overlay

    names = [Path(file).stem for file in files]
    if len(set(names)) < len(names):
        names = [str(Path(file)) for file in files]
    if len(set(names)) < len(names):
        raise InputError(f"{max(names, key=names.count)} is given twice; name each run once")
    _save(overlay({name: gflow.load(file) for name, file in zip(names, files, strict=True)}), path, overwrite)


def _save(figure: Any, path: str, overwrite: bool) -> None:
    # the figure belongs to no window and no global list: pyplot, and a choice of backend, are not needed
    with atomic_path(path, overwrite) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower())
