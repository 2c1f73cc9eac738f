"""Charts: coordinates in which a flow is integrated. The flow stays the gradient flow of the original metric."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


class AbstractChart(eqx.Module):
    """A change of coordinates `x = to_chart(params)` of the trainable parameters (any PyTree to any PyTree).

    Velocities are pushed forward, `dx/dt = D to_chart . d params/dt`, so the trajectory is the gradient flow in the
    metric of `params`, whatever the coordinates.
    """

    @abc.abstractmethod
    def to_chart(self, params: PyTree) -> PyTree:
        """Coordinates of `params`."""

    @abc.abstractmethod
    def from_chart(self, x: PyTree) -> PyTree:
        """Parameters at coordinates `x`."""

    def push_forward(self, params: PyTree, velocity: PyTree) -> PyTree:
        """`dx/dt` belonging to `d params/dt = velocity`."""
        return jax.jvp(self.to_chart, (params,), (velocity,))[1]


class LogChart(AbstractChart):
    """`u = log p` for the leaves that `where` selects (they must stay positive); the other leaves are kept."""

    where: Callable[[Any], Any] = eqx.field(static=True)

    def to_chart(self, params: PyTree) -> PyTree:
        return eqx.tree_at(self.where, params, replace_fn=jnp.log)

    def from_chart(self, x: PyTree) -> PyTree:
        return eqx.tree_at(self.where, x, replace_fn=jnp.exp)


class ScaledChart(AbstractChart):
    """`x = p / scale` leaf by leaf; `scale` is a PyTree like the trainable parameters (v2/A_i, for example)."""

    scale: PyTree

    def to_chart(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda p, s: p / s, params, self.scale)

    def from_chart(self, x: PyTree) -> PyTree:
        return jax.tree.map(lambda p, s: p * s, x, self.scale)


class Coordinates(eqx.Module):
    """Dimensionless solver coordinates of a flat vector: `z = y/scale`, or `z = arcsinh(y/scale)` where `curved`.

    `scale` [m] is the size of each initial value, so one scalar tolerance means "relative to where it started" for
    every entry (a parameter that starts at 1e-8 gets an absolute tolerance of 1e-8 * rtol). `curved` entries grow
    exponentially on a plateau; arcsinh turns that into straight lines, like log, but may pass through zero.
    """

    scale: Float[Array, " m"]
    curved: Bool[Array, " m"]

    def forward(self, y: Float[Array, " m"]) -> Float[Array, " m"]:
        """z of y."""
        x = y / self.scale
        return jnp.where(self.curved, jnp.arcsinh(x), x)

    def back(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        """y of z."""
        # sinh sees zero where it is not wanted, so that a large linear coordinate cannot overflow into the gradient
        bent = jnp.sinh(jnp.where(self.curved, z, 0.0))
        return self.scale * jnp.where(self.curved, bent, z)

    def push_forward(self, z: Float[Array, " m"], dy: Float[Array, " m"]) -> Float[Array, " m"]:
        """dz/dt belonging to dy/dt."""
        stretch = jnp.cosh(jnp.where(self.curved, z, 0.0))
        return dy / (self.scale * stretch)
