"""Both blocks of many lanes of the induction-head model at p11 = inf: milestones, final states, step counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gflow.sweeps.ensemble._batches import Batch, Ended, real, run_lanes, sizes
from gflow.sweeps.ensemble._loop import AT_END, FOUND, OUTSIDE
from gflow.sweeps.ensemble.fourgram import FourgramLanes
from gflow.sweeps.ensemble.induction import InductionLanes
from gflow.sweeps.ensemble.polynomials import TablePolynomials

INDUCTION_LEVELS = ("T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
KINDS = ("untied", "tied", "merged")
_POWER = {"untied": 2.0, "tied": 4.0, "merged": 1.0}  # m of `InductionLanes`
MOST_STEPS = 20_000
# of the predicted time, where lanes that reach nothing are given up
HORIZON = 50.0
FIRST_STEP = 0.02  # of either block's own time unit
# the 4-gram part bears a larger tolerance for the same error of its milestone (measured)
FOURGRAM_RTOL = 10.0


@dataclasses.dataclass(frozen=True)
class Lanes:
    """What distinguishes lanes, one entry each. `table`: number of the lane's polynomials; `t1`: inf where a lane ends
    after its last milestone. `wK`, `wQ`: starts (tied: both wKQ; merged: wK is w)."""

    L: np.ndarray
    alpha_star: np.ndarray
    d: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    kind: np.ndarray
    sigma: np.ndarray
    wK: np.ndarray
    wQ: np.ndarray
    table: np.ndarray
    t1: np.ndarray
    rtol: np.ndarray

    def __len__(self) -> int:
        return len(self.L)

    def select(self, chosen: np.ndarray) -> Lanes:
        """Some of the lanes."""
        return Lanes(**{field.name: getattr(self, field.name)[chosen] for field in dataclasses.fields(self)})

    def with_table(self, table: np.ndarray) -> Lanes:
        """The same lanes with other numbers of their tables."""
        return dataclasses.replace(self, table=table)


def solve_induction(
    lanes: Lanes, tables: Sequence[TablePolynomials], milestones: Sequence[str], dtype: Any = np.float64
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, float]]:
    """The induction block: columns, how each lane ended, and statistics. Times in units of the flow."""
    n = lanes.L - 2.0
    A = 1.0 / (1.0 + lanes.alpha_star)
    merged, tied = lanes.kind == KINDS.index("merged"), lanes.kind == KINDS.index("tied")
    P = np.where(merged, 0.0, np.where(tied, lanes.wK**2, 0.25 * (lanes.wK + lanes.wQ) ** 2))
    Q = np.where(merged | tied, 0.0, 0.25 * (lanes.wK - lanes.wQ) ** 2)
    w0 = np.where(merged, lanes.wK, P - Q)
    power = np.choose(lanes.kind, [_POWER[kind] for kind in KINDS])
    at_zero, slope_zero, at_start = (np.empty((2, len(lanes))) for _ in range(3))
    kcc, c, slopes = (np.empty(len(lanes)) for _ in range(3))
    for number, table in enumerate(tables):
        mine = lanes.table == number
        at_zero[:, mine] = table.at(np.zeros(1))
        slope_zero[:, mine] = table.at(np.zeros(1), 1)
        at_start[:, mine] = table.at(w0[mine])
        kcc[mine], c[mine], slopes[mine] = table.kcc, table.c, table.slope
    nu_p = at_zero[0] / at_zero[1]
    pull = nu_p * slope_zero[0] - 0.5 * nu_p**2 * slope_zero[1]
    rate = power * A**2 * pull  # ds/d tau on the plateau
    nu0 = lanes.sigma / A
    plateau = 0.5 * (kcc - at_zero[0] ** 2 / at_zero[1])
    initial = 0.5 * kcc - nu0 * at_start[0] + 0.5 * nu0**2 * at_start[1]
    levels = {
        "T_o": plateau + 0.01 * (initial - plateau),
        "T_II": 0.99 * plateau,
        "T_III": 0.01 * plateau,
        "T_II_of_initial": 0.99 * initial,
        "T_III_of_initial": 0.01 * initial,
    }
    names = [name for name in INDUCTION_LEVELS if name in milestones]
    with np.errstate(all="ignore"):
        way = np.where(merged, c, np.log(np.maximum(c / np.maximum(np.abs(w0), 1e-300), 2.0)))
        expected = way / np.maximum(rate, 1e-12) + 10.0
    to_t1 = np.isfinite(lanes.t1)
    end = np.where(to_t1, np.where(to_t1, lanes.t1, 0.0) / n, HORIZON * expected)
    watched = np.stack([levels[name] for name in names] + [np.where(to_t1, -np.inf, np.inf)])

    def make_for(kind: bool, shared: TablePolynomials | None, degree: int) -> Any:
        def make(chosen: np.ndarray) -> Batch:
            mine = [tables[number] for number in lanes.table[chosen]] if shared is None else [shared]
            system = InductionLanes(
                real(_derivatives(mine, degree), dtype),
                *(real([getattr(table, name) for table in mine], dtype) for name in ("slope", "offset", "kcc")),
                *(real(x[chosen], dtype) for x in (P, Q, w0)),
                real((power * A**2 * slopes)[chosen], dtype),
                real(1.0, dtype),
                kind,
            )
            return _batch(system, nu0, np.zeros(len(lanes)), watched, end, lanes.rtol, chosen, dtype)

        return make

    ended, statistics = _blank(len(lanes), len(names)), {"needed": 0, "taken": 0}
    for order, kind, shared in _groups(lanes, merged, expected, tables):
        degree = max(tables[number].degree for number in np.unique(lanes.table[order]))
        part, counts = run_lanes(make_for(kind, shared, degree), order)
        _put(ended, order, part)
        statistics = {name: statistics[name] + counts[name] for name in statistics}

    nu, s, tau = ended.a, ended.b, ended.time
    grown = np.exp(np.where(merged, 0.0, 0.5 * s))
    plus, minus = 0.5 * (lanes.wK + lanes.wQ) * grown, 0.5 * (lanes.wK - lanes.wQ) / grown
    w = np.where(merged, w0 + s, P * grown**2 - Q / grown**2)
    final = np.full(len(lanes), np.nan)
    for number, table in enumerate(tables):
        mine = lanes.table == number
        K1, K2 = table.at(w[mine])
        final[mine] = 0.5 * table.kcc - nu[mine] * K1 + 0.5 * nu[mine] ** 2 * K2
    untied = lanes.kind == KINDS.index("untied")
    nan = np.full(len(lanes), np.nan)
    columns = {name: n * ended.times[row] for row, name in enumerate(names)}
    columns |= {
        "growth_rate": np.where(merged, np.nan, 0.5 * rate / n),
        "plateau": A**2 / n * plateau,
        "plateau_fraction": plateau / initial,
        "v2_final": A * nu,
        "wK_final": np.where(untied, plus + minus, nan),
        "wQ_final": np.where(untied, plus - minus, nan),
        "wKQ_final": np.where(tied, lanes.wK * grown, nan),
        "w_final": np.where(merged, w, nan),
        "logit_scale_final": w,
        "loss_induction_initial": A**2 / n * initial,
        "loss_induction_final": A**2 / n * final,
        "t_end": n * tau,
        "steps": ended.accepted,
        "rejected": ended.rejected,
        "table_error": np.array([t.table_error + t.fit_error for t in tables])[lanes.table],
    }
    return columns, ended.ended, statistics


def solve_fourgram(
    lanes: Lanes, wanted: bool = True, dtype: Any = np.float64
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, float]]:
    """The 4-gram block. It reads neither w* nor the logit scale: lanes that differ in these only are solved once."""
    n = lanes.L - 2.0
    A = lanes.alpha_star / (1.0 + lanes.alpha_star)
    key = np.stack([n, A, lanes.sigma, lanes.d, lanes.mean, lanes.variance, lanes.t1, lanes.rtol])
    _, first, again = np.unique(key, axis=1, return_index=True, return_inverse=True)
    n1, A1, sigma, d, mean, variance, t1, rtol = key[:, first]

    def system(chosen: np.ndarray) -> FourgramLanes:
        values = (n1, 1.0 / n1, A1**2, d, mean, variance)
        return FourgramLanes(*(real(x[chosen], dtype) for x in values), real(1.0, dtype))

    nu0 = sigma / A1
    everything = np.arange(len(first))
    initial = np.asarray(system(everything).value(real(nu0, dtype), real(sigma, dtype)), dtype=float)
    to_t1 = np.isfinite(t1)
    expected = (10.0 - np.log(np.minimum(np.minimum(sigma, 1.0 / n1), 1.0))) / A1 + 50.0 / A1**2
    end = np.where(to_t1, t1, HORIZON * expected)
    watched = (
        np.stack([0.01 * initial, np.where(to_t1, -np.inf, np.inf)])
        if wanted
        else np.stack([np.where(to_t1, -np.inf, np.inf)])
    )

    def make(chosen: np.ndarray) -> Batch:
        return _batch(system(chosen), nu0, sigma, watched, end, FOURGRAM_RTOL * rtol, chosen, dtype)

    ended = _blank(len(first), len(watched) - 1)
    part, statistics = run_lanes(make, np.lexsort((sigma, A1)))
    _put(ended, np.lexsort((sigma, A1)), part)
    final = np.asarray(system(everything).value(real(ended.a, dtype), real(ended.b, dtype)), dtype=float)
    columns = {
        **({"T_I": ended.times[0]} if wanted else {}),
        "p21_final": ended.b,
        "v1_final": A1 * ended.a,
        "loss_fourgram_initial": A1**2 * initial,
        "loss_fourgram_final": A1**2 * final,
        "steps_fourgram": ended.accepted,
    }
    again = again.reshape(-1)
    return {name: values[again] for name, values in columns.items()}, ended.ended[again], statistics


def _batch(
    system: Any, a: np.ndarray, b: np.ndarray, levels: np.ndarray, end: np.ndarray, rtol: np.ndarray,
    chosen: np.ndarray, dtype: Any,
) -> Batch:  # fmt: skip
    return Batch(
        system,
        jax.lax.complex(real(a[chosen], dtype), real(b[chosen], dtype)),
        real(levels[:, chosen], dtype),
        real(np.minimum(FIRST_STEP, end[chosen]), dtype),
        real(rtol[chosen], dtype),
        real(end[chosen], dtype),
        jnp.asarray(MOST_STEPS, jnp.int32),
    )


def _groups(
    lanes: Lanes, merged: np.ndarray, expected: np.ndarray, tables: Sequence[TablePolynomials]
) -> list[tuple[np.ndarray, bool, TablePolynomials | None]]:
    """(lanes in order of their length, merged?, their common table or None) of the groups that are compiled alike."""
    few, groups = sizes()[0] // 2, []
    for kind in (False, True):
        rest = []
        for number in range(len(tables)):
            mine = np.flatnonzero((lanes.table == number) & (merged == kind))
            if 0 < len(mine) < few and len(tables) > 1:
                rest.append(mine)
            elif len(mine):
                groups.append((mine[np.argsort(expected[mine], kind="stable")], kind, tables[number]))
        if rest:
            mixed = np.concatenate(rest)
            groups.append((mixed[np.argsort(expected[mixed], kind="stable")], kind, None))
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


def _blank(lanes: int, levels: int) -> Ended:
    zeros = [np.zeros(lanes) for _ in range(3)]
    counts = [np.zeros(lanes, dtype=np.int32) for _ in range(3)]
    return Ended(*zeros, *counts, np.full((levels, lanes), np.nan))


def _put(whole: Ended, lanes: np.ndarray, part: Ended) -> None:
    for field, values in zip(whole, part, strict=True):
        field[..., lanes] = values


__all__ = ["AT_END", "FOUND", "KINDS", "OUTSIDE", "Lanes", "solve_fourgram", "solve_induction"]
