"""Least-squares fits of `T = a + b phi_p(s)`: for each p a linear problem, so only p itself is searched for.

`phi_p`: 1 missing (constant), `log(1/s)` (log), `1/s` (inverse), `s^-p` (power), `log(1/s)^p` (log-power).
Confidence intervals at 95%: for p all values whose weighted residuals are not significantly larger than the least
ones (profile, F distribution), valid also at the end of the range; for a and b Student's. Derived, docs/exponents.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

Vector = Float[np.ndarray, " m"]
Coefficients = Float[np.ndarray, " k"]
Matrix = Float[np.ndarray, "m k"]
CONFIDENCE = 0.95
GRID = 81


@dataclasses.dataclass(frozen=True)
class Shape:
    """One law: `phi_p(s) = exp(p * exponent(s))`, and its p, or the range in which p is fitted."""

    name: str
    formula: str
    exponent: Callable[[Vector], Vector] | None  # None: no phi at all
    fixed: float | None  # p where it is not fitted
    span: tuple[float, float] = (0.0, 0.0)  # of a fitted p

    @property
    def size(self) -> int:
        """How many parameters are fitted."""
        return (1 if self.exponent is None else 2) + (self.fixed is None)


def _minus_log(s: Vector) -> Vector:
    return -np.log(s)


def _log_log(s: Vector) -> Vector:
    return np.log(-np.log(s))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("constant", "T = a", None, 0.0),
        Shape("log", "T = a + b log(1/s)", _log_log, 1.0),
        Shape("inverse", "T = a + b/s", _minus_log, 1.0),
        Shape("power", "T = a + b s^-p", _minus_log, None, (1e-3, 6.0)),
        Shape("log-power", "T = a + b log(1/s)^p", _log_log, None, (0.05, 12.0)),
    )
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """`parameters` and `intervals` (low, high) by name; `misfit`: weighted sum of squares; `predict(s)`."""

    shape: Shape
    misfit: float
    freedom: int
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    def predict(self, s: Vector) -> Vector:
        """T at scales s."""
        values = np.full(s.shape, self.parameters["a"])
        if self.shape.exponent is None:
            return values
        p = self.parameters.get("p", self.shape.fixed)
        return values + self.parameters["b"] * np.exp(p * self.shape.exponent(s))


def _linear(shape: Shape, s: Vector, T: Vector, error: Vector, p: float) -> tuple[Matrix, Coefficients, float]:
    """Design over error, coefficients (a, b of the scaled phi), weighted sum of squared residuals."""
    columns = [np.ones_like(s)]
    if shape.exponent is not None:
        e = shape.exponent(s)
        columns.append(np.exp(p * (e - e.max())))
    design = np.stack(columns, axis=1) / error[:, None]
    found = np.linalg.lstsq(design, T / error, rcond=None)[0]
    return design, found, float(np.sum((design @ found - T / error) ** 2))


def fit(shape: Shape, s: Vector, T: Vector, error: Vector) -> Fit:
    """The best fit of the law to times T with standard errors `error`, at scales s."""
    misfit = lambda p: _linear(shape, s, T, error, float(p))[2]  # noqa: E731
    p = _best(misfit, shape.span) if shape.fixed is None else shape.fixed
    design, found, least = _linear(shape, s, T, error, p)
    freedom = max(len(s) - shape.size, 1)
    # errors that are too small for the residuals are made larger, never smaller
    variance = max(least / freedom, 1.0)
    parameters: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    if shape.fixed is None:
        parameters["p"] = p
        limit = least + variance * float(stats.f.ppf(CONFIDENCE, 1, freedom))
        intervals["p"] = _profile(misfit, p, limit, shape.span)
    e = np.zeros_like(s) if shape.exponent is None else shape.exponent(s)
    unit = math.exp(p * e.max())
    jacobian = design
    if shape.fixed is None:  # a column for log p, whose uncertainty is that of a and b too
        jacobian = np.column_stack([design, found[1] * p * (e - e.max()) * np.exp(p * (e - e.max())) / error])
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian, hermitian=True)
    student = float(stats.t.ppf(0.5 + 0.5 * CONFIDENCE, freedom))
    # the scaled b is b exp(p max e): an uncertain p makes b itself uncertain
    moves = np.eye(len(covariance))
    if shape.fixed is None:
        moves[1, 2] = -found[1] * p * e.max()
    spread = student * np.sqrt(np.diag(moves @ covariance @ moves.T))
    for i, (name, scale) in enumerate((("a", 1.0), ("b", 1.0 / unit))[: design.shape[1]]):
        parameters[name] = float(found[i]) * scale
        intervals[name] = (float(found[i] - spread[i]) * scale, float(found[i] + spread[i]) * scale)
    return Fit(shape, least, freedom, parameters, intervals)


def _best(misfit: Callable[[float], float], span: tuple[float, float]) -> float:
    grid = np.geomspace(*span, GRID)
    values = [misfit(float(p)) for p in grid]
    i = int(np.argmin(values))
    around = grid[max(i - 1, 0)], grid[min(i + 1, GRID - 1)]
    found = optimize.minimize_scalar(misfit, bounds=around, method="bounded", options={"xatol": 1e-10 * around[1]})
    return float(found.x) if found.fun <= values[i] else float(grid[i])


def _profile(
    misfit: Callable[[float], float], p: float, limit: float, span: tuple[float, float]
) -> tuple[float, float]:
    """Where the misfit passes `limit` on either side of p; 0 or infinity where it does not within the range."""
    ends: list[float] = []
    for end, open_end in ((span[0], 0.0), (span[1], math.inf)):
        excess = lambda q: misfit(q) - limit  # noqa: E731
        if end == p or excess(end) <= 0 or excess(p) >= 0:
            ends.append(open_end)
        else:
            ends.append(optimize.root_scalar(excess, bracket=(min(p, end), max(p, end)), xtol=1e-10).root)
    return ends[0], ends[1]
