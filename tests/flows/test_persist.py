"""Trajectory -> xarray -> netCDF -> Trajectory, nothing lost."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import gflow
from gflow.conditions import Above, Below
from gflow.errors import InputError, OutputError
from gflow.flows import GradientFlow, LogChart, load, solve
from gflow.losses.chain import ChainLoss


def loss(p):
    return ChainLoss(2)(p["w"]) + jnp.sum((p["layer"]["m"] - 1.0) ** 2) / 2


START = {"w": 1e-4, "layer": {"m": np.zeros((2, 3))}}
MARKS = {"half": Above(lambda p: p["w"], 0.5), "never": Below(lambda p: p["w"], -1.0)}


@pytest.fixture(scope="module")
def trajectory():
    run = solve(loss, START, milestones=MARKS)
    run.provenance = {"config": {"seed": None, "x": [1.0, float("nan")]}}
    return run


def test_dataset_is_labelled(trajectory):
    data = trajectory.to_xarray()
    assert data["w"].dims == ("time",)
    assert data["layer.m"].shape == (len(trajectory.ts), 2, 3)
    assert {"loss_total", "milestone_time"} <= set(data.data_vars)
    assert data["time"].attrs["long_name"]
    assert np.isnan(data["milestone_time"].sel(milestone="never"))
    assert float(data["milestone_time"].sel(milestone="half")) == trajectory.milestones["half"].time


def test_saved_and_loaded_is_the_same(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    again = load(path, loss=loss)
    np.testing.assert_array_equal(again.ts, trajectory.ts)
    np.testing.assert_array_equal(again.params["layer"]["m"], trajectory.params["layer"]["m"])
    np.testing.assert_array_equal(again.losses["total"], trajectory.losses["total"])
    assert again.milestones == trajectory.milestones
    assert again.status is trajectory.status
    assert again.message == trajectory.message
    assert again.stats == trajectory.stats
    assert again.provenance["config"]["x"] == [1.0, None]
    t = 0.37 * trajectory.t1_reached
    np.testing.assert_allclose(again.at(t)["w"], trajectory.at(t)["w"], rtol=1e-14)
    assert again.losses_at("half")["total"] == pytest.approx(trajectory.losses_at("half")["total"], rel=1e-12)
    for name, point in trajectory.stationary.items():
        np.testing.assert_allclose(again.stationary[name].eigenvalues, point.eigenvalues)
    assert repr(again) == repr(trajectory)
    with xr.open_dataset(path, engine="h5netcdf") as data:
        assert data.attrs["source"] == "gflow"


def test_an_existing_file_is_not_overwritten(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    before = path.read_bytes()
    with pytest.raises(OutputError, match="exists"):
        trajectory.save(path)
    assert path.read_bytes() == before
    trajectory.save(path, overwrite=True)


def test_files_that_are_no_trajectories(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "none.nc")
    junk = tmp_path / "junk.nc"
    junk.write_bytes(b"not a file of any kind")
    with pytest.raises(InputError, match="readable"):
        load(junk)
    other = tmp_path / "other.nc"
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(other, engine="h5netcdf")
    with pytest.raises(InputError, match="gflow did not write it"):
        load(other)


def test_other_structures_need_like(tmp_path):
    run = solve(lambda p: p[0] ** 2 / 2 + p[1] ** 2, [jnp.asarray(1.0), jnp.asarray(2.0)], t1=1.0)
    path = run.save(tmp_path / "list.nc")
    assert set(load(path).params) == {"0", "1"}
    again = load(path, like=[0.0, 0.0])
    assert isinstance(again.params, list)
    assert float(again.at(0.5)[1]) == pytest.approx(2 * np.exp(-1.0), rel=1e-8)
    with pytest.raises(InputError, match="like"):
        load(path, like={"a": 0.0})


def test_a_single_array_and_a_chart_without_dense_output(tmp_path):
    run = solve(GradientFlow(ChainLoss(2), chart=LogChart(lambda w: w)), jnp.asarray(1e-3), t1=3.0)
    again = load(run.save(tmp_path / "w.nc"))
    np.testing.assert_array_equal(again.params, run.params)
    with pytest.raises(InputError, match="dense output"):
        again.at(1.0)


def test_gflow_load_is_public(trajectory, tmp_path):
    assert repr(gflow.load(trajectory.save(tmp_path / "run.nc"))) == repr(trajectory)


def test_leaves_of_an_unknown_class_keep_their_names(tmp_path):
    """JAX sorts the keys of a dict, a class has its fields in an order of its own; b decays at rate 1, a at rate 3."""

    class Unknown(eqx.Module):
        b: Any
        a: Any

    start = Unknown(b=jnp.asarray(1.0), a=jnp.asarray(2.0))
    run = gflow.solve(lambda p: 0.5 * p.b**2 + 1.5 * p.a**2, start, t1=1.0)
    loaded = gflow.load(run.save(tmp_path / "run.nc"))
    for t in (0.3, 1.0):
        assert loaded.at(t)["b"] == pytest.approx(np.exp(-t), rel=1e-6)
        assert loaded.at(t)["a"] == pytest.approx(2 * np.exp(-3 * t), rel=1e-6)
    assert loaded.params["b"][-1] == loaded.at(1.0)["b"]
