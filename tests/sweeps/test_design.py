"""The grid: values of the axes, lanes in the order of the product, chunks that cover it once, lanes that cannot be."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gflow.config.sweep import sweep_config
from gflow.errors import InputError
from gflow.sweeps.chunks import Chunks, chunk_shape
from gflow.sweeps.design import Grid


def grid(axes: Any = None, zipped: Any = None, fixed: Any = None, **options: Any) -> Grid:
    table = {"axes": axes or {}, "zip": zipped or {}, "fixed": fixed or {}, "options": options}
    return Grid.of(sweep_config(table))


def all_lanes(of: Grid) -> list[tuple[Any, ...]]:
    """Every lane by its place in the grid, put together from the chunks."""
    whole = np.full(of.shape, None, dtype=object)
    for index in range(len(of.chunks)):
        lanes = of.lanes(index)
        part = np.empty(of.chunks.lanes(index), dtype=object)
        part[:] = list(zip(*lanes.values(), strict=True))
        region = of.chunks.region(index)
        assert all(lane is None for lane in whole[region].ravel())
        whole[region] = part.reshape(whole[region].shape)
    return list(whole.ravel())


def test_a_product_and_a_zip_in_chunks() -> None:
    made = grid(
        {"L": [100, 200, 300, 400, 500], "parametrization": ["tied", "untied", "tied"]},
        {"sigma_init": [0.1, 0.2], "tokens": ["uniform", "gaussian"]},
        chunk=4,
    )
    assert made.shape == (5, 3, 2)
    assert made.chunks.chunk == (1, 3, 1)  # lengths and laws decide the tables, so these are cut
    together = [(0.1, "uniform"), (0.2, "gaussian")]
    product = itertools.product([100, 200, 300, 400, 500], ["tied", "untied", "tied"], together)
    assert all_lanes(made) == [(L, kind, *both) for L, kind, both in product]
    assert made.coordinates(1, 2) == {"L": 100.0, "parametrization": "tied", "sigma_init": 0.2, "tokens": "gaussian"}


def test_spaced_values_have_the_ends_that_are_written() -> None:
    made = grid({"L": {"logspace": [100, 1e6, 21], "round": True}, "sigma_init": {"linspace": [0.1, 0.7, 4]}})
    L, sigma = (dim.keys[dim.name].numbers for dim in made.dims)
    assert (L[0], L[-1], len(L)) == (100, 1e6, 21)
    np.testing.assert_array_equal(L, np.rint(L))
    np.testing.assert_allclose(L, 100 * 10 ** (np.arange(21) / 5), rtol=5e-3)
    np.testing.assert_allclose(sigma, [0.1, 0.3, 0.5, 0.7], rtol=1e-15)


@pytest.mark.parametrize(
    ("law", "numbers", "expected"),
    [
        ("uniform", {"low": 2, "high": 5}, stats.uniform(2, 3)),
        ("loguniform", {"low": 1e-6, "high": 1e-1}, stats.loguniform(1e-6, 1e-1)),
        ("normal", {"mean": 3, "sd": 0.5}, stats.norm(3, 0.5)),
        ("lognormal", {"mean": -2, "sd": 0.5}, stats.lognorm(0.5, scale=np.exp(-2))),
    ],
)
def test_random_designs_follow_their_law_and_their_seed(law: str, numbers: dict[str, float], expected: Any) -> None:
    def drawn(key: str, seed: int) -> np.ndarray:
        made = grid({key: {"random": {"law": law, "n": 4000, "seed": seed, **numbers}}})
        found = made.dims[0].keys[key].numbers
        assert found is not None
        return found

    first = drawn("w_star", 1)
    assert stats.kstest(first, expected.cdf).pvalue > 1e-3
    np.testing.assert_array_equal(first, drawn("w_star", 1))
    # another seed, or another key with the same seed, is independent
    for other in (drawn("w_star", 2), drawn("alpha_star", 1)):
        assert abs(stats.spearmanr(first, other).statistic) < 0.06


@pytest.mark.parametrize(
    ("shape", "keys", "wanted", "expected"),
    [
        ((20, 50, 10, 4), ["L", "sigma_init", "alpha_star", "w_star"], 4096, (7, 50, 10, 1)),
        ((20, 50, 10, 4), ["L", "sigma_init", "alpha_star", "w_star"], 900, (1, 50, 10, 1)),
        ((20, 50, 10, 4), ["L", "sigma_init", "alpha_star", "w_star"], 300, (1, 25, 10, 1)),
        ((20, 2), ["L", "tokens"], 20, (20, 1)),
        ((10**6,), ["sigma_init"], 4096, (4082,)),
        ((7,), ["sigma_init"], 100, (7,)),
        ((5, 3), ["sigma_init", "d"], 1, (1, 1)),
    ],
)
def test_shape_of_a_chunk(shape: Any, keys: list[str], wanted: int, expected: Any) -> None:
    assert chunk_shape(shape, [(key,) for key in keys], wanted, fast=True) == expected


def test_slow_lanes_have_small_chunks() -> None:
    assert grid({"L": {"linspace": [10, 20, 2000]}}).chunks.chunk == (500,)
    slow = grid({"L": {"linspace": [10, 20, 2000]}}, fixed={"tokens": "gaussian", "evaluate": "sampled"})
    assert slow.chunks.chunk == (16,)
    assert len(grid({"L": {"linspace": [10, 20, 10**7]}}, fixed={"evaluate": "sampled"}).chunks) == 4000


def test_chunks_cover_the_grid_once() -> None:
    chunks = Chunks((5, 7, 3), (2, 3, 2))
    seen = np.zeros(chunks.shape, int)
    for index in range(len(chunks)):
        seen[chunks.region(index)] += 1
        assert seen[chunks.region(index)].size == chunks.lanes(index)
    assert np.all(seen == 1)


def test_numbers_out_of_range_fail_in_their_lanes_alone() -> None:
    made = grid({"sigma_init": [0.1, 0.0, float("nan"), 11, 0.2], "L": [2, 40]}, chunk=100)
    np.testing.assert_array_equal(made.valid(0), [0, 1, 0, 0, 0, 0, 0, 0, 0, 1])
    reasons = dict(made.reasons(0, ~made.valid(0)))
    assert set(reasons) == {0, 2, 3, 4, 5, 6, 7, 8}
    assert "L = 2 is out of range" in reasons[0]
    assert "sigma_init = 0 is out of range" in reasons[3]
    assert "sigma_init = nan is not a finite number" in reasons[5]
    kept = made.lanes(0, made.valid(0))
    assert kept["sigma_init"].tolist() == [0.1, 0.2]


def test_combinations_that_do_not_fit_together_fail_in_their_lanes() -> None:
    made = grid({"d": [1, 2, 2.5], "tokens": ["gaussian", "uniform"]}, chunk=100)
    np.testing.assert_array_equal(made.valid(0), [1, 1, 1, 0, 0, 0])
    assert "d = 2 needs gaussian tokens" in dict(made.reasons(0, ~made.valid(0)))[3]
    made = grid({"training": ["second-layer", "joint"], "L": [40, 40.5]}, chunk=100)
    np.testing.assert_array_equal(made.valid(0), [1, 1, 1, 0])
    assert "L = 40.5 is not a whole number" in dict(made.reasons(0, ~made.valid(0)))[3]
    made = grid({"parametrization": ["untied", "tied"], "wK_init": [0.1, 0.2]}, chunk=100)
    np.testing.assert_array_equal(made.valid(0), [1, 1, 0, 0])
    # together in a zip only the pairs that are there count
    made = grid(zipped={"d": [1, 2], "tokens": ["uniform", "gaussian"]})
    assert made.valid(0).all()


def test_validity_is_that_of_the_configuration_lane_by_lane() -> None:
    """The vectorised check against the configuration's own, on everything at once."""
    from gflow.config.sweep import lane_config

    made = grid(
        {
            "L": [3.9, 4, 40.5, 1e12, 2e12, float("inf")],
            "d": [0, 1, 2, 1.5, 4096, 4097],
            "training": ["second-layer", "layerwise", "joint"],
            "evaluate": ["exact", "sampled"],
            "tokens": ["gaussian", {"values": [-1, 1], "probabilities": [0.5, 0.5]}],
            "seed": [0, 2**63 - 1],
        },
        fixed={"p11_until": 2.0, "samples": 128},
        chunk=10**6,
    )
    lanes = made.lanes(0)
    valid = made.valid(0)
    for i in range(made.size):
        lane = {key: values[i] for key, values in lanes.items()}
        lane = {key: v.item() if isinstance(v, np.generic) else v for key, v in lane.items()}
        try:
            assert lane_config(made.config.fixed, lane).seed == lane["seed"]
            expected = True
        except InputError:
            expected = False
        assert valid[i] == expected, lane
    assert 0.1 < valid.mean() < 0.4


