"""The sampled loss against exact ones: how often its intervals hold the truth, over 200 random parameter points."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from gflow import tokens
from gflow.losses.induction import InductionProblem, UntiedParams, sequence_losses

POINTS = 200
SKEW = tokens.finite([-0.5, 1.0, 2.0], [0.5, 0.3, 0.2])

_parts = eqx.filter_jit(lambda loss, params: loss.parts(params))
_errors = eqx.filter_jit(lambda loss, params: loss.standard_error(params))


def _random_params(rng: np.random.Generator, finite: bool, low: float = -0.2, high: float = 1.0) -> UntiedParams:
    values = rng.uniform([0, -0.2, -0.2, low, 0.2, 0], [2, 0.7, 0.9, high, high, 3])
    numbers = [jnp.asarray(v) for v in values]
    return UntiedParams(*numbers[:5], numbers[5] if finite else None)


def _ratios(
    problem: InductionProblem, truth: Callable[[Any], Any], each: int, finite: bool, points: str
) -> dict[str, np.ndarray]:
    """(sampled - exact) / standard error of each part: every point has scrambles of its own, so all are independent."""
    rng = np.random.default_rng(11)
    rows: dict[str, list[float]] = {"fourgram": [], "induction": []}
    for seed in range(POINTS):
        params = _random_params(rng, finite)
        loss = problem.sampled_loss(8 * each, seed=seed, exact_fourgram=False, points=points)
        parts, errors, exact = _parts(loss, params), _errors(loss, params), truth(params)
        for name, row in rows.items():
            row.append(float((parts[name] - exact[name]) / errors[name]))
    return {name: np.array(row) for name, row in rows.items()}


def _covers_like_student(ratios: dict[str, np.ndarray]) -> None:
    for row in ratios.values():
        assert np.all(np.isfinite(row))
        for level in (0.5, 0.8, 0.95):
            inside = int(np.sum(np.abs(row) <= scipy.stats.t.ppf(0.5 + level / 2, 7)))
            assert scipy.stats.binomtest(inside, POINTS, level).pvalue > 0.01, (level, inside)
        assert scipy.stats.kstest(row, scipy.stats.t(7).cdf).pvalue > 0.01


def test_infinite_p11_against_the_exact_loss() -> None:
    problem = InductionProblem(8.0, 1.3, 0.9)
    exact = problem.population_loss()
    _covers_like_student(_ratios(problem, lambda p: _parts(exact, p), 1024, finite=False, points="sobol"))


def test_finite_p11_against_all_sequences_of_a_law_with_a_mean() -> None:
    problem = InductionProblem(6.0, 1.3, 0.9, tokens=SKEW)
    nodes, weights = np.asarray(SKEW.nodes), np.asarray(SKEW.weights)
    index = np.array(list(itertools.product(range(3), repeat=6)))
    x, probability = jnp.asarray(nodes[index][..., None]), jnp.asarray(np.prod(weights[index], axis=1))

    @jax.jit
    def enumerated(params: Any) -> dict[str, jax.Array]:
        fourgram, induction = sequence_losses(params, x, 1.3, 0.9)
        return {"fourgram": probability @ fourgram, "induction": probability @ induction}

    # Sobol points under a finite law err in jumps, not like a Gaussian: Student's claim is about independent ones
    _covers_like_student(_ratios(problem, enumerated, 1024, finite=True, points="random"))


@pytest.mark.slow
def test_finite_p11_against_the_transfer_operator() -> None:
    """Gaussian tokens, every parameter point within four standard errors of one large sample."""
    problem = InductionProblem(5.0, 1.3, 0.6)
    exact, rng = problem.full_loss(), np.random.default_rng(12)
    loss = problem.sampled_loss(2**16, exact_fourgram=False)
    for _ in range(POINTS):
        params = _random_params(rng, True, low=0.0, high=0.6)  # within the exact table
        parts, errors, truth = _parts(loss, params), _errors(loss, params), _parts(exact, params)
        for name in ("fourgram", "induction"):
            assert abs(float(parts[name] - truth[name])) < 4 * float(errors[name]) + 1e-6
