"""`AdamFlow`: the continuous limit of Adam, with its bias correction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gflow.errors import InputError
from gflow.flows._charts import AbstractChart
from gflow.flows._clocks import AbstractClock
from gflow.flows._flow import AbstractFlow, check_number, number
from gflow.flows._law import AbstractLaw, State


class AdamFlow(AbstractFlow):
    """`theta' = - rates * m^/(sqrt(v^) + eps)`, with `m^, v^` the averages of g and g^2 over the past, g = grad loss:

        tau1 m' = g - m,   tau2 v' = g^2 - v,   m(0) = v(0) = 0,   m^ = m/(1 - e^{-t/tau1}),   v^ = v/(1 - e^{-t/tau2})

    Sources: da Silva, Gazeau, "A general system of differential equations to model first-order adaptive algorithms",
    2020; Barakat, Bianchi, "Convergence and dynamical behavior of the Adam algorithm for nonconvex stochastic
    optimization", 2021 (docs/references.md). The limit of `optax.adam(lr, b1, b2, eps)` in the time `t = lr * step` as
    lr -> 0 with `tau_i = lr/(1 - b_i)` fixed; `of_adam` takes `b_i = e^{-lr/tau_i}`, which agrees to first order and
    forgets at exactly the same pace. As tau -> 0 it becomes `theta' = -g/(|g| + eps)`, nearly `SignFlow`.

    The start, 0/0, has a limit: m^ = g, v^ = g^2. What is integrated is not m and v but `step = m^/(sqrt(v^) + eps)`
    and `second = v^`, which begin at `g/(|g| + eps)` and g^2 and have finite derivatives there, taken from their
    expansion (`m^' -> g'/2`, `v^' -> g g'` with `g' = Hess . theta'`): nothing is cut off, nothing added to a
    denominator. Near t = 0 the averages react at the rate 1/t, so the first steps are short and grow geometrically.

    The loss may rise. `traj.state` has "step" and "second". The step keeps its size near a minimum (that is what is
    normalised), so rest is judged by the gradient and the loss, with what momentum may still do to it: `loss + 1/2 sum
    rates tau1 (1 - e^{-t/tau1}) step^2 (sqrt(v^) + eps)` never rises if tau2 >= tau1/4 (Barakat, Bianchi).

    Arguments: `loss`; `tau1`, `tau2`, `eps` > 0 (numbers); `trainable`, `rates` (multiples of the learning rate),
    `chart`, `clock` as in `AbstractFlow`. Raises `InputError` for numbers that are not.
    """

    loss: Callable[[Any], Any]
    tau1: Float[Array, ""] = eqx.field(converter=number)
    tau2: Float[Array, ""] = eqx.field(converter=number)
    eps: Float[Array, ""] = eqx.field(converter=number, default=1e-8)
    trainable: Any = eqx.field(default=None, kw_only=True)
    rates: Any = eqx.field(default=None, kw_only=True)
    chart: AbstractChart | None = eqx.field(default=None, kw_only=True)
    clock: AbstractClock | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_number("AdamFlow", "tau1", self.tau1, why="; the limit of no memory is SignFlow")
        check_number("AdamFlow", "tau2", self.tau2, why="; the limit of no memory is SignFlow")
        check_number(
            "AdamFlow", "eps", self.eps, why="; without it the flow has no direction where a gradient vanishes"
        )

    @classmethod
    def of_adam(
        cls,
        loss: Callable[[Any], Any],
        learning_rate: float,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        **others: Any,
    ) -> AdamFlow:
        """The flow that `optax.adam(learning_rate, b1, b2, eps)` follows, in the time `learning_rate * step`."""
        for name, b in (("b1", b1), ("b2", b2)):
            if not 0 < b < 1:
                raise InputError(f"AdamFlow.of_adam: {name}={b} must lie between 0 and 1; without memory use SignFlow")
        tau1, tau2 = (-learning_rate / np.log(b) for b in (b1, b2))
        return cls(loss, tau1, tau2, eps, **others)

    def law(self) -> AbstractLaw:
        return Adam(self.tau1, self.tau2, self.eps)


class Adam(AbstractLaw):
    """Adam's law in the coordinates `step = m^/(sqrt(v^) + eps)` and `second = v^`; see `AdamFlow`."""

    tau1: Float[Array, ""]
    tau2: Float[Array, ""]
    eps: Float[Array, ""]
    names: ClassVar[tuple[str, ...]] = ("second", "step")

    def velocity(
        self,
        age: Float[Array, ""],
        moving: PyTree,
        state: State,
        gradient: Callable[[PyTree], PyTree],
        rates: PyTree,
    ) -> tuple[PyTree, State]:
        step, second = state["step"], state["second"]
        velocity = jax.tree.map(lambda r, u: -r * u, rates, step)
        later = jnp.where(age > 0, age, self.tau1)  # any other number: that branch is not taken at age 0
        # how fast the averages react: m^' = pace1 (g - m^), v^' = pace2 (g^2 - v^)
        pace1, pace2 = (-1 / (tau * jnp.expm1(-later / tau)) for tau in (self.tau1, self.tau2))

        def on(_: None) -> tuple[PyTree, PyTree]:
            g = gradient(moving)
            drift = jax.tree.map(lambda g, v: pace2 * (g**2 - v), g, second)

            def turn(g: Array, u: Array, v: Array, dv: Array) -> Array:
                root, slope = _root(v)
                size = root + self.eps
                return pace1 * (g / size - u) - u * slope * dv / size

            return jax.tree.map(turn, g, step, second, drift), drift

        def first(_: None) -> tuple[PyTree, PyTree]:
            g, dg = jax.jvp(gradient, (moving,), (velocity,))
            size = jax.tree.map(lambda g: jnp.abs(g) + self.eps, g)
            turn = jax.tree.map(lambda g, dg, u, d: dg / (2 * d) * (1 - u * jnp.sign(g)), g, dg, step, size)
            return turn, jax.tree.map(lambda g, dg: g * dg, g, dg)

        turn, drift = jax.lax.cond(age > 0, on, first, None)
        return velocity, {"step": turn, "second": drift}

    def start(self, gradient: PyTree) -> State:
        return {
            "step": jax.tree.map(lambda g: g / (jnp.abs(g) + self.eps), gradient),
            "second": jax.tree.map(jnp.square, gradient),
        }

    def scales(self, gradient: PyTree, rates: PyTree, sizes: PyTree) -> tuple[State, dict[str, bool | None]]:
        # v^ falls by many decades and matters down to eps^2: arcsinh keeps its relative accuracy down to there
        full = lambda value: jax.tree.map(lambda g: jnp.full(g.shape, value, g.dtype), gradient)  # noqa: E731
        return {"step": full(1.0), "second": full(self.eps**2)}, {"step": False, "second": True}

    def energy(self, age: Float[Array, ""], state: State, rates: PyTree) -> Float[Array, ""]:
        part = lambda r, u, v: jnp.sum(r * u**2 * (_root(v)[0] + self.eps))  # noqa: E731
        total = jax.tree.reduce(jnp.add, jax.tree.map(part, rates, state["step"], state["second"]))
        return -jnp.expm1(-age / self.tau1) * self.tau1 / 2 * total

    def growth(self, rate: float) -> float | None:
        return None


def _root(v: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """`sqrt(v)` and its derivative, both 0 where there is nothing under the root (a gradient that is exactly zero)."""
    safe = jnp.where(v > 0, v, 1.0)
    root = jnp.where(v > 0, jnp.sqrt(safe), 0.0)
    return root, jnp.where(v > 0, 0.5 / jnp.sqrt(safe), 0.0)
