"""S(a,b) against enumeration of all sequences, direct integration over tokens, and the printed reference values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gflow import tokens
from gflow.losses.induction.overlap import cross_batch, self_batch
from gflow.losses.induction.quadrature import key_quadrature, laplace_body, laplace_rule

ONE = np.ones(1)


def _both(law: tokens.TokenLaw, a: float, b: float, n: float, d: int = 1) -> tuple[float, ...]:
    """S(a,b) by the double integral and, if a = b, by the single one too; then dS/dn and dS/db."""
    n = float(n)
    keys = key_quadrature(law, n, ONE, ONE, float(max(abs(a), abs(b), 0.1)))
    rare = np.array([1e-15])
    A, B = np.array([float(a)]), np.array([float(b)])
    body = max(laplace_body(s, n, *keys, rare, ONE, 1.4, law.name == "gaussian") for s in (A, B, -A, -B))
    value, by_n, by_b = (one[0] for one in cross_batch(keys, [n], d, A, B, rare, body, by_slope=True))
    if a == b:
        own, own_n = self_batch(keys, n, d, A, rare, 2 * body)
        assert own[0] == pytest.approx(value[0], rel=1e-11)
        assert own_n[0] == pytest.approx(by_n[0], rel=1e-9)
    return float(value[0]), float(by_n[0]), float(by_b[0])


def _enumerated(law: tokens.TokenLaw, a: float, b: float, n: int, d: int = 1) -> float:
    """E f_a f_b over all sequences of n+1 tokens; d > 1 adds d-1 independent value components of unit variance."""
    values, weights = np.asarray(law.nodes), np.asarray(law.weights)
    index = np.array(list(itertools.product(range(values.size), repeat=n + 1)))
    x, p = values[index], np.prod(weights[index], axis=1)
    attend = [np.exp(s * x[:, :n]) / np.sum(np.exp(s * x[:, :n]), axis=1, keepdims=True) for s in (a, b)]
    f, g = (np.sum(w * x[:, 1:], axis=1) for w in attend)
    return float(np.sum(p * (f * g + (d - 1) * np.sum(attend[0] * attend[1], axis=1))))


LAWS = {
    "rademacher": tokens.rademacher(),
    "skew": tokens.finite([-0.5, 2.0], [0.8, 0.2]),
    "mean": tokens.finite([-1.0, 0.4, 1.5], [0.2, 0.5, 0.3]),
    "negative mean": tokens.finite([-2.0, 0.1], [0.6, 0.4]),
}


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize(("a", "b"), [(0.7, 1.3), (0.0, 2.0), (-0.6, 1.1), (1.2, 1.2), (0.0, 0.0), (3.5, 2.5)])
def test_equals_enumeration(law: str, n: int, a: float, b: float) -> None:
    assert _both(LAWS[law], a, b, n)[0] == pytest.approx(_enumerated(LAWS[law], a, b, n), rel=1e-12, abs=1e-13)


def test_orthogonal_components_equal_enumeration() -> None:
    value = _both(LAWS["rademacher"], 0.7, 1.3, 4, d=3)[0]
    assert value == pytest.approx(_enumerated(LAWS["rademacher"], 0.7, 1.3, 4, d=3), rel=1e-12)


@pytest.mark.parametrize(
    ("law", "a", "b", "n", "expected", "rel"),
    [
        ("rademacher", 0.7, 1.3, 4, 0.37720412594576, 3e-14),
        ("rademacher", 0.7, 1.3, 8, 0.20036611801487, 3e-14),
        ("gaussian", 1.0, 1.0, 8, 0.221365598631122, 1e-13),
        ("gaussian", 1.5, 2.5, 38, 0.17219225186322, 1e-11),
        ("gaussian", 1.5, 1.5, 998, 0.00857989999761, 2e-12),
    ],
)
def test_printed_reference_values(law: str, a: float, b: float, n: int, expected: float, rel: float) -> None:
    assert _both(tokens.from_name(law), a, b, n)[0] == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.5), (2.0, -1.0), (4.0, 5.0)])
def test_gaussian_pair_of_keys_by_direct_integration(a: float, b: float) -> None:
    # n = 2: the value x_3 is integrated by hand, keys x_1, x_2 on a dense grid
    step = 0.04
    x = step * np.arange(-220, 221)
    weights = step * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    first = [1 / (1 + np.exp(-s * (x[:, None] - x))) for s in (a, b)]
    inside = x**2 * first[0] * first[1] + (1 - first[0]) * (1 - first[1])
    assert _both(tokens.gaussian(), a, b, 2)[0] == pytest.approx(float(weights @ inside @ weights), rel=1e-11)


def test_gaussian_three_keys_by_direct_integration() -> None:
    a, b, step = 0.9, 1.4, 0.15
    x = step * np.arange(-55, 56)
    w = step * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    k1, k2, k3 = x[:, None, None], x[None, :, None], x[None, None, :]
    f = []
    for s in (a, b):
        e1, e2, e3 = np.exp(s * k1), np.exp(s * k2), np.exp(s * k3)
        z = e1 + e2 + e3
        f.append(((k2 * e1 + k3 * e2) / z, e3 / z))
    inside = f[0][0] * f[1][0] + f[0][1] * f[1][1]
    expected = np.einsum("ijk,i,j,k->", inside, w, w, w)
    assert _both(tokens.gaussian(), a, b, 3)[0] == pytest.approx(float(expected), rel=1e-11)


def test_derivatives_in_n_and_slope() -> None:
    law, a, b, n, h = tokens.gaussian(), 0.8, 1.2, 7.3, 1e-3
    _, by_n, by_b = _both(law, a, b, n)
    stencil = lambda f: (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)  # noqa: E731
    assert by_n == pytest.approx(stencil(lambda s: _both(law, a, b, n + s)[0]), rel=1e-8)
    assert by_b == pytest.approx(stencil(lambda s: _both(law, a, b + s, n)[0]), rel=1e-8)


def test_few_keys_have_finite_derivatives_in_n() -> None:
    for n in (2.0, 3.0, 4.0):
        assert np.all(np.isfinite(_both(tokens.gaussian(), 1.0, 2.0, n)))


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_laplace_rule_inverts_every_likely_partition_function(spread: float) -> None:
    law, n = tokens.gaussian(), 50.0
    n = float(n)
    keys = key_quadrature(law, n, ONE, ONE, float(max(spread, 0.1)))
    log_u, weights = laplace_rule(np.array([spread]), n, *keys, np.array([1e-12]), 64)
    # partition functions of sampled sequences, none of which is rarer than the tolerance
    z = np.exp(spread * np.random.default_rng(0).standard_normal((200, 50))).sum(axis=1)
    u = np.exp(log_u[0])
    assert np.exp(-np.outer(z, u)) @ (weights[0] * u) == pytest.approx(1 / z, rel=1e-11)
    assert np.exp(-np.outer(z, u)) @ (weights[0] * u**2) == pytest.approx(1 / z**2, rel=1e-11)
