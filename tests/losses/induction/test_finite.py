"""The loss at finite p11: the 4-gram part against brute force, the table against direct overlaps."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.errors import InputError, TableError
from gflow.losses.induction import (
    Building,
    FiniteFourgramLoss,
    FiniteInductionLoss,
    FourgramLoss,
    UntiedParams,
    build_joint_table,
)
from gflow.losses.induction.forward import position_weights


def number(x: float) -> Any:
    return jnp.asarray(x, dtype=float)


def brute_weights(p11: float, p21: float, n: int) -> np.ndarray:
    """c_0..c_{n-1} by composing the two attention patterns as matrices (MATH sections 2, 3)."""
    first = np.zeros((n, n))  # key k (row) attends to tokens 1..k
    for k in range(n):
        logits = -p11 * np.arange(k, -1, -1.0)
        e = np.exp(logits - logits.max())
        first[k, : k + 1] = e / e.sum()
    logits = -p21 * np.arange(n - 1, -1, -1.0)
    e = np.exp(logits - logits.max())
    return (e / e.sum() @ first)[::-1]


@pytest.mark.parametrize("n", [2, 3, 18, 61])
@pytest.mark.parametrize("p11", [0.0, 1e-12, 0.3, 4.0, 30.0, 1e8])
@pytest.mark.parametrize("p21", [0.0, 0.7, 1e8])
def test_weights(n: int, p11: float, p21: float) -> None:
    weights = position_weights(number(p11), number(p21), n)[::-1]
    np.testing.assert_allclose(weights, brute_weights(p11, p21, n), rtol=1e-12, atol=1e-300)


def loss_of(n: int, alpha_star: float, d: int, law: Any) -> FiniteFourgramLoss:
    return FiniteFourgramLoss(n, number(alpha_star), number(d), law.mean, law.variance)


@pytest.mark.parametrize("p11", [0.0, 1e-12, 0.4, 3.0, 30.0])
def test_value(p11: float) -> None:
    law = gflow.tokens.finite([-1.0, 2.0], [0.4, 0.6])
    n, d, v1, p21, A = 18, 1, 0.37, 0.6, 0.6
    c = brute_weights(p11, p21, n)
    want = (
        0.5
        * d
        * (
            float(law.variance) * (A**2 - 2 * A * v1 * c[0] + v1**2 * np.sum(c**2))
            + float(law.mean) ** 2 * (A - v1) ** 2
        )
    )
    params = UntiedParams(*map(number, (p21, v1, 0.1, 0.1, 0.1)), p11=number(p11))
    assert float(loss_of(n, 1.5, d, law)(params)) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("p11", [0.0, 1e-12, 30.0, 1e8])
@pytest.mark.parametrize("p21", [0.0, 1e-12, 30.0, 1e8])
def test_gradients_are_safe(p11: float, p21: float) -> None:
    loss = loss_of(38, 1.0, 1, gflow.tokens.gaussian())
    params = UntiedParams(*map(number, (p21, 0.3, 0.1, 0.1, 0.1)), p11=number(p11))
    gradient, hessian = jax.grad(loss)(params), jax.jacfwd(jax.grad(loss))(params)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((gradient, hessian)))
    if p11 < 30 and p21 < 30:  # central differences in p11, which the loss is smooth in
        h = 1e-5

        def at(p: float) -> float:
            c = brute_weights(p, p21, 38)
            return 0.5 * ((0.5 - 0.3 * c[0]) ** 2 + 0.09 * np.sum(c[1:] ** 2))

        assert float(gradient.p11) == pytest.approx((at(p11 + h) - at(p11 - h)) / (2 * h), rel=1e-6)


def test_infinite_p11_is_the_closed_form() -> None:
    law = gflow.tokens.gaussian()
    finite = loss_of(38, 2.0, 3, law)
    closed = FourgramLoss(number(40), number(2.0), number(3), law.mean, law.variance)
    for p21, v1 in ((1e-6, 1e-6), (0.5, 0.4), (6.0, 0.66)):
        params = UntiedParams(*map(number, (p21, v1, 0.1, 0.1, 0.1)))
        far = UntiedParams(*map(number, (p21, v1, 0.1, 0.1, 0.1)), p11=number(60.0))
        assert float(finite(params)) == pytest.approx(float(closed(params)), rel=1e-12)
        assert float(finite(far)) == pytest.approx(float(closed(params)), rel=1e-12)
    assert float(finite.without_output) == pytest.approx(0.5 * 3 * (2 / 3) ** 2, rel=1e-14)


def by_integration(r: float, w: float, c: float, v2: float) -> float:
    """Loss_IH at L = 4, alpha* = 1 by the trapezium in the query and both keys (the last value has variance 1)."""
    x = np.linspace(-8.0, 8.0, 97)
    p = np.exp(-0.5 * x * x) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    q, x1, x2 = np.meshgrid(x, x, x, indexing="ij")
    weight = p[:, None, None] * p[None, :, None] * p[None, None, :]
    student = 1 / (1 + np.exp(-w * q * (x1 - (r * x1 + x2) / (1 + r))))  # attention to the first key
    target = 1 / (1 + np.exp(-c * q * (x1 - x2)))
    first, last = 0.5 * target - v2 * student, 0.5 * (1 - target) - v2 * (1 - student)
    return float(np.sum(weight * 0.5 * ((first * x2) ** 2 + last**2)))


@pytest.mark.slow
def test_table_is_as_good_as_it_says() -> None:
    c = 0.36
    table = build_joint_table(4, 0.6, cache=False, nodes=(14, 12))
    loss = FiniteInductionLoss(number(1.0), table)
    assert float(jnp.max(table.relative_error)) < 1e-5
    rng = np.random.default_rng(3)
    for _ in range(12):
        w, r, v2 = rng.uniform(-0.05, 1.2) * c, rng.uniform(0.01, 0.999), rng.uniform(0.0, 0.6)
        params = UntiedParams(*map(number, (0.1, 0.1, v2, w, 1.0)), p11=number(-math.log(r)))
        direct = by_integration(r, w, c, v2)
        assert abs(float(loss(params)) - direct) < float(loss.error_bound(params)) + 1e-12
    # r = 0 is the table at p11 = inf, to the last digit, and the loss is zero at the target
    for w in (-0.02, 0.0, 0.3 * c, c, 1.2 * c):
        np.testing.assert_allclose(table.pair(number(w), number(0.0)), table.base.pair(number(w)), rtol=1e-14)
    target = UntiedParams(*map(number, (0.1, 0.1, 0.5, 0.6, 0.6)), p11=number(800.0))
    assert abs(float(loss(target))) < 1e-15  # three terms of 1e-2 cancel
    # derivatives, at r = 1 (p11 = 0) and inside
    for p11 in (0.0, 0.8):
        params = UntiedParams(*map(number, (0.1, 0.1, 0.4, 0.5, 0.5)), p11=number(p11))
        slope, h = float(jax.grad(loss)(params).p11), 1e-4
        sides = [by_integration(math.exp(-(p11 + s * h)), 0.25, c, 0.4) for s in (-1, 1)]
        assert slope == pytest.approx((sides[1] - sides[0]) / (2 * h), rel=1e-3, abs=1e-7)


def test_an_interrupted_build_goes_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path))
    seen: list[Building] = []

    def stop_after_two_rows(at: Building) -> None:
        seen.append(at)
        if len(list(tmp_path.glob("row-*.npz"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_joint_table(4, 0.6, nodes=(5, 4), progress=stop_after_two_rows)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("row-*.npz")}
    assert len(kept) == 2
    seen.clear()
    with pytest.raises(TableError, match="relative error"):  # five nodes are not enough, and it says so
        build_joint_table(4, 0.6, nodes=(5, 4), progress=seen.append)
    assert seen[-1].done == seen[-1].total
    assert len(seen) < seen[-1].total  # the rows found on disk were not computed again
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept


def test_fraction_of_a_token_is_refused() -> None:
    with pytest.raises(InputError, match="whole number"):
        gflow.InductionProblem(L=20.5, alpha_star=1.0, w_star=1.0).full_loss()
    with pytest.raises(InputError, match="sampled"):
        gflow.InductionProblem(L=20, alpha_star=1.0, w_star=1.0, tokens="rademacher").full_loss()
