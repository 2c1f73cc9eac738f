"""The induction block of many lanes, in the variables in which it is easy (PERFORMANCE: scale, then integrate).

    nu = v2/A_i,  tau = t/n,     d nu/d tau = n K1 - nu n K2,     d s/d tau = m A_i^2 n (nu K1' - nu^2 K2'/2)

s is the growth of the logit scale, w = P e^s - Q e^{-s} with s = 0 at the start (merged: w = w0 + s):

- untied, m = 2: wK + wQ grows like e^{s/2} and wK - wQ falls like e^{-s/2}, so P = (wK+wQ)^2/4, Q = (wK-wQ)^2/4;
- tied, m = 4: P = wKQ^2, Q = 0;      - merged, m = 1.

On the plateau s is linear in tau, and no start, however small or however unequal wK and wQ, is special.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from gflow.sweeps.ensemble._rosenbrock import Held, Pair, PlanarSystem, Reals

LARGEST_FUSIBLE = 33  # coefficients of a polynomial
# relative accuracy is asked of nu down to this size: the first milestone of an early lane is passed near nu = .01
SMALL_NU = 1e-3


class InductionLanes(PlanarSystem):
    """The system of `lanes` lanes. Coefficients [3, 2, degree+1, 1 or lanes]: of n K1, n K2 and of their first and
    second derivatives in x = slope w + offset; `slope`, `offset`, `kcc`, each [1 or lanes]; P, Q, start [lanes] as
    above; `gain` = m A_i^2 slope.
    """

    coefficients: Held
    slope: Held
    offset: Held
    kcc: Held
    P: Held
    Q: Held
    start: Held
    gain: Held
    one: Held
    merged: bool = eqx.field(static=True)

    def fuses(self) -> bool:
        """Beyond some size XLA splits the one loop of a step, and recomputes (measured: 17 times slower at 48)."""
        return self.coefficients.shape[2] <= LARGEST_FUSIBLE

    def scale(self, s: Reals) -> Pair:
        """The logit scale w and dw/ds."""
        if self.merged:
            return self.start + s, jnp.ones_like(s)
        up = self.P * jnp.exp(s)
        down = self.Q * jnp.exp(-s)
        return up - down, up + down

    def place(self, s: Reals) -> Reals:
        """x, where the polynomials are evaluated."""
        return self.slope * self.scale(s)[0] + self.offset

    def rates(self, a: Reals, b: Reals) -> Pair:
        nu, x = a, self.place(b)
        (p1, p2), (d1, d2) = (_pair(self.coefficients[order], x) for order in (0, 1))
        return p1 - nu * p2, self.gain * nu * (d1 - 0.5 * nu * d2)

    def linear(self, a: Reals, b: Reals) -> tuple[Pair, tuple[Reals, Reals, Reals, Reals]]:
        nu, x = a, self.place(b)
        (p1, p2), (d1, d2), (e1, e2) = (_pair(self.coefficients[order], x) for order in (0, 1, 2))
        bend = self.scale(b)[1] * self.slope
        mixed = d1 - nu * d2
        f = (p1 - nu * p2, self.gain * nu * (d1 - 0.5 * nu * d2))
        return f, (-p2, mixed * bend, self.gain * mixed, self.gain * nu * (e1 - 0.5 * nu * e2) * bend)

    def value(self, a: Reals, b: Reals) -> Reals:
        """n Loss_IH / A_i^2."""
        p1, p2 = _pair(self.coefficients[0], self.place(b))
        return 0.5 * self.kcc - a * p1 + 0.5 * a**2 * p2

    def falling(self, a: Reals, b: Reals) -> Reals:
        """d value / d tau: minus the squared gradient, in the metric of (nu, s)."""
        of_nu, of_s = self.rates(a, b)
        return -(of_nu**2) - of_s**2 * self.scale(b)[1] * self.slope / self.gain

    def inside(self, a: Reals, b: Reals) -> Array:
        """Where the polynomials hold."""
        return jnp.abs(self.place(b)) <= 1.0

    def scales(self, a: Reals, b: Reals) -> Pair:
        """What an error of nu and of s is measured against."""
        return jnp.abs(a) + SMALL_NU, jnp.ones_like(b)


def _pair(coefficients: Any, x: Reals) -> Pair:
    p1, p2 = coefficients[0, -1], coefficients[1, -1]
    for k in range(coefficients.shape[1] - 2, -1, -1):
        p1 = p1 * x + coefficients[0, k]
        p2 = p2 * x + coefficients[1, k]
    return p1 + jnp.zeros_like(x), p2 + jnp.zeros_like(x)
