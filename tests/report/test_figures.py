"""Figures and numbers of a report: whatever a document can hold is drawn, and what is drawn is where it should be."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gflow.report import _numbers, _ticks
from gflow.report._content import onset_figures, rows
from gflow.report._figures import draw
from gflow.report.document import check


def figure(series: list[Any], scales: str = "linear linear", bands: Any = ()) -> dict[str, Any]:
    xscale, yscale = scales.split()
    words = {"title": "t", "xlabel": "x", "ylabel": "y"}
    return {**words, "xscale": xscale, "yscale": yscale, "series": series, "bands": list(bands)}


def curve(x: list[Any], y: list[Any], kind: str = "measured", error: Any = None, label: str = "c") -> dict[str, Any]:
    return {"label": label, "kind": kind, "x": x, "y": y, "error": error}


def uses(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where the markers of a colour stand."""
    found = [e for e in ET.fromstring(svg).iter("use") if f"fill: var(--{colour})" in e.attrib.get("style", "")]
    return [(float(e.attrib["x"]), float(e.attrib["y"])) for e in found]


def ticks(svg: str) -> dict[str, tuple[float, float]]:
    """Tick labels, and where they stand."""
    texts = [e for e in ET.fromstring(svg).iter("text") if "8.5px" in e.attrib["style"]]
    return {e.text or "": (float(e.attrib["x"]), float(e.attrib["y"])) for e in texts}


def test_points_stand_where_their_ticks_say() -> None:
    drawing = draw(figure([curve([10, 100, 1000], [2, 4, 8])], "log linear"), "f")
    points, labels = uses(drawing.svg, "s1"), ticks(drawing.svg)
    for (x, y), name, height in zip(points, ("10", "100", "1000"), ("2", "4", "8"), strict=True):
        assert x == pytest.approx(labels[name][0])
        assert y == pytest.approx(labels[height][1], abs=4)  # a label's middle is not its baseline


def test_points_that_cannot_be_drawn_are_left_out() -> None:
    one = curve([1, 2, None, 4, 5], [1, None, 3, 0, -5], error=[0.1, None, 1, 1, 1])
    drawing = draw(figure([one], "linear log"), "f")
    assert len(uses(drawing.svg, "s1")) == 1 + 2  # the point, and the caps of its error bar
    assert draw(figure([curve([None, 0], [1, 1])], "log linear"), "f") is None
    assert draw(figure([]), "f") is None


def test_curves_of_a_kind_are_told_apart_and_pairs_share_a_colour() -> None:
    x = [1, 2]
    kinds = ["measured", "measured", "theory", "theory", "control", "other"]
    drawing = draw(figure([curve(x, [k, k + 1], kind, label=f"l{k}") for k, kind in enumerate(kinds)]), "f")
    keys = drawing.legend
    assert [key.label for key in keys] == [f"l{k}" for k in range(6)]
    assert keys[0].colour == keys[2].colour != keys[1].colour == keys[3].colour
    assert len({key.svg for key in keys}) == 6
    assert "var(--wrong)" in keys[4].svg
    single = draw(figure([curve(x, x), curve(x, x, "theory")]), "f")
    assert "var(--ink)" in single.legend[1].svg


def test_bands_without_a_bound_reach_the_edge_and_are_seen() -> None:
    band = {"label": "enough", "low": 0.99, "high": None}
    for scale in ("linear", "log"):
        drawing = draw(figure([curve([1, 2], [0.1, 0.2])], f"linear {scale}", [band]), "f")
        paths = [
            e.attrib["d"] for e in ET.fromstring(drawing.svg).iter("path") if "opacity: 0.14" in e.get("style", "")
        ]
        heights = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", paths[0])]
        assert max(heights) - min(heights) > 5
        assert drawing.legend[1].label == "enough"
    assert len(draw(figure([curve([1], [1])], bands=[band | {"low": None}]), "f").legend) == 1


def test_ids_begin_with_the_name_of_the_figure() -> None:
    one = figure([curve([1, 2], [3, 4], error=[0.1, 0.2])])
    first, second = (set(re.findall(r'id="(.*?)"', draw(one, name).svg)) for name in ("a", "b"))
    assert first
    assert not first & second
    assert all(name.startswith("a-") for name in first)


anything = st.one_of(st.none(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False))


