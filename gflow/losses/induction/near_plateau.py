"""The overlaps at one logit scale and what grows on the plateau: the part of the theory that runs report themselves.

    Loss_IH = 1/2 [A_i^2 K(c,c) - 2 A_i v2 K1(w) + v2^2 K2(w)],     K1(w) = K(w, c), K2(w) = K(w, w), c = w*^2

All functions take the induction part of a population loss and return Python floats (derived, docs/theory.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# d log(logit weight)/dt = POWER * F(w), and dw/dt = 2 POWER w F(w), for w = u^2 with u = wK = wQ or wKQ
POWER = {"untied": 1.0, "tied": 2.0}


@dataclasses.dataclass(frozen=True)
class Overlaps:
    """Values and derivatives of K1 and K2 at one logit scale, and K(c,c), as floats."""

    K1: float
    K2: float
    dK1: float
    dK2: float
    ddK1: float
    ddK2: float
    kcc: float
    amplitude: float


@jax.jit
def _jet(table: Any, w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    first = jax.jacfwd(table.pair)
    return table.pair(w), first(w), jax.jacfwd(first)(w), table.kcc


def overlaps(induction: Any, w: float | int = 0.0) -> Overlaps:
    """`K1, K2` and their first two derivatives at `w` (default 0: the plateau)."""
    pair, first, second, kcc = _jet(induction.table, jnp.asarray(w, induction.table.lo.dtype))
    numbers = [float(x) for x in np.concatenate([pair, first, second])]
    return Overlaps(*numbers, kcc=float(kcc), amplitude=float(induction.amplitude))


def rho(induction: Any) -> float:
    """`rho = A_i v_p K1'(0) - 1/2 v_p^2 K2'(0)`: growth rate of wK = wQ on the plateau (derived, docs/theory.md)."""
    K = overlaps(induction)
    v = K.amplitude * K.K1 / K.K2
    return K.amplitude * v * K.dK1 - 0.5 * v * v * K.dK2


def growth_rate(induction: Any, parametrization: str) -> float | None:
    """`g = rho` (untied: wK, wQ), `2 rho` (tied: wKQ), None (merged: w moves at once) (derived, docs/theory.md)."""
    power = POWER.get(parametrization)
    return None if power is None else power * rho(induction)
