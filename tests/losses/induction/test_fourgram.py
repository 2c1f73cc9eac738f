"""The closed form of the 4-gram part against sums over positions and 60-digit decimals."""

from __future__ import annotations

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.losses.induction import FourgramLoss, UntiedParams
from gflow.losses.induction.fourgram import attention_moments


def _loss(n: float, alpha: float = 1.0, d: float = 1.0, mean: float = 0.0, variance: float = 1.0) -> FourgramLoss:
    return FourgramLoss(*(jnp.asarray(v, dtype=float) for v in (n + 2, alpha, d, mean, variance)))


def _params(p: float, v: float) -> UntiedParams:
    return UntiedParams(jnp.asarray(p), jnp.asarray(v), None, None, None)


def _exact(p: Decimal, n: Decimal) -> tuple[Decimal, Decimal]:
    """M and N from their definition as sums over n positions, in the closed geometric form, at any precision."""
    r = (-p).exp()
    r_n = (-n * p).exp()
    return (1 - r) / (1 - r_n), (1 - r) * (1 + r_n) / ((1 + r) * (1 - r_n))


def _exact_derivatives(p: float, n: float) -> np.ndarray:
    """[M, N] x [value, first, second derivative] by differences in 90-digit arithmetic."""
    with localcontext() as context:
        context.prec = 150
        h = Decimal("1e-25")
        x = Decimal(p) + Decimal("1e-60")  # off the removable singularity
        left, middle, right = (_exact(x + s * h, Decimal(n)) for s in (-1, 0, 1))
        out = []
        for i in range(2):
            a, b, c = left[i], middle[i], right[i]
            out.append([float(b), float((c - a) / (2 * h)), float((c - 2 * b + a) / (h * h))])
    return np.array(out)


@pytest.mark.parametrize("n", [2.0, 2.5, 38.0, 98.0, 1e4, 1e6])
@pytest.mark.parametrize("p", [0.0, 1e-8, 1e-6, 1e-3, 0.02, 0.3, 0.999, 1.001, 4.0, 15.0, -1e-8, -0.01, -0.7])
def test_moments_and_their_derivatives(n: float, p: float) -> None:
    # R^1 -> R^2, so that value, first and second derivatives come from one function
    f = lambda x: jnp.stack(attention_moments(x, jnp.asarray(n)))  # noqa: E731
    x = jnp.asarray(p)
    ours = np.stack([f(x), jax.jacfwd(f)(x), jax.jacfwd(jax.jacrev(f))(x)], axis=-1)
    expected = _exact_derivatives(p, n)
    # relative to the size that the derivative has over the whole transition: n^k times the function at p = 0
    np.testing.assert_allclose(ours[:, 0], expected[:, 0], rtol=3e-14, atol=1e-300)
    for k in (1, 2):
        np.testing.assert_allclose(ours[:, k], expected[:, k], rtol=1e-10, atol=1e-13 * n ** (k - 1))


@pytest.mark.parametrize("n", [2, 3, 7, 50])
@pytest.mark.parametrize("p", [0.0, 0.1, 1.5, -0.4])
@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_loss_is_the_sum_over_positions(n: int, p: float, mean: float) -> None:
    alpha, v, d, variance = 1.7, 0.3, 3.0, 0.8
    weights = np.exp(-p * np.arange(n))
    weights /= weights.sum()
    A = alpha / (1 + alpha)
    wanted = np.zeros(n)
    wanted[0] = A
    gap = wanted - v * weights  # coefficients of x_{L-2}, x_{L-3}, ...
    expected = 0.5 * d * (variance * np.sum(gap**2) + mean**2 * np.sum(gap) ** 2)
    loss = _loss(n, alpha, d, mean, variance)
    assert float(loss(_params(p, v))) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("n", [2.0, 98.0, 1e6])
@pytest.mark.parametrize("p", [-800.0, -40.0, -1.0, 0.0, 1e-8, 1.0, 40.0, 800.0])
def test_everything_is_finite_everywhere(n: float, p: float) -> None:
    loss = _loss(n)
    f = lambda y: loss(UntiedParams(y[0], y[1], None, None, None))  # noqa: E731
    y = jnp.array([p, 0.3])
    for value in (f(y), jax.grad(f)(y), jax.hessian(f)(y), jax.jacfwd(jax.grad(f))(y)):
        assert np.all(np.isfinite(value))


def test_late_loss_keeps_its_digits() -> None:
    # v1 at its best, p large: the loss is about A^2 r^2/2, far below the rounding of its terms
    p, n = 14.0, 98.0
    with localcontext() as context:
        context.prec = 60
        M, N = _exact(Decimal(p), Decimal(n))
        v = float(Decimal("0.5") * M / N)
        V = Decimal(v)
        expected = float((Decimal("0.25") - V * M + V * V * N) / 2)
    assert float(_loss(n)(_params(p, v))) == pytest.approx(expected, rel=1e-8)


def test_derivatives_in_L_and_alpha() -> None:
    def value(L: jax.Array, alpha: jax.Array) -> jax.Array:
        one = jnp.ones(())
        return FourgramLoss(L, alpha, one, 0 * one, one)(_params(0.05, 0.2))

    L, alpha, h = jnp.asarray(40.0), jnp.asarray(0.7), 1e-5
    slopes = jax.grad(value, (0, 1))(L, alpha)
    assert float(slopes[0]) == pytest.approx(float(value(L + h, alpha) - value(L - h, alpha)) / (2 * h), rel=1e-5)
    assert float(slopes[1]) == pytest.approx(float(value(L, alpha + h) - value(L, alpha - h)) / (2 * h), rel=1e-8)
