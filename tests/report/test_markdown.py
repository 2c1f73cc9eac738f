"""The Markdown report: its tables have the columns they say, and nothing of a document becomes markup."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gflow.report import render
from gflow.report._markdown import code, escape


def tables(text: str) -> list[list[list[str]]]:
    """Tables as lists of rows of cells; bars that are escaped separate nothing."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def test_it_says_what_the_page_says(document: dict[str, Any]) -> None:
    text = render(document, "markdown")
    assert text.startswith("# Theorems, verified numerically\n\n**4 of 6 claims came out as expected")
    found = tables(text)
    assert len(found) == 1 + 5 + 1
    assert all(len({len(row) for row in table}) == 1 for table in found)
    assert [len(table) - 2 for table in found] == [6, 10, 5, 3, 1, 30, 5]
    verdicts = {row[0]: row[1:] for row in found[0][2:]}
    assert verdicts["exponent-L"][:2] == ["✗ refuted", "supported (not as expected)"]
    assert verdicts["slope"][3:] == ["440.232 ± 0.002", "440.2318", "yes"]
    assert verdicts["merged-has-no-plateau"][-1] == "no"
    assert verdicts["rademacher"][2:5] == ["–", "–", "–"]
    assert "In every row: T_III, L = 100, w_star = 1." in text
    assert "`gflow verify slope --full`" in text
    assert "## Where does the theorem start to hold?" in text
    assert found[-1][-1][6] == "not up to 8"
    assert found[-1][2][5:] == ["5%", "1000", "300", "1e6"]


def test_nothing_becomes_markup(document: dict[str, Any]) -> None:
    evil = "a|b <script> `code` *x* [l](http://x) ~~y~~ & # h\n\n# heading\n| c | d |"
    plain = render(document, "markdown")
    for claim in document["claims"]:
        for key in ("title", "statement", "formula", "source", "rule", "reason", "reproduce", "regime", "name"):
            claim[key] += evil
        for row in claim["rows"]:
            row["point"] = {key + evil: f"{value}{evil}" for key, value in row["point"].items()}
    text = render(document, "markdown")
    outside = re.sub(r"(?m)^    .*$|(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"\\.", "", text))
    assert not re.search(r"[<`*\[\]~&](?!\*)", outside.replace("**", ""))
    assert len(re.findall("(?m)^#", text)) == len(re.findall("(?m)^#", plain))
    assert all(len({len(row) for row in table}) == 1 for table in tables(text))
    assert len(tables(text)) == len(tables(plain))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("T_III and w_star", "T_III and w_star"),
        ("_x_ __y__", r"\_x\_ \_\_y\_\_"),
        ("1/sigma -> 0, alpha* > 0", r"1/sigma -> 0, alpha\* > 0"),
        ("a\\|b", r"a\\\|b"),
        ("two\nlines", "two lines"),
        ("$x$ ![i](y)", r"\$x\$ \!\[i\](y)"),
    ],
)
def test_escaping(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize(("text", "fenced"), [("a", "`a`"), ("a`b", "``a`b``"), ("`a``", "``` `a`` ```")])
def test_code_holds_backquotes(text: str, fenced: str) -> None:
    assert code(text) == fenced
