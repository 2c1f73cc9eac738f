"""Milestone conditions: when does a scalar function of the parameters first pass a level?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from gflow.errors import InputError


def _as_level(given: Any) -> Any:
    """A number as an array of a definite floating type (a weak type would compile anew); anything else as it is."""
    if given is None or isinstance(given, str):
        return given
    try:
        value = jnp.asarray(given)
        return value.astype(value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else float)
    except (TypeError, ValueError):
        return given


class Condition(eqx.Module):
    """`f(params)` passes a level for the first time; see `Below`, `Above`, `Crosses`.

    `f` is called as `f(params)`, positionally, whatever its argument is named; it must be pure JAX and return a scalar.
    If `f` has an attribute `block`, the condition reads that block of the loss only and is watched on its clock.
    Give either `level`, or `fraction` for a fraction of the initial value of `f`. Raises `InputError` otherwise.
    """

    f: Any
    level: Any = eqx.field(converter=_as_level, default=None)
    fraction: Any = eqx.field(converter=_as_level, default=None, kw_only=True)
    of: str = eqx.field(static=True, default="initial", kw_only=True)
    direction: ClassVar[int] = 0  # -1: reached when f <= level, +1: when f >= level, 0: when the side first changes
    word: ClassVar[str] = "crosses"

    def __check_init__(self) -> None:
        name = type(self).__name__
        if not callable(self.f):
            kind = type(self.f).__name__
            raise InputError(f"{name}: the first argument must be a function of the parameters, got {kind}")
        if (self.level is None) == (self.fraction is None):
            raise InputError(f"{name}: give either a level, {name}(f, 0.1), or a fraction, {name}(f, fraction=0.1)")
        if self.of != "initial":
            raise InputError(f"{name}: a fraction is taken of 'initial', not of {self.of!r}")
        amount = self.amount
        if not eqx.is_array(amount):
            raise InputError(f"{name}: the level must be a number, got {amount!r}")
        if amount.shape != ():
            raise InputError(f"{name}: the level must be a scalar, got an array of shape {amount.shape}")
        if not isinstance(amount, Tracer) and not np.isfinite(np.asarray(amount)):
            raise InputError(f"{name}: the level must be finite, got {amount}")

    @property
    def relative(self) -> bool:
        """True when the level is a fraction of the initial value."""
        return self.fraction is not None

    @property
    def amount(self) -> Any:
        """The level, or the fraction."""
        return self.fraction if self.relative else self.level

    @property
    def block(self) -> str | None:
        """Name of the block of the loss that `f` reads, where it says so."""
        return getattr(self.f, "block", None)

    def value(self, params: PyTree) -> Float[Array, ""]:
        """`f(params)` as a scalar array."""
        f: Callable[[Any], Any] = self.f
        return jnp.asarray(f(params))

    def resolve(self, initial_value: Float[Array, ""]) -> Float[Array, ""]:
        """The absolute level, given `f` at the initial parameters."""
        amount = self.amount.astype(initial_value.dtype)
        return amount * initial_value if self.relative else amount


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
