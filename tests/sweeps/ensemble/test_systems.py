"""The two planar systems against automatic differentiation of the losses they are the flows of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gflow
from gflow.losses.induction.fourgram import FourgramLoss
from gflow.losses.induction.params import MergedParams, TiedParams, UntiedParams
from gflow.sweeps.ensemble.fourgram import FourgramLanes
from gflow.sweeps.ensemble.induction import InductionLanes
from gflow.sweeps.ensemble.induction_block import _derivatives
from gflow.sweeps.ensemble.polynomials import polynomials_of


def column(*values: float) -> jax.Array:
    return jnp.asarray(values, dtype=float)


def jacobian_of(system, a, b):
    both = jax.jacfwd(lambda y: jnp.stack(system.rates(y[:1], y[1:])))(jnp.concatenate([a, b]))[:, 0]
    _, (j11, j12, j21, j22) = system.linear(a, b)
    return np.asarray(both), np.array([[j11[0], j12[0]], [j21[0], j22[0]]])


@pytest.mark.parametrize("L", [4.0, 100.0, 1e6])
@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.3, 3.0, 25.0])
@pytest.mark.parametrize("nu", [1e-6, 0.4, 0.99])
def test_fourgram_rates_are_the_gradient(L, p, nu):
    alpha, d, mean, variance = 0.7, 2.0, 0.3, 1.2
    A = alpha / (1 + alpha)
    loss = FourgramLoss(*column(L, alpha, d, mean, variance))

    def at(y):
        return loss(UntiedParams(p21=y[0], v1=y[1], v2=None, wK=None, wQ=None))

    slope = jax.grad(at)(column(p, A * nu))
    lane = {"n": L - 2, "per_n": 1 / (L - 2), "square": A**2, "d": d, "mean": mean, "variance": variance}
    system = FourgramLanes(**{name: column(x) for name, x in lane.items()}, one=jnp.ones(()))
    a, b = column(nu), column(p)
    of_nu, of_p = system.rates(a, b)
    np.testing.assert_allclose([of_nu[0] * A, of_p[0]], [-slope[1], -slope[0]], rtol=2e-11)
    np.testing.assert_allclose(system.value(a, b)[0] * A**2, at(column(p, A * nu)), rtol=1e-12)
    # d loss/dt = -|gradient|^2
    np.testing.assert_allclose(system.falling(a, b)[0] * A**2, -float(slope @ slope), rtol=1e-10)
    exact, stated = jacobian_of(system, a, b)
    # a Jacobian steers a step, its accuracy is not the solution's
    np.testing.assert_allclose(stated, exact, rtol=1e-6, atol=1e-12 * np.max(np.abs(exact)))


STARTS = {
    "untied": (UntiedParams, ("wK", "wQ"), (0.02, -0.3)),
    "tied": (TiedParams, ("wKQ",), (0.2,)),
    "merged": (MergedParams, ("w",), (0.05,)),
}


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("nu", [0.3, 1.1])
def test_induction_rates_are_the_gradient(kind, nu):
    problem = gflow.InductionProblem(30.0, 0.8, 0.7, parametrization=kind)
    loss = problem.population_loss().induction
    table = polynomials_of(loss.table, wide=True)
    A, n = 1 / 1.8, 28.0
    cls, names, start = STARTS[kind]
    if kind == "untied":
        K, Q = start
        P, down, w0, power = 0.25 * (K + Q) ** 2, 0.25 * (K - Q) ** 2, K * Q, 2.0
    else:
        P, down, w0, power = (start[0] ** 2, 0.0, start[0] ** 2, 4.0) if kind == "tied" else (0.0, 0.0, start[0], 1.0)
    of_table = {name: column(getattr(table, name)) for name in ("slope", "offset", "kcc")}
    of_lane = {"P": P, "Q": down, "start": w0, "gain": power * A**2 * table.slope}
    system = InductionLanes(
        coefficients=jnp.asarray(_derivatives([table], table.degree)),
        **of_table,
        **{name: column(x) for name, x in of_lane.items()},
        one=jnp.ones(()),
        merged=kind == "merged",
    )
    s = 0.05 if kind == "merged" else 0.4
    # the weights after a growth s
    if kind == "untied":
        up, side = 0.5 * sum(start) * np.exp(s / 2), 0.5 * (start[0] - start[1]) * np.exp(-s / 2)
        weights = (up + side, up - side)
    else:
        weights = (start[0] * np.exp(s / 2),) if kind == "tied" else (start[0] + s,)

    def at(y):
        return loss(cls(p21=None, v1=None, v2=y[0], **dict(zip(names, y[1:], strict=True))))

    y = column(A * nu, *weights)
    slope = -jax.grad(at)(y)
    a, b = column(nu), column(s)
    of_nu, of_s = (float(x[0]) for x in system.rates(a, b))
    w_rate = float(jax.jvp(lambda y: cls(None, None, y[0], *y[1:]).logit_scale, (y,), (slope,))[1])
    bend = float(system.scale(b)[1][0])
    np.testing.assert_allclose([of_nu * A / n, of_s * bend / n], [float(slope[0]), w_rate], rtol=1e-7)
    np.testing.assert_allclose(system.value(a, b)[0] * A**2 / n, at(y), rtol=1e-8)
    np.testing.assert_allclose(system.falling(a, b)[0] * A**2 / n**2, -float(slope @ slope), rtol=1e-6)
    exact, stated = jacobian_of(system, a, b)
    np.testing.assert_allclose(stated, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("L", "w_star"), [(4.0, 0.6), (100.0, 1.0), (1e6, 0.8)])
@pytest.mark.parametrize("wide", [False, True])
def test_polynomials_follow_their_table(L, w_star, wide):
    table = gflow.InductionProblem(L, 1.0, w_star).population_loss().induction.table
    found = polynomials_of(table, wide=wide)
    c, edges = w_star**2, ((-1 - found.offset) / found.slope, (1 - found.offset) / found.slope)
    assert edges[0] <= -0.02 * c * (1 - 1e-9)
    assert edges[1] >= 1.05 * c * (1 - 1e-9)
    w = np.random.default_rng(3).uniform(*edges, 60)
    pair = jax.vmap(table.pair)(jnp.asarray(w))
    np.testing.assert_allclose(found.at(w), (L - 2) * np.asarray(pair).T, rtol=2 * found.fit_error + 1e-12)
    rising = jax.vmap(jax.jacfwd(table.pair))(jnp.asarray(w))
    worst = np.max(np.abs(found.at(w, 1) - (L - 2) * np.asarray(rising).T), axis=1)
    assert np.all(worst <= 1e-6 * np.max(np.abs(found.at(w, 1)), axis=1))
