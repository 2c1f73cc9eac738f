"""The overlaps averaged over the query, `K(w, w') = E_q S(wq, w'q)`, with their derivatives in L and c (host)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from gflow.errors import TableError
from gflow.losses.induction.overlap import cross_batch, self_batch
from gflow.losses.induction.quadrature import TAIL, Vector, key_quadrature, laplace_body, query_quadrature
from gflow.tokens import TokenLaw

PER_PANEL, PANEL_WIDTH = 12, 0.4
GROUPS = 4
# products of each kind: some ten seconds, and about two minutes, on two cores
WORTH_GROUPING, MOST_WORK = 2e10, 1.2e11
# numbers of some queries, nodes and weights of their keys, number of Laplace nodes
Group = tuple[Vector, tuple[Vector, Vector], int]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Quadratures for logit scales up to `steepest` in size: the token law, n = L-2, c = w*^2, dimension d.

    `span`: (least, largest) of all n that the quadratures of `target_overlaps` must do for, if not of n alone.
    """

    law: TokenLaw
    n: float
    c: float
    d: int
    steepest: float
    refine: float = 1.0
    span: tuple[float, float] | None = None

    @property
    def reach(self) -> tuple[float, float]:
        """The range of n."""
        return self.span or (self.n, self.n)

    @property
    def continuous(self) -> bool:
        """The law has a density."""
        return self.law.name in ("gaussian", "uniform")

    def queries(self, refine: float = 1.0) -> tuple[Vector, Vector]:
        """Nodes and weights of q."""
        return query_quadrature(self.law, self.d, self.reach[0], self.steepest, refine * self.refine)

    def rare(self, q_weights: Vector) -> Vector:
        """Probability of events that change nothing, per query: relative to its weight, and to overlaps like 1/n."""
        relative = np.maximum(q_weights / np.max(q_weights), 1e-17)
        return np.clip(1e-13 / (relative * math.sqrt(self.reach[1])), 1e-17, 1e-4)


@dataclasses.dataclass(frozen=True)
class TargetOverlaps:
    """`K1(w) = K(w, c)` and `dK1/dL` at w [W], and what its derivative in c is made of.

    `c dK1/dc = dilation - w dK1/dw`, where `dilation = E_q q dS(wq, cq)/dq`.
    """

    w: Vector
    K1: Vector
    K1_L: Vector
    dilation: Vector | None
    K1_c: Vector | None

    def by_c(self, c: float, K1_slope: Vector) -> Vector:
        """dK1/dc, given dK1/dw."""
        if self.K1_c is not None:
            return self.K1_c
        assert self.dilation is not None
        return (self.dilation - self.w * K1_slope) / c


def target_overlaps(s: Setting, w: Vector, ns: Sequence[float] = ()) -> list[TargetOverlaps]:
    """K(w, c) at w [W] and its derivatives, for each of `ns` (by default, n alone); all share the matrix products.

    For Gaussian tokens the derivative in c is free: integrating by parts against the density of |q| ~ chi_d,
    `E_q[q dS/dq] = E_q[(q^2 - d) S]`. Other laws differentiate S under the integral.
    """
    gaussian = s.law.name == "gaussian"
    ns = ns or (s.n,)
    q, q_weights = s.queries()
    K1, K1_L, moved = np.zeros((3, len(ns), w.size))
    for chosen, keys, body in query_groups(s, w.size):
        some, weights = q[chosen], q_weights[chosen]
        size = (w.size, some.size)
        a = (w[:, None] * some).ravel()
        b = np.broadcast_to(s.c * some, size).ravel()
        tolerance = np.broadcast_to(s.rare(q_weights)[chosen], size).ravel()
        rows = cross_batch(keys, ns, s.d, a, b, tolerance, body, by_slope=not gaussian, span=s.reach)
        value, by_n, by_b = (r.reshape(len(ns), *size) for r in rows)
        K1 += value @ weights
        K1_L += by_n @ weights
        moved += value @ (weights * (some * some - s.d)) if gaussian else by_b @ (weights * some)
    none = [None] * len(ns)
    dilation, K1_c = (moved, none) if gaussian else (none, moved)
    return [TargetOverlaps(w, *rows) for rows in zip(K1, K1_L, dilation, K1_c, strict=True)]


