"""A loss on a table with a domain: trial stages may leave it, accepted states make it grow, nothing is extrapolated."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow.conditions import Above
from gflow.flows import Status, solve
from gflow.losses.chain import ChainLoss


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
