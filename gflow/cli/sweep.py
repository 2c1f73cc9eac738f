"""`gflow sweep`: a grid of trajectories in a Zarr store, resumable, on every core, GPU or a cluster."""

from __future__ import annotations

import dataclasses
import shlex
import traceback
from typing import Annotated, Any

from cyclopts import Group, Parameter

from gflow.cli import _sweep
from gflow.cli._finish import attempt
from gflow.cli._options import OUTPUT, Common, flag, whole
from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED, prompt_exit
from gflow.config import Text, read_toml
from gflow.config.sweep import SweepConfig, sweep_config
from gflow.errors import GflowError, InputError, StoreError, WorkerError
from gflow.io.atomic import check_writable
from gflow.io.compilation import enable_compilation_cache

RUN = Group("Execution", sort_key=20)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Execution:
    """Where and how lanes are computed."""

    executor: Annotated[
        str | None, flag("--executor", RUN, "local (all cores, or all GPUs), serial or dask. [default: local]")
    ] = None
    scheduler: Annotated[
        str | None, flag("--scheduler", RUN, "dask: address of a running scheduler, tcp://...; without it, local ones.")
    ] = None
    workers: Annotated[int | None, whole("--workers", RUN, "How many processes. [default: one per core]")] = None
    chunk: Annotated[
        int | None, whole("--chunk", RUN, "Lanes computed and saved at once. [default: as suits the sweep]")
    ] = None


