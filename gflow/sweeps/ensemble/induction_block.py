"""The induction block of many lanes: from numbers per lane to milestones, final states and step counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gflow.sweeps.ensemble._batches import Batch, Ended, run_lanes, sizes
from gflow.sweeps.ensemble.induction import InductionLanes
from gflow.sweeps.ensemble.lanes import HORIZON, KINDS, Columns, Course, Lanes, blank, put, stretch
from gflow.sweeps.ensemble.polynomials import TablePolynomials

LEVELS = ("T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
DEGREES = 8  # of few lanes' polynomials, a multiple of this: compiling a program for each degree would cost far more
_POWER = {"untied": 2.0, "tied": 4.0, "merged": 1.0}  # m of `InductionLanes`


class _Numbers:
    """The lanes in the variables of `InductionLanes`, and what is known before anything is integrated."""

    def __init__(self, lanes: Lanes, tables: Sequence[TablePolynomials]) -> None:
        self.n, self.A = lanes.L - 2.0, 1.0 / (1.0 + lanes.alpha_star)
        merged, tied = lanes.is_kind("merged"), lanes.is_kind("tied")
        self.merged, self.tied, self.untied = merged, tied, ~(merged | tied)
        self.P = np.where(merged, 0.0, np.where(tied, lanes.wK**2, 0.25 * (lanes.wK + lanes.wQ) ** 2))
        self.Q = np.where(self.untied, 0.25 * (lanes.wK - lanes.wQ) ** 2, 0.0)
        self.w0 = np.where(merged, lanes.wK, self.P - self.Q)
        self.nu0 = lanes.sigma / self.A
        zeros = np.zeros(len(lanes))
        at_zero, at_start = evaluate(tables, lanes.table, zeros), evaluate(tables, lanes.table, self.w0)
        rising = evaluate(tables, lanes.table, zeros, 1)
        self.kcc, c, slope = (
            np.array([getattr(t, name) for t in tables])[lanes.table] for name in ("kcc", "c", "slope")
        )
        nu = at_zero[0] / at_zero[1]
        power = np.array([_POWER[kind] for kind in KINDS])[lanes.kind]
        self.gain = power * self.A**2 * slope
        self.rate = power * self.A**2 * (nu * rising[0] - 0.5 * nu**2 * rising[1])  # ds/d tau on the plateau
        self.plateau = 0.5 * (self.kcc - at_zero[0] ** 2 / at_zero[1])
        self.initial = value(self.kcc, self.nu0, at_start)
        way = np.where(merged, c, np.log(np.maximum(c / np.maximum(np.abs(self.w0), 1e-300), 2.0)))
        self.expected = way / np.maximum(self.rate, 1e-12) + 10.0

    def level(self, name: str) -> np.ndarray:
        """Of a milestone, in units of A_i^2/n."""
        return {
            "T_o": self.plateau + 0.01 * (self.initial - self.plateau),
            "T_II": 0.99 * self.plateau,
            "T_III": 0.01 * self.plateau,
            "T_II_of_initial": 0.99 * self.initial,
            "T_III_of_initial": 0.01 * self.initial,
        }[name]


def value(kcc: np.ndarray, nu: np.ndarray, K: np.ndarray) -> np.ndarray:
    """n Loss_IH / A_i^2, given n K1 and n K2 [2, lanes]."""
    return 0.5 * kcc - nu * K[0] + 0.5 * nu**2 * K[1]


def evaluate(tables: Sequence[TablePolynomials], which: np.ndarray, w: np.ndarray, derivative: int = 0) -> np.ndarray:
    """n K1 and n K2 (or a derivative) at w of each lane's table, [2, lanes]."""
    out = np.empty((2, len(w)))
    for number, table in enumerate(tables):
        mine = which == number
        out[:, mine] = table.at(w[mine], derivative)
    return out


