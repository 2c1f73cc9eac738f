"""`gflow verify`: the statements of the theory, or the flow of a user's own loss, measured and judged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from gflow.cli import _verify_text
from gflow.cli._finish import attempt
from gflow.cli._options import OUTPUT, Common, flag, whole
from gflow.cli._output import Output, dumps
from gflow.cli._prepare import watched
from gflow.cli._signals import INTERRUPTED, unhurried
from gflow.config import number
from gflow.errors import InputError
from gflow.io.atomic import atomic_path, check_writable
from gflow.theory.claims import NAMES, check_names

HOW = Group("How thoroughly", sort_key=10)
OWN = Group("Your own loss", sort_key=30)


def verify(
    *claims: Annotated[str, Parameter(help="Names of claims. [default: all]")],
    list_: Annotated[
        bool, Parameter(name="--list", negative="", show_default=False, group=HOW, help="Name the claims, and stop.")
    ] = False,
    quick: Annotated[
        bool, Parameter(negative="", show_default=False, group=HOW, help="Few points: a minute or two. [default]")
    ] = False,
    full: Annotated[
        bool, Parameter(negative="", show_default=False, group=HOW, help="More points, exact tables at finite p11.")
    ] = False,
    workers: Annotated[int | None, whole("--workers", HOW, "Processes. [default: one per core, at most 4]")] = None,
    loss: Annotated[
        str | None, flag("--loss", OWN, "module:function: examine this loss instead of the theory.")
    ] = None,
    init: Annotated[str | None, flag("--init", OWN, "TOML file of its initial values.")] = None,
    scales: Annotated[
        str | None, flag("--scales", OWN, "Factors of the initial values, like 1,0.1,0.01. [default: 1 to 1e-3]")
    ] = None,
    t1: Annotated[float | None, flag("--t1", OWN, "End every run there. [default: at rest]")] = None,
    out: Annotated[str | None, flag("--out", OUTPUT, "Save verdicts and evidence (.json), for gflow report.")] = None,
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace the file if it exists.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Check claims of the theory numerically: verdicts with numbers, errors, regimes, and controls.

    The exit status is 1 when a verdict is not the expected one or a control is not rejected.
    """
    output = Output(json=common.json, quiet=common.quiet)
    effort = _effort(quick, full)
    if loss is None:
        for name, value in (("init", init), ("scales", scales), ("t1", t1)):
            if value is not None:
                raise InputError(f"{name} = {value} is for a loss of your own; give --loss module:function, too")
        chosen = check_names(claims)
        if workers is not None:
            number("workers", workers, 1, 1024)
    else:
        if claims or list_:
            raise InputError(f"{claims[0] if claims else '--list'} is about the theory; leave it out beside --loss")
        if workers is not None:
            raise InputError(f"workers = {workers} is for the theory's claims; leave it out beside --loss")
        if init is None:
            raise InputError(f"loss = {loss!r} needs --init, a TOML file of initial values")
        chosen = ()
    factors = _scales(scales)
    _check_out(out, overwrite, listed=list_)
    if list_:
        return _list(output, chosen)
    with output:
        document = (
            _theory(output, chosen, effort, _workers(workers, chosen), out, overwrite)
            if loss is None
            else _own(output, loss, str(init), effort, factors, t1)
        )
        problems: dict[str, str] = {}
        if out is not None:
            with unhurried():
                attempt(problems, out, lambda path: _save(document, path, overwrite))
    _tell(output, document, problems, out)
    if document["status"] == "interrupted":
        return INTERRUPTED
    return 0 if document["as_expected"] and not problems else 1


def _effort(quick: bool, full: bool) -> str:
    if quick and full:
        raise InputError("--quick and --full exclude each other; give one")
    return "full" if full else "quick"


def _workers(given: int | None, chosen: Sequence[str]) -> int | None:
    """How many processes: one for few claims of one kind."""
    from gflow.theory._parallel import default_workers, tasks

    if given is None:
        few = len(tasks(chosen, "quick")) <= 2  # a module, and its onsets
        return 1 if few else default_workers()
    return given


def _scales(text: str | None) -> list[float] | None:
    """The numbers of --scales. Raises InputError."""
    if text is None:
        return None
    values = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise InputError(f"scales: {part!r} is not a number; write for example --scales 1,0.1,0.01") from None
        number("scales", value, 0.0, open_below=True)
        values.append(value)
    return values


def _check_out(out: str | None, overwrite: bool, *, listed: bool) -> None:
    if out is None:
        if overwrite:
            raise InputError("overwrite has nothing to replace: there is no --out; leave it out")
        return
    if listed:
        raise InputError("--list writes nothing; leave --out away")
    if Path(out).suffix.lower() != ".json":
        raise InputError(f"out = {out!r} must end in .json; gflow report makes a page of it")
    check_writable(out, overwrite)


def _save(document: dict[str, Any], path: str, overwrite: bool) -> None:
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(dumps(document) + "\n", encoding="utf-8")


def _list(output: Output, chosen: Sequence[str]) -> int:
    with output:
        output.phase("loading JAX")
        from gflow.theory.claims import load

        entries = [
            {name: getattr(claim, name) for name in ("name", "title", "formula", "source", "rule", "expected_verdict")}
            for claim in load(chosen)
        ]
    if output.json:
        output.document({"status": "done", "claims": entries})
    else:
        output.result(_verify_text.listing(entries))
    return 0


def _theory(
    output: Output, chosen: Sequence[str], effort: str, workers: int | None, out: str | None, overwrite: bool
) -> dict[str, Any]:
    """The verdicts on the theory; Ctrl-C keeps those that there are, also while JAX compiles."""
    began = time.perf_counter()
    output.phase("loading JAX")
    entries: list[dict[str, Any]] = []

    def partial() -> dict[str, Any]:
        from gflow.theory.verify import document as put_together

        return put_together(entries, [], effort, time.perf_counter() - began, "interrupted")

    def leave() -> None:
        kept, problems = partial(), {}
        if out is not None:
            attempt(problems, out, lambda path: _save(kept, path, overwrite))
        _tell(output, kept, problems, out)

    try:
        with watched(leave, {}):
            import gflow
            from gflow.io.compilation import prefer_quick_compilation
            from gflow.theory.verify import verify as check

            gflow.enable_compilation_cache()
            prefer_quick_compilation()
            output.phase(f"verifying {len(chosen)} claim{'s' if len(chosen) != 1 else ''}")

            def judged(entry: dict[str, Any]) -> None:
                entries.append(entry)
                output.remark(_verify_text.one_line(entry, len(entries), len(chosen)))

            return check(chosen, effort, workers=workers, tell=output.progress, on_claim=judged)
    except KeyboardInterrupt:  # where no claim was being measured, or noticed late
        return partial()


def _own(
    output: Output, loss: str, init: str, effort: str, scales: list[float] | None, t1: float | None
) -> dict[str, Any]:
    from gflow.cli._verify_own import verify_own

    return verify_own(loss, init, effort=effort, scales=scales, t1=t1, output=output)


def _tell(output: Output, document: dict[str, Any], problems: dict[str, str], out: str | None) -> None:
    if output.json:
        output.document(document)
    else:
        output.result(_verify_text.summary(document, len(NAMES)))
    if out is not None and out not in problems:
        output.remark(f"wrote {out}; gflow report {out} --out report.html makes a page of it")
    for problem in problems.values():
        output.warn(problem)
    if document["status"] == "interrupted":
        kept = f"in {out}" if out is not None and out not in problems else "above"
        output.warn(f"interrupted; the {len(document['claims'])} verdicts so far are {kept}")
