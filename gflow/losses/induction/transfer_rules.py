"""Grids for the transfer operator: the chain of keys, where its functions are known, and the two Laplace rules (host).

All are chosen from the number of digits wanted. What each step allows was measured against finer ones (*derived*):
a spacing `h` of x leaves `exp(-2 pi^2/h^2)` from the width of the kernel, `exp(-27/(b h))` from the target's logits and
`exp(-19 N/(a h))` from the student's, whose keys are averages of about N tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from scipy.special import ndtri

from gflow.errors import TableError
from gflow.losses.induction.quadrature import Vector, laplace_nodes, laplace_window, query_quadrature
from gflow.losses.induction.transfer import Band, Chain
from gflow.tokens import GAUSSIAN_EDGE, gaussian

# natural logarithms, of a table (measured: a few 1e-7 for one overlap, less on average) and of a single overlap
DIGITS, MORE_DIGITS = 19.0, 24.0
COARSEST = 1.2  # spacing of x, in standard deviations of a token
# of grids, of columns carried together: few, so that few programs are compiled
SIZES = tuple(round(24 * 1.4**k / 4) * 4 for k in range(12))
COLUMNS = 256
TAIL = 7
MOST_NODES = 200  # of a Laplace rule
TARGETS = 8  # target Laplace nodes that are carried together
ROWS = 24


@dataclasses.dataclass(frozen=True)
class Rules:
    """What one cross term (or many self terms) at one r and one query q is computed with.

    `segments`: (last key, first key, points of the grid), from the last keys to the first. `edge`: all grids span
    [-edge, edge] standard deviations of Z_k.
    """

    chain: Chain
    segments: tuple[tuple[int, int, int], ...]
    edge: float
    spacing: float  # of x, at most
    a: Vector  # the student's slopes, each as often as it has Laplace nodes: [C]
    log_u: Vector  # [C]
    wu: Vector  # [W, C]: sums the columns of each slope
    log_v: Vector  # [V]
    wv: Vector

    def grid(self, number: int) -> Vector:
        """The grid of segment `number`, in units of sigma_k; beyond the first key there is one point."""
        if number == len(self.segments):
            return np.zeros(1)
        return np.linspace(-self.edge, self.edge, self.segments[number][2])

    def band(self, number: int) -> Band:
        """Which columns the rows of segment `number` reach."""
        last, first, points = self.segments[number]
        step = 2 * self.edge / (points - 1)
        # from a block of rows: those it holds itself, and x within +-edge on both sides
        narrowest = step * self.chain.sigma[min(first + 1, last)]
        width = 16 * math.ceil((ROWS + 2 * self.edge / narrowest) / 16)
        return Band(ROWS, width) if width < 0.6 * points else Band()


def make_chain(n: int, r: float) -> Chain:
    """r, `N_k = (1-r^k)/(1-r)` and `sigma_k^2 = (1-r^{2k})/(1-r^2)`, k = 0..n, without cancellation near r = 1."""
    k = np.arange(n + 1.0)

    def geometric(ratio: float) -> Vector:
        if ratio == 1.0:
            return k
        if ratio == 0.0:
            return np.minimum(k, 1.0)
        return np.expm1(k * math.log(ratio)) / (ratio - 1.0)

    return Chain(np.float64(r), geometric(r), np.sqrt(geometric(r * r)))


def queries(n: int, d: int, steepest: float, refine: float = 1.0) -> tuple[Vector, Vector]:
    """Nodes and weights of q = |x_L|; those that could not change the last digit are left out."""
    q, weights = query_quadrature(gaussian(), d, float(n), steepest, 0.62 * refine)
    keep = weights > 0.05 * math.exp(-DIGITS) * np.max(weights)
    return q[keep], weights[keep]


def make_rules(
    n: int, r: float, a: Vector, b: float, weight: float, refine: float = 1.0, digits: float = DIGITS
) -> Rules:
    """Rules for student slopes a [W] and target slope b; `weight` (at most 1): the query's, relative to the heaviest.

    `refine` divides every step. Raises `TableError` where the logits are too steep.
    """
    chain = make_chain(n, r)
    digits = max(digits + math.log(weight), 4.0)
    unlikely = min(1e-3 * math.exp(-digits), 1e-4)
    steepest, b = max(float(np.max(np.abs(a))), 1e-3), max(abs(b), 1e-3)
    N = float(chain.N[n])
    spacing = min(math.pi * math.sqrt(2 / digits), 27 / (digits * b), 19 * N / (digits * steepest), COARSEST) / refine
    edge = -float(ndtri(0.5 * unlikely)) + 0.3 * (refine > 1)
    tolerance = np.full(a.size, unlikely)
    columns = _columns(a, *_student_window(chain, a, tolerance), digits, refine)
    x = (GAUSSIAN_EDGE / 64) * np.arange(-64, 65)
    p = (GAUSSIAN_EDGE / 64) * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    slope = np.array([b])
    low, high = laplace_window(slope, float(n), x, p, tolerance[:1])
    log_v, wv = laplace_nodes(low, high, int(_body(low, high, slope, digits, refine)[0]), TAIL)
    short = (0, -log_v.size % TARGETS)
    log_v, wv = np.pad(log_v[0], short, mode="edge"), np.pad(wv[0], short)
    return Rules(chain, _segments(chain, edge, spacing), edge, spacing, *columns, log_v, wv)


def _body(low: Vector, high: Vector, slopes: Vector, digits: float, refine: float) -> Vector:
    """Trapezium nodes in log u: a step h leaves e^{-pi^2/h}, and less where log Z spreads over more than h."""
    step = np.minimum(math.pi**2 / digits * (1.0 + 0.25 * np.minimum(1.0, np.abs(slopes) / 4.0)), 1.5)
    body = np.ceil(1.12 * refine * np.maximum(high - low - math.log(0.7 * TAIL), 1.0) / step).astype(int)
    if np.max(body) > MOST_NODES:
        raise TableError(
            f"attention logits up to {float(np.max(np.abs(slopes))):.3g} are too steep to tabulate at finite p11; "
            "use a smaller w_star or sigma_init"
        )
    return body


def _columns(a: Vector, low: Vector, high: Vector, digits: float, refine: float) -> tuple[Vector, Vector, Vector]:
    """Slopes and Laplace nodes end to end [C], and the weights that sum them [W, C]; C: a multiple of COLUMNS."""
    nodes, rows = [], []
    for i, body in enumerate(_body(low, high, a, digits, refine)):
        log_u, wu = laplace_nodes(low[i : i + 1], high[i : i + 1], int(body), TAIL)
        nodes.append(log_u[0])
        rows.append(wu[0])
    count = sum(row.size for row in rows)
    size = COLUMNS * math.ceil(count / COLUMNS)
    slopes, log_u, wu, start = np.zeros(size), np.zeros(size), np.zeros((a.size, size)), 0
    for i, (some, weights) in enumerate(zip(nodes, rows, strict=True)):
        part = slice(start, start + some.size)
        slopes[part], log_u[part], wu[i, part] = a[i], some, weights
        start += some.size
    return slopes, log_u, wu


def _student_window(chain: Chain, a: Vector, tolerance: Vector) -> tuple[Vector, Vector]:
    """Where the student's `Z = sum_k e^{a Y_k}` lives: the window of as many independent keys, and a common shift.

    Y_k = common part (the mean over k) + the rest, which is treated as independent: a window needs no accuracy.
    """
    r, N, sigma = float(chain.r), chain.N[1:], chain.sigma[1:]
    n = N.size
    share = np.zeros(n)  # of x_j in the mean of the keys
    for j in range(n - 1, -1, -1):
        share[j] = 1.0 / N[j] + (r * share[j + 1] if j + 1 < n else 0.0)
    common = float(np.sum((share / n) ** 2))
    rest = math.sqrt(max(float(np.mean((sigma / N) ** 2)) - common, 1e-6))
    x = (GAUSSIAN_EDGE / 64) * np.arange(-64, 65)
    p = (GAUSSIAN_EDGE / 64) * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    low, high = laplace_window(a * rest, float(n), x, p, tolerance)
    shift = np.abs(a) * math.sqrt(common) * np.sqrt(-2 * np.log(tolerance))
    return low - shift, high + shift


def _segments(chain: Chain, edge: float, spacing: float) -> tuple[tuple[int, int, int], ...]:
    """Runs of keys that share a grid, (last, first, points): its points must grow like sigma_k."""
    n = chain.sigma.size - 1
    need = 1 + 2 * edge * chain.sigma[1:] / spacing
    if need[-1] > SIZES[-1]:
        raise TableError(
            f"the transfer operator needs a grid of {need[-1]:.0f} points at n={n}, r={float(chain.r):.4g}, "
            f"the limit is {SIZES[-1]}; use a smaller L or w_star"
        )
    level = np.searchsorted(np.asarray(SIZES), need)  # of each key, rising with k
    starts = [0, *(np.flatnonzero(np.diff(level)) + 1), n]
    runs = [(int(end), int(start) + 1, SIZES[level[start]]) for start, end in itertools.pairwise(starts)]
    return tuple(reversed(runs))
