"""The engine for what has an exact loss at p11 = inf: lanes of a chunk through the ensemble solver."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gflow import tokens as laws
from gflow.config import FiniteTokens, IntegrateConfig
from gflow.errors import TableError
from gflow.io.compilation import compile_seconds
from gflow.losses.induction.build_many import make_tables
from gflow.losses.induction.table import OverlapTable
from gflow.sweeps.columns import DONE, FAILED, NOT_REACHED
from gflow.sweeps.ensemble._loop import AT_END, FOUND, OUTSIDE
from gflow.sweeps.ensemble.fourgram_block import solve_fourgram
from gflow.sweeps.ensemble.induction_block import solve_induction
from gflow.sweeps.ensemble.lanes import KINDS, Lanes
from gflow.sweeps.ensemble.polynomials import TablePolynomials, polynomials_of
from gflow.sweeps.tasks import ChunkResult, ChunkTask

RTOL = 3e-6  # of the ensemble, if none is given: largest error of a milestone measured, 4e-7
TableKey = tuple[Any, float, float, int]  # token law, L, w_star, d


def eligible(task: ChunkTask) -> np.ndarray:
    """Lanes that this engine can compute [lanes]: exact loss, second layer, and no choice of solver that it lacks."""
    fits = np.ones(task.size, dtype=bool)
    for key, values in (
        ("training", ("second-layer",)), ("evaluate", (None, "exact")), ("solver", ("auto",)), ("atol", (None,)),
        ("max_steps", (None,)),
    ):  # fmt: skip
        if key in task.lanes:
            fits &= np.array([value in values for value in task.lanes[key]])
        else:
            fits &= task.fixed.get(key, values[0]) in values
    return fits


def table_keys(task: ChunkTask) -> tuple[list[TableKey], np.ndarray]:
    """The tables that the lanes need, and the number of each lane's."""
    law = task.lanes.get("tokens", [task.fixed.get("tokens", "gaussian")])
    laws_met = list(dict.fromkeys(law))
    which = np.array([laws_met.index(one) for one in law], dtype=float) + np.zeros(task.size)
    rows = np.stack([which, *(_numbers(task, key) for key in ("L", "w_star", "d"))])
    if np.all(rows == rows[:, :1]):  # by far the most frequent
        found, number = rows[:, :1], np.zeros(task.size, dtype=int)
    else:
        found, number = np.unique(rows, axis=1, return_inverse=True)
    return [(laws_met[int(k)], float(L), float(w), int(d)) for k, L, w, d in found.T], number.reshape(-1)


def law_of(tokens: Any) -> laws.TokenLaw:
    """The token law of a configuration's value."""
    return (
        laws.finite(tokens.values, tokens.probabilities) if isinstance(tokens, FiniteTokens) else laws.from_name(tokens)
    )


def build(keys: list[TableKey]) -> list[OverlapTable | TableError]:
    """Their tables, from the disk cache where they are there; those that differ in L only share their work."""
    found: dict[TableKey, OverlapTable | TableError] = {}
    for law, w_star, d in dict.fromkeys((law, w_star, d) for law, _, w_star, d in keys):
        mine = [key for key in keys if (key[0], key[2], key[3]) == (law, w_star, d)]
        try:
            tables = make_tables(law_of(law), [L for _, L, *_ in mine], w_star, d)
        except TableError as error:
            tables = [error] * len(mine)
        found |= dict(zip(mine, tables, strict=True))
    return [found[key] for key in keys]


def solve_lanes(task: ChunkTask) -> tuple[ChunkResult, np.ndarray]:
    """The lanes of a task, all of them eligible, and which of them [lanes] are left to `gflow.solve`."""
    started = time.perf_counter()
    keys, number = table_keys(task)
    made = build(keys)
    tables = {key: table for key, table in zip(keys, made, strict=True) if isinstance(table, OverlapTable)}
    reasons = {key: " ".join(str(table).split()) for key, table in zip(keys, made, strict=True)}
    good = np.array([key in tables for key in keys])[number]
    failures = [(int(lane), reasons[keys[number[lane]]]) for lane in np.flatnonzero(~good)]
    chosen = np.flatnonzero(good)
    spent = {"tables": time.perf_counter() - started}
    columns: dict[str, np.ndarray] = {"status": np.full(task.size, float(FAILED))}
    left = np.zeros(task.size, dtype=bool)
    statistics: dict[str, Any] = {"ensemble_lanes": len(chosen)}
    started = time.perf_counter()
    with compile_seconds() as compiled:
        if len(chosen):
            lanes = _lanes(task, chosen, keys, number)
            used = [tables.get(key) for key in keys]
            found, again, counts = _integrate(lanes, used, task)
            for name, values in found.items():
                columns[name] = np.full((task.size, *values.shape[1:]), np.nan)
                columns[name][chosen] = values
            columns["status"][chosen] = found["status"]
            left[chosen] = again
            statistics |= counts
    wall = time.perf_counter() - started
    spent["compile"] = min(compiled[0], wall)
    spent["solve"] = wall - spent["compile"]
    columns = {name: values for name, values in columns.items() if name in task.columns}
    return ChunkResult(task.index, columns, failures, spent, statistics), left


