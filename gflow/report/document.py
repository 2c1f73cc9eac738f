"""The document of verdicts: read from its file, checked key by key, brought into one form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gflow.errors import InputError
from gflow.report import _schema

HINT = "name a file that gflow verify wrote with --out"


def load(path: str | Path) -> dict[str, Any]:
    """The document that `gflow verify --out` wrote to `path`, checked and in the form of `check`.

    Raises InputError, in one line that names the file: it is missing, a folder, unreadable, no JSON, cut short, the
    JSON of something else, or a key in it is missing or of the wrong kind.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; {HINT}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} {_no_json(data, error)}") from None
    try:
        return check(value)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def check(document: Any) -> dict[str, Any]:
    """A copy of `document` in one form: every key there and in order, NaN and infinities None, text fit for a page.

    Keys that are not in the schema are kept, after the others. Raises InputError, naming the key.
    """
    if not isinstance(document, dict):
        raise InputError(f"this is not the verdicts of gflow verify: it holds no object; {HINT}")
    kind = document.get("kind")
    if kind not in _schema.KINDS:
        about = "it has no kind" if kind is None else f"its kind is {_schema.show(kind)}"
        raise InputError(f"this is not the verdicts of gflow verify: {about}; {HINT}")
    own = kind == _schema.OWN_LOSS
    checked = _schema.document(own)("", document)
    _agree(checked)
    return checked


def _agree(document: dict[str, Any]) -> None:
    """A page must not say two things: names are unique, and `as_expected` is not true of what is not."""
    seen: set[str] = set()
    for number, claim in enumerate(document["claims"]):
        name = claim["name"]
        if name in seen:
            raise InputError(f"claims[{number}].name = {_schema.show(name)} is the name of another claim, too")
        seen.add(name)
        if claim["as_expected"] and claim["verdict"] != claim["expected_verdict"]:
            raise InputError(
                f"claims[{number}].as_expected is true, but the verdict is {claim['verdict']} and the expected one "
                f"{claim['expected_verdict']}; the file was changed by hand"
            )
        if document["as_expected"] and not claim["as_expected"]:
            raise InputError(
                f"as_expected is true, but claim {_schema.show(name)} is not; the file was changed by hand"
            )


def _no_json(data: bytes, error: Exception) -> str:
    """Why a file is no JSON, after its name."""
    text = data.strip()
    if not text:
        return f"is empty; {HINT}"
    if not text.startswith((b"{", b"\xef\xbb\xbf{")):
        return f"is not JSON; {HINT}"
    if isinstance(error, json.JSONDecodeError):
        return f"is damaged or cut short: no JSON from line {error.lineno} on ({error.msg.lower()}); write it again"
    return "is damaged: it is no JSON; write it again"
