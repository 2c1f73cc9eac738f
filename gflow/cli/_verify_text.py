"""Verdicts in words: one line for each claim as it comes, and what they amount to."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 100


def listing(entries: Sequence[Mapping[str, Any]]) -> str:
    """`--list`: name, expected verdict, title and formula."""
    width = max(len(entry["name"]) for entry in entries)
    lines = []
    for entry in entries:
        refuted = "" if entry["expected_verdict"] == "supported" else f"  (expected: {entry['expected_verdict']})"
        lines.append(f"{entry['name']:<{width}}  {entry['title']}{refuted}")
        lines.append(f"{'':<{width}}  {entry['formula']}")
    lines.append(f"\n{len(entries)} claims")
    return "\n".join(lines)


def one_line(entry: Mapping[str, Any], count: int, total: int) -> str:
    """A verdict as it comes."""
    mark = "" if entry["as_expected"] else "   NOT AS EXPECTED"
    return f"[{count:>2}/{total}] {entry['verdict']:<9}  {entry['name']}{mark}"


def summary(document: Mapping[str, Any], known: int) -> str:
    """All verdicts with their numbers, what is not as expected and why, the onsets."""
    entries = document["claims"]
    lines = [""]
    if entries:
        width = max(len(entry["name"]) for entry in entries)
        lines.append(f"{'claim':<{width}}  {'verdict':<10} {'measured':>14} {'error':>8} {'expected':>14}  control")
        for entry in entries:
            control = entry.get("control") or {}
            rejected = "" if not control else ("rejected" if control.get("rejected") else "NOT rejected")
            lines.append(
                f"{entry['name']:<{width}}  {entry['verdict']:<10} {_number(entry['measured'], 8):>14} "
                f"{_number(entry['error'], 1):>8} {_number(entry['expected'], 8):>14}  {rejected}"
            )
    refuted = [e for e in entries if e["verdict"] == "refuted" and e["as_expected"]]
    if refuted:
        lines += ["", "refuted, as expected:"]
        lines += [_paragraph(f"{entry['title']}: {entry['reason']}") for entry in refuted]
    surprises = [entry for entry in entries if not entry["as_expected"]]
    if surprises:
        lines += ["", "NOT as expected:"]
        for entry in surprises:
            lines.append(
                _paragraph(
                    f"{entry['name']} ({entry['verdict']}, expected {entry['expected_verdict']}): {entry['reason']}"
                )
            )
    lines += _onsets(document.get("onset", []))
    good = len(entries) - len(surprises)
    whole = f" of {known} known" if document["kind"] == "gflow verdicts" and len(entries) < known else ""
    lines += [
        "",
        f"{good} of {len(entries)} verdicts as expected{whole} ({document['effort']}, {document['seconds']:.0f} s)",
    ]
    return "\n".join(lines)


def _onsets(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    if not entries:
        return []
    lines = ["", "from where a ratio stays near its limit:"]
    width = max(len(entry["quantity"]) for entry in entries)
    for entry in entries:
        start, previous = entry["from"], entry["previous"]
        where = f"never up to {entry['tested_to']:g}" if start is None else f"{entry['axis']} >= {start:g}"
        before = "" if previous is None or start is None else f" (not yet at {previous:g})"
        lines.append(f"  {entry['quantity']:<{width}}  within {100 * entry['tolerance']:g}%: {where}{before}")
    return lines


def _number(value: Any, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