def query_groups(s: Setting, count: int) -> list[Group]:
    """Queries (their numbers) with the key quadrature and the Laplace nodes that each group of them needs.

    Short queries have flat logits and long ones little weight, so most need far fewer nodes than the worst. Each group
    is compiled apart, which only long computations (`count` values of w) repay. Raises `TableError` for those that
    would take minutes.
    """
    q, q_weights = s.queries()
    relative, rare = q_weights / np.max(q_weights), s.rare(q_weights)

    def rules(chosen: Vector) -> tuple[tuple[Vector, Vector], int]:
        keys = key_quadrature(s.law, s.reach[1], q[chosen], relative[chosen], s.steepest, s.refine)
        ends = np.concatenate([s.steepest * q[chosen], -s.steepest * q[chosen]])
        likely, weights = np.tile(rare[chosen], 2), np.tile(relative[chosen], 2)
        return keys, laplace_body(ends, s.reach, *keys, likely, weights, s.refine, s.continuous)

    def price(keys: tuple[Vector, Vector], body: int) -> int:
        return keys[0].size * (body + TAIL) ** 2

    everything = np.arange(q.size)
    together = rules(everything)
    if not s.continuous or count * q.size * price(*together) < WORTH_GROUPING:
        return [(everything, *together)]
    prices = np.array([price(*rules(everything[i : i + 1])) for i in everything])
    level = np.minimum(np.floor(np.log2(np.max(prices) / prices)), GROUPS - 1)
    members = [np.flatnonzero(level == k) for k in range(GROUPS)]
    groups = [(chosen, *rules(chosen)) for chosen in members if chosen.size]
    work = count * sum(chosen.size * price(keys, body) for chosen, keys, body in groups)
    if work > MOST_WORK:
        raise TableError(
            f"a table for logit scales up to {s.steepest:.3g} at L={s.n + 2:g}, d={s.d} takes "
            f"{work / MOST_WORK:.1f} times the work allowed; use a smaller w_star (or initial logit scale)"
        )
    return groups


class StudentOverlap:
    """`K2(w) = K(w, w)` and `dK2/dL` anywhere on |w| <= steepest.

    `S(a,a)` is a function of one variable, so it is computed once, on Chebyshev panels in a, and averaged over the
    query for as many w as wanted. It grows from 1/n to O(1): its logarithm is interpolated.
    """

    def __init__(self, s: Setting) -> None:
        q, q_weights = s.queries()
        x, p = key_quadrature(s.law, s.n, q, q_weights / np.max(q_weights), s.steepest, s.refine)
        self.q, self.q_weights = s.queries(2.0)  # costs nothing here
        top = s.steepest * float(np.max(np.abs(self.q))) * (1 + 1e-12)
        self.bottom = 0.0 if s.law.is_symmetric else -top
        self.panels = math.ceil(s.refine * (top - self.bottom) / PANEL_WIDTH)
        self.width = (top - self.bottom) / self.panels
        theta = math.pi * (np.arange(PER_PANEL) + 0.5) / PER_PANEL
        a = (self.bottom + self.width * (np.arange(self.panels)[:, None] + 0.5 + 0.5 * np.cos(theta))).ravel()
        # a is reached by queries of at least |a|/steepest: the heaviest of them sets the accuracy
        reach, many = np.abs(self.q), self.q_weights
        heaviest = np.array([np.max(many[reach >= r], initial=0.0) for r in np.abs(a) / s.steepest])
        heaviest = np.maximum(heaviest / np.max(many), 1e-16)
        rare = s.rare(heaviest)
        body = 2 * laplace_body(a, s.n, x, p, rare, heaviest, s.refine, s.continuous)
        value, by_n = self_batch((x, p), s.n, s.d, a, rare, body)
        transform = 2.0 / PER_PANEL * np.cos(np.outer(np.arange(PER_PANEL), theta))
        transform[0] *= 0.5
        samples = np.stack([np.log(value), by_n / value]).reshape(2, self.panels, PER_PANEL)
        self.coefficients = samples @ transform.T

    def __call__(self, w: Vector) -> tuple[Vector, Vector]:
        """K2(w) and dK2/dL at w [W]."""
        a = w[:, None] * self.q
        a = np.abs(a) if self.bottom == 0.0 else a
        position = (a - self.bottom) / self.width
        panel = np.clip(np.floor(position).astype(int), 0, self.panels - 1)
        t = 2.0 * (position - panel) - 1.0
        rows = self.coefficients[:, panel]
        below, above = np.zeros_like(rows[..., 0]), np.zeros_like(rows[..., 0])
        for k in range(PER_PANEL - 1, 0, -1):  # Clenshaw
            below, above = rows[..., k] + 2.0 * t * below - above, below
        log_value, relative = rows[..., 0] + t * below - above
        value = np.exp(log_value)
        return value @ self.q_weights, (value * relative) @ self.q_weights
