"""Figures of sweeps, on datasets that follow theory exactly: where points and lines lie, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PatchCollection, QuadMesh
from matplotlib.contour import ContourSet

import gflow
from gflow.cli._app import run
from gflow.errors import InputError
from gflow.plots.sweeps import default_kind, phase, ratio, scaling, sweep_figure

DELAY = 1.25  # T_III over its prediction


def dataset(**axes):
    """A sweep with T_III = DELAY log(1/sigma)/g, g = w*^2/((1 + alpha*)^2 L), and a plateau 10 alpha* w* T_o long."""
    dims = list(axes)
    values = dict(zip(dims, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    L, sigma = values.get("L", 100.0), values.get("sigma_init", 1e-3)
    alpha, w = values.get("alpha_star", 1.0), values.get("w_star", 1.0)
    rate = w**2 / ((1 + alpha) ** 2 * L) + 0.0 * sum(values.values())
    start = 2.0 + 0.0 * rate
    columns = {
        "T_III": DELAY * np.log(1 / sigma) / rate,
        "growth_rate": rate,
        "T_o": start,
        "T_II": start * (1 + 10 * alpha * w),
        "status": np.ones(rate.shape, dtype="int8"),
    }
    data = xr.Dataset({name: (dims, array) for name, array in columns.items()}, coords=axes)
    fixed = {key: x for key, x in (("alpha_star", 1.0), ("w_star", 1.0)) if key not in axes}
    data.attrs["provenance"] = json.dumps([{"config": {"fixed": fixed}}])
    return data


def test_scaling_shows_the_lanes_and_theory():
    lengths, sigmas = np.geomspace(1e2, 1e4, 5), np.geomspace(1e-6, 1e-2, 4)
    figure = scaling(dataset(L=lengths, sigma_init=sigmas))
    against_L, against_log = figure.axes
    points = [line for line in against_L.lines if line.get_linestyle() == "None"]
    assert len(points) == 4
    for line, sigma in zip(points, sorted(sigmas), strict=True):
        np.testing.assert_allclose(line.get_xdata(), lengths)
        np.testing.assert_allclose(line.get_ydata(), DELAY * np.log(1 / sigma) * 4 * lengths)
    solid = [line for line in against_L.lines if line.get_linestyle() == "-"]
    np.testing.assert_allclose(solid[0].get_ydata(), points[0].get_ydata() / DELAY)
    # dashed: the leading order, which this theory follows exactly
    dashed = [line for line in against_L.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(dashed[0].get_ydata(), points[0].get_ydata() / DELAY)
    # against log(1/sigma) the line has the slope 1/g, whatever the offset, and begins at the smallest sigma
    solid = [line for line in against_log.lines if line.get_linestyle() == "-"]
    x, y = solid[0].get_xdata(), solid[0].get_ydata()
    np.testing.assert_allclose(np.diff(y) / np.diff(x), 4 * lengths[0])
    dashed = [line for line in against_log.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(dashed[1].get_ydata(), 4 * lengths[1] * dashed[1].get_xdata())
    assert against_log.get_xlabel() == r"$\log(1/\sigma_\mathrm{init})$"


def test_ratio_is_over_the_prediction():
    data = dataset(L=np.geomspace(1e2, 1e4, 5), sigma_init=np.geomspace(1e-6, 1e-2, 4))
    data["T_III"][2, 1], data["status"][2, 1] = np.nan, 3
    figure = ratio(data)
    (mesh,) = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    values = np.ma.masked_invalid(mesh.get_array())
    np.testing.assert_allclose(values.compressed(), DELAY)
    assert values.count() == 19
    marks = [c.get_label() for c in figure.axes[0].collections if isinstance(c, PatchCollection)]
    assert marks == ["failed"]


def test_the_leading_order_is_drawn_where_it_holds():
    def dashed(**changed):
        data = dataset(L=[1e2, 1e3]).assign_coords(changed)
        return [line.get_ydata() for line in scaling(data).axes[0].lines if line.get_linestyle() == "--"]

    ((whole,), (half,)) = dashed(), dashed(parametrization="tied")
    np.testing.assert_allclose(whole, np.log(1 / 1e-2) * 4 * np.array([1e2, 1e3]))  # sigma_init by default
    np.testing.assert_allclose(half, whole / 2)
    for other in ({"parametrization": "merged"}, {"tokens": "rademacher"}, {"d": 2}, {"wK_init": 0.1}):
        assert dashed(**other) == []


def test_a_ratio_far_from_one_does_not_drown_the_others():
    data = dataset(L=np.geomspace(1e2, 1e4, 5), sigma_init=np.geomspace(1e-6, 1e-2, 4))
    data["T_III"][0, 0] *= 1e-3
    (mesh,) = [c for c in ratio(data).axes[0].collections if isinstance(c, QuadMesh)]
    assert mesh.get_clim() == pytest.approx((0.5, DELAY))


def test_phase_shows_the_length_of_the_plateau():
    alphas, ws = np.geomspace(0.01, 10, 6), np.geomspace(0.3, 1.2, 5)
    data = dataset(alpha_star=alphas, w_star=ws)
    data["T_II"][0, 0], data["status"][0, 0] = np.nan, 2
    data["status"][5, 4] = 0
    figure = phase(data)
    (mesh,) = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    shown = mesh.get_array().reshape(5, 6)
    np.testing.assert_allclose(shown[2, 3], 10 * alphas[3] * ws[2])
    marks = {c.get_label() for c in figure.axes[0].collections if isinstance(c, PatchCollection)}
    assert marks == {"pending", "not reached"}
    assert mesh.norm(1.0) == pytest.approx(0.5)  # white
    # T_III grows with alpha* as (1 + alpha*)^2: contours at powers of ten cross where it has these values
    size = [c for c in figure.axes[0].collections if isinstance(c, ContourSet)][-1]
    np.testing.assert_allclose(size.levels, [3.0, 4.0, 5.0, 6.0])
    alpha, w = size.get_paths()[1].vertices.T
    np.testing.assert_allclose(
        DELAY * np.log(1e3) * 100 * (1 + alpha) ** 2 / w**2, 1e4, rtol=0.12
    )  # lanes lie a factor 4 apart


def test_what_the_axes_suit():
    assert default_kind(dataset(L=[1e2, 1e3])) == "scaling"
    assert default_kind(dataset(alpha_star=[0.1, 1.0], w_star=[0.5, 1.0])) == "phase"
    with pytest.raises(InputError, match="ratio both, phase alpha_star and w_star"):
        default_kind(dataset(w_star=[0.5, 1.0]))
    with pytest.raises(InputError, match="sigma_init is missing"):
        ratio(dataset(L=[1e2, 1e3]))


def test_other_axes_are_groups_or_selected():
    data = dataset(L=[1e2, 1e3], w_star=[0.5, 0.7, 1.0], alpha_star=[0.5, 1.0, 2.0])
    with pytest.raises(InputError, match=r"9 .*--select"):
        scaling(data)
    figure = sweep_figure(data, chosen={"w_star": "0.7"})
    assert len([line for line in figure.axes[0].lines if line.get_linestyle() == "None"]) == 3
    with pytest.raises(InputError, match=r"w_star is never 0.6; its values: 0.5, 0.7, 1"):
        sweep_figure(data, chosen={"w_star": "0.6"})
    with pytest.raises(InputError, match="d is no axis"):
        sweep_figure(data, chosen={"d": "1"})


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text("[fixed]\nw_star = 1\n[axes]\nL = [100, 120]\nsigma_init = [1e-4, 1e-3]\n")
    store, figure = tmp_path / "s.zarr", tmp_path / "s.png"
    words = ["sweep", str(tmp_path / "s.toml"), "--out", str(store), "--executor", "serial", "--json"]
    assert run([*words, "--plot", str(figure)]) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == str(figure)
    assert figure.read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "ratio.svg"
    assert run(["plot", str(store), "--out", str(again), "--kind", "ratio"]) == 0
    assert b"<svg" in again.read_bytes()
    capsys.readouterr()
    for words, wrong in (
        (["--kind", "phase"], "alpha_star"),
        (["--kind", "phases"], "did you mean 'phase'?"),
        (["--select", "L"], "KEY=VALUE"),
        (["--select", "L=7"], "its values: 100, 120"),
        (["--overlay"], "has its own figures"),
    ):
        assert run(["plot", str(store), "--out", str(tmp_path / "no.png"), *words]) == 2
        assert wrong in capsys.readouterr().err
    assert not (tmp_path / "no.png").exists()
    (tmp_path / "w.toml").write_text("[axes]\nw_star = [0.5, 1]\n")
    words = ["sweep", str(tmp_path / "w.toml"), "--out", str(tmp_path / "w.zarr"), "--plot", str(tmp_path / "w.png")]
    assert run(words) == 2
    assert "leave --plot out" in capsys.readouterr().err
    assert not (tmp_path / "w.zarr").exists()
    assert gflow.load(store).sizes == {"L": 2, "sigma_init": 2}
