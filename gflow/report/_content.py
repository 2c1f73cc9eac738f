"""What a report says, whatever its format: sentences, facts, and tables of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gflow.report import _numbers, _schema

TITLES = {"gflow verdicts": "Theorems, verified numerically", _schema.OWN_LOSS: "Your own loss, verified numerically"}
SYMBOLS = {"supported": "✓", "refuted": "✗", "undecided": "?"}


@dataclasses.dataclass(frozen=True)
class Table:
    """`columns`: (heading, kind of its cells: "text", "number" or "verdict"); `note`: what all its rows share."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def outcome(document: Mapping[str, Any]) -> str:
    """How it came out, in a sentence: how many claims as expected, and which not."""
    claims = document["claims"]
    odd = [claim for claim in claims if not claim["as_expected"]]
    verdicts = [claim["verdict"] for claim in claims]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in SYMBOLS if word in verdicts)
    if not claims:
        text = "No claim was judged."
    elif not odd:
        one = len(claims) == 1
        text = f"{'The one claim' if one else f'All {len(claims)} claims'} came out as expected: {counts}."
    else:
        names = "; ".join(f"{claim['name']} ({claim['verdict']}, {surprise(claim)})" for claim in odd)
        text = f"{len(claims) - len(odd)} of {len(claims)} claims came out as expected ({counts}). Not so: {names}."
    if document["status"] == "interrupted":
        text += " The run was interrupted: claims that it had not come to are missing."
    return text


def surprise(claim: Mapping[str, Any]) -> str:
    """Why a claim did not come out as expected."""
    if claim["verdict"] != claim["expected_verdict"]:
        return f"expected {claim['expected_verdict']}"
    if claim["control"] and not claim["control"]["rejected"]:
        return "its control was not rejected"
    return "not as expected"


def facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the numbers come from: name and value, empty ones left out."""
    given = dict(document["provenance"])
    git = given.pop("git", None)
    if isinstance(git, dict) and git.get("commit"):
        git = f"{git['commit']}{' with uncommitted changes' if git.get('dirty') else ''}"
    device, count = given.pop("device", None), given.pop("device_count", None)
    if device is not None and isinstance(count, int) and count > 1:
        device = f"{device}, {count} of them"
    found = [
        ("date", _date(given.pop("created", None))),
        ("effort", document["effort"]),
        ("took", _numbers.seconds(document["seconds"])),
        ("gflow", given.pop("gflow", None)),
        ("commit", git),
        ("device", device),
        ("precision", given.pop("precision", None)),
        *((key.replace("_", " "), value) for key, value in given.items()),
    ]
    known = {"status", "kind", "effort", "as_expected", "claims", "onset", "seconds", "provenance"}
    found = [(key.replace("_", " "), value) for key, value in document.items() if key not in known] + found
    pairs = [(key, _numbers.anything(value)) for key, value in found]
    return [(key, value) for key, value in pairs if value not in ("", _numbers.DASH)]


def _date(created: Any) -> Any:
    """A time as ISO 8601 has it, in UTC, as people read it."""
    if isinstance(created, str) and created.endswith("+00:00"):
        return f"{created.removesuffix('+00:00').replace('T', ' ')} UTC"
    return created


def summary(claim: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a claim in the table of verdicts, by their headings."""
    control = claim["control"]
    return {
        "quantity": claim["quantity"] or _numbers.DASH,
        "measured": _numbers.with_error(claim["measured"], claim["error"]),
        "expected": _numbers.number(claim["expected"], 8),
        "control rejected": _numbers.DASH if control is None else "yes" if control["rejected"] else "no",
    }


def rows(claim: Mapping[str, Any]) -> Table:
    """The rows of a claim. What all of them share stands in the note, and takes no column."""
    entries = claim["rows"]
    keys = list(dict.fromkeys(key for row in entries for key in row["point"]))
    points = [{key: _numbers.anything(row["point"].get(key)) for key in keys} for row in entries]
    quantities = [row["quantity"] for row in entries]
    shared = {key: points[0][key] for key in keys if len({point[key] for point in points}) == 1} if entries[1:] else {}
    note = [f"{key} = {value}" for key, value in shared.items()]
    keys = [key for key in keys if key not in shared]
    columns: list[tuple[str, str, Sequence[str]]] = []
    if entries[1:] and len(set(quantities)) == 1:
        note.insert(0, quantities[0])
    else:
        columns.append(("quantity", "text", quantities))
    columns += [(key, "number", [point[key] for point in points]) for key in keys]
    columns.append(("measured", "number", [_numbers.with_error(row["measured"], row["error"]) for row in entries]))
    columns.append(("expected", "number", [_numbers.number(row["expected"], 8) for row in entries]))
    if any(row["low"] is not None or row["high"] is not None for row in entries):
        columns.append(("allowed", "number", [_numbers.interval(row["low"], row["high"]) for row in entries]))
    if not all(row["inside"] for row in entries):
        columns.append(("in the regime", "text", ["yes" if row["inside"] else "no" for row in entries]))
    columns.append(("verdict", "verdict", [row["verdict"] for row in entries]))
    return _table(columns, f"In every row: {', '.join(note)}." if note else "")