@given(
    points=st.lists(st.tuples(anything, anything, anything), max_size=4),
    scales=st.sampled_from(["linear linear", "log linear", "linear log", "log log"]),
    edges=st.tuples(anything, anything),
    text=st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=80),
)
@settings(max_examples=60, deadline=None)
def test_any_document_can_be_drawn(points: Any, scales: str, edges: Any, text: str) -> None:
    x, y, error = ([point[k] for point in points] for k in range(3))
    band = {"label": text, "low": edges[0], "high": edges[1]}
    whole = figure([curve(x, y, "measured", error, text), curve(x, y, "theory")], scales, [band])
    drawing = draw(whole | {"title": text, "xlabel": text, "ylabel": text}, "f")
    if drawing is not None:
        ET.fromstring(drawing.svg)
        assert "nan" not in re.sub(r"<t.*?</t\w+>", "", drawing.svg)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 1e6, [1, 1e2, 1e4, 1e6]),
        (0.008, 0.9, [0.01, 0.03, 0.1, 0.3]),
        (90.0, 1100.0, [100, 200, 500, 1000]),
        (1e-300, 1e300, [1e-240, 1e-120, 1, 1e120, 1e240]),
        (3.1, 3.9, []),
    ],
)
def test_logarithmic_ticks(low: float, high: float, expected: list[float]) -> None:
    np.testing.assert_allclose(_ticks.log_ticks(low, high, 5), expected)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (440.2318, 2e-3, "440.232 ± 0.002"),
        (440.2318, None, "440.232"),
        (440.2318, 0, "440.232"),
        (None, 1.0, "–"),
        (0.0, 1e-9, "0 ± 1e-9"),
        (2, 1e-3, "2.000 ± 0.001"),
        (200.0, 0.4, "200.0 ± 0.4"),
        (200.0, 1.0, "200 ± 1"),
        (-1.5e-7, 2e-9, "-1.50e-7 ± 2e-9"),
        (3e-16, 1e-14, "3.0e-16 ± 1e-14"),
        (1.0, 1e-30, "1.00000000000 ± 1e-30"),
        (123456789, None, "123456789"),
        (10**300, None, "1e300"),
        (1e6, None, "1e6"),
    ],
)
def test_numbers_have_the_digits_of_their_error(value: Any, error: Any, text: str) -> None:
    assert _numbers.with_error(value, error) == text


def test_other_numbers() -> None:
    assert [_numbers.power(x) for x in (1e3, 1e-6, 3e5, 2.5e-4)] == ["10³", "10⁻⁶", "3×10⁵", "2.5×10⁻⁴"]
    assert [_numbers.scientific(t) for t in ("-0.5", "1e-07", "-2e+10")] == ["−0.5", "1×10⁻⁷", "−2×10¹⁰"]
    assert [_numbers.seconds(s) for s in (None, 0.123, 45.2, 600)] == ["–", "0.12 s", "45 s", "10.0 min"]
    pairs = [(None, None), (None, 1), (2, None), (0.5, 1e9)]
    assert [_numbers.interval(low, high) for low, high in pairs] == ["–", "≤ 1", "≥ 2", "0.5 to 1e9"]
    assert _numbers.anything({"a": [1, None, True], "b": {}}) == "a 1, –, yes, b –"


def test_what_rows_share_takes_no_column(document: dict[str, Any]) -> None:
    claims = check(document)["claims"]
    table = rows(claims[0])
    assert table.note == "In every row: T_III, L = 100, w_star = 1."
    assert [name for name, _ in table.columns] == [
        "sigma_init", "measured", "expected", "allowed", "in the regime", "verdict"
    ]  # fmt: skip
    assert [row[4] for row in table.rows] == ["no"] + ["yes"] * 9
    (single,) = rows(claims[3]).rows
    assert single == ("T_III", "rademacher", "–", "1653.11", "undecided")


def test_onsets_of_a_claim_are_one_figure_with_a_curve_per_point(document: dict[str, Any]) -> None:
    first, second = onset_figures(json.loads(json.dumps(document)))
    assert [one["label"] for one in first["series"]] == ["w_star = 0.5", "w_star = 1"]
    assert [(band["low"], band["high"]) for band in first["bands"]] == [(0.95, 1.05), (0.99, 1.01)]
    assert (first["xscale"], second["xscale"]) == ("log", "linear")
    assert first["series"][0]["y"] == document["onset"][0]["ratios"]
    assert second["series"][0]["label"] == "slope times g"
