"""The report as Markdown: tables as on GitHub, no HTML; characters that mean something to Markdown are escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gflow.report import _content, _numbers

_SPECIAL = re.compile(r"([\\`*\[\]<|&~$#]|(?<![^\W_])_|_(?![^\W_])|!(?=\[))")


def escape(text: str) -> str:
    """`text` in one line, with nothing in it that Markdown takes for markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """`text` as code, whatever backquotes it holds."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def text(document: Mapping[str, Any]) -> str:
    """The report of a checked document."""
    lines = [f"# {_content.TITLES[document['kind']]}", "", f"**{escape(_content.outcome(document))}**", ""]
    lines += [f"- {escape(key)}: {escape(value)}" for key, value in _content.facts(document)]
    claims = document["claims"]
    if claims:
        lines += ["", "## Verdicts", "", *_verdicts(claims), "", "## Claims"]
    for claim in claims:
        lines += _claim(claim)
    if document["onset"]:
        lines += ["", "## Where does the theorem start to hold?", "", *_table(_content.onset(document))]
    return "\n".join(lines) + "\n"


def _verdicts(claims: list[Any]) -> list[str]:
    columns = [("claim", "text"), ("verdict", "verdict"), ("expected verdict", "text"), ("quantity", "text")]
    columns += [("measured", "number"), ("expected", "number"), ("control rejected", "text")]
    rows = []
    for claim in claims:
        expected = claim["expected_verdict"] + ("" if claim["as_expected"] else " (not as expected)")
        rows.append((claim["name"], claim["verdict"], expected, *_content.summary(claim).values()))
    return _table(_content.Table(tuple(columns), tuple(rows)))


def _claim(claim: Mapping[str, Any]) -> list[str]:
    verdict = claim["verdict"]
    as_expected = "as expected" if claim["as_expected"] else f"not as expected: {_content.surprise(claim)}"
    lines = ["", f"### {escape(claim['title'])}", ""]
    lines += [f"{code(claim['name'])}: **{_content.SYMBOLS[verdict]} {verdict}**, {as_expected}", ""]
    if claim["statement"].strip():
        lines += [f"Statement: {escape(claim['statement'])}", ""]
    if claim["formula"].strip():
        lines += [f"    {' '.join(claim['formula'].split())}", ""]
    lines += [f"- {key}: {escape(value)}" for key, value in _content.prose(claim)]
    if claim["reproduce"].strip():
        lines.append(f"- Reproduce: {code(claim['reproduce'])} ({_numbers.seconds(claim['seconds'])})")
    if claim["rows"]:
        table = _content.rows(claim)
        lines += ["", *([escape(table.note), ""] if table.note else []), *_table(table)]
    return lines


def _table(table: _content.Table) -> list[str]:
    rule = {"number": "---:"}
    head = "| " + " | ".join(escape(heading) for heading, _ in table.columns) + " |"
    lines = [head, "|" + "|".join(rule.get(kind, "---") for _, kind in table.columns) + "|"]
    for row in table.rows:
        cells = [
            f"{_content.SYMBOLS[cell]} {cell}" if kind == "verdict" else escape(cell)
            for cell, (_, kind) in zip(row, table.columns, strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
