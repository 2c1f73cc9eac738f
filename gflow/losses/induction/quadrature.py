"""Nodes and weights of the overlap integrals: tokens x, query length q, and the Laplace variable u (host, numpy).

Three integrals are discretised (MATH section 4; the Laplace rule is derived in docs/):

- `x`: the law of one token. `exp(-u e^{ax})` switches over a width 1/a, so a continuous law needs nodes in proportion.
- `q`: the query. Trapezium where the integrand is even (odd d), Gauss-Legendre where `q^{d-1}` is odd (even d).
- `u`: `int f(u) du`, trapezium in log u, whose infinite left end is summed exactly by a few Gauss nodes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gflow.errors import TableError
from gflow.tokens import GAUSSIAN_EDGE, TokenLaw

Vector = npt.NDArray[Any]  # of float64

# The aliasing error of the trapezium in x is e^{-pi^2/(a h)}, and e^{-pi^2/h} in log u: the poles of exp(-u e^{ax})'s
# Mellin transform lie pi/2 off the real axis.
_DIGITS = 26.0  # -log 5e-12
_BODIES = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256)
TAIL = 10


def _digits(q_weights: Vector, target: float) -> Vector:
    """Natural-log digits that a query of this weight, relative to the heaviest of all, must be integrated to."""
    return np.maximum(target + np.log(q_weights), 2.0)


def key_quadrature(
    law: TokenLaw, n: float, q: Vector, q_weights: Vector, slope_per_q: float, refine: float = 1.0
) -> tuple[Vector, Vector]:
    """Nodes and weights [m] for `E_x`, fine enough for logits `a x` with `|a| <= slope_per_q * q` at each query q.

    A query of small weight, relative to the heaviest of all, may have a larger error: the step is chosen for the worst
    product of both.
    """
    if law.name not in ("gaussian", "uniform"):
        return np.asarray(law.nodes, dtype=float), np.asarray(law.weights, dtype=float)
    slopes = slope_per_q * np.abs(q)
    # a * h <= pi^2 / digits for every query; the n-th power multiplies what is left
    many = 1.0 + 0.02 * math.log(n)
    steepest = max(many * float(np.max(slopes * _digits(q_weights, _DIGITS))) / math.pi**2, 1.0 / 0.25) * refine
    if law.name == "gaussian":
        # rounded so that similar problems share one compilation
        half = 32 * math.ceil(GAUSSIAN_EDGE * steepest / 32)
        x = (GAUSSIAN_EDGE / half) * np.arange(-half, half)  # even count; the point at +8.5 has weight 1e-17
        weights = (GAUSSIAN_EDGE / half) * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return x, weights
    edge = math.sqrt(3.0)
    # Gauss-Legendre has pi/2 times as many nodes per length as the trapezium needs in the middle of the interval
    count = 32 * math.ceil(0.5 * math.pi * 2 * edge * steepest / 32) + 32
    x, weights = np.polynomial.legendre.leggauss(count)
    return edge * x, 0.5 * weights


def query_quadrature(law: TokenLaw, d: int, n: float, slope_per_q: float, refine: float = 1.0) -> tuple[Vector, Vector]:
    """Nodes `q` and weights, both [m], for the expectation over the query (its length |q| ~ chi_d if d > 1).

    A softmax has poles where the keys' partition function vanishes, at a distance ~ 1/slope from the real axis, so the
    number of nodes grows with the largest logit scale `slope_per_q`, most for few keys (n). Symmetric laws need q >= 0
    only, since S(wq, w'q) is even in q.
    """
    refine = refine * (1.0 + slope_per_q * (0.42 + 0.75 / math.sqrt(n)))
    if law.name == "gaussian":
        return _gaussian_queries(d, refine)
    if law.name == "uniform":
        x, weights = np.polynomial.legendre.leggauss(2 * math.ceil(16 * refine))
        return math.sqrt(3.0) * x[x > 0], weights[x > 0]
    q, weights = np.asarray(law.nodes, dtype=float), np.asarray(law.weights, dtype=float)
    if law.is_symmetric:
        keep = q >= 0
        weights = np.where(q > 0, 2.0, 1.0)[keep] * weights[keep]
        q = q[keep]
    return q, weights


def _gaussian_queries(d: int, refine: float) -> tuple[Vector, Vector]:
    edge = math.sqrt(d) + 8.0
    log_norm = 0.5 * d * math.log(2.0) + math.lgamma(0.5 * d) - math.log(2.0)
    if d % 2:
        count = math.ceil(32 * refine * edge / 9.0)
        step = edge / count
        q = step * np.arange(count)
        weights = np.full(count, step)
        weights[0] *= 0.5
    else:
        x, weights = np.polynomial.legendre.leggauss(math.ceil(40 * refine * edge / 9.0))
        q, weights = 0.5 * edge * (x + 1.0), 0.5 * edge * weights
    with np.errstate(divide="ignore"):
        log_density = (d - 1) * np.log(q) - 0.5 * q * q - log_norm if d > 1 else -0.5 * q * q - log_norm
    weights = weights * np.exp(log_density)
    keep = weights > 1e-16 * np.max(weights)
    return q[keep], weights[keep]


def laplace_body(
    slopes: Vector,
    n: float | tuple[float, float],
    x: Vector,
    p: Vector,
    tolerance: Vector,
    q_weights: Vector,
    refine: float = 1.0,
    continuous: bool = True,
) -> int:
    """Number of trapezium nodes in log u that the worst of these rows needs (`q_weights`, one per row, relative).

    A step h modulates 1/Z by e^{-pi^2/h} cos(2 pi log Z / h + ...). Where log Z spreads over more than h this averages
    out, and only the product of both modulations is left, so that steep slopes of a continuous law bear twice the step.
    Raises `TableError` where there cannot be enough.
    """
    low, high = laplace_window(slopes, n, x, p, tolerance)
    step = math.pi**2 / _digits(q_weights, 21.0 if continuous else 27.0)
    if continuous:
        step = step * (1.0 + np.minimum(1.0, np.abs(slopes) / 4.0))
    need = refine * float(np.max((high - low - math.log(0.7 * TAIL)) / np.minimum(step, 1.5)))
    if need > 1.3 * _BODIES[-1]:  # up to there the measured error decides
        raise TableError(
            f"attention logits up to {float(np.max(np.abs(slopes))):.3g} over {np.max(n):g} keys are too steep to "
            "tabulate; use a smaller w_star, d or initial logit scale, or a larger L"
        )
    return next((body for body in _BODIES if body >= need), _BODIES[-1])


def laplace_rule(
    slopes: Vector, n: float | tuple[float, float], x: Vector, p: Vector, tolerance: Vector, body: int, tail: int = TAIL
) -> tuple[Vector, Vector]:
    """Nodes `log u` and weights, both [B, tail+body], with `int f(u) du = sum_i weights_i u_i f(u_i)`.

    `f(u) = E[... exp(-u Z)]`, `Z = sum_k e^{a x_k}` over n tokens; one row per slope a [B], each trimmed to the range
    of u in which Z lives up to events of probability `tolerance` [B]. In `tau = log u` the integrand decays doubly
    exponentially to the right, but only like `e^tau` to the left, where f is a power series in u. So the trapezium
    `h sum_j e^{tau_j} f(e^{tau_j})` keeps its `body` upper nodes, and its infinite lower tail `sum_{k>=0} q^k f(u_t
    q^k)`, `q = e^{-h}`, is summed by the Gauss rule of that discrete measure: little q-Legendre polynomials,
    whose recurrence is explicit, `tail` nodes, exact for powers of u below 2 tail.  *derived*
    """
    return laplace_nodes(*laplace_window(slopes, n, x, p, tolerance), body, tail)


def laplace_nodes(low: Vector, high: Vector, body: int, tail: int) -> tuple[Vector, Vector]:
    """The nodes and weights of `laplace_rule` for the windows [low, high] of log u, both [B]."""
    start = low + math.log(0.7 * tail)  # `tail` Gauss nodes on [0, u] hold exp(-u Z) to 1e-12 up to u Z = .7 tail
    high = np.maximum(high, start + 1.0)
    step = (high - start) / body
    nodes, weights = _little_q_legendre(step, tail)
    upper = start[:, None] + step[:, None] * np.arange(1, body + 1)
    log_u = np.concatenate([start[:, None] + np.log(nodes), upper], axis=1)
    return log_u, np.concatenate([weights / nodes, np.broadcast_to(step[:, None], upper.shape)], axis=1)


def laplace_window(
    slopes: Vector, n: float | tuple[float, float], x: Vector, p: Vector, tolerance: Vector
) -> tuple[Vector, Vector]:
    """-log of a value that Z exceeds, and log of a u at which E exp(-u Z) falls below, with probability `tolerance`.

    `n` may be a range (least, largest), whose window holds those of all n in it.
    """
    if isinstance(n, tuple):
        return laplace_window(slopes, n[1], x, p, tolerance)[0], laplace_window(slopes, n[0], x, p, tolerance)[1]
    if x.size > 256:  # the window needs no accuracy
        thin = x.size // 128
        x, p = x[::thin], p[::thin] / np.sum(p[::thin])
    y = slopes[:, None] * x[None, :]
    order = np.argsort(y, axis=1)
    y, weights = np.take_along_axis(y, order, axis=1), p[order]
    exceed = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    # largest key that is present at all, up to `tolerance`
    present = n * exceed >= tolerance[:, None]
    present[:, 0] = True
    top = np.max(np.where(present, y, -np.inf), axis=1)
    mean = np.sum(np.where(present, weights * np.exp(np.minimum(y, 690.0)), 0.0), axis=1)
    z_high = n * mean + min(n, 6.0) * np.exp(
        np.minimum(top, 690.0)
    )  # a handful of largest keys at once is as rare again
    low = -np.log(z_high)
    left, right = low, math.log(40.0 / n) - y[:, 0]
    need = -np.log(tolerance) / n
    for _ in range(12):
        middle = 0.5 * (left + right)
        deficit = -np.sum(weights * np.expm1(-np.exp(np.minimum(middle[:, None] + y, 40.0))), axis=1)
        enough = -np.log1p(-np.minimum(deficit, 1.0 - 1e-16)) > need
        left, right = np.where(enough, left, middle), np.where(enough, middle, right)
    return low, right


def _little_q_legendre(step: Vector, m: int) -> tuple[Vector, Vector]:
    """Gauss rule, nodes and weights [B, m], of the measure `h sum_{k>=0} q^k delta(q^k)` with `q = e^{-h}`, h [B]."""
    h = step[:, None]
    k = np.arange(m, dtype=float)
    q_k = np.exp(-h * k)

    def gap(j: Vector | float) -> Vector:
        return -np.expm1(-h * j)  # 1 - q^j without cancellation

    a = q_k * gap(k + 1) ** 2 / (gap(2 * k + 1) * gap(2 * k + 2))
    later = k[1:]
    c = q_k[:, 1:] * gap(later) ** 2 / (gap(2 * later) * gap(2 * later + 1))
    jacobi = np.zeros((step.size, m, m))
    index = np.arange(m)
    jacobi[:, index, index] = a
    jacobi[:, index[1:], index[1:]] += c
    off = np.sqrt(a[:, :-1] * c)
    jacobi[:, index[1:], index[:-1]] = off
    jacobi[:, index[:-1], index[1:]] = off
    nodes, vectors = np.linalg.eigh(jacobi)
    # for a large step the smallest nodes lie far below the rounding of the largest; they carry no weight
    nodes = np.maximum(nodes, 1e-18)
    return nodes, h * vectors[:, 0, :] ** 2 / gap(1.0)
