"""The plateau finder on curves whose plateaus are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gflow.errors import InputError
from gflow.training.matrices import find_plateaus
from gflow.training.matrices.plateaus import slowness

STEPS = np.arange(0, 2001, 5)


def staircase(levels: list[float], drops: list[float], width: float) -> np.ndarray:
    """Waits at each level; logistic drops at the given steps, from 1 through the levels to the last one."""
    heights = -np.diff([1.0, *levels])
    share = 1.0 / (1.0 + np.exp(-(STEPS[:, None] - np.asarray(drops)[None]) / width))
    return 1.0 - share @ heights


def test_a_staircase_has_its_steps_as_plateaus() -> None:
    loss = staircase([0.7, 0.3, 0.001], [300, 900, 1500], 20)
    found = find_plateaus(STEPS, loss)
    assert [p.level for p in found] == pytest.approx([0.7, 0.3], rel=0.06)
    # a band of 0.1 about the level holds the wait between the drops but for their logistic tails
    for plateau, (left, right) in zip(found, [(300, 900), (900, 1500)], strict=True):
        assert left < plateau.start < left + 120
        assert right - 120 < plateau.end < right
        assert plateau.contrast > 5


@pytest.mark.parametrize(
    ("name", "loss"),
    {
        "exponential": np.exp(-STEPS / 300),
        "power law": (1 + STEPS / 20) ** -1.5,
        "late start": 1 / (1 + np.exp((STEPS - 800) / 60)),
        "one drop to a final level": 0.3 + 0.7 / (1 + np.exp((STEPS - 400) / 40)),
        "stretched": np.exp(-np.sqrt(STEPS / 50)),
        "parabola": np.exp(-((STEPS / 800) ** 2)),
        "constant": np.ones(len(STEPS)),
    }.items(),
)
def test_curves_without_an_interior_plateau(name: str, loss: np.ndarray) -> None:
    assert find_plateaus(STEPS, loss) == [], name


def test_contrast_is_the_ratio_of_the_rates() -> None:
    """u(t) with rate 1/50, 1/50/c, 1/50: exactly at the rule's contrast the wait becomes a plateau."""
    for ratio in (1.5, 1.95, 2.05, 4.0):
        u = np.interp(STEPS, [0, 50, 50 + 50 * ratio, 2001], [0, 1, 2, 2 + (2001 - 50 - 50 * ratio) / 50])
        found = find_plateaus(STEPS, np.exp(-u), length=1.0)
        assert len(found) == (1 if ratio > 2 else 0)
        if found:
            assert found[0].contrast == pytest.approx(ratio, rel=1e-9)


def test_a_wait_shorter_than_the_rule_is_none() -> None:
    loss = staircase([0.5, 0.001], [300, 500], 20)
    (found,) = find_plateaus(STEPS, loss)
    assert find_plateaus(STEPS, loss, length=found.length + 1) == []
    assert find_plateaus(STEPS, loss, length=found.length - 1) == [found]


def test_a_wait_without_a_real_descent_on_either_side_is_none() -> None:
    assert find_plateaus(STEPS, staircase([0.95, 0.001], [300, 900], 20)) == []
    assert find_plateaus(STEPS, staircase([0.5, 0.46], [300, 900], 20)) == []
    assert find_plateaus(STEPS[:170], staircase([0.5, 0.001], [300, 900], 20)[:170]) == []  # not left yet


def test_below_the_floor_nothing_counts() -> None:
    loss = staircase([0.3, 0.01, 0.0001], [300, 900, 1500], 20)
    assert [p.level for p in find_plateaus(STEPS, loss)] == pytest.approx([0.3], rel=0.06)
    assert len(find_plateaus(STEPS, loss, floor=1e-3)) == 2


def test_noise_is_no_plateau_and_hides_none() -> None:
    rng = np.random.default_rng(0)
    smooth, stairs = np.exp(-STEPS / 500), staircase([0.5, 0.001], [400, 1200], 30)
    false = missed = 0
    for _ in range(200):
        factor = np.exp(0.03 * rng.standard_normal(len(STEPS)))
        false += bool(find_plateaus(STEPS, smooth * factor, noise=0.03 * smooth))
        found = find_plateaus(STEPS, stairs * factor, noise=0.03 * stairs)
        missed += not (len(found) == 1 and 0.4 < found[0].level < 0.6)
    assert false <= 4
    assert missed <= 4


@pytest.mark.parametrize("factor", [1e-6, 3.0])
def test_scales_of_loss_and_time_do_not_matter(factor: float) -> None:
    loss = staircase([0.7, 0.3, 0.001], [300, 900, 1500], 20)
    found, scaled = find_plateaus(STEPS, loss), find_plateaus(STEPS * 7.0, loss * factor)
    assert [p.level for p in scaled] == pytest.approx([p.level for p in found])
    assert [p.length for p in scaled] == pytest.approx([7 * p.length for p in found])


def test_slowness_of_an_exponential_is_its_time_constant() -> None:
    at = np.linspace(0.1, 2.0, 7)
    slow, start, end = slowness(STEPS.astype(float), np.exp(-STEPS / 300), np.full(7, 0.1), at)
    np.testing.assert_allclose(slow, 300, rtol=1e-12)
    np.testing.assert_allclose(start, 300 * at, rtol=1e-12)
    np.testing.assert_allclose(end, 300 * (at + 0.1), rtol=1e-12)


def test_records_after_a_failure_are_ignored() -> None:
    loss = staircase([0.7, 0.3, 0.001], [300, 900, 1500], 20)
    broken = np.where(STEPS > 1700, np.nan, loss)
    assert find_plateaus(STEPS, broken) == find_plateaus(STEPS, loss)
    assert find_plateaus(STEPS, np.where(STEPS > 0, np.nan, loss)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": np.zeros(len(STEPS))}, "loss = 0 is not positive"),
        ({"steps": np.zeros(len(STEPS))}, "steps do not increase"),
    ],
)
def test_what_is_no_curve_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_plateaus(**({"steps": STEPS, "loss": np.exp(-STEPS / 300)} | change))
