"""A loss on a table with a domain: trial stages may leave it, accepted states make it grow, nothing is extrapolated."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from gflow.conditions import Above, Below
from gflow.flows import Status, solve
from gflow.losses.chain import ChainLoss
from gflow.losses.induction import InductionProblem, MergedParams, make_table
from gflow.losses.induction.problem import plateau


class Tabulated(eqx.Module):
    """The depth-2 chain, known only for w <= hi: NaN beyond."""

    hi: jax.Array
    grown: ClassVar[list] = []

    def __call__(self, w):
        return ChainLoss(2)(w * jnp.where(w <= self.hi, 1.0, jnp.nan))

    def domain(self, w):
        return w <= 0.95 * self.hi

    def grow(self, w):
        self.grown.append(float(w))
        return Tabulated(2.0 * self.hi)


def test_the_table_grows_on_the_way_and_the_times_do_not_notice():
    Tabulated.grown.clear()
    loss = Tabulated(jnp.asarray(0.01))
    levels = (0.005, 0.02, 0.5, 0.9)
    marks = {str(x): Above(lambda w: w, x) for x in levels}
    trajectory = solve(loss, jnp.asarray(1e-4), milestones=marks, rtol=1e-9)
    closed = [float(ChainLoss(2).time(jnp.asarray(x), jnp.asarray(1e-4))) for x in levels]
    np.testing.assert_allclose([m.time for m in trajectory.milestones.values()], closed, rtol=1e-7)
    assert trajectory.status is Status.milestones_reached
    assert len(Tabulated.grown) >= 7
    # only accepted states ask for growth, and they lie inside the table of their time
    assert all(w <= 0.01 * 2**i for i, w in enumerate(Tabulated.grown[:7]))
    assert np.all(np.isfinite(trajectory.losses["total"]))
    assert float(trajectory.at("0.5")) == pytest.approx(0.5, rel=1e-7)


def _number(x):
    return jnp.asarray(float(x))


@pytest.mark.parametrize(
    "start",
    [
        # inside the table, but v2 < 0 pushes w out of it
        MergedParams(_number(0.01), _number(0.01), _number(-4.0), _number(0.1)),
        # outside from the start
        MergedParams(_number(0.01), _number(0.01), _number(0.3), _number(-0.4)),
        MergedParams(_number(0.01), _number(0.01), _number(0.2), _number(1.21)),
    ],
    ids=["leaves it below", "starts below", "starts above"],
)
def test_population_loss_outside_its_table_equals_a_large_table(start):
    problem = InductionProblem(20.0, 1.0, 0.8, "rademacher")
    loss, marks = problem.population_loss(), problem.milestones()
    # a condition on the whole loss reads both blocks
    half = 0.5 * float(plateau(loss.induction))
    marks = {n: marks[n] for n in ("T_I", "T_III", "T_III_of_initial")} | {"total": Below(loss, half)}
    run = solve(loss, start, milestones=marks)
    assert run.status is Status.milestones_reached

    table = make_table(problem.tokens, 20.0, 0.8, 1, -1.5, 2.0)
    large = dataclasses.replace(loss, induction=dataclasses.replace(loss.induction, table=table))
    leaves, tree = jax.tree.flatten(start)
    point = lambda y: jax.tree.unflatten(tree, list(y))  # noqa: E731
    field = jax.jit(lambda y: -jax.grad(lambda z: large(point(z)))(y))
    at = {n: m.time for n, m in run.milestones.items()}
    exact = solve_ivp(
        lambda _, y: np.asarray(field(y)), (0, run.t1_reached), leaves, "LSODA", t_eval=sorted(at.values()), rtol=1e-11,
        atol=1e-13,
    )  # fmt: skip
    states = {n: point(jnp.asarray(exact.y[:, sorted(at.values()).index(t)])) for n, t in at.items()}
    first = large.parts(start)
    wanted = {
        "T_I": (large.fourgram(states["T_I"]), 0.01 * first["fourgram"]),
        "T_III": (large.induction(states["T_III"]), 0.02 * half),
        "T_III_of_initial": (large.induction(states["T_III_of_initial"]), 0.01 * first["induction"]),
        "total": (large(states["total"]), half),
    }
    for name, (value, level) in wanted.items():
        assert float(value) == pytest.approx(float(level), rel=1e-6), name
    for name, state in states.items():
        np.testing.assert_allclose(jax.tree.leaves(run.at(at[name])), jax.tree.leaves(state), rtol=1e-6, err_msg=name)
    w = np.asarray(run.params.logit_scale)
    assert np.any((w < loss.induction.table.lo) | (w > loss.induction.table.hi))
    assert np.all(np.isfinite(run.losses["total"]))
