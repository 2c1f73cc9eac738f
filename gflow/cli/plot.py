"""`gflow plot`: the figure of a saved run, or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gflow.cli._options import OUTPUT, Common
from gflow.cli._output import Output
from gflow.cli._signals import prompt_exit
from gflow.config import Choice
from gflow.errors import InputError
from gflow.io.atomic import atomic_path, check_writable

SUFFIXES = (".png", ".pdf", ".svg")
MOST = 6  # runs on one figure
LANDSCAPE = "landscape"  # the kind of figure that a run has beside its own
HDF5 = b"\x89HDF\r\n\x1a\n"  # how the files begin


def plot(
    run: Annotated[
        str, Parameter(help="What gflow integrate, train or sweep wrote with --out; several runs for one figure.")
    ],
    *others: Annotated[str, Parameter(help="Further files.")],
    out: Annotated[str, Parameter(group=OUTPUT, help="The figure: .png, .pdf or .svg.")],
    overlay: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Runs over each other, not side by side.")
    ] = False,
    label: Annotated[
        list[str] | None,
        Parameter(negative="", group=OUTPUT, help="Name of a run in the figure, once per file. [default: the file's]"),
    ] = None,
    kind: Annotated[
        str | None,
        Parameter(
            group=OUTPUT,
            help="Of a sweep: scaling, ratio or phase. Of a run: landscape. [default: what its axes suit, the phases]",
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        Parameter(negative="", group=OUTPUT, help="Of a sweep: the lanes to draw, KEY=VALUE, once per axis."),
    ] = None,
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace the figure if it exists.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Draw a saved run, several in one figure (side by side, or with --overlay over each other), or a sweep."""
    from gflow.sweeps.records import is_store

    output = Output(json=common.json, quiet=common.quiet)
    files = (run, *others)
    if Path(out).suffix.lower() not in SUFFIXES:
        raise InputError(f"out = {out!r} must end in {' or '.join(SUFFIXES)}; for example 'run.pdf'")
    if len(files) > MOST:
        raise InputError(f"{len(files)} runs given; a figure shows 1 to {MOST}")
    names = _names(files, label)
    store = is_store(run)
    chosen = _chosen(kind, select, sweep=store)
    if store and (others or overlay or label):
        raise InputError(f"{run} is a sweep, which has its own figures; plot it alone, without --overlay and --label")
    if kind == LANDSCAPE and (others or overlay or label):
        raise InputError(f"kind = {LANDSCAPE!r} shows one run; give one file, without --overlay and --label")
    for file in () if store else files:
        _check_readable(file)
    check_writable(out, overwrite)
    with output, prompt_exit(lambda: output.warn("interrupted; nothing was saved")):
        output.phase(f"drawing {', '.join(files)}")
        if store:
            draw_sweep(run, out, overwrite, kind=kind, chosen=chosen)
        else:
            if kind == LANDSCAPE:
                draw_landscape(run, out, overwrite, output)
            else:
                _draw_runs(dict(zip(names, files, strict=True)), out, overwrite, over=overlay, named=bool(label))
    if common.json:
        output.document({"status": "done", "run": run, "others": list(others), "figure": out})
    else:
        output.result(f"figure: {out}")
    return 0


def _draw_runs(files: Mapping[str, str], path: str, overwrite: bool, *, over: bool, named: bool) -> None:
    """Draw the runs of files, by their names in the figure."""
    import gflow

    runs = {name: gflow.load(file) for name, file in files.items()}
    toys = [files[name] for name, run in runs.items() if hasattr(run, "singular_KQ")]
    if toys and (len(runs) > 1 or over):
        raise InputError(f"{toys[0]} is a run of gflow train matrices, which has a figure of its own; plot it alone")
    if len(runs) > 1 or over or (named and not toys):
        draw_together(runs, path, overwrite, over=over)
    else:
        draw(next(iter(runs.values())), path, overwrite)


def _chosen(kind: str | None, select: Sequence[str] | None, *, sweep: bool) -> dict[str, str]:
    """The pairs of --select. Raises InputError; --select, and every --kind but landscape, are for sweeps."""
    if kind is not None:
        Choice(("scaling", "ratio", "phase", LANDSCAPE))("kind", kind)
    if sweep and kind == LANDSCAPE:
        raise InputError(f"kind = {LANDSCAPE!r} is for a run of gflow integrate; for a sweep: scaling, ratio or phase")
    if not sweep and (select or (kind and kind != LANDSCAPE)):
        raise InputError(f"{'kind' if kind else 'select'} is for the store of a sweep; leave it out for a run")
    pairs = {}
    for text in select or ():
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise InputError(f"select = {text!r} is not of the form KEY=VALUE; for example w_star=1")
        key = key.replace("-", "_")
        if key in pairs:
            raise InputError(f"select: {key} is given twice; give each axis once")
        pairs[key] = value
    return pairs


