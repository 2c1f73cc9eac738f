"""The reference engine against `gflow.solve` and `gflow integrate`: parametrisations, curves, trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gflow
from gflow.cli.main import run
from gflow.sweeps.columns import columns_of
from gflow.sweeps.reference import solve_lanes
from gflow.sweeps.tasks import ChunkTask, Options

TIMES = ("T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")


def lanes(fixed: dict[str, Any], curve_times: np.ndarray | None = None, **values: list[Any]) -> Any:
    kinds = values.get("parametrization", ["untied"])
    trainings = values.get("training", [fixed.get("training", "second-layer")])
    columns = columns_of(kinds, trainings, TIMES, curves=curve_times is not None)
    names = tuple(column.name for column in columns)
    return solve_lanes(ChunkTask(0, dict(values), fixed, Options(TIMES, curve_times=curve_times), names))


def test_parametrisations_and_curves_are_those_of_solve() -> None:
    times = np.geomspace(0.1, 1e5, 40)
    kinds = ["untied", "tied", "merged"]
    found = lanes({"L": 30.0, "w_star": 0.8, "sigma_init": 0.05}, times, parametrization=kinds)
    assert found.failures == []
    for i, kind in enumerate(kinds):
        problem = gflow.InductionProblem(L=30, alpha_star=1.0, w_star=0.8, parametrization=kind)
        flow = gflow.GradientFlow(problem.population_loss())
        alone = gflow.solve(flow, problem.initial_params(0.05), milestones=problem.milestones(), tail=1.0)
        for name in TIMES:
            when = alone.milestones[name].time
            np.testing.assert_equal(found.columns[name][i], np.nan if when is None else when)
        for name in ("p21", "v1", "v2", "logit_scale"):
            assert found.columns[f"{name}_final"][i] == float(getattr(alone.final, name))
        for name in ("wK", "wQ", "wKQ", "w"):
            np.testing.assert_equal(found.columns[f"{name}_final"][i], float(getattr(alone.final, name, np.nan)))
        inside = times <= alone.t1_reached
        assert 0 < inside.sum() < 40
        for part in ("fourgram", "induction"):
            curve = found.columns[f"curve_{part}"][i]
            np.testing.assert_allclose(curve[inside], alone.losses_at(times[inside])[part], rtol=1e-12)
            assert np.isnan(curve[~inside]).all()
        assert found.columns["steps"][i] + found.columns["steps_fourgram"][i] == alone.stats["accepted"]
    # the growth rate doubles when one parameter serves as key and query; a merged w does not grow exponentially
    rates = found.columns["growth_rate"]
    assert rates[1] == pytest.approx(2 * rates[0], rel=1e-12)
    assert np.isnan(rates[2])
    assert (found.columns["status"] == 1).tolist() == [True, True, True]


def test_lanes_that_fail_are_named_and_cost_no_other() -> None:
    found = lanes({"L": 30.0, "w_star": 0.8}, max_steps=[10**6, 5], sigma_init=[0.05, 0.05])
    ((lane, reason),) = found.failures
    assert lane == 1
    assert "max_steps" in reason
    assert found.columns["status"].tolist() == [1, 3]
    assert np.isnan(found.columns["T_III"]).tolist() == [False, True]
    # an end that is asked for is no failure, a milestone beyond it is not reached
    found = lanes({"L": 30.0, "w_star": 0.8, "sigma_init": 0.05}, t1=[10.0, 1e6])
    assert found.failures == []
    assert found.columns["status"].tolist() == [2, 1]
    assert found.columns["t_end"].tolist() == [10.0, 1e6]


def test_a_lane_without_a_table_fails_alone() -> None:
    found = lanes({"L": 30.0, "sigma_init": 0.05}, w_star=[9.5, 0.8])
    assert [lane for lane, _ in found.failures] == [0]
    assert "w_star" in found.failures[0][1]
    assert found.columns["status"].tolist() == [3, 1]


def test_case_13_other_numbers_compile_no_solver() -> None:
    """What follows a path, whose number of steps varies, may be compiled again; what takes steps is not."""
    import jax.monitoring

    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **told: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(told.get("fun_name")))

    fixed = {"w_star": 0.8, "alpha_star": 1.0}
    lanes(fixed, L=[100], sigma_init=[0.1])
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        found = lanes(fixed, L=[101, 102, 100], sigma_init=[0.2, 0.1, 0.3])
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert found.failures == []
    assert not [name for name in compiled if "block" in name]


@pytest.mark.slow
def test_layerwise_and_joint_lanes_are_those_of_integrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a sample, which needs no tables of finite p11."""
    policy = {"L": 12.0, "w_star": 1.0, "sigma_init": 0.1, "evaluate": "sampled", "samples": 256, "scrambles": 2}
    trainings = ["layerwise", "joint"]
    found = lanes(policy | {"rtol": 1e-5, "p11_until": 2.0}, training=trainings)
    assert found.failures == []
    for i, training in enumerate(trainings):
        words = [word for key, value in policy.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        words += ["--rtol", "1e-5", "--training", training]
        words += ["--p11-until", "2"] if training == "layerwise" else []
        status = run(["integrate", "--json", *words])
        alone = json.loads(capsys.readouterr().out)
        assert status == 0
        for name, when in alone["milestones"].items():
            np.testing.assert_equal(found.columns[name][i], np.nan if when is None else when, err_msg=name)
        for name, value in alone["params"]["final"].items():
            assert found.columns[f"{name}_final"][i] == float(value), name
    assert np.isinf(found.columns["p11_final"]).tolist() == [True, False]
    assert np.isnan(found.columns["T_p11"]).tolist() == [False, True]
    assert np.isnan(found.columns["T_v2"])[0]
