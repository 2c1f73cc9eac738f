"""Reading verdicts: what is refused, in which words, and the one form of what is accepted."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gflow.errors import InputError
from gflow.report import load, render
from gflow.report.document import check


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the entry at `path` ("claims.0.verdict") replaced; `...` removes it."""
    changed = copy.deepcopy(document)
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    entry: Any = changed
    for key in way:
        entry = entry[key]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return changed


def test_what_verify_writes_is_read_unchanged(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(document))
    read = load(path)
    for one in document["claims"]:
        for row in one["rows"]:
            row.setdefault("inside", True)
    assert read == document
    assert list(read) == list(document)
    assert check(read) == read


def test_a_loss_of_ones_own_needs_no_figures_and_no_onsets(own_loss: dict[str, Any]) -> None:
    read = check(own_loss)
    assert (read["onset"], read["claims"][0]["figure"], read["claims"][0]["control"]) == ([], None, None)
    assert read["loss"] == "chain:loss"


def test_unknown_keys_are_kept_behind_the_others(document: dict[str, Any]) -> None:
    changed = {"note": {"of": ["mine", math.nan]}, **document}
    changed["claims"][0]["extra"] = 7
    read = json.loads(render(changed, "json"))
    assert list(read)[-1] == "note"
    assert read["note"] == {"of": ["mine", None]}
    assert read["claims"][0]["extra"] == 7


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_that_are_not_finite_become_null(document: dict[str, Any], number: float) -> None:
    changed = put(document, "claims.0.measured", number)
    changed["claims"][0]["rows"][0] |= {"measured": number, "error": number, "low": number, "high": number}
    changed["claims"][0]["figure"]["series"][0]["y"][2] = number
    changed["onset"][0]["ratios"][0] = number
    read = check(changed)
    assert read["claims"][0]["measured"] is None
    assert read["claims"][0]["rows"][0]["low"] is None
    assert read["claims"][0]["figure"]["series"][0]["y"][2] is None
    assert read["onset"][0]["ratios"][0] is None
    for kind in ("html", "markdown", "json"):
        text = render(changed, kind)
        assert "NaN" not in text
        assert "Infinity" not in text
        assert "nan " not in text
        assert "None" not in text


def test_text_that_no_page_can_hold_is_replaced(document: dict[str, Any]) -> None:
    changed = put(document, "claims.0.title", "a\x00b\ud800c\r\nd\x1b[31m")
    assert check(changed)["claims"][0]["title"] == "a\ufffdb\ufffdc\nd\ufffd[31m"
    for kind in ("html", "markdown", "json"):
        render(changed, kind).encode()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("claims", ..., "claims is missing"),
        ("claims", {}, "claims is {}, a table; it must be a list"),
        ("claims.0", "slope", "claims[0] is 'slope', text; it must be an object"),
        ("claims.0.verdict", ..., "claims[0].verdict is missing"),
        ("claims.0.verdict", "maybe", "claims[0].verdict = 'maybe' is not one of supported, refuted, undecided"),
        ("claims.0.verdict", None, "claims[0].verdict"),
        ("claims.0.name", "", "claims[0].name is empty"),
        ("claims.0.name", "conserved", "name of another claim"),
        ("claims.0.title", 3, "claims[0].title is 3, a number; it must be text"),
        ("claims.0.measured", "12", "claims[0].measured is '12', text; it must be a number or null"),
        ("claims.0.measured", True, "claims[0].measured is true, a boolean"),
        ("claims.0.as_expected", 1, "claims[0].as_expected is 1, a number; it must be true or false"),
        ("claims.0.control", None, "claims[0].control is null; it must be an object"),
        ("claims.0.control.rejected", ..., "claims[0].control.rejected is missing"),
        ("claims.0.rows.3.point", [1], "claims[0].rows[3].point"),
        ("claims.0.rows.3.error", "small", "claims[0].rows[3].error"),
        ("claims.0.figure.xscale", "logit", "claims[0].figure.xscale = 'logit' is not one of linear, log"),
        ("claims.0.figure.series.0.kind", "guess", "not one of measured, theory, control, other"),
        ("claims.0.figure.series.0.x", [1.0], "claims[0].figure.series[0].y has 10 entries"),
        ("claims.0.figure.series.0.error", [1.0], "claims[0].figure.series[0].error has 1 entries"),
        ("claims.0.figure.series.0.y.1", {}, "claims[0].figure.series[0].y[1]"),
        ("onset.0.from", "ten", "onset[0].from"),
        ("onset.0.ratios", [], "onset[0].ratios has 0 entries"),
        ("onset", ..., "onset is missing"),
        ("provenance", None, "provenance is null"),
        ("status", "failed", "status = 'failed' is not one of done, interrupted"),
        ("kind", ..., "this is not the verdicts of gflow verify: it has no kind"),
        ("kind", "gflow sweep", "its kind is 'gflow sweep'"),
        ("kind", [], "its kind is []"),
    ],
)
def test_a_damaged_document_is_refused_by_its_key(
    document: dict[str, Any], tmp_path: Path, path: str, value: Any, words: str
) -> None:
    file = tmp_path / "verdicts.json"
    file.write_text(json.dumps(put(document, path, value)))
    with pytest.raises(InputError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_key_of_the_schema_is_needed(document: dict[str, Any]) -> None:
    optional = {"inside", "error"}
    places = ("", "claims.0.", "claims.0.control.", "claims.0.rows.0.", "claims.0.figure.", "onset.0.")
    for place in (*places, "claims.0.figure.series.0.", "claims.1.figure.bands.0."):
        entry: Any = document
        for key in place.split(".")[:-1]:
            entry = entry[int(key) if key.isdigit() else key]
        for key in set(entry) - (optional if "rows" in place or "series" in place else set()) - {"bands"}:
            with pytest.raises(InputError, match=r"missing|no kind"):
                check(put(document, f"{place}{key}", ...))


def test_a_page_cannot_say_two_things(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"claims\[2\].as_expected is true, but the verdict is refuted"):
        check(put(document, "claims.2.as_expected", True))
    with pytest.raises(InputError, match="as_expected is true, but claim 'exponent-L' is not"):
        check(put(document, "as_expected", True))


INTEGRATE = {"status": "done", "config": {}, "milestones": {}}
FAILED = {"status": "failed", "message": "L = 2", "error": "InputError", "exit_status": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"\x89HDF\r\n\x1a\n....", "is not JSON"),
        (b"<!DOCTYPE html>", "is not JSON"),
        (b"T_I,T_III\n1,2\n", "is not JSON"),
        (b"{", "is damaged or cut short: no JSON from line 1 on"),
        (b'{"kind": "gflow verdicts"} more', "is damaged"),
        (b'{"kind": "\xff"}', "is damaged"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a":' * 100_000, "is damaged"),
        (b"[1, 2]", "it holds no object"),
        (b"3", "it holds no object"),
        (json.dumps(INTEGRATE).encode(), "it has no kind"),
        (json.dumps(FAILED).encode(), "it has no kind"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "some file"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    data = json.dumps(document, indent=1).encode()
    path = tmp_path / "cut.json"
    for length in range(1, len(data) - 1, len(data) // 50):
        path.write_bytes(data[:length])
        with pytest.raises(InputError, match="damaged or cut short"):
            load(path)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load("nul\0.json")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / ("x" * 5000))
