"""The three formats of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gflow.errors import InputError
from gflow.report.document import check

SUFFIXES = {".html": "html", ".md": "markdown", ".json": "json"}


def render(document: Mapping[str, Any], kind: str) -> str:
    """The document of `gflow verify`, as "html", "markdown" or "json".

    - "html": one page that needs no network and no script, for screens of any width, light or dark, and for print.
    - "markdown": the same without the figures.
    - "json": the document itself, checked: all keys, in order, NaN and infinities null.

    The same document gives the same text. Raises InputError for another kind, and for a document that is damaged.
    """
    if kind not in SUFFIXES.values():
        raise InputError(f"kind = {kind!r} is unknown; give one of {', '.join(SUFFIXES.values())}")
    checked = check(dict(document))
    if kind == "json":
        return json.dumps(checked, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    if kind == "html":
        from gflow.report._html import page

        return page(checked)
    from gflow.report._markdown import text

    return text(checked)