def _lanes(task: ChunkTask, chosen: np.ndarray, keys: list[TableKey], number: np.ndarray) -> Lanes:
    sigma = _numbers(task, "sigma_init")[chosen]
    kinds = task.lanes.get("parametrization")
    if kinds is None:
        kind = np.full(len(chosen), KINDS.index(task.fixed.get("parametrization", "untied")))
    else:
        kind = np.array([KINDS.index(name) for name in kinds])[chosen]
    known = [law_of(law) for law, *_ in keys]
    table = number[chosen]
    return Lanes(
        L=_numbers(task, "L")[chosen],
        alpha_star=_numbers(task, "alpha_star")[chosen],
        d=np.array([float(key[3]) for key in keys])[table],
        mean=np.array([float(law.mean) for law in known])[table],
        variance=np.array([float(law.variance) for law in known])[table],
        kind=kind,
        sigma=sigma,
        wK=_numbers(task, "wK_init", sigma, chosen),
        wQ=_numbers(task, "wQ_init", sigma, chosen),
        table=table,
        t1=_numbers(task, "t1", np.full(len(chosen), np.inf), chosen),
        rtol=_numbers(task, "rtol", np.full(len(chosen), RTOL), chosen),
    )


def _integrate(
    lanes: Lanes, tables: list[OverlapTable | None], task: ChunkTask
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, int]]:
    dtype = np.dtype(task.options.precision)
    names = task.options.milestones
    used, mine = np.unique(lanes.table, return_inverse=True)
    lanes, known = lanes.with_table(mine), [tables[number] for number in used]
    columns, ended, counts = _induction(lanes, [polynomials_of(table) for table in known if table], task, dtype)
    outside = ended == OUTSIDE
    if outside.any():  # again, on the whole range of their tables
        some = lanes.select(outside)
        used, some_table = np.unique(some.table, return_inverse=True)
        wide = [polynomials_of(known[number], wide=True) for number in used]
        more, ended[outside], extra = _induction(some.with_table(some_table), wide, task, dtype)
        for name, values in more.items():
            columns[name][outside] = values
        counts = {name: counts[name] + extra[name] for name in counts}
    left = ~np.isin(ended, [FOUND, AT_END])
    times = task.options.curve_times
    if "T_I" in names or times is not None or np.isfinite(lanes.t1).any():  # else nobody asks when it would end
        fourgram, ended = solve_fourgram(lanes, "T_I" in names, dtype, times)
        columns |= fourgram
        left |= ~np.isin(ended, [FOUND, AT_END])
    reached = np.all([np.isfinite(columns[name]) for name in names], axis=0)
    columns["status"] = np.where(reached, DONE, NOT_REACHED)
    return columns, left, counts


def _induction(lanes: Lanes, tables: list[TablePolynomials], task: ChunkTask, dtype: Any) -> Any:
    columns, ended, counts = solve_induction(lanes, tables, task.options.milestones, dtype, task.options.curve_times)
    return columns, ended.copy(), counts


def _numbers(
    task: ChunkTask, key: str, default: np.ndarray | None = None, chosen: np.ndarray | None = None
) -> np.ndarray:
    """A numeric key as one float per lane; `default` [chosen] where it is not given."""
    given = task.lanes.get(key, task.fixed.get(key))
    if given is None:
        given = getattr(IntegrateConfig, key)
    if isinstance(given, np.ndarray) and given.dtype == float:
        whole = given
    else:
        several = given if isinstance(given, list | np.ndarray) else [given]
        whole = np.array([np.nan if value is None else value for value in several], dtype=float) + np.zeros(task.size)
    if chosen is None:
        return whole
    return whole[chosen] if default is None else np.where(np.isnan(whole[chosen]), default, whole[chosen])
