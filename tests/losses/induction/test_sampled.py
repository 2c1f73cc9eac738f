"""The sampled loss against the definitions, enumeration, the exact loss and its own claims about its error."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from gflow import tokens
from gflow.errors import InputError
from gflow.losses.induction import (
    InductionProblem,
    MatrixParams,
    MergedParams,
    SampledLoss,
    TiedParams,
    UntiedParams,
    sample_loss,
    sequence_losses,
)
from gflow.losses.induction.sampled._points import sequences

GAUSSIAN = tokens.gaussian()
SKEW = tokens.finite([-0.5, 1.0, 2.0], [0.5, 0.3, 0.2])


def _params(p21: Any, v1: Any, v2: Any, wK: Any, wQ: Any, p11: Any = None) -> UntiedParams:
    return UntiedParams(*(None if v is None else jnp.asarray(float(v)) for v in (p21, v1, v2, wK, wQ, p11)))


def _random_params(rng: np.random.Generator, finite: bool) -> UntiedParams:
    return _params(
        *rng.uniform([0, -0.2, -0.2, -0.2, 0.2], [2, 0.7, 0.9, 1.0, 1.0]), rng.uniform(0, 3) if finite else None
    )


_parts = eqx.filter_jit(lambda loss, params: loss.parts(params))
_scramble_parts = eqx.filter_jit(lambda loss, params: loss.scramble_parts(params))
_errors = eqx.filter_jit(lambda loss, params: loss.standard_error(params))
_gradient = eqx.filter_jit(lambda loss, params: jax.grad(lambda p: loss(p))(params))
_hessian = eqx.filter_jit(lambda loss, params: jax.jacfwd(jax.grad(lambda p: loss(p)))(params))


def _sequences_of(loss: SampledLoss) -> jax.Array:
    """[N, L, d]."""
    x = loss.induction.sample.tokens
    return jnp.moveaxis(x, 3, 1).reshape(-1, *x.shape[1:3])


@eqx.filter_jit
def _means(params: Any, x: jax.Array, alpha: Any, w_star: Any) -> Any:
    def mean(p: Any) -> Any:
        fourgram, induction = sequence_losses(p, x, alpha, w_star)
        return jnp.mean(fourgram) + jnp.mean(induction), (jnp.mean(fourgram), jnp.mean(induction))

    (_, parts), gradient = jax.value_and_grad(mean, has_aux=True)(params)
    return parts, gradient


def _close(a: Any, b: Any, tolerance: float = 1e-12) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("d", "p11"), [(1, 0.4), (3, 0.4), (2, None)])
def test_it_is_the_mean_over_its_sequences(d: int, p11: float | None) -> None:
    """Value and gradient (which comes from a pass of its own) against autodiff of the plain forward pass."""
    loss = sample_loss(GAUSSIAN, 7, 1.5, 0.8, d, samples=256, scrambles=4, exact_fourgram=False, chunk=16)
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, p11)
    parts, gradient = _means(params, _sequences_of(loss), 1.5, 0.8)
    _close(list(_parts(loss, params).values()), parts)
    _close(_gradient(loss, params), gradient)


def test_hessian_is_the_slope_of_the_gradient() -> None:
    loss = sample_loss(GAUSSIAN, 7, 1.5, 0.8, samples=256, scrambles=4, exact_fourgram=False, chunk=16)
    y = jnp.asarray([0.3, 0.4, 0.6, 0.9, 0.7, 0.4])
    hessian = np.array(jax.tree.leaves(_hessian(loss, UntiedParams(*y)))).reshape(6, 6)
    for i, step in enumerate(1e-5 * jnp.eye(6)):
        up, down = (np.array(jax.tree.leaves(_gradient(loss, UntiedParams(*v)))) for v in (y + step, y - step))
        np.testing.assert_allclose(hessian[i], (up - down) / 2e-5, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "merged", "matrices"])
def test_every_kind_of_parameters(kind: str) -> None:
    loss = sample_loss(GAUSSIAN, 6, 1.5, 0.8, 2, samples=128, scrambles=4, exact_fourgram=False)
    number = jnp.asarray
    rng = np.random.default_rng(0)
    params = {
        "tied": TiedParams(number(0.3), number(0.4), number(0.6), number(0.9), number(0.5)),
        "merged": MergedParams(number(0.3), number(0.4), number(0.6), number(-0.2), number(0.5)),
        "matrices": MatrixParams(number(0.3), *map(number, rng.standard_normal((4, 2, 2))), number(0.5)),
    }[kind]
    parts, gradient = _means(params, _sequences_of(loss), 1.5, 0.8)
    _close(list(_parts(loss, params).values()), parts)
    _close(_gradient(loss, params), gradient)


def test_isotropic_matrices_are_the_isotropic_model() -> None:
    for exact in (False, True):
        loss = sample_loss(GAUSSIAN, 6, 1.5, 0.8, 2, samples=128, scrambles=4, exact_fourgram=exact)
        scalar = _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
        one = jnp.eye(2)
        matrices = MatrixParams(scalar.p21, 0.4 * one, 0.6 * one, 0.9 * one, 0.7 * one, scalar.p11)
        _close(_scramble_parts(loss, scalar), _scramble_parts(loss, matrices))


def test_chunks_do_not_matter() -> None:
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
    draw = functools.partial(sample_loss, GAUSSIAN, 9, 1.0, 1.0, samples=512, scrambles=4, exact_fourgram=False)
    small, large = draw(chunk=8), draw(chunk=512)
    assert small.induction.sample.tokens.shape[0] == 64
    assert large.induction.sample.tokens.shape[0] == 4
    _close(_scramble_parts(small, params), _scramble_parts(large, params))
    _close(_gradient(small, params), _gradient(large, params))


def test_long_sequences_need_no_second_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
    draw = functools.partial(sample_loss, SKEW, 9, 1.0, 1.0, samples=64, scrambles=4, exact_fourgram=False)
    short = draw()
    monkeypatch.setattr("gflow.losses.induction.sampled._draw.MOMENTS_UP_TO", 5)
    long = draw()
    assert short.fourgram.moments is not None
    assert long.fourgram.moments is None
    _close(_scramble_parts(short, params), _scramble_parts(long, params))
    _close(_gradient(short, params), _gradient(long, params))


def test_standard_errors_are_those_of_the_scrambles() -> None:
    loss = sample_loss(GAUSSIAN, 8, 1.0, 1.0, samples=512, scrambles=8, exact_fourgram=False)
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
    alone = [_parts(loss.scramble(i), params) for i in range(8)]
    each = {k: np.array([float(a[k]) for a in alone]) for k in ("fourgram", "induction")}
    each["total"] = each["fourgram"] + each["induction"]
    errors, interval = _errors(loss, params), loss.interval(params, level=0.9)
    for name, values in each.items():
        expected = values.std(ddof=1) / np.sqrt(8)
        np.testing.assert_allclose(errors[name], expected, rtol=1e-9)
        low, high = scipy.stats.t.interval(0.9, 7, loc=values.mean(), scale=expected)
        np.testing.assert_allclose([interval[name][0], interval[name][1]], [low, high], rtol=1e-9)
    half = scipy.stats.t.ppf(0.975, 7) * float(errors["total"])
    np.testing.assert_allclose(loss.error_bound(params), half, rtol=1e-12)
    assert np.isinf(float(loss.scramble(2).error_bound(params)))
    gradients = [_gradient(loss.scramble(i), params) for i in range(8)]
    spread = jax.tree.map(lambda *g: np.std(np.array(g), ddof=1) / np.sqrt(8), *gradients)
    _close(eqx.filter_jit(lambda loss, p: loss.gradient_error(p))(loss, params), spread, 1e-10)


def _enumerated(law: tokens.TokenLaw, L: int, params: Any, alpha: float, w_star: float) -> tuple[float, float]:
    """Both parts of the population loss of a finite law: the mean over all its sequences."""
    nodes, weights = np.asarray(law.nodes), np.asarray(law.weights)
    index = np.array(list(itertools.product(range(len(nodes)), repeat=L)))
    parts = eqx.filter_jit(sequence_losses)(params, jnp.asarray(nodes[index][..., None]), alpha, w_star)
    probability = np.prod(weights[index], axis=1)
    fourgram, induction = (float(probability @ np.asarray(part)) for part in parts)
    return fourgram, induction


@pytest.mark.parametrize("p11", [None, 0.7])
def test_every_sequence_of_a_small_law(p11: float | None) -> None:
    """Rademacher tokens, L = 5: all 32 sequences are enumerated, and a Sobol net holds each about equally often."""
    law = tokens.rademacher()
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, p11)
    fourgram, induction = _enumerated(law, 5, params, 1.5, 0.8)
    for exact in (True, False):
        loss = sample_loss(law, 5, 1.5, 0.8, samples=8 * 4096, exact_fourgram=exact)
        parts, errors = _parts(loss, params), _errors(loss, params)
        for value, name in ((fourgram, "fourgram"), (induction, "induction")):
            assert abs(float(parts[name]) - value) < 5 * float(errors[name]) + 1e-14
        if exact:
            assert abs(float(parts["fourgram"]) - fourgram) < 1e-14
        assert float(errors["induction"]) < 1e-3 * induction


@pytest.mark.parametrize("p11", [None, 0.0, 0.7, 40.0])
def test_law_with_a_mean(p11: float | None) -> None:
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, p11)
    fourgram, induction = _enumerated(SKEW, 6, params, 1.5, 0.8)
    exact = sample_loss(SKEW, 6, 1.5, 0.8, samples=8192)
    assert abs(float(_parts(exact, params)["fourgram"]) - fourgram) < 1e-13
    sampled = sample_loss(SKEW, 6, 1.5, 0.8, samples=8192, exact_fourgram=False)
    parts, errors = _parts(sampled, params), _errors(sampled, params)
    for value, name in ((fourgram, "fourgram"), (induction, "induction")):
        assert abs(float(parts[name]) - value) < 4 * float(errors[name])
        assert float(errors[name]) < 0.02 * value


@pytest.mark.parametrize("finite", [False, True])
def test_fourgram_part_is_the_composed_attention(finite: bool) -> None:
    """Against weights composed by loops: second-layer softmax over keys, each key a softmax over earlier tokens."""
    rng = np.random.default_rng(3)
    loss = sample_loss(SKEW, 10, 2.0, 0.8, samples=64, scrambles=4)
    mu, s2 = float(SKEW.mean), float(SKEW.variance)
    for _ in range(5):
        params = _random_params(rng, finite)
        n, p21, v1, A = 8, float(params.p21), float(params.v1), 2.0 / 3.0
        c = np.zeros(n)
        outer = scipy.special.softmax(-p21 * (n - np.arange(1, n + 1)))
        for k in range(1, n + 1):
            if params.p11 is None:
                c[k - 1] += outer[k - 1]
                continue
            inner = scipy.special.softmax(-float(params.p11) * np.arange(k))
            for j in range(k):
                c[k - j - 1] += outer[k - 1] * inner[j]
        wanted = 0.5 * (s2 * (A * A - 2 * A * v1 * c[-1] + v1 * v1 * np.sum(c**2)) + mu**2 * (A - v1) ** 2)
        np.testing.assert_allclose(_parts(loss, params)["fourgram"], wanted, rtol=1e-12)


@pytest.mark.parametrize("law", ["gaussian", "uniform", "rademacher", "skew"])
def test_points_follow_the_law(law: str) -> None:
    chosen = SKEW if law == "skew" else tokens.from_name(law)
    x = sequences(chosen, 5, 2, 4096, seed=1, stream=0)
    assert x.shape == (5, 2, 4096)
    # every coordinate of a scrambled net is equidistributed, so its moments are far better than random ones
    for power in (1, 2, 3, 4):
        expected = float(jnp.sum(chosen.weights * chosen.nodes**power))
        np.testing.assert_allclose(np.mean(x**power, axis=-1), expected, atol=0.01 * power)
    other = sequences(chosen, 5, 2, 4096, seed=1, stream=1)
    assert not np.array_equal(x, other)
    np.testing.assert_array_equal(x, sequences(chosen, 5, 2, 4096, seed=1, stream=0))
    independent = sequences(chosen, 5, 2, 4096, seed=1, stream=0, kind="random")
    np.testing.assert_allclose(np.mean(independent, axis=-1), float(chosen.mean), atol=5 / 64)


def test_mirror_images_carry_nothing() -> None:
    """The loss of a sequence is even in all its tokens: why the sample holds no antithetic pairs."""
    loss = sample_loss(GAUSSIAN, 8, 1.0, 1.0, samples=64, scrambles=4)
    x, params = _sequences_of(loss), _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
    _close(sequence_losses(params, x, 1.0, 1.0), sequence_losses(params, -x, 1.0, 1.0))


def test_single_precision() -> None:
    single = sample_loss(GAUSSIAN, 8, 1.0, 1.0, samples=256, scrambles=4, dtype="float32")
    double = sample_loss(GAUSSIAN, 8, 1.0, 1.0, samples=256, scrambles=4)
    params = _params(0.3, 0.4, 0.6, 0.9, 0.7, 0.5)
    rounded = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    got = _gradient(single, rounded)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(got))
    _close(got, _gradient(double, params), 2e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 1000}, "nearest is samples=1024"),
        ({"samples": 2**30}, "use at most samples="),
        ({"samples": 0}, "at least 1"),
        ({"scrambles": 0}, "at least 1"),
        ({"samples": 64, "points": "halton"}, "choose one of sobol, random"),
        ({"samples": 64, "dtype": "int32"}, "float32 or float64"),
        ({"samples": 64, "accuracy": 0.1}, "keep one"),
    ],
)
def test_unusable_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        InductionProblem(8, 1.0, 1.0).sampled_loss(**options)


def test_limits_of_the_points() -> None:
    with pytest.raises(InputError, match=r"L\*d = 22000 exceeds 21201.*points='random'"):
        InductionProblem(22000, 1.0, 1.0).sampled_loss(16)
    with pytest.raises(InputError, match="is not whole"):
        InductionProblem(8.5, 1.0, 1.0).sampled_loss(64)
    loss = InductionProblem(22000, 1.0, 1.0).sampled_loss(16, points="random")
    assert np.isfinite(float(_parts(loss, _params(0.1, 0.1, 0.1, 0.1, 0.1))["induction"]))
    with pytest.raises(InputError, match="level=95"):
        loss.interval(_params(0.1, 0.1, 0.1, 0.1, 0.1), level=95.0)
