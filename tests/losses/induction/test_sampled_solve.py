"""Flows of a sampled loss: tables, milestones with errors, the size of a sample for an accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import gflow
from gflow.errors import InputError, TableError
from gflow.flows import Stage, solve_stages
from gflow.losses.induction import (
    InductionProblem,
    MatrixParams,
    SampledLoss,
    UntiedParams,
    run_scrambles,
    samples_for,
    solve_sampled,
)

_scramble_parts = eqx.filter_jit(lambda loss, params: loss.scramble_parts(params))
_gradient = eqx.filter_jit(lambda loss, params: jax.grad(lambda p: loss(p))(params))
PROBLEM = InductionProblem(8, 1.0, 0.8)


def _start(sigma: float, p11: float | None) -> UntiedParams:
    return UntiedParams(*[jnp.asarray(sigma)] * 5, None if p11 is None else jnp.asarray(p11))


def _second_layer(params: UntiedParams) -> tuple[Any, ...]:
    return params.p21, params.v1, params.v2, params.wK, params.wQ


def _marks(loss: SampledLoss) -> dict[str, gflow.Below]:
    """When each part is half of what it is without output."""
    without = loss.without_output()
    return {name: gflow.Below(getattr(loss, name), 0.5 * without[name]) for name in ("fourgram", "induction")}


@pytest.mark.parametrize("finite", [True, False])
def test_table_is_the_sample(finite: bool) -> None:
    loss = PROBLEM.sampled_loss(256, scrambles=4, exact_fourgram=False)
    table = loss.tabulated(_start(0.1, 0.1 if finite else None), tolerance=1e-8)
    assert float(jnp.max(table.induction.error)) < 1e-8
    rng = np.random.default_rng(0)
    for _ in range(10):
        p21, v1, v2, wK, wQ, p11 = (jnp.asarray(v) for v in rng.uniform(0, 1, 6))
        params = UntiedParams(p21, v1, v2, wK, wQ, 5 * p11 if finite else None)
        for name, values in _scramble_parts(loss, params).items():
            np.testing.assert_allclose(_scramble_parts(table, params)[name], values, rtol=0, atol=1e-8)
            np.testing.assert_allclose(
                _scramble_parts(table.pooled(), params)[name], np.mean(values), rtol=0, atol=1e-8
            )
        for a, b in zip(*(jax.tree.leaves(_gradient(x, params)) for x in (loss, table)), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    outside = UntiedParams(*(jnp.asarray(v) for v in (0.1, 0.1, 0.1, 3.0, 3.0)), jnp.asarray(1.0) if finite else None)
    assert np.isnan(float(table(outside)))
    with pytest.raises(InputError, match="not a table already"):
        table.tabulated(outside)


def test_table_refuses_what_it_cannot_hold() -> None:
    loss = PROBLEM.sampled_loss(256, scrambles=4)
    with pytest.raises(TableError, match="integrate the sampled loss itself"):
        loss.tabulated(_start(0.1, 0.1), w_range=(-300.0, 300.0))
    with pytest.raises(InputError, match="scalar parameters"):
        loss.tabulated(MatrixParams(jnp.asarray(0.1), *[jnp.eye(1)] * 4))
    infinite = loss.tabulated(_start(0.1, None), tolerance=1e-4)
    with pytest.raises(InputError, match="infinite p11"):
        infinite(_start(0.1, 0.1))


def test_milestones_carry_the_spread_of_the_scrambles(tmp_path: Path) -> None:
    loss = PROBLEM.sampled_loss(2048, seed=3)
    start = _start(0.1, 0.1)
    trajectory = solve_sampled(loss, start, milestones=_marks, t1=400.0)
    about = trajectory.provenance["sampling"]
    tables = loss.tabulated(start)
    for name, milestone in trajectory.milestones.items():
        row = about["milestones"][name]
        alone = [
            gflow.solve(tables.scramble(i), start, milestones=_marks(tables.scramble(i)), t1=400.0, rtol=1e-8)
            for i in range(8)
        ]
        times = [a.milestones[name].time for a in alone]
        np.testing.assert_allclose(row["times"], times, rtol=1e-4)
        error = np.std(times, ddof=1) / np.sqrt(8)
        assert milestone.error_kind == "sampling"
        np.testing.assert_allclose(milestone.error, error, rtol=0.05)
        half = scipy.stats.t.ppf(0.975, 7) * milestone.error
        np.testing.assert_allclose(row["interval"], [milestone.time - half, milestone.time + half], rtol=1e-12)
        # the whole sample's time lies among those of its parts
        assert min(times) < milestone.time < max(times)
    assert about["samples"] == 2048
    assert trajectory.flow.loss.scrambles == 8
    losses = trajectory.losses_at(400.0)
    np.testing.assert_allclose(losses["total"], float(loss(trajectory.final)), atol=1e-6)
    trajectory.save(tmp_path / "run.nc")
    loaded = gflow.load(tmp_path / "run.nc")
    assert loaded.milestones["induction"].error_kind == "sampling"
    assert loaded.provenance["sampling"]["scrambles"] == 8


def test_emergence_agrees_with_the_exact_flow() -> None:
    """At p11 = inf, where the exact flow is known: within the Student interval at 99.9%."""
    exact_loss = PROBLEM.population_loss()
    start = _start(0.1, None)
    marks = {
        "half": gflow.Below(exact_loss.induction, fraction=0.5),
        "fourgram": gflow.Below(exact_loss.fourgram, 0.05),
    }
    exact = gflow.solve(exact_loss, start, milestones=marks)

    def milestones(loss: SampledLoss) -> dict[str, gflow.Below]:
        return {"half": gflow.Below(loss.induction, fraction=0.5), "fourgram": gflow.Below(loss.fourgram, 0.05)}

    sampled = solve_sampled(PROBLEM.sampled_loss(8192, splits=True), start, milestones=milestones)
    half = sampled.milestones["half"]
    assert abs(half.time - exact.milestones["half"].time) < scipy.stats.t.ppf(0.9995, 7) * half.error
    assert half.error < 0.02 * half.time
    # the 4-gram part is exact here, in a block of its own
    np.testing.assert_allclose(sampled.milestones["fourgram"].time, exact.milestones["fourgram"].time, rtol=1e-4)


@pytest.mark.slow
def test_matrices_of_size_one_take_the_same_time_without_a_table() -> None:
    """The flow through the sample itself (`MatrixParams` have no table), at d = 1 that of the scalar model."""
    loss = PROBLEM.sampled_loss(128, scrambles=2)
    small = jnp.full((1, 1), 0.1)
    matrices = MatrixParams(jnp.asarray(0.1), small, small, small, small, jnp.asarray(0.1))
    direct = solve_sampled(loss, matrices, milestones=_marks, t1=100.0, solver="tsit5")
    scalar = solve_sampled(loss, _start(0.1, 0.1), milestones=_marks, t1=100.0)
    assert direct.provenance["sampling"]["table_error"] is None
    for name, milestone in direct.milestones.items():
        np.testing.assert_allclose(milestone.time, scalar.milestones[name].time, rtol=1e-3)
        np.testing.assert_allclose(milestone.error, scalar.milestones[name].error, rtol=0.05)


def test_milestone_that_some_scrambles_never_meet() -> None:
    start = _start(0.1, 0.1)
    tables = PROBLEM.sampled_loss(256, scrambles=8).tabulated(start)
    # between the fourth and the fifth scramble's initial value, and they hardly move
    middle = jnp.median(_scramble_parts(tables, start)["induction"])

    def milestones(part: SampledLoss) -> dict[str, gflow.Below]:
        return {"met": gflow.Below(part.induction, middle)}

    trajectory = solve_sampled(tables, start, milestones=milestones, t1=1e-6)
    row = trajectory.provenance["sampling"]["milestones"]["met"]
    assert sum(t is not None for t in row["times"]) == 4
    assert trajectory.milestones["met"].error is None
    assert row["interval"] is None
    assert "in 4 of 8 scrambles" in trajectory.milestones["met"].reason


def test_flow_that_leaves_its_table_gets_a_wider_one() -> None:
    """A merged w that starts at 3 falls to w*^2; one pulled beyond the table, by a target beyond it, is followed."""
    loss = PROBLEM.sampled_loss(512, scrambles=2)
    # the table is made for w* as the loss states it; the sample itself has a larger one
    narrow = eqx.tree_at(lambda x: x.w_star, loss, jnp.asarray(0.05))
    start = _start(0.3, 2.0)
    trajectory = solve_sampled(narrow, start, milestones=_marks, t1=400.0)
    usual = solve_sampled(loss, start, milestones=_marks, t1=400.0)
    assert trajectory.status is gflow.Status.reached_t1
    for name, milestone in trajectory.milestones.items():
        np.testing.assert_allclose(milestone.time, usual.milestones[name].time, rtol=1e-4)


def test_stages_carry_errors_too() -> None:
    loss = PROBLEM.sampled_loss(512, scrambles=4)

    def run(part: SampledLoss) -> Any:
        first = Stage("I", gflow.GradientFlow(part, trainable=lambda p: p.p11), t1=5.0)
        second = Stage("II", gflow.GradientFlow(part, trainable=_second_layer), milestones=_marks(part), t1=100.0)
        return solve_stages([first, second], _start(0.1, 1.0), solver="rodas5p", rtol=1e-6)

    staged = run_scrambles(loss, _start(0.1, 1.0), run)
    milestone = staged.stages["II"].milestones["induction"]
    assert milestone.error_kind == "sampling"
    assert 0 < milestone.error < milestone.time
    assert staged.provenance["sampling"]["scrambles"] == 4


def test_size_for_an_accuracy() -> None:
    sizes = [samples_for(PROBLEM, accuracy) for accuracy in (0.05, 0.01)]
    assert sizes[0].samples < sizes[1].samples
    for accuracy, size in zip((0.05, 0.01), sizes, strict=True):
        assert np.log2(size.samples / 8) % 1 == 0
        assert 0.5 <= size.rate <= 1.0
        loss = PROBLEM.sampled_loss(accuracy=accuracy)
        assert loss.samples == size.samples
        without = loss.without_output()
        errors = [eqx.filter_jit(lambda x, p: x.standard_error(p))(loss, _start(s, 1.0)) for s in (0.01, 0.5)]
        achieved = max(float(e["induction"] / without["induction"]) for e in errors)
        # a standard error from eight scrambles is itself uncertain by a quarter, the size a power of two
        assert achieved < 1.75 * accuracy
    with pytest.raises(InputError, match="ask for"):
        samples_for(PROBLEM, 1e-6)
    with pytest.raises(InputError, match="between 0 and 1"):
        samples_for(PROBLEM, 2.0)


def test_a_single_scramble_has_no_error() -> None:
    with pytest.raises(InputError, match="at least 2 scrambles"):
        solve_sampled(PROBLEM.sampled_loss(64, scrambles=1), _start(0.1, 0.1))
