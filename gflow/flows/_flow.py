"""`GradientFlow`: a loss becomes a vector field."""

from __future__ import annotations

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


class GradientFlow(eqx.Module):
    """`d params/dt = - rates * grad loss(params)` on the trainable leaves; the other leaves stay where they are.

    Arguments:
    - `loss`: any pure JAX function `params -> scalar`, of any PyTree of floating point arrays. It may be an
      `eqx.Module` with `parts(params) -> dict`, `blocks()`, `error_bound(params)`, `domain(params)`, `grow(params)`.
    - `trainable`: which leaves move: None for all, a selector `lambda p: (p.wK, p.wQ)`, or a PyTree of bools.
    - `rates`: positive learning rates, one number, or a PyTree of numbers like (or a prefix of) the parameters.
    - `chart`: coordinates to integrate in (`LogChart`, `ScaledChart`, your own `AbstractChart`); the metric is kept.
    - `clock`: the time scale of the steps, `LogClock(1.0)` for a run over many decades; by default plain time, or what
      the loss's `blocks()` ask for. It changes the steps, never the trajectory.

    Raises `InputError` when `trainable` selects nothing or a rate is not a positive number.
    """

    loss: Callable[[Any], Any]
    trainable: Any = None
    rates: Any = None
    chart: AbstractChart | None = None
    clock: AbstractClock | None = None

    def __check_init__(self) -> None:
        if not callable(self.loss):
            raise InputError(f"GradientFlow: the loss must be a function of the parameters, got {self.loss!r}")

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

    def __call__(self, t: Any, params: PyTree) -> PyTree:
        """Velocity `d params/dt` at `params` (zero at frozen leaves)."""
        del t
        moving, frozen = eqx.partition(params, self.mask(params))
        gradient = jax.grad(lambda p: self.loss(eqx.combine(p, frozen)))(moving)
        rates = eqx.filter(self.rate_tree(params), self.mask(params))
        velocity = jax.tree.map(lambda r, g: -jnp.asarray(r, g.dtype) * g, rates, gradient)
        still = jax.tree.map(jnp.zeros_like, eqx.filter(frozen, eqx.is_array))
        return eqx.combine(velocity, still, frozen)
