"""Clocks: the time scale on which a flow is integrated, `t = t(s)` with `dt/ds > 0`."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractClock(eqx.Module):
    """An increasing map from solver time `s` to flow time `t`; `d params/ds = (dt/ds) * d params/dt`.

    A clock changes the steps, never the trajectory. All methods are elementwise and work under `jit`.
    """

    @abc.abstractmethod
    def time(self, s: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        """Flow time t at solver time s."""

    @abc.abstractmethod
    def solver_time(self, t: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        """Solver time s at flow time t, the inverse of `time`."""

    @abc.abstractmethod
    def rate(self, s: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """dt/ds."""


class PlainClock(AbstractClock):
    """`t = s`."""

    def time(self, s: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return s

    def solver_time(self, t: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return t

    def rate(self, s: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return jnp.ones_like(s)


class ScaledClock(AbstractClock):
    """`t = t0 + unit * s`: time in units of a known relaxation time (MATH section 5: t/n for the induction head)."""

    unit: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def time(self, s: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return t0 + self.unit * s

    def solver_time(self, t: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return (t - t0) / self.unit

    def rate(self, s: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.unit * jnp.ones_like(s)


class LogClock(AbstractClock):
    """`t = t0 + unit * (e^s - 1)`: equal steps per decade once t exceeds `unit`, for algebraic tails."""

    unit: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def time(self, s: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return t0 + self.unit * jnp.expm1(s)

    def solver_time(self, t: Float[Array, "*n"], t0: Float[Array, ""]) -> Float[Array, "*n"]:
        return jnp.log1p((t - t0) / self.unit)

    def rate(self, s: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return self.unit * jnp.exp(s)