def sweep(
    config: Annotated[str | None, Parameter(help="The sweep file (TOML): [fixed], [axes], [zip], [options].")] = None,
    *,
    out: Annotated[str | None, flag("--out", OUTPUT, "The store (Zarr), a folder. Required.")] = None,
    execution: Execution = Execution(),
    resume: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Go on with a store that is there.")
    ] = False,
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace existing outputs.")
    ] = False,
    plot: Annotated[str | None, flag("--plot", OUTPUT, "A figure of it (.png, .pdf or .svg).")] = None,
    table: Annotated[str | None, flag("--table", OUTPUT, "A row per lane, for regressions (.parquet or .csv).")] = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Fill a grid with trajectories: milestones, final states, statistics of every lane.

    Every key of gflow integrate can be fixed or an axis. A sweep can be stopped or killed at any moment, and goes on
    with --resume where it stopped. Without a file, --resume reads it from the store.
    """
    if out is None:
        raise InputError("--out is missing; name the store, for example --out sweep.zarr")
    settings = _settings(config, out, execution, resume=resume, overwrite=overwrite)
    again = _again(config, out, execution, {"table": table, "plot": plot})
    if table is not None:
        _sweep.check_table(table)
        check_writable(table, overwrite or resume)
    if plot is not None:
        plot = Text("sweep.pdf", (".png", ".pdf", ".svg"))("plot", plot)
        check_writable(plot, overwrite or resume)
    output = Output(json=common.json, quiet=common.quiet)

    def leave() -> None:
        text = f"interrupted; finished chunks are in {out}; go on with: {again}"
        output.warn(text)
        if output.json:
            output.document({"status": "interrupted", "message": text, "store": out, "exit_status": INTERRUPTED})

    from gflow.sweeps import driver, store, table as tables

    enable_compilation_cache()  # an environment variable, which workers inherit
    plan = driver.prepare(settings, out)
    if plot is not None:
        _sweep.check_drawable(plan)
    store.check(plan.path, plan.design, resume=resume, overwrite=overwrite)
    policy = {"executor": execution.executor or "local", "workers": execution.workers, "scheduler": execution.scheduler}
    problems: dict[str, str] = {}
    with output:
        output.remark(_sweep.opening(plan, resume=resume))
        try:
            with prompt_exit(leave) as guard:

                def tell(news: Any) -> None:
                    guard.alive()
                    _sweep.show(news, output)

                found = driver.run(plan, resume=resume, overwrite=overwrite, tell=tell, **policy)
            if table is not None:
                output.phase(f"writing {table}")
                attempt(problems, table, lambda path: tables.write(plan, path, overwrite=overwrite or resume))
            if plot is not None:
                from gflow.cli.plot import draw_sweep

                output.phase(f"drawing {plot}")
                attempt(problems, plot, lambda path: draw_sweep(out, path, overwrite or resume))
        except KeyboardInterrupt:
            output.clear()
            _stopped(plan, output, "interrupted", f"interrupted; finished chunks are in {out}; go on with: {again}")
            return INTERRUPTED
        except (StoreError, WorkerError) as error:
            if common.debug:
                traceback.print_exc()
            way = "free some space, then " if isinstance(error, StoreError) else ""
            _stopped(plan, output, "failed", f"{error}; {way}go on with: {again}", error)
            return error.exit_status
    document = _document(found, table, plot, problems)
    if output.json:
        output.document(document)
    else:
        output.result(_sweep.summary(found))
    written = [path for path in (table, plot) if path is not None and path not in problems]
    output.remark(f"wrote {', '.join([out, *written])}")
    for problem in document["problems"]:
        output.warn(problem)
    if found.pending:
        output.warn(f"{found.pending} lanes are not computed; go on with: {again}")
    return 1 if found.failed or found.pending or problems else 0


def _settings(file: str | None, out: str, execution: Execution, *, resume: bool, overwrite: bool) -> SweepConfig:
    if resume and overwrite:
        raise InputError("--resume goes on with a store and --overwrite replaces it; give one of them")
    if execution.executor not in (None, "local", "serial", "dask"):
        from gflow.config._rules import Choice

        Choice(("local", "serial", "dask"))("executor", execution.executor)
    if execution.scheduler is not None and execution.executor != "dask":
        raise InputError(f"scheduler = {execution.scheduler!r} needs --executor dask; add it, or leave --scheduler out")
    if execution.workers is not None and execution.workers < 1:
        raise InputError(f"workers = {execution.workers} is out of range; give at least 1")
    if file is not None:
        given, source = read_toml(file), file
    elif resume:
        from gflow.sweeps.records import stored_settings

        given, source = stored_settings(out), out
    else:
        raise InputError("the sweep file is missing; name it: gflow sweep sweep.toml --out sweep.zarr")
    if execution.chunk is not None:
        options = given.get("options", {})
        if isinstance(options, dict):
            given = given | {"options": options | {"chunk": execution.chunk}}
    return sweep_config(given, source)


def _again(file: str | None, out: str, execution: Execution, outputs: dict[str, str | None]) -> str:
    """The command that goes on."""
    words = ["gflow", "sweep", *([file] if file is not None else []), "--out", out, "--resume"]
    flags = {**vars(execution), **outputs}
    for name, value in flags.items():
        words += [f"--{name}", str(value)] if value is not None else []
    return shlex.join(words)


def _stopped(plan: Any, output: Output, status: str, text: str, error: GflowError | None = None) -> None:
    """Last words of a sweep that did not come to its end; what is in the store is told too."""
    output.warn(text)
    if not output.json:
        return
    document: dict[str, Any] = {"status": status, "message": text, "store": str(plan.path)}
    if error is None:
        document["exit_status"] = INTERRUPTED
    else:
        document |= {"error": type(error).__name__, "exit_status": error.exit_status}
    attempt({}, "store", lambda _: document.update(_sweep.so_far(plan)))
    output.document(document)


def _document(found: Any, table: str | None, plot: str | None, problems: dict[str, str]) -> dict[str, Any]:
    return {
        "status": found.status if not problems else "failed",
        "lanes": found.lanes,
        "failed": found.failed,
        "not_reached": found.not_reached,
        "pending": found.pending,
        "computed": found.computed,
        "seconds": found.seconds,
        "lanes_per_second": found.lanes_per_second,
        "workers": found.workers,
        "store": str(found.path),
        "table": None if table in problems else table,
        "figure": None if plot in problems else plot,
        "ranges": found.ranges,
        "check": found.check,
        "failures": found.failures,
        "reasons": found.reasons,
        "problems": [*found.problems, *problems.values()],
    }
