"""Theory against trajectories of `gflow.solve`: slope in log(1/sigma), late times, decay, what is conserved."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.theory import limits, plateau


@pytest.fixture(scope="module")
def problem() -> gflow.InductionProblem:
    return gflow.InductionProblem(40, 1.0, 0.49)


@pytest.fixture(scope="module")
def long_run(problem: gflow.InductionProblem) -> Any:
    """From wK = 0.03, wQ = 0.01 (their difference of squares is not 0) to t = 3e4, long after T_III."""
    wK, others = jnp.asarray(3e-2), jnp.asarray(1e-2)
    start = gflow.UntiedParams(others, others, others, wK, others)
    return gflow.solve(gflow.GradientFlow(problem.population_loss()), start, t1=3e4)


def test_slope_in_log_one_over_sigma(problem: gflow.InductionProblem) -> None:
    """dT_II, dT_III over d log(1/sigma) between sigma = 1e-6 and 1e-8 is 1/g."""
    wanted = {key: problem.milestones()[key] for key in ("T_II", "T_III")}
    flow = gflow.GradientFlow(problem.population_loss())
    runs = [gflow.solve(flow, problem.initial_params(sigma), milestones=wanted) for sigma in (1e-6, 1e-8)]
    slope = plateau.slope(problem.population_loss().induction, "untied")
    for key in wanted:
        near, far = (run.milestones[key].time for run in runs)
        assert (far - near) / math.log(100.0) == pytest.approx(slope, rel=1e-5), key


def test_late_times_of_the_fourgram_part(long_run: Any) -> None:
    """Loss_G4 * 4t -> 1 and p21 - 1/2 log(2 A_g^2 t) -> 0, ever closer."""
    times = np.array([1e3, 5e3, 3e4])
    ratio = np.asarray(long_run.losses_at(times)["fourgram"]) / [limits.fourgram_late(t) for t in times]
    lag = np.asarray(long_run.at(times).p21) - [limits.p21_late(t, 1.0) for t in times]
    for distance in (np.abs(ratio - 1.0), np.abs(lag)):
        assert np.all(np.diff(distance) < 0)
        assert distance[-1] < 2e-3


def test_final_decay_of_the_induction_part(long_run: Any, problem: gflow.InductionProblem) -> None:
    """Where Loss_IH is far below its plateau its logarithm falls at twice the smallest non-zero eigenvalue."""
    induction = problem.population_loss().induction
    rate = plateau.final_decay_rate(induction, "untied")
    level = plateau.plateau_level(induction)
    losses = np.asarray(long_run.losses["induction"])
    # distances from the minimum of 1e-3 or less, and still far above the table's error
    inside = np.flatnonzero((losses < 1e-6 * level) & (losses > 1e-9 * level))
    first, last = inside[0], inside[-1]
    span = long_run.ts[last] - long_run.ts[first]
    assert span * rate > 2.0
    assert math.log(losses[first] / losses[last]) / span == pytest.approx(rate, rel=5e-3)


def test_wK2_minus_wQ2_is_conserved(long_run: Any) -> None:
    kept = np.asarray(limits.conserved(long_run.params))
    np.testing.assert_allclose(kept, 8e-4, atol=1e-8, rtol=0)
    assert np.ptp(long_run.params.wK) > 0.3
