"""Milestone conditions: when does a scalar function of the parameters first pass a level?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gflow.errors import InputError


class Condition(eqx.Module):
    """`f(params)` passes a level for the first time; see `Below`, `Above`, `Crosses`.

    `f` is called as `f(params)`, positionally, whatever its argument is named; it must be pure JAX and return a scalar.
    If `f` has an attribute `block`, the condition reads that block of the loss only and is watched on its clock.
    """

    f: Callable[[Any], Any]
    level: Float[Array, ""]
    relative: bool = eqx.field(static=True)
    direction: ClassVar[int] = 0  # -1: reached when f <= level, +1: when f >= level, 0: when the side first changes
    word: ClassVar[str] = "crosses"

    def __init__(
        self,
        f: Any,
        level: Any = None,
        *,
        fraction: Any = None,
        of: str = "initial",
    ) -> None:
        name = type(self).__name__
        if not callable(f):
            raise InputError(f"{name}: the first argument must be a function of the parameters, got {type(f).__name__}")
        if (level is None) == (fraction is None):
            raise InputError(f"{name}: give either a level, {name}(f, 0.1), or a fraction, {name}(f, fraction=0.1)")
        if of != "initial":
            raise InputError(f"{name}: a fraction is taken of 'initial', not of {of!r}")
        given = level if fraction is None else fraction
        try:
            value = jnp.asarray(given)
            value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: the level must be a number, got {given!r}") from error
        if value.shape != ():
            raise InputError(f"{name}: the level must be a scalar, got an array of shape {value.shape}")
        if not isinstance(value, jax.core.Tracer) and not np.isfinite(np.asarray(value)):
            raise InputError(f"{name}: the level must be finite, got {given!r}")
        self.f = f
        self.level = value
        self.relative = fraction is not None

    @property
    def block(self) -> str | None:
        """Name of the block of the loss that `f` reads, where it says so."""
        return getattr(self.f, "block", None)

    def value(self, params: PyTree) -> Float[Array, ""]:
        """`f(params)` as a scalar array."""
        return jnp.asarray(self.f(params))

    def resolve(self, initial_value: Float[Array, ""]) -> Float[Array, ""]:
        """The absolute level, given `f` at the initial parameters."""
        level = self.level.astype(initial_value.dtype)
        return level * initial_value if self.relative else level


class Below(Condition):
    """First time with `f(params) <= level`, or `<= fraction * f(initial params)`.

    `Below(f, 1e-3)`, `Below(f, fraction=0.5)`. Already true at t0: reported at t0.
    """

    direction: ClassVar[int] = -1
    word: ClassVar[str] = "below"


class Above(Condition):
    """First time with `f(params) >= level`, or `>= fraction * f(initial params)`."""

    direction: ClassVar[int] = 1
    word: ClassVar[str] = "above"


class Crosses(Condition):
    """First time at which `f(params) - level` changes its sign, from whichever side it starts."""
