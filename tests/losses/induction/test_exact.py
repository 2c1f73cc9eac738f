"""The population loss: sampled sequences, derivatives, blocks, growth, one compilation for all values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow import tokens
from gflow.errors import TableError
from gflow.losses.induction import InductionProblem, MergedParams, PopulationLoss, TiedParams, UntiedParams


@functools.cache
def _loss(L: float, alpha: float, w_star: float, law: str = "rademacher", d: int = 1) -> PopulationLoss:
    return InductionProblem(L, alpha, w_star, law, d).population_loss()


def _params(p21: float, v1: float, v2: float, wK: float, wQ: float) -> UntiedParams:
    return UntiedParams(*(jnp.asarray(v) for v in (p21, v1, v2, wK, wQ)))


def _sampled(X: jax.Array, alpha: float, w_star: float, y: jax.Array) -> jax.Array:
    """1/2 ||f*(X) - out||^2 for one sequence X [L, d], straight from the definition of target and model (p11 = inf)."""
    p21, v1, v2, wK, wQ = y
    n = X.shape[0] - 2
    keys, values, query = X[:n], X[1 : n + 1], X[-1]
    attend = lambda w: jax.nn.softmax(w * keys @ query) @ values  # noqa: E731
    position = jax.nn.softmax(-p21 * jnp.arange(n - 1.0, -1.0, -1.0))
    first = alpha / (1 + alpha) * X[n - 1] - v1 * position @ keys
    second = attend(w_star**2) / (1 + alpha) - v2 * attend(wK * wQ)
    return 0.5 * (jnp.sum(first**2) + jnp.sum(second**2))


@pytest.mark.parametrize(
    ("law", "d", "L"), [("gaussian", 1, 8), ("gaussian", 3, 8), ("rademacher", 1, 12), ("skew", 1, 6)]
)
def test_loss_and_gradient_agree_with_sampled_sequences(law: str, d: int, L: int) -> None:
    alpha, w_star, count = 1.5, 0.8, 40_000
    chosen = tokens.finite([-0.5, 1.0, 2.0], [0.5, 0.3, 0.2]) if law == "skew" else tokens.from_name(law)
    loss = InductionProblem(float(L), alpha, w_star, chosen, d).population_loss()
    rng = np.random.default_rng(7)
    if law == "gaussian":
        X = rng.standard_normal((count, L, d))
    else:
        X = rng.choice(np.asarray(chosen.nodes), size=(count, L, 1), p=np.asarray(chosen.weights))
    y = jnp.array([0.4, 0.3, 0.35, 0.9, 0.5])
    both = jax.jit(jax.vmap(lambda x: jax.value_and_grad(_sampled, argnums=3)(x, alpha, w_star, y)))
    values, gradients = both(jnp.asarray(X))
    table = np.concatenate([np.asarray(values)[:, None], np.asarray(gradients)], axis=1)
    mean, error = table.mean(axis=0), table.std(axis=0) / np.sqrt(count)
    exact = [float(loss(_params(*y))), *np.asarray(jax.grad(lambda z: loss(UntiedParams(*z)))(y))]
    assert np.all(np.abs(exact - mean) < 4 * error), (exact - mean) / error
    assert np.all(error < 0.05 * np.abs(mean) + 0.005)


def test_parts_add_up_and_read_their_own_parameters() -> None:
    loss, params = _loss(20.0, 1.0, 0.8), _params(0.1, 0.2, 0.3, 0.6, 0.7)
    parts = loss.parts(params)
    assert set(parts) == {"fourgram", "induction"}
    assert float(loss(params)) == pytest.approx(float(sum(parts.values())), rel=1e-15)
    for block in loss.blocks():
        mine = {"fourgram": ("p21", "v1"), "induction": ("v2", "wK", "wQ")}[block.name]
        only = UntiedParams(**{k: getattr(params, k) if k in mine else None for k in ("p21", "v1", "v2", "wK", "wQ")})
        assert float(block.loss(only)) == float(parts[block.name])
        assert len(block.where(params)) == len(mine)


def test_parametrisations_share_one_loss() -> None:
    loss = _loss(20.0, 1.0, 0.8)
    one = jnp.asarray(0.3)
    w = jnp.asarray(0.36)
    values = [
        loss(UntiedParams(one, one, one, w, jnp.ones(()))),
        loss(TiedParams(one, one, one, jnp.sqrt(w))),
        loss(MergedParams(one, one, one, w)),
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-14)
    # tied: one parameter feels both pulls, so its flow is twice as fast
    tied = jax.grad(loss)(TiedParams(one, one, one, jnp.asarray(0.6))).wKQ
    untied = jax.grad(loss)(UntiedParams(one, one, one, jnp.asarray(0.6), jnp.asarray(0.6))).wK
    assert float(tied) == pytest.approx(2 * float(untied), rel=1e-12)


def test_zero_at_the_target_and_nowhere_negative() -> None:
    loss = _loss(20.0, 1.0, 0.8).induction
    A, c = 0.5, 0.64
    at = lambda v2, w: loss(MergedParams(None, None, jnp.asarray(v2), jnp.asarray(w)))  # noqa: E731
    assert abs(float(at(A, c))) < 1e-16
    gradient = jax.grad(lambda y: at(y[0], y[1]))(jnp.array([A, c]))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-13)
    hessian = jax.hessian(lambda y: at(y[0], y[1]))(jnp.array([A, c]))
    assert np.all(np.linalg.eigvalsh(np.asarray(hessian)) > 0)
    for shift in (-1e-4, 1e-4):
        assert float(at(A + shift, c - shift)) > 0


def test_derivatives_in_alpha_L_and_w_star() -> None:
    L, alpha, w_star, h = 12.0, 1.3, 0.7, 1e-4
    params = _params(0.1, 0.2, 0.3, 0.6, 0.7)
    loss = _loss(L, alpha, w_star)
    slope = lambda name, value: float(jax.grad(lambda v: loss.at(**{name: v})(params))(jnp.asarray(value)))  # noqa: E731
    point = {"L": L, "alpha": alpha, "w_star": w_star}
    for name, key in (("L", "L"), ("alpha_star", "alpha"), ("w_star", "w_star")):
        up, down = ({**point, key: point[key] + s * h} for s in (1, -1))
        fresh = [float(_loss(**values)(params)) for values in (up, down)]
        assert slope(name, point[key]) == pytest.approx((fresh[0] - fresh[1]) / (2 * h), rel=1e-6)
        forward = jax.jvp(lambda v: loss.at(**{name: v})(params), (jnp.asarray(point[key]),), (jnp.ones(()),))[1]  # noqa: B023
        assert float(forward) == pytest.approx(slope(name, point[key]), rel=1e-12)
    assert float(loss.at(L=jnp.asarray(L), w_star=jnp.asarray(w_star))(params)) == float(loss(params))


def test_one_compilation_for_all_values() -> None:
    compiled = jax.jit(lambda loss, params: jax.value_and_grad(loss)(params))
    for L, alpha, w_star in [(12.0, 1.3, 0.7), (20.0, 1.0, 0.8), (20.0, 0.5, 0.8), (31.7, 2.0, 0.45)]:
        for v in (0.1, 0.2):
            compiled(_loss(L, alpha, w_star), _params(v, 0.2, v, 0.3, 0.4))
    assert compiled._cache_size() == 1


def test_jit_and_vmap_agree_with_single_calls() -> None:
    loss = _loss(20.0, 1.0, 0.8)
    rows = jnp.linspace(0.1, 0.7, 5)
    batch = UntiedParams(rows, rows, rows, rows, rows)
    many = jax.jit(jax.vmap(jax.value_and_grad(loss)))(batch)
    for i in range(5):
        one = jax.value_and_grad(loss)(jax.tree.map(lambda v: v[i], batch))  # noqa: B023
        for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-12, atol=1e-16)


def test_single_precision_stays_single() -> None:
    loss, params = _loss(20.0, 1.0, 0.8), _params(0.1, 0.2, 0.3, 0.6, 0.7)
    cast = lambda tree: jax.tree.map(lambda v: v.astype(jnp.float32), tree)  # noqa: E731
    value, gradient = jax.value_and_grad(cast(loss))(cast(params))
    assert value.dtype == jnp.float32
    assert all(g.dtype == jnp.float32 for g in jax.tree.leaves(gradient))
    assert float(value) == pytest.approx(float(loss(params)), rel=1e-5)


def test_error_bound_covers_the_tables_error() -> None:
    loss, params = _loss(20.0, 1.0, 0.8), _params(0.1, 0.2, 0.3, 0.6, 0.7)
    wrong = eqx.tree_at(
        lambda s: s.induction.table.cells, loss, replace_fn=lambda k: k * (1 + loss.induction.table.relative_error[0])
    )
    moved = abs(float(wrong(params) - loss(params)))
    assert 0 < moved <= float(loss.error_bound(params)) < 1e-8 * float(loss(params))


def test_growth_keeps_the_old_values() -> None:
    loss = _loss(20.0, 1.0, 0.8)
    inside, outside = _params(0.1, 0.2, 0.3, 0.6, 0.7), _params(0.1, 0.2, 0.3, 1.0, 0.95)
    assert bool(loss.domain(inside))
    assert not bool(loss.domain(outside))
    assert np.isnan(loss(outside))
    grown = loss.grow(outside)
    assert bool(grown.domain(outside))
    assert bool(grown.domain(inside))
    assert np.isfinite(grown(outside))
    assert float(grown(inside)) == pytest.approx(float(loss(inside)), rel=1e-9)
    assert jax.tree.structure(grown) == jax.tree.structure(loss)
    negative = _params(0.1, 0.2, 0.3, 0.9, -0.5)
    assert bool(loss.grow(negative).domain(negative))
    with pytest.raises(TableError, match="finite"):
        loss.grow(_params(0.1, 0.2, 0.3, float("nan"), 1.0))


def test_repr_is_a_summary() -> None:
    assert "L=20, alpha_star=1, w_star=0.8, tokens=rademacher" in repr(_loss(20.0, 1.0, 0.8))


@pytest.mark.parametrize("kind", [np.asarray, float, lambda x: np.asarray(x, np.float32)])
def test_leaves_may_be_numpy_numbers(kind: Callable[[float], Any]) -> None:
    loss = _loss(20.0, 1.0, 0.8)
    loss = jax.tree.map(lambda v: v.astype(getattr(kind(0.0), "dtype", "float64")), loss)
    for cls, count in ((UntiedParams, 5), (TiedParams, 4), (MergedParams, 4)):
        numbers = (0.1, 0.2, 0.3, 0.6, 0.7)[:count]
        given, usual = cls(*map(kind, numbers)), cls(*map(jnp.asarray, numbers))
        assert float(given.logit_scale) == pytest.approx(float(usual.logit_scale), rel=1e-6)
        assert float(loss(given)) == pytest.approx(float(_loss(20.0, 1.0, 0.8)(usual)), rel=1e-5)
        assert bool(loss.domain(given))
        assert loss.induction.grow(given).table is loss.induction.table
    path = MergedParams(*(np.full(3, 0.1),) * 4)
    assert np.shape(path.logit_scale) == (3,)


def test_everything_on_one_table_grows_to_one_table() -> None:
    problem = InductionProblem(20.0, 1.0, 0.8, tokens.finite([-1.0, 2.0], [0.7, 0.3]))
    loss, outside = problem.population_loss(), _params(0.1, 0.2, 0.3, 1.0, 0.95)
    excess = problem.milestones()["T_o"].f
    tables = [loss.grow(outside).induction.table, loss.induction.grow(outside).table, excess.grow(outside).loss.table]
    assert all(t is tables[0] for t in tables)
    assert float(excess.grow(outside).plateau) == float(excess.plateau)
    assert repr(loss.law) == repr(problem.tokens)
    cast = lambda tree: jax.tree.map(lambda v: v.astype(jnp.float32), tree)  # noqa: E731
    single = cast(loss).grow(cast(outside))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(single)} == {"float32"}
    assert float(single(cast(outside))) == pytest.approx(float(loss.grow(outside)(outside)), rel=1e-4)
