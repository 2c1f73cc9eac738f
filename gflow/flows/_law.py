"""The law of motion of a flow: how gradient, time and a state of its own make a velocity."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

State = dict[str, Any]  # name -> PyTree like the moving parameters


class AbstractLaw(eqx.Module):
    """`d(params, state)/dt = velocity(age, params, state)`; `age` is the time since the flow began.

    `names` are those of the state's parts, each a PyTree like the moving parameters: momentum, say. A law couples a
    coordinate to itself and to the gradient only, so a loss that splits into blocks may still be integrated by blocks.
    """

    names: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def velocity(
        self,
        age: Float[Array, ""],
        moving: PyTree,
        state: State,
        gradient: Callable[[PyTree], PyTree],
        rates: PyTree,
    ) -> tuple[PyTree, State]:
        """(d params/dt, d state/dt); `gradient` is a function of the moving parameters, `rates` are like them."""

    def start(self, gradient: PyTree) -> State:
        """The state at age 0, where the gradient is `gradient`."""
        del gradient
        return {}

    def scales(self, gradient: PyTree, rates: PyTree, sizes: PyTree) -> tuple[State, dict[str, bool | None]]:
        """Size of each entry of the state, and which parts bend (integrated in arcsinh; None: where the leaf does).

        `sizes`: those of the parameters, their fallback where the gradient is zero.
        """
        del gradient, rates, sizes
        return {}, {}

    def energy(self, age: Float[Array, ""], state: State, rates: PyTree) -> Float[Array, ""]:
        """What the state can still add to the loss: with it, not by the loss alone, the flow is known to be at rest."""
        del age, rates
        return jnp.zeros((), jax.tree.leaves(state)[0].dtype) if state else jnp.zeros(())

    def growth(self, rate: float) -> float | None:
        """Growth rate along a direction of curvature -rate; None where a displacement does not grow exponentially."""
        return rate


class Descent(AbstractLaw):
    """`d params/dt = - rates * gradient`."""

    def velocity(
        self,
        age: Float[Array, ""],
        moving: PyTree,
        state: State,
        gradient: Callable[[PyTree], PyTree],
        rates: PyTree,
    ) -> tuple[PyTree, State]:
        return jax.tree.map(lambda r, g: -r * g, rates, gradient(moving)), {}
