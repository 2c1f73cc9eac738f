"""Optimisers by name. One compiled program serves every value of their numbers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from gflow.errors import InputError

# name -> the numbers it has, with optax's own defaults (momentum: the customary value)
NUMBERS: dict[str, dict[str, float]] = {
    "gd": {},
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"b1": 0.9, "b2": 0.999, "eps": 1e-8},
    "adamw": {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 1e-4},
}
LEARNING_RATES = {"gd": 0.5, "sgd": 0.5, "momentum": 0.05, "adam": 1e-3, "adamw": 1e-3}


class Rule(eqx.Module):
    """An optimiser without its learning rate: `params <- params - lr(k) * direction`. Made by `optimizer`.

    gd, sgd: the gradient g. momentum: `m <- momentum m + g`, direction m (heavy ball: like a learning rate
    `lr / (1 - momentum)`). adam: `m <- b1 m + (1-b1) g`, `v <- b2 v + (1-b2) g^2`, direction
    `(m / (1-b1^k)) / (sqrt(v / (1-b2^k)) + eps)` at step k = 1, 2, ... adamw: that plus `weight_decay * params`.
    Sources: Polyak 1964; Kingma and Ba, arXiv 1412.6980; Loshchilov and Hutter, arXiv 1711.05101. The arithmetic is
    optax's (`trace`, `scale_by_adam`, `add_decayed_weights`).
    """

    name: str = eqx.field(static=True)
    numbers: dict[str, Float[Array, ""]]

    def plain(self) -> Rule:
        """The same under its first name, so that sgd runs what was compiled for gd."""
        return Rule("gd", {}) if self.name == "sgd" else self

    def transform(self, dtype: Any) -> optax.GradientTransformation:
        """The optax transformation of gradients into directions."""
        n = {key: value.astype(dtype) for key, value in self.numbers.items()}
        if self.name in ("gd", "sgd"):
            return optax.identity()
        if self.name == "momentum":
            return optax.trace(decay=n["momentum"])
        adam = optax.scale_by_adam(b1=n["b1"], b2=n["b2"], eps=n["eps"])
        return adam if self.name == "adam" else optax.chain(adam, optax.add_decayed_weights(n["weight_decay"]))

    def init(self, params: PyTree) -> PyTree:
        """State of the optimiser before the first step."""
        return self.transform(_dtype(params)).init(params)

    def update(self, gradient: PyTree, state: PyTree, params: PyTree, lr: Array) -> tuple[PyTree, PyTree]:
        """New parameters and state after one step."""
        # optax raises a float to an integer power, which strict promotion does not allow
        with jax.numpy_dtype_promotion("standard"):
            direction, state = self.transform(_dtype(params)).update(gradient, state, params)
        return jax.tree.map(lambda p, u: p - lr.astype(p.dtype) * u, params, direction), state


class Given(eqx.Module):
    """A caller's optax transformation, its learning rate inside it."""

    transformation: Any

    @property
    def name(self) -> str:
        """What a summary calls it."""
        return "optax"

    def plain(self) -> Given:
        """As it is."""
        return self

    def init(self, params: PyTree) -> PyTree:
        """State of the optimiser before the first step."""
        return self.transformation.init(params)

    def update(self, gradient: PyTree, state: PyTree, params: PyTree, lr: Array) -> tuple[PyTree, PyTree]:
        """New parameters and state after one step; `lr` only tells time, so it is not used here."""
        del lr
        with jax.numpy_dtype_promotion("standard"):
            updates, state = self.transformation.update(gradient, state, params)
        return optax.apply_updates(params, updates), state  # pyright: ignore[reportReturnType]


def optimizer(name: str, **numbers: float | int) -> Rule:
    """The optimiser `name` ("gd", "sgd", "momentum", "adam", "adamw") with its numbers: `optimizer("adam", eps=1e-3)`.

    momentum, b1, b2 lie in [0, 1), eps and weight_decay are not negative. Raises `InputError` for another name, another
    number, or a value out of range.
    """
    if name not in NUMBERS:
        near = difflib.get_close_matches(str(name), NUMBERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NUMBERS)}"
        raise InputError(f"optimizer = {name!r} is unknown; {hint}")
    values = dict(NUMBERS[name])
    for key, value in numbers.items():
        if key not in values:
            have = ", ".join(values) or "none"
            raise InputError(f"{key} = {value} has no meaning for {name}, whose numbers are: {have}; leave it out")
        below = key in ("momentum", "b1", "b2")
        if not (np.isfinite(value) and value >= 0 and (not below or value < 1)):
            raise InputError(f"{key} = {value} is out of range; give a value >= 0{' and < 1' if below else ''}")
        values[key] = value
    return Rule(name, {key: jnp.asarray(value, float) for key, value in values.items()})


def as_rule(given: Any) -> Rule | Given:
    """A name, a `Rule`, or an optax transformation as an optimiser with `init` and `update`."""
    if isinstance(given, str):
        return optimizer(given)
    if isinstance(given, Rule):
        return given
    if isinstance(given, optax.GradientTransformation):
        return Given(given)
    raise InputError(f"optimizer: expected a name or an optax transformation, got {type(given).__name__}")


def _dtype(params: PyTree) -> Any:
    return next(leaf.dtype for leaf in jax.tree.leaves(params) if eqx.is_inexact_array(leaf))


class Schedule:
    """Learning rates on the device, and the time `sum of lr` on the host.

    `lr`: a positive number, or a function of the step number k = 0, 1, ... in pure JAX (optax's schedules are).
    """

    def __init__(self, lr: float | int | Callable[[Any], Any]) -> None:
        self.given = lr
        self._sums = np.zeros(1)
        if callable(lr):
            self.rate: Any = lr
            return
        value = float(lr)
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"lr = {value:g} must be a positive finite number")
        self.constant = value
        self.rate = jnp.asarray(value, float)

    def time(self, step: float | int) -> float:
        """Time after `step` steps (real: linear within a step)."""
        if not callable(self.given):
            return step * self.constant
        whole = int(np.floor(step))
        while len(self._sums) <= whole + 1:
            k = len(self._sums) - 1
            # doubled, so that few sizes are compiled
            new = jax.vmap(lambda j: rate_at(self.given, j))(jnp.arange(k, 2 * k + 1024))
            new = np.broadcast_to(np.asarray(new, dtype=float), (k + 1024,))
            self._sums = np.concatenate([self._sums, self._sums[-1] + np.cumsum(new)])
        before = self._sums[whole]
        return float(before + (step - whole) * (self._sums[whole + 1] - before))


def rate_at(rate: Any, step: Array) -> Array:
    """The learning rate of step k, on the device."""
    # optax's schedules mix whole steps with floats, which strict promotion does not allow
    with jax.numpy_dtype_promotion("standard"):
        return jnp.asarray(rate(step) if callable(rate) else rate)
