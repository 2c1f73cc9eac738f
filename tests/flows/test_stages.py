"""Schedules: each stage on its own clock, from where the last ended, in one result that reads as one run."""

import dataclasses
import math
import os
import signal
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import gflow
from gflow.conditions import Above, Below
from gflow.errors import InputError, SolveError
from gflow.flows import (
    GradientFlow,
    LogClock,
    LogSpaced,
    Stage,
    StagedTrajectory,
    Status,
    load,
    register_params,
    solve_stages,
)
from gflow.losses.chain import ChainLoss

RATE = 1e-9


def slow(p):
    """`dp/dt = k e^{-p}`, so `p = log(e^{p0} + k t)`: the first stage of layer-wise training, by itself."""
    return RATE * jnp.exp(-p)


def slow_time(p, p0):
    return (math.exp(p) - math.exp(p0)) / RATE


@register_params
class Layers(eqx.Module):
    """A first layer whose absence means infinity, and a second one."""

    w: Any
    p: Any = None
    absent: ClassVar[dict[str, float]] = {"p": math.inf}


def first(params):
    return slow(params.p)


def second(params):
    return ChainLoss(2)(params.w)


def chain_time(level, start):
    return float(ChainLoss(2).time(jnp.asarray(level), jnp.asarray(start)))


START = Layers(1e-3, 0.0)
GROWN = {"p3": Above(lambda q: q.p, 3.0), "p9": Above(lambda q: q.p, 9.0)}
LEARNT = {"half": Above(lambda q: q.w, 0.5), "most": Above(lambda q: q.w, 0.9)}
SCHEDULE = [
    Stage("I", GradientFlow(first, trainable=lambda q: q.p, clock=LogClock(1.0)), GROWN, until="p9"),
    Stage("II", second, LEARNT, enter=lambda q: dataclasses.replace(q, p=None)),
]


@pytest.fixture(scope="module")
def run():
    return solve_stages(SCHEDULE, START)


def test_stages_follow_their_closed_forms(run):
    """Stage I ends at 8e12; stage II's times of order 7 would have three digits left on a common clock."""
    assert run.finished
    assert run.status is Status.milestones_reached
    assert run.stages["I"].t1_reached == pytest.approx(slow_time(9.0, 0.0), rel=1e-8)
    assert run.milestones["p3"].time == pytest.approx(slow_time(3.0, 0.0), rel=1e-8)
    half = run.milestones["half"]
    assert (half.stage, half.status) == ("II", "reached")
    assert half.local == pytest.approx(chain_time(0.5, 1e-3), rel=1e-8)
    assert half.time == run.offsets["II"] + half.local
    assert run.t1_reached == run.offsets["II"] + run.stages["II"].t1_reached
    assert run.final.p is None


def test_the_whole_run_reads_as_one(run):
    sizes = [len(t.ts) for t in run.stages.values()]
    n = sum(sizes)
    assert run.ts.shape == run.local_ts.shape == run.stage_of.shape == run.losses["total"].shape == (n,)
    assert np.all(np.diff(run.ts) >= 0)
    assert run.stage_of.tolist() == ["I"] * sizes[0] + ["II"] * sizes[1]
    assert isinstance(run.params, Layers)
    # p grows in stage I and is infinite in stage II; w waits, then follows the chain
    assert np.all(run.params.w[: sizes[0]] == 1e-3)
    np.testing.assert_allclose(run.params.p[: sizes[0]], np.log1p(RATE * run.ts[: sizes[0]]), rtol=1e-8, atol=1e-8)
    assert np.all(np.isposinf(run.params.p[sizes[0] :]))
    np.testing.assert_array_equal(run.params.w[sizes[0] :], run.stages["II"].params.w)


