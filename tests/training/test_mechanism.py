"""The sign matrix, how often it is singular, the rules of the claims, the test on runs with known answers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gflow.errors import InputError
from gflow.training.matrices import MatrixRun, _claims, pick_seeds, singular_probability, start_ranks, train_matrices
from gflow.training.matrices._verdicts import surprises
from gflow.training.matrices.mechanism import Mechanism, class_seeds, judge, rank_classes
from gflow.training.matrices.signs import sign_ranks


def exact_rank(matrix: np.ndarray) -> int:
    """Elimination with fractions."""
    rows, rank = [[Fraction(int(x)) for x in row] for row in matrix], 0
    for column in range(len(rows)):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column] != 0), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


@pytest.mark.parametrize("d", [2, 4, 8, 12])
def test_ranks_by_fractions(d: int) -> None:
    random = np.random.default_rng(d)
    sums = random.standard_normal((60, d, d))
    sums[:20, 1] = sums[:20, 0] * random.choice([-1.0, 1.0], (20, 1))  # some must be singular
    expected = [exact_rank(np.where(s >= 0, 1, -1)) for s in sums]
    assert sign_ranks(sums).tolist() == expected
    assert min(expected) < d


@pytest.mark.parametrize(("d", "singular"), [(1, 0), (2, 1), (3, 10), (4, 338), (5, 42976)])
def test_singular_matrices_are_counted(d: int, singular: int) -> None:
    """Numbers of singular 0/1 matrices of size d-1 (Zivkovic 2006, table 1)."""
    found = singular_probability(d)
    assert found.value == singular / 2 ** ((d - 1) ** 2)
    assert found.error == 0


def test_small_sign_matrices_by_brute_force() -> None:
    index = np.arange(2**9)
    every = 2.0 * ((index[:, None] >> np.arange(9)) & 1).reshape(-1, 3, 3) - 1
    assert np.mean(sign_ranks(every) < 3) == singular_probability(3).value


def test_sampling_agrees_with_the_count() -> None:
    """d = 6 is not enumerated here, but 21040112 of the 2^25 0/1 matrices of size 5 are singular (Zivkovic 2006)."""
    found = singular_probability(6, draws=1 << 17)
    assert abs(found.value - 21040112 / 2**25) < 4 * found.error
    assert 0 < found.error < 2e-3


def test_start_ranks_are_those_of_a_run() -> None:
    seeds = pick_seeds(4, (2,), 3, first=50)
    assert start_ranks(seeds, 4).tolist() == [2, 2, 2]
    run = train_matrices([*seeds.tolist(), 0], d=4, L=8, batch=4, steps=1, evaluation=8)
    assert run.start_rank.tolist()[:3] == [2, 2, 2]
    assert run.start_rank[3] == start_ranks(np.array([0]), 4)[0]
    assert int(np.sum(run.singular_sign[3, 0] > 1e-3)) == run.start_rank[3]
    between = [s for s in range(50, int(seeds[-1])) if s not in seeds]
    assert 2 not in start_ranks(np.array(between), 4)


def test_classes_are_filled_or_refused() -> None:
    seeds = class_seeds(3, 5)
    ranks = start_ranks(seeds, 3)
    assert sorted(ranks.tolist()) == [r for (r,) in rank_classes(3) for _ in range(5)]
    with pytest.raises(InputError, match="d = 1"):
        class_seeds(1, 5)
    with pytest.raises(InputError, match=r"d = 30: only \d singular"):
        class_seeds(30, 5, most=2048)


def column(singular: tuple[int, int], full: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(waits, singular) with so many of so many."""
    waits = [k < singular[0] for k in range(singular[1])] + [k < full[0] for k in range(full[1])]
    return np.array(waits), np.array([True] * singular[1] + [False] * full[1])


@pytest.mark.parametrize("table", [((9, 20), (3, 20)), ((15, 22), (2, 18)), ((5, 10), (5, 10))])
def test_fisher_by_counting(table: tuple[tuple[int, int], tuple[int, int]]) -> None:
    (a, m), (b, n) = table
    waits, singular = column(*table)
    tail = sum(math.comb(m, k) * math.comb(n, a + b - k) for k in range(a, min(m, a + b) + 1)) / math.comb(m + n, a + b)
    assert _claims.association(waits, singular).measured["p"] == pytest.approx(tail, rel=1e-10)


def test_intervals_of_a_frequency_cover() -> None:
    """Clopper-Pearson by its definition: at each end the observed tail has probability 2.5%."""
    for hits, count in ((3, 20), (17, 20), (1, 5)):
        low, high = _claims.proportion(hits, count)
        binomial = lambda p, ks, n=count: sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in ks)  # noqa: E731
        assert binomial(low, range(hits, count + 1)) == pytest.approx(0.025, rel=1e-8)
        assert binomial(high, range(hits + 1)) == pytest.approx(0.025, rel=1e-8)
    assert _claims.proportion(0, 20)[0] == 0
    assert _claims.proportion(20, 20)[1] == 1
    assert _claims.proportion(0, 0) == (0.0, 1.0)


