"""The flagship problem: validation, initial values, plateau, milestones of an independent integration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from gflow import tokens
from gflow.errors import InputError
from gflow.losses.induction import InductionProblem, MergedParams, TiedParams, UntiedParams


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"L": 2}, "L=2 must be at least 4"),
        ({"L": float("nan")}, "L=nan is not finite"),
        ({"L": 1e400}, "L=inf is not finite"),
        ({"L": "long"}, "L='long' is not a number"),
        ({"alpha_star": 0.0}, "alpha_star=0 must be greater than 0"),
        ({"alpha_star": -1.0}, "alpha_star=-1 must be greater than 0"),
        ({"w_star": 0.0}, "w_star=0 must be greater than 0"),
        ({"d": 0}, "d=0 must be at least 1"),
        ({"d": 2.5}, "d=2.5 must be a whole number"),
        ({"d": 2, "tokens": "rademacher"}, "needs gaussian tokens"),
        ({"tokens": "gausian"}, "did you mean 'gaussian'"),
        ({"parametrization": "unted"}, "did you mean 'untied'"),
        ({"parametrization": "xyz"}, "choose one of untied, tied, merged"),
    ],
)
def test_bad_values_are_refused_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        InductionProblem(**{"L": 40.0, "alpha_star": 1.0, "w_star": 0.5, **arguments})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_initial_params() -> None:
    for name, cls, count in (("untied", UntiedParams, 5), ("tied", TiedParams, 4), ("merged", MergedParams, 4)):
        params = InductionProblem(40.0, 1.0, 0.5, "rademacher", 1, name).initial_params(1e-3)
        assert isinstance(params, cls)
        assert [float(v) for v in jax.tree.leaves(params)] == [1e-3] * count
        assert params.p11 is None
    with pytest.raises(InputError, match="sigma_init=0 must be greater than 0"):
        InductionProblem(40.0, 1.0, 0.5).initial_params(0.0)


def test_population_loss_is_built_once() -> None:
    problem = InductionProblem(20.0, 1.0, 0.8, "rademacher")
    assert problem.population_loss() is problem.population_loss()


ROWS = [
    (40.0, 0.49, 1e-2, "gaussian", "untied", (205.459, 87.3923, 878.466, 3181.31, 2667.72), 0.059),
    (40.0, 0.8, 1e-2, "rademacher", "untied", (205.459, 87.1861, 494.215, 1653.11, 1453.54), None),
    (64.0, 0.8, 1e-3, "gaussian", "tied", (207.289, 142.752, 946.457, 1495.65, 1459.87), None),
]


@pytest.mark.parametrize(("L", "w_star", "sigma", "law", "variant", "expected", "share"), ROWS)
def test_reference_milestones_by_an_independent_solver(
    L: float, w_star: float, sigma: float, law: str, variant: str, expected: tuple[float, ...], share: float | None
) -> None:
    problem = InductionProblem(L, 1.0, w_star, law, 1, variant)
    loss, start = problem.population_loss(), problem.initial_params(sigma)
    leaves, tree = jax.tree.flatten(start)
    unflatten = lambda y: jax.tree.unflatten(tree, list(y))  # noqa: E731
    field = jax.jit(lambda y: -jax.grad(lambda z: loss(unflatten(z)))(y))
    names = ("T_I", "T_o", "T_II", "T_III", "T_III_of_initial")
    conditions = problem.milestones()
    assert set(conditions) == {*names, "T_II_of_initial"}
    events = []
    for name in names:
        condition = conditions[name]
        assert condition.block == ("fourgram" if name == "T_I" else "induction")
        level = float(condition.resolve(condition.value(start)))
        watch = jax.jit(lambda y, f=condition.f: f(unflatten(y)))
        event = lambda t, y, watch=watch, level=level: float(watch(y)) - level  # noqa: E731
        event.direction = -1
        events.append(event)
    run = solve_ivp(
        lambda t, y: np.asarray(field(y)),
        (0.0, 1.1 * max(expected)),
        [float(v) for v in leaves],
        method="LSODA",
        rtol=1e-10,
        atol=1e-10 * sigma,
        events=events,
    )
    np.testing.assert_allclose([times[0] for times in run.t_events], expected, rtol=1e-5)
    if share is not None:  # the plateau is 5.9% of the starting loss (MATH section 5, first trap)
        assert float(problem.plateau() / loss.induction(start)) == pytest.approx(share, abs=1e-3)


def test_plateau_minimises_over_v2() -> None:
    problem = InductionProblem(20.0, 1.0, 0.8, tokens.finite([-1.0, 2.0], [0.7, 0.3]))
    loss = problem.population_loss().induction
    f = lambda v: loss(MergedParams(None, None, v, jnp.zeros(())))  # noqa: E731
    v = problem.v_plateau()
    assert float(f(v)) == pytest.approx(float(problem.plateau()), rel=1e-12)
    assert float(jax.grad(f)(v)) == pytest.approx(0.0, abs=1e-14)


def test_keys_and_queries_may_start_apart() -> None:
    problem = InductionProblem(L=40, alpha_star=1.0, w_star=0.5)
    params = problem.initial_params(1e-2, wK=3e-2)
    assert isinstance(params, UntiedParams)
    assert [float(x) for x in (params.p21, params.v2, params.wK, params.wQ)] == [1e-2, 1e-2, 3e-2, 1e-2]
    with pytest.raises(InputError, match=r"wQ=0.*greater than 0"):
        problem.initial_params(1e-2, wQ=0)
    tied = InductionProblem(L=40, alpha_star=1.0, w_star=0.5, parametrization="tied")
    with pytest.raises(InputError, match=r"wK=0.1 has no meaning for parametrization='tied'"):
        tied.initial_params(1e-2, wK=0.1)
