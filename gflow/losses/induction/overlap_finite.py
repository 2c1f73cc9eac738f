"""Overlaps at finite p11 as numbers: one cross term, and rows of a table at one r (MATH section 8; host)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from gflow.errors import InputError
from gflow.losses.induction.quadrature import Vector
from gflow.losses.induction.transfer import cross_change, cross_end, cross_steps, self_change, self_end, self_steps
from gflow.losses.induction.transfer_rules import COLUMNS, MORE_DIGITS, TARGETS, Rules, make_rules, queries

# the rules' spacing is a little optimistic for very few keys: 2e-7 at n = 2, measured against direct integration
SAFETY = 1.3


def _cross(rules: Rules, b: float, d: int) -> Vector:
    """`S(a, b)` at the slopes a [W] of the rules and one target slope b."""
    total = np.zeros(rules.wu.shape[0])
    for v0, c0 in itertools.product(range(0, rules.log_v.size, TARGETS), range(0, rules.a.size, COLUMNS)):
        v, c = slice(v0, v0 + TARGETS), slice(c0, c0 + COLUMNS)
        rest = (rules.a[c], rules.log_u[c], b, rules.log_v[v])
        h = cross_end((TARGETS, rules.segments[0][2], COLUMNS), d > 1)
        for i, (last, first, _) in enumerate(rules.segments):
            if last > first:
                h = cross_steps(rules.chain, h, last, first + 1, rules.grid(i), *rest, rules.band(i))
            h = cross_change(rules.chain, h, first, rules.grid(i), rules.grid(i + 1), *rest)
        total += rules.wv[v] @ (_value(h, d) @ rules.wu[:, c].T)
    return total


def _value(h: Any, d: int) -> Vector:
    value = np.asarray(h.h00)[..., 0, :]
    return value if d == 1 else value + (d - 1) * np.asarray(h.same)[..., 0, :]


def _self(rules: Rules, d: int) -> Vector:
    """`S(a, a)` of the student with itself at the slopes a [W] of the rules."""
    total = np.zeros(rules.wu.shape[0])
    for c0 in range(0, rules.a.size, COLUMNS):
        c = slice(c0, c0 + COLUMNS)
        rest = (rules.a[c], rules.log_u[c])
        h = self_end((rules.segments[0][2], COLUMNS), d > 1)
        for i, (last, first, _) in enumerate(rules.segments):
            if last > first:
                h = self_steps(rules.chain, h, last, first + 1, rules.grid(i), *rest, rules.band(i))
            h = self_change(rules.chain, h, first, rules.grid(i), rules.grid(i + 1), *rest)
        # 1/Z^2 = int u e^{-uZ} du = int u^2 e^{-uZ} dlog u: both factors u are in what fired, and wu is for du/u
        total += rules.wu[:, c] @ _value(h, d)
    return total


def cross_overlap(n: int, r: float, a: float, b: float, d: int = 1, refine: float = 1.0) -> float:
    """`S_r(a, b) = E[f_student f_target]`, logits `a Y_k` and `b x_k` over n keys, r = e^{-p11} (MATH section 8).

    Gaussian tokens in d dimensions. Good to about 1e-9 relative; `refine` > 1 divides every step, to see that.
    Raises `InputError` and `TableError`.
    """
    _check(n, r)
    slopes = np.array([float(a)])
    return float(_cross(make_rules(n, r, slopes, float(b), 1.0, SAFETY * refine, MORE_DIGITS), float(b), d)[0])


def self_overlap(n: int, r: float, a: float, d: int = 1, refine: float = 1.0) -> float:
    """`S_r(a, a) = E[f_student^2]` at finite p11; see `cross_overlap`."""
    _check(n, r)
    return float(_self(make_rules(n, r, np.array([float(a)]), 0.0, 1.0, refine, MORE_DIGITS), d)[0])


def _check(n: int, r: float) -> None:
    if n < 2 or n != int(n):
        raise InputError(f"n={n} keys: the chain of keys has a whole number of steps, at least 2")
    if not 0.0 <= r <= 1.0 + 1.0 / n:
        raise InputError(f"r={r:g} must be between 0 (p11 = inf) and 1 (p11 = 0)")


def overlap_row(
    n: int,
    r: float,
    w: Vector,
    c: float,
    d: int,
    refine: float = 1.0,
    done: Callable[[], None] | None = None,
) -> tuple[Vector, Vector]:
    """`K1(w, r) = E_q S_r(wq, cq)` and `K2(w, r) = E_q S_r(wq, wq)` at w [W], for one r.

    The queries are shared out over the cores. `done` is called after each of them.
    """
    steepest = max(float(np.max(np.abs(w))), c)
    q, weights = queries(n, d, steepest, refine)
    relative = weights / np.max(weights)

    def one(i: int) -> Vector:
        rules = make_rules(n, r, w * q[i], c * q[i], float(relative[i]), refine)
        value = _cross(rules, float(c * q[i]), d)
        if done is not None:
            done()
        return value

    # an accelerator is kept busy by one of them; a core does one product at a time
    workers = 1 if jax.default_backend() != "cpu" else min(os.cpu_count() or 1, 16)
    with ThreadPoolExecutor(workers) as pool:
        try:
            crosses = list(pool.map(one, range(q.size)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

    def alone(i: int) -> Vector:
        return _self(make_rules(n, r, np.abs(w * q[i]), 0.0, float(relative[i]), refine, MORE_DIGITS), d)

    return weights @ np.stack(crosses), weights @ np.stack([alone(i) for i in range(q.size)])