def onset(document: Mapping[str, Any]) -> Table:
    """From where on each claim holds within its tolerances."""
    entries = document["onset"]
    never = [f"not up to {_numbers.number(entry['tested_to'])}" for entry in entries]
    start = [_numbers.number(entry["from"]) for entry in entries]
    columns = [
        ("claim", "claim", [entry["claim"] for entry in entries]),
        ("quantity", "text", [entry["quantity"] for entry in entries]),
        ("along", "text", [entry["axis"] for entry in entries]),
        ("elsewhere", "text", [point(entry["others"]) for entry in entries]),
        ("limit", "number", [_numbers.number(entry["limit"]) for entry in entries]),
        ("within", "number", [percent(entry["tolerance"]) for entry in entries]),
        (
            "holds from",
            "number",
            [never[k] if entry["from"] is None else start[k] for k, entry in enumerate(entries)],
        ),
        ("last value outside", "number", [_numbers.number(entry["previous"]) for entry in entries]),
        ("tested to", "number", [_numbers.number(entry["tested_to"]) for entry in entries]),
    ]
    return _table(columns, "")


def onset_figures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A figure for each claim, quantity and axis: the ratios against the axis, and the tolerances as bands."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in document["onset"]:
        if entry["values"]:
            groups.setdefault((entry["claim"], entry["quantity"], entry["axis"], entry["limit"]), []).append(entry)
    return [_onset_figure(entries) for entries in groups.values()]


def _onset_figure(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = entries[0]
    limit = 0.0 if first["limit"] is None else first["limit"]
    tolerances = sorted({entry["tolerance"] for entry in entries if entry["tolerance"] is not None}, reverse=True)
    size = abs(limit) or 1.0
    curves = {}  # the same curve is there once for each tolerance
    for entry in entries:
        curves.setdefault((point(entry["others"]), tuple(entry["values"]), tuple(entry["ratios"])), None)
    positive = [x for _, xs, _ in curves for x in xs if x is not None and x > 0]
    every = all(x is None or x > 0 for _, xs, _ in curves for x in xs)
    log = every and bool(positive) and max(positive) > 20 * min(positive)
    names = [name if name != _numbers.DASH else first["quantity"] for name, _, _ in curves]
    series = [
        {"label": name, "kind": "measured", "x": list(xs), "y": list(ys), "error": None}
        for name, (_, xs, ys) in zip(names, curves, strict=True)
    ]
    bands = [
        {"label": f"within {percent(t)} of {_numbers.number(limit)}", "low": limit - t * size, "high": limit + t * size}
        for t in tolerances
    ]
    return {
        "claim": first["claim"],
        "title": f"{first['claim']}: {first['quantity']}",
        "xlabel": first["axis"],
        "ylabel": first["quantity"],
        "xscale": "log" if log else "linear",
        "yscale": "linear",
        "series": series,
        "bands": bands,
    }


def point(values: Mapping[str, Any]) -> str:
    """A point of parameter space in a line."""
    return ", ".join(f"{key} = {_numbers.anything(value)}" for key, value in values.items()) or _numbers.DASH


def percent(tolerance: float | int | None) -> str:
    """A relative tolerance."""
    return _numbers.DASH if tolerance is None else f"{_numbers.number(100 * tolerance, 3)}%"


def prose(claim: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The words of a claim after its statement and formula, by their headings; empty ones left out."""
    cells = summary(claim)
    quantity = f"{claim['quantity']}: " if claim["quantity"] else ""
    decisive = f"{quantity}measured {cells['measured']}, expected {cells['expected']}"
    reason = " ".join(f"{claim['verdict']}: {claim['reason']}".split()) if claim["reason"] else claim["verdict"]
    control = claim["control"]
    told = "was rejected" if control and control["rejected"] else "was not rejected"
    pairs = [
        ("Source", claim["source"]),
        ("Assumptions", claim["assumptions"]),
        ("Accepted when", claim["rule"]),
        ("Verdict", reason),
        ("Decided by", decisive),
        ("Tested", claim["regime"]),
        ("Fails", claim["fails"] or ("nowhere that was tested" if claim["verdict"] == "supported" else "")),
        ("Control", f"{control['name']}: {control['statement'].strip().rstrip('.')}. It {told}." if control else ""),
    ]
    return [(key, value) for key, value in pairs if value]


def _table(columns: Sequence[tuple[str, str, Sequence[str]]], note: str) -> Table:
    return Table(
        tuple((heading, kind) for heading, kind, _ in columns),
        tuple(zip(*(cells for _, _, cells in columns), strict=True)),
        note,
    )
