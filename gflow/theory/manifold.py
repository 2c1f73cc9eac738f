"""How long the induction head needs to leave its plateau: integrals along one curve instead of a flow.

As sigma -> 0 every run relaxes to the saddle `(v_p, 0)` and leaves it along the same curve `v2 = V(w)`, its unstable
manifold, which solves

    dV/d log w = [A_i K1 - V K2] / (2 p F),     d t/d log w = 1/(2 p F),     F = A_i V K1' - 1/2 V^2 K2',

with p = 1 (untied), 2 (tied). The time to reach it from sigma is logarithmic and known in closed form, so

    T = [ 1/2 log w0 - log sigma + p D ] / g + int_{w0} dt,
    D = [ A_i K1' (v_p - sigma) - K2' v_p (v_p - sigma) + 1/4 K2' (v_p - sigma)^2 ] / K2      (all at w = 0):

D is the growth lost while v2 is on its way to v_p. Only terms that vanish with sigma are missing. Setting V to the slow
manifold `A_i K1/K2` instead saves the first equation but is exact only where v2 relaxes (rate K2 ~ 1/n) much faster
than w grows (rate g ~ w*^2 A_i^2/n): their ratio does not shrink with L. Derived, docs/theory.md.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from gflow.theory.plateau import POWER, growth_rate, overlaps, plateau_level

Curve = Literal["unstable_manifold", "slow_manifold"]
DEGREE = 80  # of the Chebyshev interpolants of K1, K2 on [0, c]
START = 1e-8  # of c: there the manifold is a straight line, and the growth rate g, to eight digits


@jax.jit
def _sample(table: Any, ws: jax.Array) -> jax.Array:
    return jax.vmap(table.pair)(ws)


MOST_CALLS = 20_000  # evaluations of the manifold's direction; a few hundred are usual


class _Forces:
    """`K1, K2` and their derivatives on [0, c] as plain numpy polynomials: cheap inside an adaptive integration."""

    def __init__(self, induction: Any) -> None:
        self.c = float(induction.table.c)
        self.amplitude = float(induction.amplitude)
        angles = np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1)
        nodes = 0.5 * self.c * (1.0 + np.cos(angles))
        values = np.asarray(_sample(induction.table, jnp.asarray(nodes)))
        cosines = np.cos(np.outer(np.arange(DEGREE + 1), angles))
        coefficients = 2.0 / (DEGREE + 1) * cosines @ values
        coefficients[0] *= 0.5
        self.K = (
            np.polynomial.Chebyshev(coefficients[:, 0], [0.0, self.c]),
            np.polynomial.Chebyshev(coefficients[:, 1], [0.0, self.c]),
        )
        self.dK = self.K[0].deriv(), self.K[1].deriv()
        self.kcc = float(self.K[1](self.c))

    def pull(self, w: float | int, v: float) -> tuple[float, float]:
        """(-dLoss/dv2, -dLoss/dw)."""
        A = self.amplitude
        return A * self.K[0](w) - v * self.K[1](w), A * v * self.dK[0](w) - 0.5 * v * v * self.dK[1](w)

    def loss(self, w: float | int, v: float) -> float:
        """Loss_IH."""
        A = self.amplitude
        return 0.5 * (A * A * self.kcc - 2.0 * A * v * self.K[0](w) + v * v * self.K[1](w))

    def slow(self, w: float | int) -> float:
        """The v2 at which its own force vanishes."""
        return self.amplitude * self.K[0](w) / self.K[1](w)


def lost_growth(induction: Any, sigma: float | int) -> float:
    """`D`, see above: growth of log wK that is missing at the plateau because v2 started at sigma, not at v_p."""
    K = overlaps(induction)
    v = K.amplitude * K.K1 / K.K2
    gap = v - sigma
    return (K.amplitude * K.dK1 * gap - K.dK2 * v * gap + 0.25 * K.dK2 * gap * gap) / K.K2


class _NoEscapeError(Exception):
    """The unstable manifold does not lead to w = c in a reasonable number of steps."""


def escape_times(
    induction: Any,
    parametrization: str,
    sigma: float | int,
    levels: dict[str, float],
    curve: Curve = "unstable_manifold",
) -> dict[str, float | None]:
    """Times at which Loss_IH falls below `levels` (absolute, below the plateau), as sigma -> 0.

    None for a level above the plateau or one that is not passed before w = c, for `merged`, and where nothing grows
    (rho <= 0).
    """
    none: dict[str, float | None] = dict.fromkeys(levels)
    rate = growth_rate(induction, parametrization)
    if rate is None or not rate > 0:
        return none
    p = POWER[parametrization]
    K = overlaps(induction)
    forces = _Forces(induction)
    v_p = K.amplitude * K.K1 / K.K2
    bend = (K.amplitude * K.dK1 - v_p * K.dK2) / (2.0 * rate + K.K2)  # V'(0)
    w0 = START * forces.c
    slow = curve == "slow_manifold"

    calls = itertools.count()

    def field(s: float, y: np.ndarray) -> list[float]:
        if next(calls) > MOST_CALLS:
            raise _NoEscapeError
        w = math.exp(s)
        v = forces.slow(w) if slow else float(y[1])
        relax, force = forces.pull(w, v)
        step = 1.0 / (2.0 * p * force)
        return [step, 0.0 if slow else relax * step]

    def excess(level: float | int) -> Any:
        def event(s: float, y: np.ndarray) -> float:
            w = math.exp(s)
            return forces.loss(w, forces.slow(w) if slow else float(y[1])) - level

        return event

    below = {name: level for name, level in levels.items() if level < plateau_level(induction)}
    if not below:
        return none
    start = (0.5 * math.log(w0) - math.log(sigma) + p * lost_growth(induction, sigma)) / rate
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LSODA's complaints: what it could not reach is reported as None
            found = solve_ivp(
                field,
                (math.log(w0), math.log(forces.c * (1.0 - 1e-9))),
                np.array([0.0, v_p + bend * w0]),
                method="LSODA",
                rtol=1e-9,
                atol=[1e-9 / rate, 1e-12],
                events=[excess(level) for level in below.values()],
            )
    except _NoEscapeError:
        return none
    assert found.t_events is not None
    assert found.y_events is not None
    times = [float(start + y[0][0]) if len(y) else None for y in found.y_events]
    return none | dict(zip(below, times, strict=True))
