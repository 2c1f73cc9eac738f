"""Selection of laws: synthetic data with noise, flows whose laws are known, the flagship; slopes with intervals."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.losses.chain import ChainLoss
from gflow.theory.laws import LAWS, power_exponent, regression, select_law
from gflow.theory.manifold import escape_times
from gflow.theory.plateau import growth_rate, plateau_level

SCALES = np.geomspace(1e-2, 1e-8, 13)
LOG = np.log(1.0 / SCALES)
# name -> (times, the law that made them)
TRUTHS: dict[str, tuple[np.ndarray, str]] = {
    "log": (3.0 + 2.0 * LOG, "log"),
    "log alone": (LOG, "log"),
    "log^1.05": (3.0 + 2.0 * LOG**1.05, "log-power"),
    "power 0.1": (3.0 + 2.0 * SCALES**-0.1, "power"),
    "power 0.5": (2.0 + SCALES**-0.5, "power"),
    "1/s": (2.0 + 1.0 / SCALES, "power"),
    "constant": (np.full(13, 4.0), "constant"),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_exact_data(name: str) -> None:
    times, law = TRUTHS[name]
    found = select_law(SCALES, times)
    assert found.winner == law
    assert found.decisive
    assert found.laws[law].out_of_sample < 1e-6
    assert repr(found).startswith(f"{law}: ")


@pytest.mark.parametrize("noise", [1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("name", TRUTHS)
def test_noisy_data_are_never_called_by_another_law(name: str, noise: float) -> None:
    """Eight draws at each level: the law that made them, or undecided; decided wherever the noise allows it."""
    times, law = TRUTHS[name]
    rng = np.random.default_rng([7, int(-math.log10(noise))])
    verdicts = []
    for _ in range(8):
        seen = times * np.abs(1.0 + noise * rng.standard_normal(times.size))
        verdicts.append(select_law(SCALES, seen, noise * times).verdict)
    assert set(verdicts) <= {law, "undecided"}
    if noise <= 1e-4:
        assert verdicts.count(law) == 8


@pytest.mark.parametrize("name", ["log", "log^1.05", "power 0.1"])
def test_errors_that_are_not_told(name: str) -> None:
    """Noise of 3e-4 that the caller does not mention is measured by the best law's residuals."""
    times, law = TRUTHS[name]
    rng = np.random.default_rng(8)
    verdicts = {select_law(SCALES, times * (1.0 + 3e-4 * rng.standard_normal(13))).verdict for _ in range(8)}
    assert verdicts <= {law, "undecided"}


def test_noise_too_large_to_decide() -> None:
    rng = np.random.default_rng(1)
    for name in ("log", "power 0.1", "constant"):
        times = TRUTHS[name][0]
        found = select_law(SCALES, times * np.abs(1.0 + 0.2 * rng.standard_normal(13)), 0.2 * times)
        assert found.winner is None
        assert not found.decisive
        assert found.verdict == "undecided"
        assert "do not tell" in found.reason


def test_no_law_fits() -> None:
    """A time that oscillates with log(1/s), and one that jumps where the unseen data begin."""
    for times in (10.0 + 5.0 * np.sin(LOG), np.where(SCALES > 3e-6, 1.0, 50.0) + LOG):
        found = select_law(SCALES, times, 1e-6 * times)
        assert found.winner is None
        assert found.decisive
        assert found.verdict == "none"


def test_intervals_cover_the_truth() -> None:
    """95% intervals of b and p hold the truth in about 95 of 100 draws (and in 88 at least)."""
    rng = np.random.default_rng(2)
    times = TRUTHS["power 0.5"][0]
    inside = {"a": 0, "b": 0, "p": 0}
    for _ in range(100):
        law = select_law(SCALES, times * (1.0 + 0.01 * rng.standard_normal(13)), 0.01 * times, ["power"]).laws["power"]
        for key, value in (("a", 2.0), ("b", 1.0), ("p", 0.5)):
            low, high = law.intervals[key]
            assert low <= law.parameters[key] <= high
            inside[key] += low <= value <= high
    assert all(88 <= count <= 100 for count in inside.values()), inside


def _chain(depth: int, scales: np.ndarray) -> tuple[list[Any], list[Any]]:
    half = {"half": gflow.Above(lambda w: w, 0.5)}
    found = [
        gflow.solve(ChainLoss(depth), jnp.asarray(s), milestones=half, rtol=1e-10).milestones["half"] for s in scales
    ]
    return [one.time for one in found], [one.error for one in found]


def test_chain_of_depth_two_is_a_logarithm() -> None:
    scales = np.geomspace(1e-2, 1e-8, 10)
    times, errors = _chain(2, scales)
    loss = ChainLoss(2)
    np.testing.assert_allclose(times, [float(loss.time(jnp.asarray(0.5), jnp.asarray(s))) for s in scales], rtol=1e-8)
    found = select_law(scales, times, errors)
    assert found.winner == "log"
    assert found.laws["log"].parameters["b"] == pytest.approx(1.0, abs=1e-5)


