"""The ensemble against `gflow.solve`, lane by lane, and against MATH's table of reference runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np

import gflow
from gflow.sweeps import fast
from gflow.sweeps.columns import columns_of
from gflow.sweeps.tasks import ChunkTask, Options

MILESTONES = ("T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
COLUMNS = tuple(c.name for c in columns_of(("untied", "tied", "merged"), ("second-layer",), MILESTONES, curves=True))


def run(lanes, fixed=None, milestones=MILESTONES, precision="float64", curve_times=None):
    lanes = {key: v if isinstance(v, list) else np.asarray(v, dtype=float) for key, v in lanes.items()}
    task = ChunkTask(0, lanes, fixed or {}, Options(milestones, precision, curve_times), COLUMNS)
    result, left = fast.solve_lanes(task)
    return result, left


# L, alpha*, w*, sigma, tokens, parametrisation: T_I, T_o, T_II, T_III, T_III_of_initial, g       (MATH section 5)
REFERENCE = [
    (40, 1, 0.49, 1e-2, "gaussian", "untied", 205.459, 87.3923, 878.466, 3181.31, 2667.72, 1.523829e-3),
    (100, 1, 1.0, 1e-6, "gaussian", "untied", 208.4286, 225.653, 5203.435, 6066.08, 6040.97, 2.271529e-3),
    (64, 1, 0.8, 1e-3, "gaussian", "tied", 207.289, 142.752, 946.457, 1495.65, 1459.87, 4.819605e-3),
    (40, 1, 0.8, 1e-2, "rademacher", "untied", 205.459, 87.1861, 494.215, 1653.11, 1453.54, 3.669751e-3),
]


def test_reference_runs():
    columns = list(zip(*REFERENCE, strict=True))
    keys = ("L", "alpha_star", "w_star", "sigma_init")
    lanes = dict(zip(keys, columns[:4], strict=True)) | {
        "tokens": list(columns[4]), "parametrization": list(columns[5]),
    }  # fmt: skip
    result, left = run(lanes)
    assert not left.any()
    assert not result.failures
    names = ("T_I", "T_o", "T_II", "T_III", "T_III_of_initial", "growth_rate")
    for name, expected in zip(names, columns[6:], strict=True):
        np.testing.assert_allclose(result.columns[name], expected, rtol=1e-5, err_msg=name)


def random_lanes(count):
    rng = np.random.default_rng(7)
    kinds = [str(k) for k in rng.choice(["untied", "untied", "tied", "merged"], count)]
    sigma = 10 ** rng.uniform(-6, -0.5, count)
    apart = np.where([kind == "untied" for kind in kinds], 10 ** rng.uniform(-2, 2, count), 1.0)
    return {
        "L": rng.choice([20.0, 100.0], count),
        "alpha_star": 10 ** rng.uniform(-0.7, 0.9, count),
        "w_star": rng.choice([0.5, 0.9], count),
        "sigma_init": sigma,
        "wQ_init": np.minimum(sigma * apart, 0.6),
        "parametrization": kinds,
        "tokens": [str(t) for t in rng.choice(["gaussian", "rademacher"], count)],
    }


def by_solve(lanes, number, rtol=1e-10):
    values = {key: column[number] for key, column in lanes.items()}
    problem = gflow.InductionProblem(
        values["L"], values["alpha_star"], values["w_star"], values["tokens"],
        parametrization=values["parametrization"],
    )  # fmt: skip
    start = problem.initial_params(values["sigma_init"])
    if values["parametrization"] == "untied":
        start = type(start)(start.p21, start.v1, start.v2, start.wK, jnp.asarray(float(values["wQ_init"])))
    flow = gflow.GradientFlow(problem.population_loss())
    return gflow.solve(flow, start, milestones=problem.milestones(), rtol=rtol, tail=1.0)


def test_random_lanes_agree_with_solve():
    lanes = random_lanes(16)
    result, left = run(lanes)
    assert not left.any()
    for number in range(16):
        exact = by_solve(lanes, number)
        for name in MILESTONES:
            expected = exact.milestones[name].time
            found = result.columns[name][number]
            message = f"lane {number}, {name}"
            if expected is None:
                assert np.isnan(found), message
            else:
                np.testing.assert_allclose(found, expected, rtol=5e-6, err_msg=message)
        # the state where the ensemble ended: one step past the last milestone
        assert result.columns["t_end"][number] <= exact.t1_reached
        at = exact.at(float(result.columns["t_end"][number]))
        np.testing.assert_allclose(result.columns["v2_final"][number], at.v2, rtol=1e-4)
        np.testing.assert_allclose(result.columns["logit_scale_final"][number], at.logit_scale, rtol=1e-4)
        if lanes["parametrization"][number] == "untied":
            np.testing.assert_allclose(result.columns["wK_final"][number], at.wK, rtol=1e-4)
            np.testing.assert_allclose(result.columns["wQ_final"][number], at.wQ, rtol=1e-4)


def test_errors_shrink_with_the_tolerance():
    lanes = {key: v[:8] for key, v in random_lanes(16).items()}
    errors = []
    exact, _ = run(lanes, {"rtol": 1e-11})
    for rtol in (1e-4, 1e-6, 1e-8):
        found, _ = run(lanes, {"rtol": rtol})
        with np.errstate(invalid="ignore"):
            errors.append(
                [np.nanmax(np.abs(found.columns[m] / exact.columns[m] - 1)) for m in ("T_I", "T_II", "T_III")]
            )
    assert np.all(np.array(errors[1]) < 0.1 * np.array(errors[0]))
    assert np.all(np.array(errors[2]) < 0.1 * np.array(errors[1]))
    assert np.max(errors[2]) < 2e-8


def test_single_precision():
    lanes = random_lanes(16)
    double, _ = run(lanes)
    single, left = run(lanes, precision="float32")
    assert not left.any()
    for name in MILESTONES:
        np.testing.assert_array_equal(np.isnan(single.columns[name]), np.isnan(double.columns[name]))
        np.testing.assert_allclose(single.columns[name], double.columns[name], rtol=3e-4, err_msg=name)


def test_the_same_task_gives_the_same_bits_and_company_does_not_matter_much():
    lanes = random_lanes(16)
    first, _ = run(lanes)
    again, _ = run(lanes)
    some, _ = run({key: v[3:11] for key, v in lanes.items()})
    for name, values in first.columns.items():
        np.testing.assert_array_equal(values, again.columns[name])
        np.testing.assert_allclose(values[3:11], some.columns[name], rtol=1e-8)


def test_a_given_end_is_met_exactly():
    lanes = {"sigma_init": [1e-3, 1e-2], "t1": [500.0, 1000.0]}
    result, left = run(lanes, {"L": 40.0, "w_star": 0.8})
    assert not left.any()
    np.testing.assert_allclose(result.columns["t_end"], [500.0, 1000.0], rtol=1e-13)
    problem = gflow.InductionProblem(40.0, 1.0, 0.8)
    for number in range(2):
        flow = gflow.GradientFlow(problem.population_loss())
        end = gflow.solve(flow, problem.initial_params(lanes["sigma_init"][number]), t1=lanes["t1"][number], rtol=1e-10)
        for name in ("p21", "v1", "v2", "wK", "wQ"):
            np.testing.assert_allclose(
                result.columns[f"{name}_final"][number], getattr(end.final, name), rtol=1e-5, err_msg=name
            )
    assert np.isnan(result.columns["T_III"][0])


def test_curves():
    lanes = {key: v[:6] for key, v in random_lanes(16).items()}
    times = np.geomspace(1e-2, 1e5, 60)
    result, left = run(lanes, curve_times=times)
    assert not left.any()
    np.testing.assert_allclose(result.columns["T_III"], run(lanes)[0].columns["T_III"], rtol=1e-9)
    for number in range(6):
        exact = by_solve(lanes, number)
        inside = times <= exact.t1_reached
        losses = exact.losses_at(times[inside])
        for part in ("fourgram", "induction"):
            curve = result.columns[f"curve_{part}"][number]
            assert np.all(np.isfinite(curve))
            start = result.columns[f"loss_{part}_initial"][number]
            np.testing.assert_allclose(curve[inside], losses[part], rtol=2e-4, atol=2e-6 * start)


def test_levels_that_are_passed_at_the_start():
    # near the minimum: the induction loss starts below its plateau
    start = {"wK_init": 0.65, "wQ_init": 0.65}
    result, left = run({"sigma_init": [0.5]}, {"L": 40.0, "w_star": 0.7, **start})
    assert not left.any()
    level = float(gflow.InductionProblem(40.0, 1.0, 0.7).plateau())
    assert 0.01 * level < result.columns["loss_induction_initial"][0] < 0.99 * level
    assert result.columns["T_II"][0] == 0.0
    assert result.columns["T_III"][0] > 0.0


def test_lanes_beyond_the_tables_are_left_to_solve():
    # the logit scale starts at 3 times its final value: no polynomial holds it, and the table of `solve` grows
    lanes = {"sigma_init": [1e-2, 1e-2], "wK_init": [1e-2, 1.5], "wQ_init": [1e-2, 1.0]}
    _, left = run(lanes, {"L": 40.0, "w_star": 0.7})
    np.testing.assert_array_equal(left, [False, True])


SHARDED = """
import json, numpy as np, jax
import gflow
from tests_sharded import run, random_lanes
assert len(jax.local_devices()) == 3
result, left = run(random_lanes(16))
print(json.dumps({name: [float(x) for x in values] for name, values in result.columns.items()}))
"""


def test_lanes_spread_over_devices(tmp_path):
    shutil.copy(__file__, tmp_path / "tests_sharded.py")
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    spread = json.loads(done.stdout.splitlines()[-1])
    alone, _ = run(random_lanes(16))
    for name, values in alone.columns.items():
        np.testing.assert_allclose(spread[name], values, rtol=1e-8, err_msg=name)
