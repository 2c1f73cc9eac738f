"""The forward pass against loops over the definitions (MATH sections 1, 2, 6), and its derivatives at the extremes."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.losses.induction import (
    MatrixParams,
    MergedParams,
    TiedParams,
    UntiedParams,
    first_layer,
    model_output,
    sequence_losses,
    target_output,
)


def _softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(v - top) for v in logits]
    return [w / math.fsum(weights) for w in weights]


def _keys(x: np.ndarray, p11: float | None) -> list[np.ndarray]:
    """y_{k+1} for k = 1..n; x[i-1] is the token x_i."""
    keys = []
    for k in range(1, len(x) - 1):
        if p11 is None:
            keys.append(x[k - 1])
            continue
        weights = _softmax([-p11 * j for j in range(k)])
        keys.append(sum(weights[j] * x[k - j - 1] for j in range(k)))
    return keys


def _target(x: np.ndarray, alpha: float, w_star: float) -> tuple[Any, Any]:
    L = len(x)
    first = alpha / (1 + alpha) * x[L - 3]
    weights = _softmax([w_star**2 * float(x[L - 1] @ x[s - 2]) for s in range(2, L)])
    return first, 1 / (1 + alpha) * sum(weights[s - 2] * x[s - 1] for s in range(2, L))


def _model(x: np.ndarray, p11: float | None, p21: float, V1: Any, V2: Any, WK: Any, WQ: Any) -> tuple[Any, Any]:
    n = len(x) - 2
    keys = _keys(x, p11)
    places = _softmax([-p21 * (n - k) for k in range(1, n + 1)])
    matches = _softmax([float((WQ @ x[n + 1]) @ (WK @ y)) for y in keys])
    return (
        V1 @ sum(places[k] * keys[k] for k in range(n)),
        V2 @ sum(matches[k] * x[k + 1] for k in range(n)),
    )


def _scalars(kind: str, p11: float | None) -> tuple[Any, dict[str, float]]:
    values = {"p21": 0.3, "v1": 0.7, "v2": -0.4, "wK": 1.2, "wQ": 0.9}
    numbers = {k: jnp.asarray(v) for k, v in values.items()}
    wK, wQ = numbers.pop("wK"), numbers.pop("wQ")
    last = None if p11 is None else jnp.asarray(p11)
    if kind == "untied":
        return UntiedParams(**numbers, wK=wK, wQ=wQ, p11=last), values
    if kind == "tied":
        return TiedParams(**numbers, wKQ=wK, p11=last), values | {"wQ": 1.2}
    return MergedParams(**numbers, w=wK * wQ, p11=last), values


@pytest.mark.parametrize("p11", [None, 0.0, 1e-12, 0.4, 3.0, 30.0, 1e8, -0.2])
@pytest.mark.parametrize(("L", "d"), [(4, 1), (9, 1), (7, 3)])
def test_keys_outputs_and_losses_follow_the_definitions(L: int, d: int, p11: float | None) -> None:
    rng = np.random.default_rng(L + d)
    x = rng.standard_normal((2, 3, L, d))
    alpha, w_star = 1.7, 0.8
    for kind in ("untied", "tied", "merged"):
        params, v = _scalars(kind, p11)
        keys, got, wanted, losses = _everything(params, jnp.asarray(x), alpha, w_star)
        one = np.eye(d)
        for i in np.ndindex(2, 3):
            np.testing.assert_allclose(keys[i], _keys(x[i], p11), rtol=0, atol=1e-14)
            model = _model(x[i], p11, v["p21"], v["v1"] * one, v["v2"] * one, v["wK"] * one, v["wQ"] * one)
            target = _target(x[i], alpha, w_star)
            for part in (0, 1):
                np.testing.assert_allclose(got[part][i], model[part], rtol=0, atol=1e-13)
                np.testing.assert_allclose(wanted[part][i], target[part], rtol=0, atol=1e-14)
                square = 0.5 * np.sum((target[part] - model[part]) ** 2)
                np.testing.assert_allclose(losses[part][i], square, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("p11", [None, 0.6])
def test_matrices_act_as_defined(p11: float | None) -> None:
    rng = np.random.default_rng(5)
    x, (V1, V2, WK, WQ) = rng.standard_normal((4, 8, 3)), rng.standard_normal((4, 3, 3))
    params = MatrixParams(
        jnp.asarray(0.2), *map(jnp.asarray, (V1, V2, WK, WQ)), None if p11 is None else jnp.asarray(p11)
    )
    got = model_output(params, jnp.asarray(x))
    for i in range(4):
        model = _model(x[i], p11, 0.2, V1, V2, WK, WQ)
        np.testing.assert_allclose(got[0][i], model[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(got[1][i], model[1], rtol=0, atol=1e-12)


@eqx.filter_jit
def _everything(params: Any, x: jax.Array, alpha: float, w_star: float) -> Any:
    return (
        first_layer(x, params.p11),
        model_output(params, x),
        target_output(x, alpha, w_star),
        sequence_losses(params, x, alpha, w_star),
    )


def _mean_loss(params: Any, x: jax.Array) -> jax.Array:
    fourgram, induction = sequence_losses(params, x, 1.0, 1.0)
    return jnp.mean(fourgram) + jnp.mean(induction)


_value_and_gradient = jax.jit(jax.value_and_grad(_mean_loss))
_hessian = jax.jit(jax.jacfwd(jax.grad(_mean_loss)))


@pytest.mark.parametrize("p11", [0.0, 1e-12, 30.0, 1e8])
@pytest.mark.parametrize("p21", [0.0, 1e-12, 30.0, 1e8])
def test_derivatives_are_finite_at_the_extremes(p11: float, p21: float) -> None:
    x = jnp.asarray(np.random.default_rng(1).standard_normal((16, 12, 1)))
    params = UntiedParams(*(jnp.asarray(v) for v in (p21, 0.3, 0.4, 0.5, 0.6, p11)))
    for value in jax.tree.leaves((_value_and_gradient(params, x), _hessian(params, x))):
        assert np.all(np.isfinite(value))


@pytest.mark.parametrize("w", [0.0, 40.0, -1e3, 1e6])
def test_large_logits_are_safe(w: float) -> None:
    x = jnp.asarray(np.random.default_rng(2).standard_normal((16, 12, 1)))
    params = MergedParams(*(jnp.asarray(v) for v in (0.1, 0.3, 0.4, w, 0.5)))
    for value in jax.tree.leaves(_value_and_gradient(params, x)):
        assert np.all(np.isfinite(value))


@jax.jit
def _slopes(p11: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.jacfwd(lambda p: first_layer(x, p))(p11), jax.jacrev(lambda p: first_layer(x, p))(p11)


@pytest.mark.parametrize("p11", [0.0, 1e-12, 1e-4, 0.5, 3.0])
def test_gradient_in_p11_agrees_with_exact_arithmetic(p11: float) -> None:
    """Against the derivative of the definition, written out in extended precision."""
    x = np.random.default_rng(3).standard_normal((30, 1))
    forward, backward = _slopes(jnp.asarray(p11), jnp.asarray(x))
    for k in range(1, 29):
        j = np.arange(k, dtype=np.longdouble)
        weights = np.exp(-np.longdouble(p11) * j)
        weights /= weights.sum()
        expected = -float(np.sum(weights * (j - np.sum(weights * j)) * x[k - 1 :: -1, 0][:k].astype(np.longdouble)))
        for slope in (forward, backward):
            assert abs(float(slope[k - 1, 0]) - expected) < 1e-11 * max(1.0, abs(expected))


def test_single_precision_stays_single() -> None:
    x = jnp.asarray(np.random.default_rng(4).standard_normal((8, 10, 1)), jnp.float32)
    params = UntiedParams(*(jnp.asarray(v, jnp.float32) for v in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)))
    losses = _everything(params, x, 1.0, 1.0)[3]
    double = _everything(jax.tree.map(lambda v: v.astype(jnp.float64), params), x.astype(jnp.float64), 1.0, 1.0)[3]
    for single, exact in zip(losses, double, strict=True):
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, exact, rtol=3e-5, atol=1e-6)


def test_numbers_will_do_for_parameters() -> None:
    x = jnp.ones((5, 1))
    outputs = model_output(UntiedParams(0.0, 1.0, 2.0, 1.0, 1.0, 0.5), x)
    assert [float(v[0]) for v in outputs] == pytest.approx([1.0, 2.0])
