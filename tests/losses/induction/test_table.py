"""Tables against independent integration, their error bounds, domain, derivatives, and the cache."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow import tokens
from gflow.errors import TableError
from gflow.losses.induction import OverlapTable, Resolution, build_table, make_table
from gflow.losses.induction.build import build_arrays, default_domain, evaluate_cells


@functools.cache
def _table(name: str, L: float, w_star: float, d: int = 1) -> OverlapTable:
    return make_table(tokens.from_name(name), L, w_star, d)


def _pairs(table: OverlapTable, w: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(table.pair)(jnp.asarray(w)))


def _two_keys(w: np.ndarray, c: float, d: int, density: Any) -> np.ndarray:
    """K1, K2 [W, 2] at L = 4 by brute force: two Gaussian keys and the query on dense grids, values by hand."""
    step = 0.05
    z = step * np.arange(-200, 201)  # (x_1 - x_2)/sqrt 2; the mean of both keys factors out
    weights = step * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    q, q_weights = density
    out = np.zeros((w.size, 2))
    for i, scale in enumerate(w):
        for j, other in enumerate((c, scale)):
            p, r = (1 / (1 + np.exp(-np.sqrt(2) * s * q[:, None] * z)) for s in (scale, other))
            # first key's value is x_2 = (m - z)/sqrt 2, m standard normal; d-1 further components; second's is new
            first = 0.5 * (1 + z**2) + d - 1
            out[i, j] = q_weights @ (first * p * r + d * (1 - p) * (1 - r)) @ weights
    return out


def _query_density(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Composite Gauss-Legendre in |q| ~ chi_d: the same for odd and even d."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0, 9 + np.sqrt(d), 41)
    q = (0.5 * (edges[:-1] + edges[1:])[:, None] + 0.5 * np.diff(edges)[:, None] * nodes).ravel()
    log_density = (d - 1) * np.log(q) - 0.5 * q * q
    density = np.exp(log_density - log_density.max()) * (0.5 * np.diff(edges)[:, None] * weights).ravel()
    return q, density / density.sum()


@pytest.mark.parametrize(("w_star", "d", "rel"), [(1.0, 1, 1e-9), (0.8, 2, 1e-9), (0.7, 3, 1e-9)])
def test_gaussian_tables_equal_direct_integration(w_star: float, d: int, rel: float) -> None:
    table, c = _table("gaussian", 4.0, w_star, d), w_star**2
    w = np.array([-0.2 * c, 0.0, 0.21 * c, 0.5 * c, c, 1.24 * c])
    np.testing.assert_allclose(_pairs(table, w), _two_keys(w, c, d, _query_density(d)), rtol=rel)


@pytest.mark.parametrize("d", [4, 16])
def test_higher_dimension_equals_direct_integration(d: int) -> None:
    w_star = 0.5
    table, c = _table("gaussian", 4.0, w_star, d), w_star**2
    w = np.array([0.0, 0.5 * c, c])
    np.testing.assert_allclose(_pairs(table, w), _two_keys(w, c, d, _query_density(d)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("w_star", "rel"), [(1.2, 1e-9), (1.5, 1e-8)])
def test_steep_gaussian_table_equals_direct_integration(w_star: float, rel: float) -> None:
    table, c = _table("gaussian", 4.0, w_star), w_star**2
    w = np.array([0.0, 0.21 * c, c, 1.24 * c])
    np.testing.assert_allclose(_pairs(table, w), _two_keys(w, c, 1, _query_density(1)), rtol=rel)


def _enumerated_means(law: tokens.TokenLaw, c: float, w: float, n: int) -> tuple[float, float]:
    """K1, K2 by enumeration of all queries, keys and values."""
    values, weights = np.asarray(law.nodes), np.asarray(law.weights)
    index = np.stack(np.meshgrid(*[np.arange(values.size)] * (n + 1), indexing="ij"), axis=-1).reshape(-1, n + 1)
    x, p = values[index], np.prod(weights[index], axis=1)

    def head(s: float) -> np.ndarray:
        e = np.exp(s * x[:, :n])
        return np.sum(e * x[:, 1:], axis=1) / np.sum(e, axis=1)

    rows = [(pq, head(w * q), head(c * q)) for q, pq in zip(values, weights, strict=True)]
    return (
        sum(pq * float(np.sum(p * f * g)) for pq, f, g in rows),
        sum(pq * float(np.sum(p * f * f)) for pq, f, g in rows),
    )


@pytest.mark.parametrize(
    "law", [tokens.rademacher(), tokens.finite([-1.0, 0.5, 2.0], [0.3, 0.5, 0.2])], ids=["rademacher", "mean"]
)
def test_finite_laws_equal_enumeration(law: tokens.TokenLaw) -> None:
    c, n = 0.64, 4
    table = build_table(law, n + 2.0, 0.8)
    for w in (-0.1, 0.0, 0.3, 0.64, 0.75):
        expected = _enumerated_means(law, c, w, n)
        np.testing.assert_allclose(_pairs(table, np.array([w]))[0], expected, rtol=3e-11)


def test_uniform_tokens_by_direct_integration() -> None:
    x, p = np.polynomial.legendre.leggauss(60)
    x, p, c = np.sqrt(3) * x, 0.5 * p, 0.64
    table = _table("uniform", 4.0, 0.8)
    w = np.array([0.0, 0.4, 0.7])
    for i, scale in enumerate(w):
        for j, other in enumerate((c, scale)):
            f, g = (1 / (1 + np.exp(-s * x[:, None, None] * (x[:, None] - x))) for s in (scale, other))
            inside = x**2 * f * g + (1 - f) * (1 - g)
            expected = np.einsum("qij,q,i,j->", inside, p, p, p)
            assert _pairs(table, w)[i, j] == pytest.approx(float(expected), rel=1e-10)


def test_zero_logit_scale_averages_the_values() -> None:
    # uniform attention: a mean of n standardised values; the target's overlap with it differs by O(w*^2/n^2)
    for n in (2.0, 38.0):
        K = _pairs(_table("gaussian", n + 2, 0.7), np.zeros(1))[0]
        assert K[1] == pytest.approx(1 / n, rel=1e-10)
        assert abs(K[0] * n - 1) < 1 / n**2


@pytest.mark.parametrize(
    ("resolution", "L"),
    [
        (Resolution(10, 1.0), 6.0),
        (Resolution(24, 0.45), 6.0),
        (Resolution(30, 0.6), 6.0),
        (Resolution(10, 1.0), 1e5),
        (Resolution(16, 0.7), 1e5),
    ],
)
def test_reported_error_is_a_true_bound(resolution: Resolution, L: float) -> None:
    law, w_star = tokens.gaussian(), 0.8
    lo, hi = default_domain(w_star)
    coarse = build_arrays(law, L, w_star, 1, lo, hi, resolution)
    truth = _truth(L, w_star)
    w = np.linspace(lo, hi, 400)
    ours, exact = (evaluate_cells(t["cells"], lo, hi, w) for t in (coarse, truth))
    error = np.max(np.abs(ours / exact - 1), axis=1)
    assert np.all(error <= coarse["relative_error"] + truth["relative_error"]), (error, coarse["relative_error"])


@functools.cache
def _truth(L: float, w_star: float) -> dict[str, np.ndarray]:
    return build_arrays(tokens.gaussian(), L, w_star, 1, *default_domain(w_star), Resolution(48, 1.25))


def test_inaccurate_tables_are_refused() -> None:
    with pytest.raises(TableError, match=r"relative error of .* the limit is .* smaller w_star"):
        build_table(tokens.gaussian(), 6.0, 1.0, resolution=Resolution(8, 0.5))


def test_minimum_is_at_the_target() -> None:
    for table in (_table("gaussian", 40.0, 0.7), _table("rademacher", 40.0, 0.8)):
        K, slope = table.pair(table.c), jax.jacfwd(table.pair)(table.c)
        assert float(K[0]) == pytest.approx(float(K[1]), rel=1e-13)
        assert float(slope[0]) == pytest.approx(0.5 * float(slope[1]), rel=1e-9)
        assert float(table.kcc) == float(K[1])


def test_outside_the_domain_everything_is_nan() -> None:
    table = _table("gaussian", 40.0, 0.7)
    for w in (table.lo - 1e-6, table.hi + 1e-6):
        assert not bool(table.in_domain(w))
        for f in (table.target, table.student):
            assert np.isnan(f(w))
            assert np.isnan(jax.grad(f)(w))
            assert np.isnan(jax.jacfwd(jax.grad(f))(w))
    middle = 0.5 * (table.lo + table.hi)
    assert bool(table.in_domain(middle))
    assert np.all(np.isfinite(jax.hessian(table.student)(middle)))


def test_derivatives_in_w() -> None:
    table, h = _table("gaussian", 40.0, 0.7), 1e-3
    w = jnp.asarray(0.31)
    stencil = (8 * (table.pair(w + h) - table.pair(w - h)) - (table.pair(w + 2 * h) - table.pair(w - 2 * h))) / (12 * h)
    np.testing.assert_allclose(jax.jacfwd(table.pair)(w), stencil, rtol=1e-9)
    second = (table.pair(w + h) - 2 * table.pair(w) + table.pair(w - h)) / h**2
    np.testing.assert_allclose(jax.jacfwd(jax.jacrev(table.pair))(w), second, rtol=1e-4)


@pytest.mark.parametrize("law", [tokens.gaussian(), tokens.rademacher()], ids=lambda t: t.name)
def test_derivatives_in_L_and_w_star(law: tokens.TokenLaw) -> None:
    L, w_star, h = 12.0, 0.6, 1e-3
    lo, hi = default_domain(0.65)
    fresh = lambda L, w_star: build_table(law, L, w_star, 1, lo, hi)  # noqa: E731
    table = fresh(L, w_star)

    def values(L: jax.Array, w_star: jax.Array) -> jax.Array:
        changed = dataclasses.replace(table, L=L, w_star=w_star)
        return jnp.concatenate([changed.pair(jnp.asarray(0.2)), changed.kcc[None]])

    point = (jnp.asarray(L), jnp.asarray(w_star))
    forward, reverse = jax.jacfwd(values, (0, 1))(*point), jax.jacrev(values, (0, 1))(*point)
    now = lambda t: np.array([*t.pair(jnp.asarray(0.2)), t.kcc])  # noqa: E731
    by_L = (now(fresh(L + h, w_star)) - now(fresh(L - h, w_star))) / (2 * h)
    by_w_star = (now(fresh(L, w_star + h)) - now(fresh(L, w_star - h))) / (2 * h)
    scale = np.abs(by_w_star).max()
    for ours in (forward, reverse):
        np.testing.assert_allclose(ours[0], by_L, rtol=1e-6)
        np.testing.assert_allclose(ours[1], by_w_star, rtol=2e-5, atol=1e-8 * scale)
    np.testing.assert_array_equal(values(*point), np.array([*table.pair(jnp.asarray(0.2)), table.kcc]))


def test_cached_table_is_the_same_and_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path))
    law = tokens.rademacher()
    first = make_table(law, 20.0, 0.7)
    assert len(list(tmp_path.glob("table-*.npz"))) == 1
    # a second build would fail
    monkeypatch.setattr("gflow.losses.induction.build.build_arrays", None)
    second = make_table(law, 20.0, 0.7)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError):
        make_table(law, 20.0, 0.7001)


@pytest.mark.parametrize(("w_star", "d"), [(3.0, 1), (6.0, 1), (2.0, 16)])
def test_hopeless_tables_are_refused_before_the_long_work(
    w_star: float, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gflow.losses.induction.build.target_overlaps", None)
    with pytest.raises(TableError, match="use a smaller w_star") as caught:
        build_table(tokens.gaussian(), 100.0, w_star, d)
    assert "\n" not in str(caught.value)
