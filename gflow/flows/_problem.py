"""One block of a flow as a flat initial value problem `dz/ds = F(s, z)`: all that the stepping core sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from gflow.flows._charts import AbstractChart, Coordinates
from gflow.flows._clocks import AbstractClock
from gflow.flows._law import AbstractLaw, State


class Layout(eqx.Module):
    """How a PyTree of arrays lies in one flat vector. Hashable, so equal layouts share a compilation."""

    treedef: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, tree: PyTree) -> Layout:
        """The layout of `tree`, whose leaves are arrays."""
        leaves, treedef = jax.tree.flatten(tree)
        return cls(treedef, tuple(tuple(leaf.shape) for leaf in leaves))

    def flatten(self, tree: PyTree) -> Array:
        """The leaves of `tree`, end to end: [m]."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    def unflatten(self, y: Float[Array, " m"]) -> PyTree:
        """The inverse of `flatten`."""
        leaves, start = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            leaves.append(jnp.reshape(y[start : start + size], shape))
            start += size
        return jax.tree.unflatten(self.treedef, leaves)


class FlatProblem(eqx.Module):
    """`dz/ds = (dt/ds) * D(chart) . velocity`, with z the dimensionless coordinates of moving leaves and law's state.

    `frozen` holds every leaf that does not move (None where one does). Everything but the layout is data, so new
    numbers never compile anew.
    """

    loss: Callable[[Any], Any]
    frozen: PyTree
    layout: Layout  # of (the chart's coordinates, the law's state)
    law: AbstractLaw | None  # None where only the path is read
    rates: PyTree  # like the moving leaves
    chart: AbstractChart | None
    coordinates: Coordinates
    clock: AbstractClock
    t0: Float[Array, ""]

    def parts(self, z: Float[Array, " m"]) -> tuple[PyTree, State]:
        """The moving leaves at z (None elsewhere), and the law's state."""
        x, state = self.layout.unflatten(self.coordinates.back(z))
        return (x if self.chart is None else self.chart.from_chart(x)), state

    def moving(self, z: Float[Array, " m"]) -> PyTree:
        """The moving leaves at z (None elsewhere)."""
        return self.parts(z)[0]

    def params(self, z: Float[Array, " m"]) -> PyTree:
        """The block's parameters at z."""
        return eqx.combine(self.moving(z), self.frozen)

    def loss_at(self, z: Float[Array, " m"]) -> Float[Array, ""]:
        """The block's loss at z."""
        return _loss(self, z)

    def gradient(self, moving: PyTree) -> PyTree:
        """Gradient of the block's loss in the moving leaves."""
        return gradient_of(self.loss, moving, self.frozen)

    def velocity(self, s: Float[Array, ""], z: Float[Array, " m"]) -> Float[Array, " m"]:
        """dz/dt at solver time s."""
        return _velocity(self, s, z)

    def inside(self, z: Float[Array, " m"]) -> Bool[Array, ""]:
        """False when the loss's table must grow before the flow goes on (losses without a domain: always True)."""
        domain = getattr(self.loss, "domain", None)
        return jnp.asarray(True) if domain is None else jnp.asarray(domain(self.params(z)))

    def time(self, s: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Flow time at solver time s."""
        return self.clock.time(s, self.t0)

    def solver_time(self, t: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Solver time at flow time t."""
        return self.clock.solver_time(t, self.t0)


def gradient_of(loss: Callable[[Any], Any], moving: PyTree, frozen: PyTree) -> PyTree:
    """Gradient of the loss in the moving leaves, the others held."""
    return jax.grad(lambda p: jnp.asarray(loss(eqx.combine(p, frozen))))(moving)


# Compiled functions of their own, though they only ever run inside larger ones: each is then traced once, not at every
# place that needs it, and tracing is most of what a second run of a program waits for.
@eqx.filter_jit
def _loss(problem: FlatProblem, z: Float[Array, " m"]) -> Float[Array, ""]:
    return jnp.asarray(problem.loss(problem.params(z)))


@eqx.filter_jit
def _velocity(problem: FlatProblem, s: Float[Array, ""], z: Float[Array, " m"]) -> Float[Array, " m"]:
    moving, state = problem.parts(z)
    assert problem.law is not None
    age = problem.time(s) - problem.t0
    velocity, drift = problem.law.velocity(age, moving, state, problem.gradient, problem.rates)
    if problem.chart is not None:
        velocity = problem.chart.push_forward(moving, velocity)
    return problem.coordinates.push_forward(z, problem.layout.flatten((velocity, drift)))


def field(s: Any, z: Any, problem: Any) -> Any:
    """`dz/ds`, in the form that diffrax calls."""
    return problem.clock.rate(s) * problem.velocity(s, z)