def solve_induction(
    lanes: Lanes,
    tables: Sequence[TablePolynomials],
    milestones: Sequence[str],
    dtype: Any = np.float64,
    curve_times: np.ndarray | None = None,
) -> tuple[Columns, np.ndarray, dict[str, int]]:
    """The induction block: columns (times in units of the flow), how each lane ended, and counts of steps."""
    my = _Numbers(lanes, tables)
    names = [name for name in LEVELS if name in milestones]
    levels = np.array([my.level(name) for name in names]).reshape(len(names), len(lanes))
    least, end, curve = stretch(lanes.t1, curve_times, my.n, HORIZON * my.expected)
    course = Course(my.nu0, np.zeros(len(lanes)), levels, least, end, lanes.rtol, curve)
    ended, counts = blank(len(lanes), len(names), len(curve)), {"needed": 0, "taken": 0}
    for order, shared in _groups(lanes, my, tables):
        degree = max(tables[number].degree for number in np.unique(lanes.table[order]))
        if shared is None:
            degree = DEGREES * math.ceil(degree / DEGREES)
        merged = bool(my.merged[order[0]])

        def make(chosen: np.ndarray, shared: Any = shared, degree: int = degree, merged: bool = merged) -> Batch:
            mine = [tables[number] for number in lanes.table[chosen]] if shared is None else [shared]
            of_tables = {
                name: np.array([getattr(table, name) for table in mine]) for name in ("slope", "offset", "kcc")
            }
            of_lanes = {"P": my.P, "Q": my.Q, "start": my.w0, "gain": my.gain}
            of_lanes = {name: values[chosen] for name, values in of_lanes.items()}
            rows = _derivatives(mine, degree)
            system = InductionLanes(coefficients=rows, **of_tables, **of_lanes, one=np.ones(()), merged=merged)
            return course.batch(system, chosen, dtype)

        part, more = run_lanes(make, order)
        put(ended, order, part)
        counts = {name: counts[name] + more[name] for name in counts}
    return _columns(lanes, tables, my, names, ended), ended.ended, counts


def _columns(
    lanes: Lanes, tables: Sequence[TablePolynomials], my: _Numbers, names: Sequence[str], ended: Ended
) -> Columns:
    nu, s = ended.a, ended.b
    grown = np.exp(np.where(my.merged, 0.0, 0.5 * s))
    plus, minus = 0.5 * (lanes.wK + lanes.wQ) * grown, 0.5 * (lanes.wK - lanes.wQ) / grown
    w = np.where(my.merged, my.w0 + s, my.P * grown**2 - my.Q / grown**2)
    final = value(my.kcc, nu, evaluate(tables, lanes.table, w))
    unit = my.A**2 / my.n
    return {
        **{name: my.n * times for name, times in zip(names, ended.times, strict=True)},
        "growth_rate": np.where(my.merged, np.nan, 0.5 * my.rate / my.n),
        "plateau": unit * my.plateau,
        "plateau_fraction": my.plateau / my.initial,
        "v2_final": my.A * nu,
        "wK_final": np.where(my.untied, plus + minus, np.nan),
        "wQ_final": np.where(my.untied, plus - minus, np.nan),
        "wKQ_final": np.where(my.tied, lanes.wK * grown, np.nan),
        "w_final": np.where(my.merged, w, np.nan),
        "logit_scale_final": w,
        "loss_induction_initial": unit * my.initial,
        "loss_induction_final": unit * final,
        "t_end": my.n * ended.time,
        **({"curve_induction": (unit * ended.curve).T} if len(ended.curve) else {}),
        "steps": ended.accepted,
        "rejected": ended.rejected,
        "table_error": np.array([table.table_error + table.fit_error for table in tables])[lanes.table],
    }


def _groups(
    lanes: Lanes, my: _Numbers, tables: Sequence[TablePolynomials]
) -> list[tuple[np.ndarray, TablePolynomials | None]]:
    """(lanes in order of their length, their common table or None) of the groups that are compiled alike."""
    few, groups = sizes()[0] // 2, []

    def add(mine: np.ndarray, table: TablePolynomials | None) -> None:
        groups.append((mine[np.argsort(my.expected[mine], kind="stable")], table))

    for kind in (False, True):
        rest = []
        for number, table in enumerate(tables):
            mine = np.flatnonzero((lanes.table == number) & (my.merged == kind))
            if 0 < len(mine) < few:
                rest.append(mine)
            elif len(mine):
                add(mine, table)
        if rest:
            add(np.concatenate(rest), None)
    return groups


def _derivatives(tables: Sequence[TablePolynomials], degree: int) -> np.ndarray:
    """Coefficients [3, 2, degree+1, tables]: polynomials and their first two derivatives."""
    out = np.zeros((3, 2, degree + 1, len(tables)))
    for number, table in enumerate(tables):
        for order in range(3):
            for part, row in enumerate(table.coefficients):
                some = np.polynomial.polynomial.polyder(row, order)
                out[order, part, : len(some), number] = some
    return out
