"""`HeavyBallFlow`: the flow with inertia, limit of gradient descent with momentum."""

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


class HeavyBallFlow(AbstractFlow):
    """`mass * theta'' + friction * theta' = - rates * grad loss(theta)`, from rest: `theta'(0) = 0`.

    Source: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964 (docs/references.md). The
    limit of `optax.sgd(lr, momentum=mu)`, `b <- mu b + g`, `theta <- theta - lr b`, in either of two scalings:

    - time `t = sqrt(lr) * step`: mass 1, friction `(1 - mu)/sqrt(lr)`, kept fixed as lr -> 0 (so mu -> 1);
    - time `t = lr * step`, that of the other flows: friction `1 - mu`, mass `lr (1 + mu)/2`; `of_sgd` makes this one.
      As lr -> 0 at fixed mu the mass vanishes: the gradient flow, 1/(1 - mu) times as fast.

    The loss may rise on the way (`traj.stats["loss_rise"]`); `1/2 mass theta'^2/rates + loss` does not. At rest means
    that velocity and gradient vanish. `traj.state["velocity"]` is theta'.

    Arguments: `loss`; `friction` >= 0 and `mass` > 0 (numbers); `trainable`, `rates`, `chart`, `clock` as in
    `AbstractFlow`. Raises `InputError` for numbers that are not.
    """

    loss: Callable[[Any], Any]
    friction: Float[Array, ""] = eqx.field(converter=number)
    mass: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    trainable: Any = eqx.field(default=None, kw_only=True)
    rates: Any = eqx.field(default=None, kw_only=True)
    chart: AbstractChart | None = eqx.field(default=None, kw_only=True)
    clock: AbstractClock | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_number("HeavyBallFlow", "friction", self.friction, zero_allowed=True)
        check_number(
            "HeavyBallFlow", "mass", self.mass, why="; the limit of no mass is GradientFlow, 1/friction as fast"
        )

    @classmethod
    def of_sgd(cls, loss: Callable[[Any], Any], learning_rate: float, momentum: float, **others: Any) -> HeavyBallFlow:
        """The flow that `optax.sgd(learning_rate, momentum=momentum)` follows, in the time `learning_rate * step`."""
        if not 0 <= momentum < 1:
            raise InputError(f"HeavyBallFlow.of_sgd: momentum={momentum} must lie in [0, 1)")
        return cls(loss, 1.0 - momentum, learning_rate * (1.0 + momentum) / 2, **others)

    def law(self) -> AbstractLaw:
        return HeavyBall(self.friction, self.mass)


class HeavyBall(AbstractLaw):
    """`theta' = velocity`, `velocity' = (-rates * gradient - friction * velocity)/mass`."""

    friction: Float[Array, ""]
    mass: Float[Array, ""]
    names: ClassVar[tuple[str, ...]] = ("velocity",)

    def velocity(
        self,
        age: Float[Array, ""],
        moving: PyTree,
        state: State,
        gradient: Callable[[PyTree], PyTree],
        rates: PyTree,
    ) -> tuple[PyTree, State]:
        speed = state["velocity"]
        force = lambda r, g, v: (-r * g - self.friction * v) / self.mass  # noqa: E731
        return speed, {"velocity": jax.tree.map(force, rates, gradient(moving), speed)}

    def start(self, gradient: PyTree) -> State:
        return {"velocity": jax.tree.map(jnp.zeros_like, gradient)}

    def scales(self, gradient: PyTree, rates: PyTree, sizes: PyTree) -> tuple[State, dict[str, bool | None]]:
        # the terminal velocity under friction, or what the force reaches in one unit of time
        drag = jnp.maximum(self.friction, jnp.sqrt(self.mass))

        def size(r: Array, g: Array, fallback: Array) -> Array:
            speed = jnp.max(jnp.abs(r * g), initial=0.0) / drag
            return jnp.where(speed > 0, jnp.full(g.shape, speed), fallback)

        return {"velocity": jax.tree.map(size, rates, gradient, sizes)}, {"velocity": None}

    def energy(self, age: Float[Array, ""], state: State, rates: PyTree) -> Float[Array, ""]:
        kinetic = jax.tree.map(lambda r, v: jnp.sum(v**2 / r), rates, state["velocity"])
        return self.mass / 2 * jax.tree.reduce(jnp.add, kinetic)

    def growth(self, rate: float) -> float | None:
        # the positive root of mass s^2 + friction s = rate, without cancellation
        friction, mass = float(self.friction), float(self.mass)
        return 2 * rate / (friction + float(np.sqrt(friction**2 + 4 * mass * rate)))
