"""The store: what is in it, and what becomes of it when its writer is killed, doubled, or out of disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gflow
from gflow.errors import InputError, OutputError, StoreError
from gflow.sweeps import driver, store as stores
from gflow.sweeps.records import records

CHEAP = Path(__file__).with_name("cheap.py")
TEXT = """
[axes]
L = [2, 10, 20, 30, 40, 50]
tokens = ["gaussian", "uniform"]
[zip]
sigma_init = {logspace = [1e-4, 1e-1, 10]}
alpha_star = {linspace = [1, 2, 10]}
[options]
chunk = 10
"""
TABLE: dict[str, Any] = {"axes": {"L": [10, 20]}, "options": {"chunk": 1}}


def sweep(config: Any, out: Path, **policy: Any) -> Any:
    return gflow.sweep(config, out, executor="serial", **policy)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sweep.toml").write_text(TEXT)
    return tmp_path / "sweep.toml"


def test_what_is_in_a_store(cheap: Any, file: Path, tmp_path: Path) -> None:
    news: list[Any] = []
    with sweep(file, tmp_path / "s.zarr", progress=news.append) as found:
        assert dict(found.sizes) == {"L": 6, "tokens": 2, "zip": 10}
        assert found["L"].dims == ("L",)
        assert found["tokens"].values.tolist() == ["gaussian", "uniform"]
        assert found["sigma_init"].dims == found["alpha_star"].dims == ("zip",)
        L, sigma = found["L"], found["sigma_init"]
        fine = (L > 2) & (sigma < 0.09)
        status = xr.where(fine, xr.where(sigma < 1e-3, 2, 1), 3)
        expected = xr.where(status == 1, L / sigma, np.nan)
        for law in ("gaussian", "uniform"):
            np.testing.assert_array_equal(found["status"].sel(tokens=law).values, status.values)
            np.testing.assert_array_equal(found["T_III"].sel(tokens=law).values, expected.values)
        assert found["status"].dtype == np.int8
        np.testing.assert_array_equal(found["steps"].sel(L=20).values.max(), 20000)
        assert found["steps"].dtype == np.int32
        assert int(found["steps"].sel(L=2).max()) == -1
        failed = found["status"] == 3
        for name in ("T_I", "growth_rate", "v2_final", "t_end"):
            np.testing.assert_array_equal(np.isnan(found[name]), failed)
        # meaning of everything
        for name, values in found.variables.items():
            assert values.attrs["long_name"], name
        assert found["T_III"].attrs["units"] == "time of the flow"
        assert found["status"].attrs["flag_meanings"].split()[3] == "failed"
        assert found.attrs["status"] == "failed"
        (signature,) = json.loads(found.attrs["provenance"])
        assert signature["gflow"] == "cheap"
        assert signature["config"]["axes"]["L"] == [2, 10, 20, 30, 40, 50]
    kept = records(tmp_path / "s.zarr")
    assert len(kept) == 12
    assert sum(record.lanes for record in kept.values()) == 120
    assert sum(len(record.failures) for record in kept.values()) == 20 + 10
    assert kept[2].failures == [(9, "sigma_init = 0.1 is too much")]
    assert kept[0].failures[0][1].startswith("L = 2 is out of range")
    assert (news[-1].lanes, news[-1].done, news[-1].failed, news[-1].left) == (120, 120, 30, 0.0)
    assert [one.done for one in news] == sorted(one.done for one in news)


@pytest.mark.parametrize("consolidated", [None, True, False])
def test_others_open_it_without_a_warning(cheap: Any, file: Path, tmp_path: Path, consolidated: bool | None) -> None:
    sweep(file, tmp_path / "s.zarr").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(tmp_path / "s.zarr", consolidated=consolidated, chunks=None) as found:
            assert float(found["T_III"].max()) > 0
            assert found["tokens"].values[1] == "uniform"
        with gflow.load(tmp_path / "s.zarr") as found:
            assert dict(found.sizes) == {"L": 6, "tokens": 2, "zip": 10}


def same(one: Path, two: Path) -> None:
    """Bit for bit the same arrays, and the same records."""
    for left, right in zip(sorted(one.rglob("*")), sorted(two.rglob("*")), strict=True):
        assert left.relative_to(one) == right.relative_to(two)
        # what is compressed in the same way has the same bytes
        if left.is_file() and left.name.startswith("c"):
            assert left.read_bytes() == right.read_bytes(), left
    assert records(one) == records(two)


def test_killed_again_and_again_it_ends_the_same(cheap: Any, file: Path, tmp_path: Path) -> None:
    """Case 17: kill -9 at random moments, from the making of the store to its last chunk."""
    sweep(file, tmp_path / "whole.zarr").close()
    out = tmp_path / "killed.zarr"
    chance = random.Random(4)
    resumed, kills = [], 0
    while kills < 10:
        before = {index: os.stat(out / "status" / ".gflow" / f"{index:08d}.json").st_mtime_ns for index in done(out)}
        words = [sys.executable, str(CHEAP), "0.05", str(file), str(out), "--resume"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # from the moment on at which it works on the store
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline and process.poll() is None and len(done(out)) == len(before):
                    time.sleep(0.002)
                process.wait(timeout=0.12 * chance.random())
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            _, told = process.communicate()
        assert process.returncode in (0, -9), told.decode()
        readable(out, tmp_path / "whole.zarr")
        for index, when in before.items():  # no chunk twice
            assert os.stat(out / "status" / ".gflow" / f"{index:08d}.json").st_mtime_ns == when
        resumed.append(len(before))
        if process.returncode == 0:
            break
    assert kills >= 3
    sweep(file, out, resume=True).close()
    same(tmp_path / "whole.zarr", out)


def done(out: Path) -> list[int]:
    return sorted(int(path.stem) for path in (out / "status" / ".gflow").glob("0*.json"))


def readable(out: Path, whole: Path) -> None:
    """Every recorded chunk is complete; the others say that they are not, or are."""
    with xr.open_zarr(out, chunks=None) as found, xr.open_zarr(whole, chunks=None) as expected:
        for name, values in found.data_vars.items():
            kept = found["status"].values != 0
            np.testing.assert_array_equal(values.values[kept], expected[name].values[kept], err_msg=str(name))
        counted = sum(record.lanes for record in records(out).values())
        assert counted <= np.count_nonzero(found["status"].values)


def test_a_finished_sweep_has_nothing_to_resume(cheap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(TABLE, tmp_path / "s.zarr").close()
    monkeypatch.setattr(driver, "make_executor", None)
    with sweep(TABLE, tmp_path / "s.zarr", resume=True) as found:
        assert found["status"].values.tolist() == [1, 1]


def test_resume_begins_where_there_is_nothing(cheap: Any, tmp_path: Path) -> None:
    with sweep(TABLE, tmp_path / "s.zarr", resume=True) as found:
        assert found["status"].values.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"axes": {"L": [10, 21]}, "options": {"chunk": 1}}, "L is [10, 20] there and [10, 21] here"),
        ({"axes": {"w_star": [1, 2]}, "options": {"chunk": 1}}, "w_star is nothing there and [1, 2] here"),
        ({"axes": {"L": [10, 20]}, "options": {"chunk": 2}}, "chunk is 1 there and 2 here"),
        ({**TABLE, "fixed": {"w_star": 1}}, "w_star is nothing there and 1.0 here"),
    ],
)
def test_another_design_is_not_resumed(cheap: Any, tmp_path: Path, other: Any, part: str) -> None:
    sweep(TABLE, tmp_path / "s.zarr").close()
    with pytest.raises(InputError) as refused:
        sweep(other, tmp_path / "s.zarr", resume=True)
    assert part in str(refused.value)


def test_axes_in_another_order_are_another_design(cheap: Any, tmp_path: Path) -> None:
    sweep({"axes": {"L": [10, 20], "w_star": [1, 2]}}, tmp_path / "s.zarr").close()
    with pytest.raises(InputError, match=r'order is \["L", "w_star"\] there and \["w_star", "L"\] here'):
        sweep({"axes": {"w_star": [1, 2], "L": [10, 20]}}, tmp_path / "s.zarr", resume=True)


def test_an_existing_path_is_kept(cheap: Any, tmp_path: Path) -> None:
    """Case 19; also with overwrite, unless it is a store."""
    out = tmp_path / "s.zarr"
    sweep(TABLE, out).close()
    with pytest.raises(OutputError, match="go on with it by --resume, replace it by --overwrite"):
        sweep(TABLE, out)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("")
    (tmp_path / "file").write_text("")
    for name in ("folder", "file"):
        with pytest.raises(OutputError, match="is not the store of a sweep that gflow wrote"):
            sweep(TABLE, tmp_path / name, overwrite=True)
        with pytest.raises(InputError, match="is not the store of a sweep that gflow wrote"):
            sweep(TABLE, tmp_path / name, resume=True)
    assert (tmp_path / "folder" / "precious").exists()
    with pytest.raises(OutputError, match="there is no folder"):
        sweep(TABLE, tmp_path / "none" / "s.zarr")
    with pytest.raises(InputError, match="give one of them"):
        sweep(TABLE, out, resume=True, overwrite=True)
    other = {"axes": {"L": [30, 40]}}
    with sweep(other, out, overwrite=True) as found:
        assert found["L"].values.tolist() == [30, 40]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "s.zarr"]


def test_one_writer_at_a_time(cheap: Any, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.zarr"
    words = [sys.executable, str(CHEAP), "0.5", str(file), str(out)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        while not out.exists():
            assert process.poll() is None
            time.sleep(0.01)
        for how in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(OutputError, match=rf"another sweep \(process {process.pid}\) is writing to it"):
                sweep(file, out, **how)
        with gflow.load(out) as found:  # reading is always possible
            assert found["status"].shape == (6, 2, 10)
        process.kill()
        process.communicate()
    # the lock has gone with the process
    sweep(file, out, resume=True).close()


def test_a_full_disk(cheap: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear line; what is there stays readable, and is gone on with."""
    import zarr

    sweep(file, tmp_path / "whole.zarr").close()
    out = tmp_path / "s.zarr"
    put = zarr.storage._local._put
    room = [6 * 28 + 10]  # files that still fit

    def full(path: Path, *rest: Any, **kind: Any) -> Any:
        if path.is_relative_to(out):
            room[0] -= 1
            if room[0] < 0:
                raise OSError(28, "No space left on device")
        return put(path, *rest, **kind)

    monkeypatch.setattr(zarr.storage._local, "_put", full)
    with pytest.raises(StoreError, match=r"s.zarr: no space left on device; what was computed before is kept"):
        sweep(file, out)
    monkeypatch.undo()
    assert 0 < len(records(out)) < 12
    readable(out, tmp_path / "whole.zarr")
    monkeypatch.setattr(driver, "compute_chunk", cheap.compute)
    sweep(file, out, resume=True).close()
    same(tmp_path / "whole.zarr", out)


def test_no_room_for_a_record(cheap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: Any) -> None:
        raise OutputError("x") from OSError(28, "No space left on device")

    monkeypatch.setattr(stores, "write_json", full)
    with pytest.raises(OutputError, match="no space left on device"):
        sweep(TABLE, tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_chunk_that_no_worker_finishes_costs_no_other(cheap: Any, tmp_path: Path) -> None:
    config = driver.sweep_config({"axes": {"L": [6, 7, 8, 7]}, "options": {"chunk": 1}})
    found = driver.run(driver.prepare(config, tmp_path / "s.zarr"), executor="serial")
    assert (found.status, found.lanes, found.failed, found.pending) == ("unfinished", 4, 0, 2)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("chunk 1 and 1 more: ")
    assert "seven is too much" in found.problems[0]
    assert found.ranges["T_III"] == {"min": 600.0, "max": 800.0}
    assert (found.computed, found.lanes_per_second) == (2, 2 / 0.25)
    assert found.seconds["compile"] == 1.0
