"""An overlap table as two plain polynomials on the range that flows visit: cheap enough for millions of steps.

    n K1(w) = sum_k c_1k x^k,   n K2(w) = sum_k c_2k x^k,   x = slope w + offset in [-1, 1]

Chebyshev interpolants of the table's own cells, as sums of powers: on [-1, 1] and at these degrees nothing is lost to
rounding (measured). The smallest degree that leaves less than `GOOD` of relative error is taken, from a short list, so
that few programs are compiled.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.polynomial import chebyshev

from gflow.losses.induction.build import evaluate_cells
from gflow.losses.induction.table import OverlapTable

Vector = np.ndarray
DEGREES = (16, 24, 32, 48)
GOOD = 1e-9  # relative error of a value, and a fiftieth of that of a slope
NODES = 128
# of c: where the logit scale may be. Nearly all lanes stay in the first range, which needs fewer coefficients; those
# that start or overshoot further have the second, and what leaves that has the table that `solve` grows
RANGES = ((-0.02, 1.05), (-0.25, 1.25))


@dataclasses.dataclass(frozen=True)
class TablePolynomials:
    """The polynomials of one table. `coefficients` [2, degree + 1], `kcc` = n K(c, c); `table_error` bounds the
    relative error of the table, `fit_error` (measured) that of the polynomials against it."""

    coefficients: Vector
    slope: float
    offset: float
    kcc: float
    n: float
    c: float
    table_error: float
    fit_error: float

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return self.coefficients.shape[1] - 1

    def at(self, w: Vector, derivative: int = 0) -> Vector:
        """n K1 and n K2 (or a derivative in w) at w [m], as [2, m]."""
        rows = [np.polynomial.polynomial.polyder(row, derivative) for row in self.coefficients]
        x = self.slope * np.asarray(w) + self.offset
        return self.slope**derivative * np.stack([np.polynomial.polynomial.polyval(x, row) for row in rows])

    def padded(self, degree: int) -> TablePolynomials:
        """The same polynomials with zeros up to `degree`."""
        more = np.zeros((2, degree - self.degree))
        return dataclasses.replace(self, coefficients=np.concatenate([self.coefficients, more], axis=1))


def polynomials_of(table: OverlapTable, wide: bool = False) -> TablePolynomials:
    """Fit the polynomials of a table. Their degree is the least of `DEGREES` that will do, or the largest."""
    c, n = float(table.w_star) ** 2, float(table.L) - 2.0
    low, high = RANGES[wide]
    lo, hi = max(low * c, float(table.lo)), min(high * c, float(table.hi))
    cells = np.asarray(table.cells, dtype=float)

    def values(w: Vector) -> Vector:
        return n * evaluate_cells(cells, float(table.lo), float(table.hi), w)

    theta = math.pi * (np.arange(NODES) + 0.5) / NODES
    samples = values(0.5 * (lo + hi) + 0.5 * (hi - lo) * np.cos(theta))
    series = 2.0 / NODES * samples @ np.cos(np.outer(np.arange(DEGREES[-1] + 1), theta)).T
    series[:, 0] *= 0.5
    check = np.linspace(-1.0, 1.0, 301)
    exact = values(np.clip(0.5 * (lo + hi) + 0.5 * (hi - lo) * check, lo, hi))
    slopes = np.stack([chebyshev.chebval(check, chebyshev.chebder(row)) for row in series])
    for degree in DEGREES:
        rows = np.stack([chebyshev.cheb2poly(row[: degree + 1]) for row in series])
        fitted = np.stack([np.polynomial.polynomial.polyval(check, row) for row in rows])
        error = float(np.max(np.abs(fitted / exact - 1.0)))
        rising = np.stack([np.polynomial.polynomial.polyval(check, np.polynomial.polynomial.polyder(r)) for r in rows])
        error = max(error, 0.02 * float(np.max(np.abs(rising - slopes) / np.max(np.abs(slopes), axis=1)[:, None])))
        if error <= GOOD:
            break
    return TablePolynomials(
        coefficients=rows,  # pyright: ignore[reportPossiblyUnboundVariable]
        slope=2.0 / (hi - lo),
        offset=-(hi + lo) / (hi - lo),
        kcc=float(values(np.array([c]))[1, 0]),
        n=n,
        c=c,
        table_error=float(np.max(np.asarray(table.relative_error))),
        fit_error=error,  # pyright: ignore[reportPossiblyUnboundVariable]
    )