def test_chain_of_depth_three_is_a_power() -> None:
    """T = 1/s + const + O(s)."""
    scales = np.geomspace(1e-1, 1e-5, 10)
    times, errors = _chain(3, scales)
    found = select_law(scales, times, errors)
    assert found.winner == "power"
    assert found.laws["power"].parameters["p"] == pytest.approx(1.0, abs=2e-4)
    assert found.laws["log"].out_of_sample > 0.5
    # of the laws with nothing to fit but a line, 1/s
    assert select_law(scales, times, errors, ["constant", "log", "inverse"]).winner == "inverse"


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_the_flagship_leaves_its_plateau_by_the_logarithm(kind: str) -> None:
    """T_III of `solve` against sigma = 1e-2..1e-8, and against the small-sigma prediction: b = 1/g."""
    problem = gflow.InductionProblem(60, 1.0, 0.6, parametrization=kind)
    loss = problem.population_loss()
    wanted = {"T_III": problem.milestones()["T_III"]}
    scales = np.geomspace(1e-2, 1e-8, 9)
    runs = [gflow.solve(gflow.GradientFlow(loss), problem.initial_params(s), milestones=wanted) for s in scales]
    times = [run.milestones["T_III"].time for run in runs]
    found = select_law(scales, times, [run.milestones["T_III"].error for run in runs])
    assert found.winner == "log"
    slope = 1.0 / growth_rate(loss.induction, kind)
    small = select_law(scales[2:], times[2:]).laws["log"]
    assert small.parameters["b"] == pytest.approx(slope, rel=1e-4)
    levels = {"T_III": 0.01 * plateau_level(loss.induction)}
    predicted = [escape_times(loss.induction, kind, s, levels)["T_III"] for s in scales]
    assert select_law(scales, predicted).winner == "log"
    # without the product structure the wait does not grow (once sigma is small)
    merged = gflow.InductionProblem(60, 1.0, 0.6, parametrization="merged")
    flow, wanted = gflow.GradientFlow(merged.population_loss()), {"T_III": merged.milestones()["T_III"]}
    waits = [
        gflow.solve(flow, merged.initial_params(s), milestones=wanted).milestones["T_III"].time for s in scales[3:]
    ]
    assert select_law(scales[3:], waits).winner == "constant"


def test_growth_in_a_large_variable() -> None:
    """T = n log 10 in n: a power of the scale 1/n with p = 1."""
    n = np.geomspace(10.0, 1e5, 9)
    found = select_law(1.0 / n, n * math.log(10.0))
    assert found.winner == "power"
    assert found.laws["power"].parameters["p"] == pytest.approx(1.0, abs=1e-6)
    # scales above 1 have no logarithm to take powers of
    wide = select_law(np.geomspace(10.0, 1e-3, 9), 1.0 + 1.0 / np.geomspace(10.0, 1e-3, 9))
    assert math.isinf(wide.laws["log"].out_of_sample)
    assert wide.winner == "power"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCALES[:4], LOG[:4]), "too few"),
        ((SCALES, LOG[:5]), "differ in length"),
        ((-SCALES, LOG), "positive"),
        ((SCALES, np.full(13, np.nan)), "finite"),
        ((SCALES, LOG, None, ["logg"]), "did you mean 'log'"),
        ((SCALES, LOG, None, []), "empty"),
        ((SCALES, LOG, LOG[:3]), "3 errors for 13"),
        ((SCALES, ["a"] * 13), "expected numbers"),
    ],
)
def test_data_that_cannot_be_used(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(gflow.InputError, match=message):
        select_law(*arguments)


def test_regression_against_the_textbook() -> None:
    """Slope, and Student's interval: x = 1..5, residuals known (computed by hand: s^2 = 0.4/3, Sxx = 10)."""
    found = regression([1.0, 2.0, 3.0, 4.0, 5.0], [1.2, 1.9, 3.0, 4.1, 4.8])
    assert found.slope == pytest.approx(0.94)
    residuals = np.array([1.2, 1.9, 3.0, 4.1, 4.8]) - (found.intercept + 0.94 * np.arange(1.0, 6.0))
    half = 3.1824463052842638 * math.sqrt(float(residuals @ residuals) / 3.0 / 10.0)
    assert (found.low, found.high) == pytest.approx((0.94 - half, 0.94 + half))
    assert found.error == pytest.approx(half)
    assert "5 points" in repr(found)
    with pytest.raises(gflow.InputError, match="3 points"):
        regression([1.0, 2.0], [1.0, 2.0])


def test_power_exponent() -> None:
    x = np.geomspace(10.0, 1e4, 7)
    assert power_exponent(x, 3.0 * x**1.5).slope == pytest.approx(1.5)
    with pytest.raises(gflow.InputError, match="positive"):
        power_exponent(x, -x)
    assert set(LAWS) >= {"constant", "log", "power", "log-power", "inverse"}