def test_at_any_time_of_the_whole_run(run):
    border = run.offsets["II"]
    ts = np.array([border + 3.0, 1e12, border, 0.0])  # in any order
    there = run.at(ts)
    np.testing.assert_allclose(there.p, [np.inf, math.log1p(1e3), np.inf, 0.0], rtol=1e-8, atol=1e-12)
    assert there.w[1:].tolist() == [1e-3] * 3
    assert float(run.at(1e12).p) == pytest.approx(math.log1p(1e3), rel=1e-8)
    assert np.shape(run.at(1e12).p) == ()
    assert float(run.at("half").w) == pytest.approx(0.5, rel=1e-9)
    assert float(run.at("p3").p) == pytest.approx(3.0, rel=1e-9)
    assert np.isposinf(run.at("half").p)
    assert run.at(np.zeros(0)).w.shape == (0,)
    well = lambda w: (1 - w**2) ** 2 / 4  # noqa: E731
    want = [well(there.w[0]), RATE * np.exp(-there.p[1]), well(1e-3), RATE]
    np.testing.assert_allclose(run.losses_at(ts)["total"], want, rtol=1e-8)
    assert run.losses_at("half")["total"] == pytest.approx((1 - 0.25) ** 2 / 4, rel=1e-8)
    for t in (-1.0, 2 * run.t1_reached):
        with pytest.raises(InputError, match="leaves the run"):
            run.at(t)
    with pytest.raises(InputError, match="no such milestone"):
        run.at("T_IX")


def test_repr_tells_stage_by_stage(run):
    text = repr(run)
    for word in ("all stages", "I, from t = 0", "II, from t = 8.1", "p9", "half", "p9 was found"):
        assert word in text, word


def test_a_loss_may_differ_and_a_milestone_be_watched_twice():
    """The same name in two stages: the first that meets it tells."""

    class Named(eqx.Module):
        def __call__(self, p):
            return self.parts(p)["bowl"]

        def parts(self, p):
            return {"bowl": p["a"] ** 2 / 2}

    marks = {"low": Below(lambda p: p["a"], 0.1), "never": Below(lambda p: p["a"], -1.0)}
    twice = solve_stages(
        [
            Stage("one", lambda p: p["a"] ** 2 / 2, marks, t1=1.0),
            Stage("two", Named(), marks, t1=3.0, save=LogSpaced(5)),
        ],
        {"a": 1.0},
    )
    assert twice.milestones["low"].stage == "two"
    assert twice.milestones["low"].time == pytest.approx(math.log(10), rel=1e-8)
    assert twice.milestones["low"].local == pytest.approx(math.log(10) - 1, rel=1e-8)
    assert twice.milestones["never"].time is None
    assert twice.milestones["never"].stage == "two"
    assert len(twice.stages["two"].ts) == 5
    assert np.isnan(twice.losses["bowl"][0])
    np.testing.assert_allclose(twice.losses["total"], np.exp(-2 * twice.ts) / 2, rtol=1e-7)
    np.testing.assert_allclose(twice.losses["bowl"][-5:], twice.losses["total"][-5:])


def test_saved_and_loaded_is_the_same(run, tmp_path):
    run.provenance = {"config": {"training": "layerwise"}}
    path = run.save(tmp_path / "run.nc")
    again = gflow.load(path, loss={"I": first, "II": second})
    assert isinstance(again, StagedTrajectory)
    assert isinstance(again.params, Layers)
    for name in ("ts", "local_ts", "stage_of"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))
    np.testing.assert_array_equal(again.params.p, run.params.p)
    np.testing.assert_array_equal(again.losses["total"], run.losses["total"])
    assert again.milestones == run.milestones
    assert (again.finished, again.status, again.message) == (True, run.status, run.message)
    assert again.provenance == run.provenance
    assert again.offsets == run.offsets
    assert repr(again) == repr(run)
    np.testing.assert_allclose(again.at(1e12).p, run.at(1e12).p, rtol=1e-14)
    assert again.stages["II"].losses_at(2.0) == pytest.approx(run.stages["II"].losses_at(2.0), rel=1e-12)
    with pytest.raises(gflow.OutputError, match="exists"):
        run.save(path)
    run.save(path, overwrite=True)
    assert set(xr.open_groups(path, engine="h5netcdf")) == {"/", "/I", "/II"}
    data = run.to_xarray()
    assert data["p"].dims == ("sample",)
    assert data["stage"].values.tolist() == run.stage_of.tolist()
    assert len(np.unique(data["local_time"])) > 10