def test_reasons_are_those_of_the_configuration() -> None:
    from gflow.config.sweep import lane_config

    made = grid(
        {"L": [3, 40, 40.5, float("nan")], "sigma_init": [0, 0.1], "training": ["second-layer", "joint"], "d": [1, 2]},
        {"tokens": ["gaussian", "uniform"], "wK_init": [0.1, -1]},
        fixed={"evaluate": "sampled"},
        chunk=10**3,
    )
    bad = ~made.valid(0)
    reasons = made.reasons(0, bad)
    assert [lane for lane, _ in reasons] == np.flatnonzero(bad).tolist()
    lanes = made.lanes(0)
    for i, reason in reasons:
        lane = {key: values[i] for key, values in lanes.items()}
        with pytest.raises(InputError) as refused:
            lane_config(made.config.fixed, {k: v.item() if isinstance(v, np.generic) else v for k, v in lane.items()})
        assert str(refused.value) == reason


def test_a_sweep_whose_numbers_are_all_bad_still_has_lanes() -> None:
    made = grid({"sigma_init": [0, -1]})
    assert not made.valid(0).any()
    made = grid({"L": [40.5]}, fixed={"training": "joint"})
    assert not made.valid(0).any()


def test_a_million_lanes_are_laid_out_in_no_time() -> None:
    started = time.perf_counter()
    made = grid(
        {},
        {
            "sigma_init": {"random": {"law": "loguniform", "low": 1e-7, "high": 0.1, "n": 10**6}},
            "L": {"random": {"law": "normal", "mean": 100, "sd": 30, "n": 10**6}},
        },
    )
    valid = [made.valid(index) for index in range(len(made.chunks))]
    count = sum(len(made.lanes(index, ok)["L"]) for index, ok in enumerate(valid))
    assert time.perf_counter() - started < 2.0
    # L below 4 lies 3.2 standard deviations away
    assert 10**6 - count == pytest.approx(10**6 * stats.norm.cdf(-3.2), rel=0.2)
