"""`gflow report`: the verdicts of `gflow verify` as a page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gflow.cli._options import OUTPUT, Common
from gflow.cli._output import Output
from gflow.cli._signals import prompt_exit
from gflow.errors import InputError
from gflow.io.atomic import atomic_path, check_writable


def report(
    verdicts: Annotated[str, Parameter(help="What gflow verify wrote with --out, a .json file.")],
    /,
    *,
    out: Annotated[
        str | None,
        Parameter(group=OUTPUT, help="The report: .html, .md or .json. [default: Markdown on stdout]"),
    ] = None,
    overwrite: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Replace the report if it exists.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Turn the verdicts of gflow verify into one page: HTML that needs no network, Markdown, or checked JSON."""
    from gflow.report import load, render
    from gflow.report.pages import SUFFIXES

    output = Output(json=common.json, quiet=common.quiet)
    kind = "markdown" if out is None else SUFFIXES.get(Path(out).suffix.lower())
    if kind is None:
        raise InputError(f"out = {out!r} must end in {' or '.join(SUFFIXES)}; for example 'report.html'")
    if out is not None:
        check_writable(out, overwrite)
        if Path(out).exists() and Path(verdicts).exists() and Path(out).samefile(verdicts):
            raise InputError(f"out = {out!r} is the file of the verdicts itself; give another name")
    elif overwrite:
        raise InputError("overwrite has nothing to replace: there is no --out; leave it out")
    with output, prompt_exit(lambda: output.warn("interrupted; nothing was saved")):
        document = load(verdicts)
        output.phase(f"writing the report of {verdicts}")
        text = render(document, kind)
        if out is not None:
            with atomic_path(out, overwrite) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
    if common.json:
        output.document(_document(verdicts, out, document, text))
    else:
        output.result(text.rstrip("\n") if out is None else f"report: {out}")
    return 0


def _document(verdicts: str, out: str | None, document: dict[str, Any], text: str) -> dict[str, Any]:
    claims = document["claims"]
    return {
        "status": "done",
        "verdicts": verdicts,
        "report": out,
        "claims": len(claims),
        "unexpected": [claim["name"] for claim in claims if not claim["as_expected"]],
        "markdown": text if out is None else None,
    }
