"""Tables of many L that share their matrix products: the values of single ones, the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from gflow import tokens
from gflow.errors import TableError
from gflow.losses.induction import build_many
from gflow.losses.induction.build import build_table, evaluate_cells
from gflow.losses.induction.build_many import bucket, make_tables


def values(table, w):
    return evaluate_cells(np.asarray(table.cells), float(table.lo), float(table.hi), w)


@pytest.mark.parametrize(("law", "w_star"), [("gaussian", 0.7), ("rademacher", 0.8), ("uniform", 0.6)])
def test_values_are_those_of_single_tables(law, w_star):
    lengths = [12.0, 45.5, 101.0, 600.0]
    assert [bucket(L) for L in lengths] == [1, 1, 1, 2]
    law = tokens.from_name(law)
    for L, table in zip(lengths, make_tables(law, lengths, w_star, cache=False), strict=True):
        assert float(table.L) == L
        alone = build_table(law, L, w_star)
        w = np.linspace(float(table.lo), float(table.hi), 60)
        bound = np.asarray(table.relative_error) + np.asarray(alone.relative_error)
        assert np.all(np.abs(values(table, w) / values(alone, w) - 1.0) <= bound[:, None])
        # derivatives in L and c, which no bound covers
        for cells in ("cells_L", "cells_c"):
            ours, theirs = np.asarray(getattr(table, cells)), np.asarray(getattr(alone, cells))
            np.testing.assert_allclose(ours[..., 0], theirs[..., 0], rtol=1e-5, atol=1e-6 * np.max(np.abs(theirs)))


def test_company_does_not_change_a_bit():
    law = tokens.from_name("gaussian")
    many = make_tables(law, [20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 900.0], 0.6, cache=False)
    for number, company in ((1, [30.0]), (5, [70.0, 11.0]), (6, [90.0, 80.0])):
        again = next(t for t in make_tables(law, company, 0.6, cache=False) if float(t.L) == float(many[number].L))
        for name in ("cells", "cells_L", "cells_c", "relative_error"):
            np.testing.assert_array_equal(np.asarray(getattr(again, name)), np.asarray(getattr(many[number], name)))


def test_one_that_fails_costs_no_other(monkeypatch):
    assemble = build_many.assemble

    def failing(setting, *rest):
        if setting.n == 38.0:
            raise TableError("this one is beyond us")
        return assemble(setting, *rest)

    monkeypatch.setattr(build_many, "assemble", failing)
    found = make_tables(tokens.from_name("gaussian"), [30.0, 40.0, 50.0], 0.6, cache=False)
    assert isinstance(found[1], TableError)
    assert [float(found[0].L), float(found[2].L)] == [30.0, 50.0]


def test_every_table_is_kept_once_it_is_finished(monkeypatch, tmp_path):
    monkeypatch.setenv("GFLOW_CACHE_DIR", str(tmp_path))
    law, seen = tokens.from_name("gaussian"), []
    first = make_tables(law, [30.0, 40.0], 0.6, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 2), (2, 2)]
    monkeypatch.setattr(build_many._Group, "arrays", None)
    again = make_tables(law, [40.0, 30.0], 0.6)
    np.testing.assert_array_equal(np.asarray(again[0].cells), np.asarray(first[1].cells))