def test_a_stage_that_fails_ends_the_schedule_with_what_there_is(tmp_path):
    stages = [
        Stage("good", ChainLoss(2), t1=1.0),
        Stage("bad", lambda w: jnp.sqrt(w - 0.001), t1=10.0),
        Stage("never", ChainLoss(2), t1=1.0),
    ]
    run = solve_stages(stages, jnp.asarray(0.001))
    assert list(run.stages) == ["good", "bad"]
    assert run.status in (Status.stagnated, Status.non_finite)
    assert not run.finished
    assert "'bad' (2 of 3)" in run.message
    assert "not begun: never" in run.message
    assert "never: not begun" in repr(run)
    assert np.all(np.isfinite(run.params))
    again = load(run.save(tmp_path / "partial.nc"))
    assert (again.planned, again.finished) == (("good", "bad", "never"), False)
    with pytest.raises(SolveError, match="bad") as caught:
        solve_stages(stages, jnp.asarray(0.001), throw=True)
    assert list(caught.value.trajectory.stages) == ["good", "bad"]


def test_a_stage_at_rest_before_its_milestone_does_not_go_on():
    stages = [Stage("I", ChainLoss(2), {"m": Above(lambda w: w, 2.0)}, until="m"), Stage("II", ChainLoss(2), t1=1.0)]
    run = solve_stages(stages, jnp.asarray(0.5))
    assert not run.finished
    assert list(run.stages) == ["I"]
    assert run.status is Status.converged
    assert "never met: m" in run.message


def test_a_stage_that_cannot_start_keeps_the_earlier_ones():
    def broken(p):
        raise ValueError("no way on")

    stages = [Stage("I", ChainLoss(2), t1=1.0), Stage("II", ChainLoss(2), t1=1.0, enter=broken)]
    with pytest.raises(SolveError, match=r"'II' could not start: no way on") as caught:
        solve_stages(stages, jnp.asarray(0.5))
    assert caught.value.trajectory.stages["I"].status is Status.reached_t1
    with pytest.raises(InputError, match="not finite"):
        solve_stages(stages, jnp.asarray(np.nan))


def test_ctrl_c_ends_the_schedule_with_what_there_is():
    """Pressed in the second of three stages, from its own progress line."""

    def press(line):
        if line["stage"] == "II" and line["steps"]:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    stiff = lambda w: 1e7 * w[0] ** 2 / 2 + w[1] ** 2 / 2  # noqa: E731
    stages = [Stage("I", stiff, t1=1e-6), Stage("II", stiff, t1=1e3), Stage("III", stiff, t1=1.0)]
    run = solve_stages(stages, jnp.asarray([1.0, 1.0]), solver="tsit5", max_steps=10**9, progress=press)
    assert run.status is Status.interrupted
    assert list(run.stages) == ["I", "II"]
    assert not run.finished
    assert "not begun: III" in run.message
    assert signal.getsignal(signal.SIGINT) is before
    np.testing.assert_allclose(run.final[1], np.exp(-run.t1_reached), rtol=1e-6)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([], "empty"),
        ([ChainLoss(2)], "expected Stage"),
        ([Stage("a/b", ChainLoss(2))], "no name"),
        ([Stage("a", ChainLoss(2)), Stage("a", ChainLoss(2))], "twice"),
        ([Stage("a", ChainLoss(2)), Stage("b", ChainLoss(2), t1=-1.0)], r"'b': t1=-1\.0"),
        ([Stage("a", ChainLoss(2), {"mark": Above(lambda w: w, 1.0)}, until="mrak")], "did you mean 'mark'"),
        ([Stage("a", ChainLoss(2), {"m": Above(lambda w: w, 1.0)}, until="m", tail=1.0)], "leave tail out"),
        ([Stage("a", ChainLoss(2), {"m": 3.0})], "expected Below"),
    ],
)
def test_schedules_that_make_no_sense_are_refused_before_anything_runs(stages, words):
    with pytest.raises(InputError, match=words):
        solve_stages(stages, jnp.asarray(0.5), progress=lambda line: pytest.fail("it ran"))


def test_stages_of_different_structure_are_read_one_by_one():
    stages = [Stage("I", lambda p: p["a"] ** 2, t1=1.0), Stage("II", lambda p: p**2, t1=1.0, enter=lambda p: p["a"])]
    run = solve_stages(stages, {"a": 1.0})
    assert float(run.final) == pytest.approx(math.exp(-4.0), rel=1e-8)
    with pytest.raises(InputError, match="different structures"):
        _ = run.params
