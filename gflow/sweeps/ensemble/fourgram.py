"""The 4-gram block of many lanes at p11 = inf (MATH section 3), scaled by its target's amplitude.

nu = v1/A_g,  p = p21,  m = 1 - M = (r - q)/(1 - q),  r = e^{-p},  q = e^{-np}

2 Loss/(d A_g^2) = s2 [(1-nu)^2 + 2 nu m - 2 nu^2 m/(1+r)] + mu^2 (1-nu)^2

d nu/dt = d {s2 [1 - nu - m + 2 nu m/(1+r)] + mu^2 (1-nu)},    d p/dt = -d s2 A_g^2 nu d/dp [m - nu m/(1+r)]
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array

from gflow.sweeps.ensemble._rosenbrock import Held, Pair, PlanarSystem, Reals

# 1/(e^x - 1) = 1/x - 1/2 + x/12 - ..., to 1e-12 for 0 <= x <= 1/2, and 1 - e^{-x} = x - x^2/2 + ...
_ODD = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)
_GAP = tuple((-1.0) ** k / math.factorial(k + 1) for k in range(12))
_FAR = 0.5
# of 1/n, to which nu and p grow at a constant rate before they grow exponentially
SMALL = 0.1


class FourgramLanes(PlanarSystem):
    """The system of `lanes` lanes: n = L - 2, `square` = A_g^2, d; mean and variance of a token. Needs p21 > 0."""

    n: Held
    per_n: Held
    square: Held
    d: Held
    mean: Held
    variance: Held
    one: Held

    def fuses(self) -> bool:
        """Not with so many exponentials and quotients (measured: three times slower)."""
        return False

    def rates(self, a: Reals, b: Reals) -> Pair:
        nu = a
        missed, slope, r = self._missed(b)
        k = 1.0 / (1.0 + r) * self.one
        half, half_slope = missed * k, slope * k + missed * r * k * k
        rise = self.variance * (1.0 - nu - missed + 2.0 * nu * half) + self.mean**2 * (1.0 - nu)
        return self.d * rise, -self.d * self.variance * self.square * nu * (slope - nu * half_slope)

    def linear(self, a: Reals, b: Reals) -> tuple[Pair, tuple[Reals, Reals, Reals, Reals]]:
        nu = a
        missed, slope, r = self._missed(b)
        bend = self._bend(b, missed, slope, r)
        k = 1.0 / (1.0 + r) * self.one
        k1 = r * k * k
        half, half1 = missed * k, slope * k + missed * k1
        half2 = bend * k + 2.0 * slope * k1 + missed * k1 * (2.0 * r * k - 1.0)
        both, pull = self.d * self.variance, self.square * self.d * self.variance
        rise = self.variance * (1.0 - nu - missed + 2.0 * nu * half) + self.mean**2 * (1.0 - nu)
        f = (self.d * rise, -pull * nu * (slope - nu * half1))
        mixed = 2.0 * nu * half1 - slope
        return f, (
            both * (2.0 * half - 1.0) - self.d * self.mean**2, both * mixed, pull * mixed,
            -pull * nu * (bend - nu * half2),
        )  # fmt: skip

    def value(self, a: Reals, b: Reals) -> Reals:
        """Loss_G4 / A_g^2."""
        missed, _, r = self._missed(b)
        bracket = (1.0 - a) ** 2 + 2.0 * a * missed * (1.0 - a * (1.0 / (1.0 + r) * self.one))
        return 0.5 * self.d * (self.variance * bracket + self.mean**2 * (1.0 - a) ** 2)

    def falling(self, a: Reals, b: Reals) -> Reals:
        """d value / dt: minus the squared gradient."""
        of_nu, of_p = self.rates(a, b)
        return -(of_nu**2) - of_p**2 / self.square

    def inside(self, a: Reals, b: Reals) -> Array:
        """Where the formulas hold."""
        return b > 0

    def scales(self, a: Reals, b: Reals) -> Pair:
        """What an error of nu and of p is measured against."""
        small = SMALL / self.n
        return jnp.abs(a) + small, jnp.abs(b) + small

    def _missed(self, p: Reals) -> tuple[Reals, Reals, Reals]:
        """m = 1 - M, dm/dp = -M (log M)', and r; without cancellation for any p > 0."""
        many = self.n * p
        r, q = jnp.exp(-p) * self.one, jnp.exp(-many) * self.one
        per_p, per_q = 1.0 / _gap(p, r) * self.one, 1.0 / _gap(many, q) * self.one
        far = many > _FAR
        M = _gap(p, r) * per_q
        missed = jnp.where(far, (r - q) * per_q, 1.0 - M)
        # (log M)' = 1/(e^p - 1) - n/(e^{np} - 1)
        near = jnp.minimum(many, _FAR)
        series = 0.5 * (self.n - 1.0) + _odd(near * self.per_n) - self.n * _odd(near)
        return missed, -M * jnp.where(far, r * per_p - self.n * q * per_q, series), r

    def _bend(self, p: Reals, missed: Reals, slope: Reals, r: Reals) -> Reals:
        """d^2 m/dp^2 = -M [(log M)'^2 + (log M)'']."""
        many = self.n * p
        q, M = jnp.exp(-many) * self.one, 1.0 - missed
        near = jnp.minimum(many, _FAR)
        series = _odd_slope(near * self.per_n) - self.n**2 * _odd_slope(near)
        per_p, per_q = 1.0 / _gap(p, r) * self.one, 1.0 / _gap(many, q) * self.one
        curve = jnp.where(many > _FAR, q * (self.n * per_q) ** 2 - r * per_p**2, series)
        return -slope * slope / M - M * curve


def _series(coefficients: tuple[float, ...], x: Reals) -> Reals:
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _odd(x: Reals) -> Reals:
    """1/(e^x - 1) - 1/x + 1/2."""
    return x * _series(_ODD, x * x)


def _odd_slope(x: Reals) -> Reals:
    """Its derivative."""
    return _series(tuple((2 * k + 1) * c for k, c in enumerate(_ODD)), x * x)


def _gap(x: Reals, e: Reals) -> Reals:
    """1 - e^{-x}, given e = e^{-x}."""
    near = jnp.minimum(x, _FAR)
    return jnp.where(x > _FAR, 1.0 - e, near * _series(_GAP, near))
