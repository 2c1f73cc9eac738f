"""The HTML page: valid, complete, closed to whatever a document holds; colours that can be told apart."""

from __future__ import annotations

import copy
import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gflow.report
from gflow.errors import InputError
from gflow.report import render

VOID = {"meta", "link", "br", "hr", "img", "input"}
# what a page may hold; in its figures, SVG
HTML = {"html", "head", "title", "meta", "link", "style", "body", "header", "main", "section", "article", "div"}
HTML |= {"h1", "h2", "h3", "p", "span", "strong", "b", "a", "code", "dl", "dt", "dd", "ul", "li", "details", "summary"}
HTML |= {"table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "svg"}
SVG = {"svg", "title", "defs", "g", "path", "use", "text", "clipPath", "rect", "circle", "tspan"}
EVIL = "</title></style></p><script>alert(1)</script><b onclick='x()'>\"'&amp;| ${{7*7}} {% raw %} $\\frac{ javascript:"


class Page(html.parser.HTMLParser):
    """Reads a page strictly: every element is closed, in order, of a known kind, and has each attribute once."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[int] = []
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.text = ""
        self.rows: list[list[int]] = []
        assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.begin(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        assert "svg" in self.open, f"{tag} cannot close itself"
        self.begin(tag, attrs)

    def begin(self, tag: str, attrs: Any) -> None:
        inside = "svg" in self.open
        assert tag in ({name.lower() for name in SVG} if inside else HTML), tag
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        given = dict(attrs)
        assert not any(name.startswith("on") for name in names)
        assert {"src", "srcset", "action", "xlink:href"}.isdisjoint(names)
        if "id" in given:
            self.ids.append(given["id"])
        if "href" in given:
            self.links.append(given["href"])
        self.links += [f"#{name}" for name in given.get("aria-labelledby", "").split()]
        self.links += re.findall(r"url\((.*?)\)", " ".join(filter(None, given.values())))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.rows.append([])
        if tag == "tr":
            self.rows[-1].append(0)
        if tag in ("td", "th"):
            self.rows[-1][-1] += 1
        self.found.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def poison(document: dict[str, Any], evil: str) -> dict[str, Any]:
    """`evil` behind every text and every key that a document is free to choose."""
    fixed = {"kind", "status", "verdict", "expected_verdict", "xscale", "yscale"}

    def spoil(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            free = key in ("point", "others", "provenance", "versions")
            return {(f"{name}{evil}" if free else name): spoil(name, entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [spoil(key, entry) for entry in value]
        return value if not isinstance(value, str) or key in fixed else value + evil

    return spoil("", copy.deepcopy(document))


def test_the_page_is_valid_and_complete(document: dict[str, Any]) -> None:
    text = render(document, "html")
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    targets = [link for link in page.links if link != "data:,"]
    assert all(link.startswith("#") and link[1:] in page.ids for link in targets)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert all(len(set(rows)) == 1 for rows in page.rows)
    assert ("meta", {"charset": "utf-8"}) in page.found
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.found
    for claim in document["claims"]:
        for key in ("name", "title", "statement", "formula", "source", "assumptions", "rule", "regime", "reason"):
            assert claim[key] in page.text, (claim["name"], key)
        for words in (claim["reproduce"], claim["fails"] or "", claim["control"]["name"]):
            assert words in page.text
    for words in ("4 of 6 claims came out as expected", "exponent-L (refuted, expected supported)", "440.232 ± 0.002"):
        assert words in page.text
    assert "0123456789abcdef0123456789abcdef01234567 with uncommitted changes" in page.text
    assert "jax 0.10.0" in page.text
    assert "cpu: cpu" in page.text
    assert [tag for tag, _ in page.found].count("details") == 1
    assert "All 30 rows" in page.text


def test_the_page_asks_for_nothing_and_runs_nothing(document: dict[str, Any]) -> None:
    text = render(document, "html")
    assert not re.search(r"https?:|//|@import|<script|@font-face|javascript", text)
    assert "default-src 'none'" in text


def test_figures_have_names_and_the_fonts_of_the_page(document: dict[str, Any]) -> None:
    page = Page(render(document, "html"))
    drawn = [given for tag, given in page.found if tag == "svg" and given["class"] == "plot"]
    assert len(drawn) == 5
    assert all(given["role"] == "img" and given["aria-labelledby"] in page.ids for given in drawn)
    styles = " ".join(given.get("style") or "" for _, given in page.found)
    assert "font-family" not in styles
    assert "#" not in styles.replace("url(#", "")
    assert "T_III against the initial scale: T_III against 1/sigma_init" in page.text
    for label in ("measured", "slope 1/g", "power 0.1", "99% and more", "within 5% of 1"):
        assert label in page.text


@pytest.mark.parametrize("evil", [EVIL, "]]>-->", "\u202e", "\\", "{{ document }}", "\n\n# x", "%s%d", "$", "_"])
def test_whatever_a_document_holds_stays_text(document: dict[str, Any], evil: str) -> None:
    page = Page(render(poison(document, evil), "html"))
    assert len(set(page.ids)) == len(page.ids)
    assert page.headings == Page(render(document, "html")).headings
    assert {tag for tag, _ in page.found} == {tag for tag, _ in Page(render(document, "html")).found}
    assert page.text.count(evil) > 100


def test_names_that_are_alike_have_anchors_of_their_own(document: dict[str, Any]) -> None:
    first = document["claims"][4]
    names = ["a b", "a-b", "A B", "a-b-2", "é", "ß", "figure-1", "onset"]
    document["claims"] = [first | {"name": name} for name in names]
    page = Page(render(document, "html"))
    assert len(set(page.ids)) == len(page.ids)
    assert all(link[1:] in page.ids for link in page.links if link != "data:,")


def test_pages_of_little(document: dict[str, Any], own_loss: dict[str, Any]) -> None:
    empty = document | {"claims": [], "onset": [], "provenance": {}, "as_expected": True, "seconds": None}
    page = Page(render(empty, "html"))
    assert "No claim was judged." in page.text
    assert "No claim was judged." in render(empty, "markdown")
    page = Page(render(empty | {"status": "interrupted", "effort": ""}, "html"))
    assert "interrupted" in page.text
    page = Page(render(own_loss, "html"))
    assert page.headings == [1, 2, 2, 3]
    assert "chain:loss" in page.text
    assert "The one claim came out as expected" in page.text
    bare = document["claims"][4]
    bare |= dict.fromkeys(
        ("statement", "formula", "source", "assumptions", "rule", "regime", "reason", "reproduce"), ""
    )
    bare["figure"] = document["claims"][0]["figure"] | {"series": []}
    page = Page(render(document, "html"))
    assert "There is no point to draw." in page.text


def test_an_onset_of_a_claim_that_is_not_there_has_no_link(document: dict[str, Any]) -> None:
    document["claims"] = document["claims"][3:]
    page = Page(render(document, "html"))
    assert "exponent-L" in page.text
    assert "#claim-exponent-l" not in page.links


def test_the_same_document_gives_the_same_bytes_in_any_process(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(document))
    code = (
        "import sys; from gflow.report import load, render;"
        "sys.stdout.buffer.write(render(load(sys.argv[1]), 'html').encode())"
    )
    words = [sys.executable, "-c", code, str(path)]
    run = subprocess.run(words, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert run.stdout.decode() == render(document, "html") == render(document, "html")


def test_figures_leave_matplotlib_as_it_was(document: dict[str, Any]) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        mine = render(document, "html")
    assert mine == render(document, "html")
    assert dict(matplotlib.rcParams) == before


def test_no_jax_is_loaded(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(document))
    code = (
        "import sys; from gflow.report import load, render; d = load(sys.argv[1]);"
        "assert 'matplotlib' not in sys.modules and 'jinja2' not in sys.modules;"
        "[render(d, k) for k in ('html', 'markdown', 'json')];"
        "print(sorted({'jax', 'jaxlib', 'diffrax', 'equinox', 'scipy', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True, text=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_stand_out_in_light_and_dark(mode: int) -> None:
    style = (Path(gflow.report.__file__).parent / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[mode]))
    series = [name for name in colours if re.fullmatch(r"s\d|wrong", name)]
    assert len(series) == 7
    for back in ("page", "card"):
        for name in series:
            assert contrast(colours[name], colours[back]) > 3
        for name in ("ink", "muted", "link", "good", "bad", "open"):
            assert contrast(colours[name], colours[back]) > 4.5
    for name in ("ink", "muted", "link", "good", "bad", "open"):
        assert contrast(colours[name], colours["tint"]) > 4.5
    assert contrast(colours["ink"], colours["code"]) > 7


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_other_kinds_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="kind = 'pdf' is unknown; give one of html, markdown, json"):
        render(document, "pdf")
    with pytest.raises(InputError, match="claims is missing"):
        render({key: value for key, value in document.items() if key != "claims"}, "html")
