"""The page in a real browser: widths, light and dark, print; no message, no request, nothing beside the window."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gflow.report import render

OVERFLOW = """(() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const beside = [...document.querySelectorAll('body *')].filter(e => {
    const box = e.getBoundingClientRect();
    return !e.closest('.scroll table') && !e.closest('svg') && box.width > 0 && box.right > innerWidth + 1;
  });
  return [wide, beside.map(e => e.tagName + '.' + e.className)];
})()"""

LINKS = """[...document.querySelectorAll('a')].map(
  a => [a.getAttribute('href'), document.querySelectorAll('[id="' + a.getAttribute('href').slice(1) + '"]').length])"""


@pytest.fixture(scope="module")
def browser(devtools: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if devtools.BROWSER is None:
        pytest.skip("no Chromium on this machine (chromium, chromium-browser or google-chrome)")
    with devtools.Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture
def page(document: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(render(document, "html"), encoding="utf-8")
    return path


def background(path: Path) -> np.ndarray:
    """The colour of a screenshot's first pixel, 0 to 1."""
    import matplotlib.image

    return np.asarray(matplotlib.image.imread(path))[1, 1, :3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_it_fits_the_window_and_says_nothing(browser: Any, page: Path, tmp_path: Path, width: int, scheme: str) -> None:
    browser.messages.clear()
    browser.requests.clear()
    browser.show(page.as_uri(), width, scheme)
    assert browser.evaluate("innerWidth") == width
    wide, beside = browser.evaluate(OVERFLOW)
    assert wide == 0
    assert beside == []
    browser.evaluate("document.querySelector('details').open = true")
    assert browser.evaluate(OVERFLOW)[0] == 0
    shot = browser.screenshot(tmp_path / "shot.png")
    assert (background(shot).mean() > 0.9) == (scheme == "light")
    assert (background(shot).mean() < 0.2) == (scheme == "dark")
    assert browser.messages == []
    assert [request for request in browser.requests if not request.startswith("data:")] == [page.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_have_the_colours_and_the_font_of_the_page(browser: Any, page: Path, scheme: str) -> None:
    browser.show(page.as_uri(), 800, scheme)
    style = "getComputedStyle(e).fill, getComputedStyle(e).fontFamily"
    script = f"[...document.querySelectorAll('svg.plot text')].map(e => [{style}])"
    texts = browser.evaluate(script)
    ink, font = browser.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).fontFamily]")
    assert len(texts) > 30
    assert {tuple(text) for text in texts} == {(ink, font)}
    channels = [int(c) for c in re.findall(r"\d+", ink)]
    assert (sum(channels) < 300) == (scheme == "light")
    # text is as large as can be read on a telephone, too
    browser.show(page.as_uri(), 360, scheme)
    scales = browser.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(e => e.getBoundingClientRect().width / e.viewBox.baseVal.width)"
    )
    assert min(scales) * 8.5 > 9


def test_links_have_their_targets_and_are_followed(browser: Any, page: Path) -> None:
    browser.show(page.as_uri(), 800, "light")
    links = browser.evaluate(LINKS)
    assert len(links) > 15
    assert all(href.startswith("#") and found == 1 for href, found in links), links
    browser.evaluate("document.querySelector('a[href=\"#claim-conserved\"]').click()")
    assert browser.evaluate("location.hash") == "#claim-conserved"
    top = browser.evaluate("document.getElementById('claim-conserved').getBoundingClientRect().top")
    assert 0 <= top < 100


def test_print_shows_every_row(browser: Any, page: Path) -> None:
    browser.show(page.as_uri(), 800, "dark")
    rows = "[...document.querySelectorAll('details tbody tr')].filter(e => e.checkVisibility()).length"
    folded = browser.evaluate(rows)
    browser.media("print", "dark")
    assert (folded, browser.evaluate(rows)) == (0, 30)
    # on paper the ink is dark, whatever the reader prefers on the screen
    assert sum(int(c) for c in re.findall(r"\d+", browser.evaluate("getComputedStyle(document.body).color"))) < 300
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 3 <= pages <= 12
    browser.evaluate("document.querySelector('details').open = true")
    assert len(re.findall(rb"/Type\s*/Page\b", browser.pdf())) == pages
    reader = shutil.which("pdftotext")
    if reader is not None:
        text = subprocess.run(
            [reader, "-layout", "-", "-"], input=printed, capture_output=True, check=True
        ).stdout.decode()
        assert all(f"1e-{k}" in text for k in range(5, 31))


def test_hostile_text_stays_text(browser: Any, document: dict[str, Any], tmp_path: Path) -> None:
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">' & $\\frac{"
    path = tmp_path / "report.html"
    path.write_text(render(poisoned(document, evil), "html"), encoding="utf-8")
    browser.messages.clear()
    browser.requests.clear()
    browser.show(path.as_uri(), 360, "light")
    assert browser.evaluate("document.title") == "Theorems, verified numerically"
    assert browser.evaluate("document.querySelectorAll('script, img, [onerror]').length") == 0
    assert evil in browser.evaluate("document.body.textContent")
    assert browser.messages == []
    assert [request for request in browser.requests if not request.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate(OVERFLOW)[0] == 0


def poisoned(document: dict[str, Any], evil: str) -> dict[str, Any]:
    """Every text that a document is free to choose, with something evil behind it."""

    def spoil(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {(f"{name}{evil}" if key == "point" else name): spoil(name, entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [spoil(key, entry) for entry in value]
        words = {"kind", "status", "verdict", "expected_verdict", "xscale", "yscale", "commit"}
        return value if not isinstance(value, str) or key in words else value + evil

    return spoil("", copy.deepcopy(json.loads(json.dumps(document))))