def draw_sweep(
    store: str, path: str, overwrite: bool, *, kind: str | None = None, chosen: Mapping[str, str] | None = None
) -> None:
    """Draw a sweep to a file. Raises InputError when it has not the axes that the figure needs."""
    import gflow
    from gflow.plots.sweeps import sweep_figure

    with gflow.load(store) as data:
        _save(sweep_figure(data, kind, chosen), path, overwrite)


def draw_landscape(file: str, path: str, overwrite: bool, output: Output) -> None:
    """Draw the Hessian along a run of gflow integrate, on the loss that its file describes. Raises InputError."""
    import gflow
    from gflow.cli._prepare import make_loss
    from gflow.config import resolve
    from gflow.io.compilation import prefer_quick_compilation
    from gflow.losses.induction.plan import make_problem
    from gflow.plots.landscape import landscape

    gflow.enable_compilation_cache()
    prefer_quick_compilation()
    traj = gflow.load(file)
    settings = {key: value for key, value in (traj.provenance.get("config") or {}).items() if value is not None}
    wanted = f"kind = {LANDSCAPE!r} needs a run of gflow integrate of the induction head with an exact loss; {file} "
    if hasattr(traj, "steps") or hasattr(traj, "singular_KQ"):
        raise InputError(f"{wanted}is one of gflow train; leave --kind out")
    if "loss" in settings or not {"fourgram", "induction"} <= set(traj.losses):
        raise InputError(f"{wanted}has another loss; leave --kind out")
    if hasattr(traj, "stages"):
        raise InputError(f"{wanted}has the stages of layer-wise training; leave --kind out")
    if not {"L", "alpha_star", "w_star"} <= set(settings):
        raise InputError(f"{wanted}does not say which problem it solved; save it with gflow integrate --out")
    config = resolve(settings, {})
    if config.evaluate == "sampled":
        raise InputError(f"{wanted}has a sampled one; leave --kind out")
    problem = make_problem(config)
    _save(landscape(traj, make_loss(problem, config, output), problem), path, overwrite)


def draw(traj: Any, path: str, overwrite: bool) -> None:
    """Draw a run to a file, whose suffix decides the format, without ever needing a display."""
    from gflow.plots import flagship, side_by_side

    if hasattr(traj, "singular_KQ"):  # a run of gflow train matrices
        from gflow.plots.matrices import matrices

        _save(matrices(traj), path, overwrite)
    elif hasattr(traj, "stages") and {"fourgram", "induction"} <= set(traj.losses):
        _save(side_by_side({"": traj}), path, overwrite)
    else:
        _save(flagship(traj, predictions=traj.provenance.get("predictions")), path, overwrite)


def draw_together(runs: Mapping[str, Any], path: str, overwrite: bool, *, over: bool) -> None:
    """Draw several runs by name in one figure, over each other or side by side."""
    from gflow.plots import overlay, side_by_side

    _save(overlay(runs) if over else side_by_side(runs), path, overwrite)


def _names(files: Sequence[str], labels: Sequence[str] | None) -> list[str]:
    """What the runs are called: as asked, or by their files."""
    if labels is not None:
        if len(labels) != len(files):
            raise InputError(f"{len(labels)} labels for {len(files)} runs; give --label once per file, in their order")
        if len(set(labels)) < len(labels):
            raise InputError(f"label = {max(labels, key=labels.count)!r} is given twice; runs need names of their own")
        return list(labels)
    names = [Path(file).stem for file in files]
    if len(set(names)) < len(names):
        names = [str(Path(file)) for file in files]
    if len(set(names)) < len(names):
        raise InputError(f"{max(names, key=names.count)} is given twice; name each run once")
    return names


def _check_readable(file: str) -> None:
    """Is it a file that gflow wrote? Asked before JAX is loaded. Raises InputError."""
    path = Path(file)
    try:
        with path.open("rb") as stream:
            begins = stream.read(len(HDF5))
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{file} is a folder; name a .nc file in it, or the store of a sweep alone") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    text = f"{file} was not written by gflow; name a file of gflow integrate or gflow train with --out"
    if begins != HDF5:
        raise InputError(text)
    import h5py

    try:
        with h5py.File(path, "r") as data:
            source = data.attrs.get("source")
    except OSError as error:
        raise InputError(f"{file} is damaged: {' '.join(str(error).split())}; write it again") from None
    if source not in ("gflow", b"gflow"):
        raise InputError(text)


def _save(figure: Any, path: str, overwrite: bool) -> None:
    # the figure belongs to no window and no global list: pyplot, and a choice of backend, are not needed
    with atomic_path(path, overwrite) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower())
