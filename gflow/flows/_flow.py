"""`AbstractFlow`, what all flows share, and `GradientFlow`: a loss becomes a vector field."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows._blocks import leaf_mask
from gflow.flows._charts import AbstractChart
from gflow.flows._clocks import AbstractClock
from gflow.flows._law import AbstractLaw, Descent


class AbstractFlow(eqx.Module):
    """A loss, the leaves that move, and a law that says how; `solve` takes any flow.

    Arguments that all flows share:
    - `loss`: any pure JAX function `params -> scalar`, of any PyTree of floating point arrays. It may be an
      `eqx.Module` with `parts(params) -> dict`, `blocks()`, `error_bound(params)`, `domain(params)`, `grow(params)`.
    - `trainable`: which leaves move: None for all, a selector `lambda p: (p.wK, p.wQ)`, or a PyTree of bools.
    - `rates`: positive learning rates, one number, or a PyTree of numbers like (or a prefix of) the parameters.
    - `chart`: coordinates to integrate in (`LogChart`, `ScaledChart`, your own `AbstractChart`); the metric is kept.
    - `clock`: the time scale of the steps, `LogClock(1.0)` for a run over many decades; by default plain time, or what
      the loss's `blocks()` ask for. It changes the steps, never the trajectory.

    Raises `InputError` when `trainable` selects nothing or a rate is not a positive number.
    """

    loss: eqx.AbstractVar[Callable[[Any], Any]]
    trainable: eqx.AbstractVar[Any]
    rates: eqx.AbstractVar[Any]
    chart: eqx.AbstractVar[AbstractChart | None]
    clock: eqx.AbstractVar[AbstractClock | None]

    def __check_init__(self) -> None:
        if not callable(self.loss):
            name = type(self).__name__
            raise InputError(f"{name}: the loss must be a function of the parameters, got {self.loss!r}")

    @abc.abstractmethod
    def law(self) -> AbstractLaw:
        """The law of motion: numbers only, the loss comes in as its gradient."""

    def numbers(self) -> dict[str, float]:
        """The numbers of the law, by the name of the argument."""
        shared = ("loss", "trainable", "rates", "chart", "clock")
        return {f.name: float(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in shared}

    def mask(self, params: PyTree) -> PyTree:
        """PyTree of bools: True at the trainable floating point leaves."""
        floating = jax.tree.map(eqx.is_inexact_array, params)
        if self.trainable is None:
            return floating
        if callable(self.trainable):
            try:
                chosen = leaf_mask(self.trainable, params)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise InputError(f"trainable: the selector does not fit the parameters: {error}") from error
        else:
            try:
                chosen = jax.tree.broadcast(self.trainable, params)
            except ValueError as error:
                raise InputError(
                    f"trainable: a PyTree of bools must have the structure of the parameters: {error}"
                ) from error
        mask = jax.tree.map(lambda c, f: bool(c) and f, chosen, floating)
        if not any(jax.tree.leaves(mask)):
            raise InputError("trainable: no floating point parameter is selected, so nothing would move")
        return mask

    def rate_tree(self, params: PyTree) -> PyTree:
        """Rates, one array per leaf of `params`."""
        rates = 1.0 if self.rates is None else self.rates
        try:
            full = jax.tree.broadcast(rates, params)
        except ValueError as error:
            raise InputError(f"rates: a PyTree of rates must be a prefix of the parameters: {error}") from error
        for rate in jax.tree.leaves(full):
            traced = isinstance(rate, Tracer)
            if not traced and not (np.all(np.isfinite(rate)) and np.all(np.asarray(rate) > 0)):
                raise InputError(f"rates: a rate must be a positive finite number, got {rate}; freeze with trainable=")
        return full


class GradientFlow(AbstractFlow):
    """`d params/dt = - rates * grad loss(params)` on the trainable leaves; the other leaves stay where they are.

    Arguments: `loss`, `trainable`, `rates`, `chart`, `clock` as in `AbstractFlow`.
    """

    loss: Callable[[Any], Any]
    trainable: Any = None
    rates: Any = None
    chart: AbstractChart | None = None
    clock: AbstractClock | None = None

    def law(self) -> AbstractLaw:
        return Descent()

    def __call__(self, t: Any, params: PyTree) -> PyTree:
        """Velocity `d params/dt` at `params` (zero at frozen leaves)."""
        del t
        moving, frozen = eqx.partition(params, self.mask(params))
        gradient = jax.grad(lambda p: self.loss(eqx.combine(p, frozen)))(moving)
        rates = eqx.filter(self.rate_tree(params), self.mask(params))
        velocity = jax.tree.map(lambda r, g: -jnp.asarray(r, g.dtype) * g, rates, gradient)
        still = jax.tree.map(jnp.zeros_like, eqx.filter(frozen, eqx.is_array))
        return eqx.combine(velocity, still, frozen)


def number(value: Any) -> Any:
    """A number of a flow as an array, so that new values compile nothing."""
    return jnp.asarray(value, float) if isinstance(value, int | float) else jnp.asarray(value)


def check_number(flow: str, name: str, value: Any, zero_allowed: bool = False, why: str = "") -> None:
    """A number of a flow must be a positive finite scalar (or zero, where that means something)."""
    if value.shape != ():
        raise InputError(f"{flow}: {name} must be one number, got an array of shape {value.shape}")
    if isinstance(value, Tracer):
        return
    given = float(np.asarray(value))
    if not np.isfinite(given) or given < 0 or (given == 0 and not zero_allowed):
        raise InputError(f"{flow}: {name}={given:g} must be a {'' if zero_allowed else 'positive '}finite number{why}")
