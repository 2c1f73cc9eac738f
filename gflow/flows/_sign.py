"""`SignFlow`: every parameter at its own constant speed, limit of sign descent and of Adam without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gflow.flows._charts import AbstractChart
from gflow.flows._clocks import AbstractClock
from gflow.flows._flow import AbstractFlow, check_number, number
from gflow.flows._law import AbstractLaw, State


class SignFlow(AbstractFlow):
    """`theta' = - rates * g/sqrt(g^2 + smoothing^2)`, coordinate by coordinate, g = grad loss(theta).

    The limit of `optax.sign_sgd(lr)` in the time `t = lr * step`, and of Adam without memory (tau1, tau2 -> 0; exactly
    `optax.adam(lr, b1=0, b2=0, eps=0, eps_root=smoothing**2)`). As smoothing -> 0 it becomes `theta' in -sign(g)`, a
    differential inclusion: where g crosses zero against the flow, theta slides along g = 0. The smoothed flow slides
    within `smoothing` of it, at a stiffness 1/smoothing that the implicit solver takes over; hence smoothing > 0,
    small against the gradients that matter. Source: Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD", 2018;
    Filippov, "Differential Equations with Discontinuous Righthand Sides", 1988 (docs/references.md).

    The loss falls at the rate `sum rates |g|`, so it reaches a minimum in finite time (up to smoothing); rest is judged
    by the gradient and the loss.

    Arguments: `loss`; `smoothing` > 0, in units of the gradient; `trainable`, `rates`, `chart`, `clock` as in
    `AbstractFlow`. Raises `InputError` for a smoothing that is not positive.
    """

    loss: Callable[[Any], Any]
    smoothing: Float[Array, ""] = eqx.field(converter=number)
    trainable: Any = eqx.field(default=None, kw_only=True)
    rates: Any = eqx.field(default=None, kw_only=True)
    chart: AbstractChart | None = eqx.field(default=None, kw_only=True)
    clock: AbstractClock | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        why = ", small against the gradients that matter; without it the flow is a differential inclusion"
        check_number("SignFlow", "smoothing", self.smoothing, why=why)

    def law(self) -> AbstractLaw:
        return Sign(self.smoothing)


class Sign(AbstractLaw):
    """`theta' = - rates * g/sqrt(g^2 + smoothing^2)`."""

    smoothing: Float[Array, ""]

    def velocity(
        self,
        age: Float[Array, ""],
        moving: PyTree,
        state: State,
        gradient: Callable[[PyTree], PyTree],
        rates: PyTree,
    ) -> tuple[PyTree, State]:
        step = lambda r, g: -r * g / jnp.hypot(g, self.smoothing)  # noqa: E731
        return jax.tree.map(step, rates, gradient(moving)), {}

    def growth(self, rate: float) -> float | None:
        return None
