"""The flagship figure of a model whose milestones are known in closed form; test_figures.py draws real runs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import gflow
from gflow.losses.chain import ChainLoss
from gflow.plots import flagship, trajectory
from gflow.plots._axes import sample

START = 1e-4
SHARE = 0.5  # plateau of the model below, of a start of 1


class FourGram(eqx.Module):
    """Rate 1: falls as exp(-2t)."""

    def __call__(self, p: Any) -> Any:
        return 0.5 * (1 - p["v1"]) ** 2


class Induction(eqx.Module):
    """v2 relaxes at rate 1; wK = wQ leave 0 as a chain of depth 2 does."""

    def __call__(self, p: Any) -> Any:
        return 0.5 * (1 - p["v2"]) ** 2 + 0.5 * (1 - p["wK"] * p["wQ"]) ** 2


class Model(eqx.Module):
    """Two parts named as those of the induction head."""

    def parts(self, p: Any) -> dict[str, Any]:
        return {"fourgram": FourGram()(p), "induction": Induction()(p)}

    def __call__(self, p: Any) -> Any:
        return FourGram()(p) + Induction()(p)


def closed_form() -> dict[str, float]:
    """(1-v)^2 = exp(-2t); (1-w^2)^2 at .99 and .01 of 1, where v2 has long arrived."""
    chain = ChainLoss(2)
    escape = [float(chain.time(jnp.sqrt(1 - jnp.sqrt(share)), jnp.asarray(START))) for share in (0.99, 0.01)]
    early = 0.5 * np.log(100.0)
    return {"T_I": early, "T_o": early, "T_II": escape[0], "T_III": escape[1]}


def start() -> dict[str, Any]:
    return {name: jnp.asarray(START) for name in ("p21", "v1", "v2", "wK", "wQ")}


def milestones() -> dict[str, Any]:
    return {
        "T_I": gflow.Below(FourGram(), fraction=0.01),
        "T_o": gflow.Below(Induction(), level=SHARE + 0.01 * (1 - SHARE)),
        "T_II": gflow.Below(Induction(), level=0.99 * SHARE),
        "T_III": gflow.Below(Induction(), level=0.01 * SHARE),
    }


@pytest.fixture(scope="module")
def run() -> Any:
    return gflow.solve(gflow.GradientFlow(Model()), start(), milestones=milestones(), t1=30.0)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return {**closed_form(), "growth_rate": 1.0, "plateau": SHARE}


def artist(figure: Any, gid: str) -> Any:
    found = figure.findobj(lambda a: a.get_gid() == gid)
    return found[0] if found else None


def line(axes: Any, label: str) -> Any:
    return next(one for one in axes.lines if one.get_label() == label)


def words(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_times_and_levels_stand_where_the_closed_form_says(run: Any, expected: dict[str, Any]) -> None:
    figure = flagship(run, predictions=expected)
    top, bottom = figure.axes
    height = {"T_I": 0.01, "T_o": 0.505, "T_II": 0.495, "T_III": 0.005}
    for name, time in closed_form().items():
        guess, dot = artist(figure, f"predicted {name}"), artist(figure, f"measured {name}")
        assert guess.get_xdata()[0] == time
        assert dot.get_xdata()[0] == pytest.approx(time, rel=1e-3)
        assert dot.get_ydata()[0] == pytest.approx(height[name], rel=1e-3)
        assert guess.get_ydata() == dot.get_ydata()
        # the dot lies on its curve
        curve = line(top, "4-gram part" if name == "T_I" else "induction part")
        at = np.interp(np.log(dot.get_xdata()[0]), np.log(curve.get_xdata()), np.log(curve.get_ydata()))
        assert np.exp(at) == pytest.approx(dot.get_ydata()[0], rel=0.02)
    level = line(top, "plateau (theory)")
    assert level.get_ydata()[0] == pytest.approx(SHARE, rel=1e-3)
    assert level.is_dashed()
    assert {line_.get_label() for line_ in bottom.lines} >= {"$p_{21}$", "$v_1$", "$v_2$", "$w_K = w_Q$"}


def test_the_curve_is_the_path_between_the_steps_too(run: Any) -> None:
    losses, params = sample(run, first=0.1)
    assert len(losses.where) > len(run.ts)
    gaps = np.diff(np.log(losses.where))
    assert gaps.max() < 0.02
    exact = 0.5 * ((1 - START) * np.exp(-losses.where)) ** 2
    early = losses.where < 5
    np.testing.assert_allclose(losses.values["fourgram"][early], exact[early], rtol=1e-5)
    np.testing.assert_allclose(params.values["v1"], 1 - (1 - START) * np.exp(-params.where), rtol=1e-6)
    assert float(losses.start["fourgram"]) == pytest.approx(0.5 * (1 - START) ** 2)


def test_phases(run: Any, expected: dict[str, Any]) -> None:
    figure = flagship(run, predictions=expected)
    assert [w for w in words(figure) if w in ("I", "II", "III", "IV")] == ["I", "II", "III", "IV"]
    spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in figure.axes[0].patches)
    ends = [closed_form()[name] for name in ("T_I", "T_II", "T_III")]
    np.testing.assert_allclose([right for _, right in spans], [*ends, 30.0], rtol=1e-3)
    np.testing.assert_allclose([left for left, _ in spans[1:]], ends, rtol=1e-3)


def test_files_are_fit_for_print(run: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    for suffix in ("png", "pdf", "svg"):
        flagship(run, predictions=expected).savefig(tmp_path / f"run.{suffix}", format=suffix)
    pdf = (tmp_path / "run.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf
    names = [element.tag.rpartition("}")[2] for element in ET.parse(tmp_path / "run.svg").iter()]
    assert names.count("path") > 20
    assert plt.imread(tmp_path / "run.png").shape[1] == round(6.5 * 300)
    assert plt.get_fignums() == []


def test_names_do_not_overlap_and_nothing_is_clipped(run: Any, expected: dict[str, Any]) -> None:
    # T_I = T_o in this model, so their names are as close as they get
    figure = flagship(run, predictions=expected)
    figure.canvas.draw()
    shown = [t for t in figure.findobj(Text) if t.get_text().startswith("$T_") or t.get_text() in ("II", "III", "IV")]
    boxes = [t.get_window_extent() for t in shown]
    assert len(boxes) == 7
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    legend = figure.axes[0].get_legend().get_window_extent()
    assert not any(legend.overlaps(box) for box in boxes)
    whole = figure.get_tightbbox()  # in inches, of all that is drawn
    assert whole.x0 >= 0
    assert whole.y0 >= 0
    assert whole.x1 <= figure.get_figwidth()
    assert whole.y1 <= figure.get_figheight()


def test_curves_of_a_panel_differ_in_greyscale_or_in_line(run: Any) -> None:
    for axes in flagship(run).axes:
        curves = [one for one in axes.lines if one.get_label() in words(axes.figure) and len(one.get_xdata()) > 2]
        grey = sorted(float(np.dot(to_rgb(one.get_color()), [0.299, 0.587, 0.114])) for one in curves)
        assert len(grey) >= 2
        assert min(np.diff(grey)) > 0.04
        assert grey[-1] < 0.75  # dark enough on white
        assert len({(str(one._dash_pattern), one.get_marker()) for one in curves}) == len(curves)  # pyright: ignore


def test_absent_predictions_and_those_carried_by_the_run(run: Any, expected: dict[str, Any]) -> None:
    bare = flagship(run)
    assert artist(bare, "predicted T_I") is None
    assert artist(bare, "measured T_II").get_ydata()[0] == pytest.approx(0.495, rel=0.02)  # read off the curve
    nothing = dict.fromkeys(expected)
    assert "plateau (theory)" not in words(flagship(run, predictions=nothing))
    far = flagship(run, predictions={"T_I": 1e9, "T_II": -1.0, "T_III": float("nan")})
    assert all(artist(far, f"predicted {name}") is None for name in ("T_I", "T_II", "T_III"))
    run.provenance["predictions"] = expected
    try:
        carried = flagship(run)
    finally:
        del run.provenance["predictions"]
    assert artist(carried, "predicted T_III").get_xdata()[0] == expected["T_III"]


@pytest.mark.parametrize("policy", [{"t1": 4.0}, {"t1": 30.0, "max_steps": 12}, {"t1": 0.0}])
def test_partial_runs(policy: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    traj = gflow.solve(gflow.GradientFlow(Model()), start(), milestones=milestones(), **policy)
    figure = flagship(traj, predictions=expected)
    figure.savefig(tmp_path / "partial.png", dpi=60)
    assert not {"III", "IV"} & set(words(figure))
    assert artist(figure, "measured T_III") is None
    assert artist(figure, "predicted T_III") is None
    assert any("stopped at" in word and "max steps" in word for word in words(figure)) == ("max_steps" in policy)
    if policy["t1"] == 0.0:
        assert len(traj.ts) == 1
        assert figure.axes[0].get_xscale() == "linear"


def test_a_saved_run_shows_the_same(run: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    loaded = gflow.load(run.save(tmp_path / "run.nc"))
    figure, again = flagship(run, predictions=expected), flagship(loaded, predictions=expected)
    assert words(figure) == words(again)
    for label in ("$v_1$", "$w_K = w_Q$"):
        one, other = line(figure.axes[1], label), line(again.axes[1], label)
        np.testing.assert_allclose(one.get_xydata(), other.get_xydata(), rtol=1e-12)
    # without the loss, its values are those of the times kept
    curve = line(again.axes[0], "induction part")
    assert set(curve.get_xdata()[1:]) <= set(loaded.ts)


def test_any_other_loss(tmp_path: Path) -> None:
    def loss(p: dict[str, Any]) -> Any:
        return jnp.sum((p["w"] - 1.0) ** 2) + jnp.sum(p["many"] ** 2) + p["b"] ** 4

    given = {"w": jnp.zeros(3), "many": jnp.ones((4, 4)), "b": jnp.asarray(0.5)}
    traj = gflow.solve(gflow.GradientFlow(loss), given, milestones={"half": gflow.Below(loss, 9.0)}, t1=5.0)
    for figure in (flagship(traj), trajectory(gflow.load(traj.save(tmp_path / "own.nc")))):
        assert {"loss", "parameters", "w", "b", "many (mean, range)", "half"} <= set(words(figure))
        figure.savefig(tmp_path / "own.svg")
    # d w/dt = -2 (w - 1), three entries drawn as three curves
    curves = [one for one in flagship(traj).axes[1].lines if np.shape(one.get_ydata())[0] > 50]
    exact = 1 - np.exp(-2 * np.asarray(curves[-1].get_xdata()))
    assert sum(np.allclose(one.get_ydata(), exact, atol=1e-5) for one in curves) == 3