def test_interval_of_a_difference_covers() -> None:
    random, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        low, high = _claims.difference(int(random.binomial(30, 0.7)), 30, int(random.binomial(25, 0.3)), 25)
        inside += low <= 0.4 <= high
    assert inside / 2000 > 0.98
    # Newcombe 1998, table II (a), method 10: 56/70 - 48/80 at 95%
    assert _claims.difference(56, 70, 48, 80, 1.959964) == pytest.approx((0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize(
    ("table", "associated", "exact"),
    [
        (((60, 60), (0, 20)), "supported", "supported"),
        (((59, 60), (0, 20)), "supported", "supported"),
        (((45, 60), (5, 20)), "supported", "undecided"),
        (((30, 60), (10, 20)), "undecided", "refuted"),
        (((100, 200), (100, 200)), "refuted", "refuted"),
        (((0, 20), (20, 20)), "refuted", "refuted"),
        (((3, 3), (0, 2)), "undecided", "undecided"),
        (((0, 0), (0, 9)), "undecided", "undecided"),
    ],
)
def test_rules(table: tuple[tuple[int, int], tuple[int, int]], associated: str, exact: str) -> None:
    waits, singular = column(*table)
    assert _claims.association(waits, singular).verdict == associated
    assert _claims.exactly(waits, singular).verdict == exact


def test_following() -> None:
    random = np.random.default_rng(1)
    missing = np.repeat([0, 1, 2, 3], 20)
    judged = lambda values: _claims.follows("level", "", values, missing).verdict  # noqa: E731
    assert judged(missing + random.standard_normal(80)) == "supported"
    assert judged(-missing + random.standard_normal(80)) == "refuted"
    assert judged(np.zeros(80)) == "undecided"
    assert judged(random.permutation(80)) in ("refuted", "undecided")


def made_up(plateau: Any, count: int = 80) -> MatrixRun:
    """A run of the seeds of the test whose induction loss waits where `plateau(rank)` says so (a level, or None)."""
    seeds = class_seeds(4, count // 4)
    ranks = start_ranks(seeds, 4)
    steps = np.arange(0, 1000, 5)
    drop = lambda at: 1 / (1 + np.exp((steps - at) / 20))  # noqa: E731
    curves = []
    for rank in ranks:
        level = plateau(rank)
        curves.append(drop(250) if level is None else (1 - level) * drop(250) + level * drop(700))
    loss = np.array(curves) + 1e-4
    modes = np.where(np.arange(4) < ranks[:, None, None], 1.0, 0.0) + np.zeros((1, len(steps), 1))
    return MatrixRun(
        seeds=seeds, steps=steps, fourgram=loss, induction=loss, fourgram_error=0 * loss, induction_error=0 * loss,
        singular_KQ=modes, singular_V1=modes, singular_V2=modes, singular_sign=modes, p21=loss, start_rank=ranks,
        failures=[], status="reached_steps",
    )  # fmt: skip


def test_a_true_mechanism_is_found() -> None:
    found = judge(made_up(lambda rank: {1: 0.8, 2: 0.6, 3: 0.4, 4: None}[int(rank)]))
    assert found.control_rejected
    assert found.verdicts() == {
        m: dict.fromkeys(("association", "exactly", "level", "number"), "supported") for m in ("initial", "formed")
    }
    table = found.by_rank("initial")
    assert {r: (row["seeds"], row["plateau"]) for r, row in table.items()} == {
        1: (20, 20), 2: (20, 20), 3: (20, 20), 4: (20, 0),
    }  # fmt: skip
    assert table[2]["level"] == pytest.approx(0.6, rel=0.06)
    assert "supported" in found.report()
    assert found.as_dict()["control"]["rejected"]


def test_a_false_mechanism_is_not() -> None:
    random = np.random.default_rng(3)
    found = judge(made_up(lambda rank: random.choice([0.5, None])))
    assert {v for claims in found.verdicts().values() for v in claims.values()} <= {"refuted", "undecided"}
    assert found.verdicts()["initial"]["exactly"] == "refuted"
    assert surprises(found, usual=False) == []


def test_seeds_that_are_not_done_are_left_out() -> None:
    run = made_up(lambda rank: 0.5 if rank < 4 else None)
    run.induction[5] = 1.0 - 0.5 / (1 + np.exp(-(run.steps - 250) / 20))  # never leaves its level
    found = judge(run)
    assert found.unfinished == [int(run.seeds[5])]
    assert sum(row["seeds"] for row in found.by_rank("formed").values()) == 79


def test_seeds_that_show_it() -> None:
    """A seed whose sign matrix has rank 1 and keeps it waits near .77; one with a Hadamard matrix does not wait."""
    run = train_matrices([101675, 100005], d=4, steps=560, evaluation=1024)
    assert run.start_rank.tolist() == [1, 4]
    (waiting, straight) = run.plateaus()
    assert len(waiting) == 1
    assert 0.7 < waiting[0].level < 0.82
    assert waiting[0].length > 120
    assert straight == []
    # while it waits, one mode is there and the others grow
    at = int(np.searchsorted(run.steps, waiting[0].start))
    assert run.singular_KQ[0, at, 0] > 0.5
    assert run.singular_KQ[0, at, 1] < 0.05
    assert run.singular_KQ[0, -1, 1] > 0.5
    assert isinstance(judge(run), Mechanism)


def test_a_surprise_is_told() -> None:
    """With the usual settings a mechanism that does not show at d = 4 surprises; a true one does not."""
    assert surprises(judge(made_up(lambda rank: 0.8 - 0.2 * int(rank) if rank < 4 else None)), usual=True) == []
    lines = surprises(judge(made_up(lambda rank: None)), usual=True)
    assert len(lines) == 6
    assert lines[0] == "initial sign matrix, association: refuted, expected supported"
