"""The HTML page. Everything that a document says is escaped; only the figures, drawn here, are markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gflow.report import _content, _figures, _numbers, _schema

MANY = 12  # rows beyond which a table is folded


def page(document: Mapping[str, Any]) -> str:
    """The page of a checked document."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    anchors = _anchors([claim["name"] for claim in document["claims"]])
    onsets = _content.onset_figures(document)
    return environment.get_template("page.html").render(
        title=_content.TITLES[document["kind"]],
        document=document,
        outcome=_content.outcome(document),
        good=all(claim["as_expected"] for claim in document["claims"]) and document["status"] == "done",
        facts=_content.facts(document),
        anchors=anchors,
        symbols=_content.SYMBOLS,
        cards=[_card(claim, anchors[claim["name"]], number) for number, claim in enumerate(document["claims"], 1)],
        onset=_content.onset(document) if document["onset"] else None,
        onset_figures=[_figure(figure, f"onset-figure-{number}") for number, figure in enumerate(onsets, 1)],
        own_loss=document["kind"] == _schema.OWN_LOSS,
        many=MANY,
    )


def _card(claim: Mapping[str, Any], anchor: str, number: int) -> dict[str, Any]:
    figure = claim["figure"]
    return {
        "claim": claim,
        "anchor": anchor,
        "surprise": _content.surprise(claim),
        "prose": _content.prose(claim),
        "summary": _content.summary(claim),
        "rows": _content.rows(claim) if claim["rows"] else None,
        "figure": None if figure is None else _figure(figure, f"figure-{number}"),
        "seconds": _numbers.seconds(claim["seconds"]),
    }


def _figure(figure: Mapping[str, Any], name: str) -> dict[str, Any]:
    from markupsafe import Markup

    drawing = _figures.draw(figure, name)
    if drawing is None:
        return {"title": figure["title"], "svg": None, "legend": []}
    legend = [(Markup(key.svg), key.label) for key in drawing.legend]
    return {"title": figure["title"], "svg": Markup(drawing.svg), "legend": legend}


def _anchors(names: Sequence[str]) -> dict[str, str]:
    """An id for each claim: its name, as far as an address can hold it, and a number where two would be the same."""
    anchors: dict[str, str] = {}
    for name in names:
        base = "claim-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed")
        anchor, number = base, 1
        while anchor in anchors.values():
            number += 1
            anchor = f"{base}-{number}"
        anchors[name] = anchor
    return anchors
