"""The transfer operator against direct integration, the p11 = inf overlaps, and literature values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gflow.errors import InputError, TableError
from gflow.losses.induction import cross_overlap, self_overlap
from gflow.losses.induction.overlap import cross_batch
from gflow.losses.induction.quadrature import key_quadrature
from gflow.losses.induction.transfer_rules import make_chain, make_rules
from gflow.tokens import gaussian


def by_integration(n: int, r: float, a: float, b: float, d: int, nodes: int) -> tuple[float, float]:
    """E[f_student f_target] and E[f_student^2] by the trapezium in all n tokens; the last value has variance 1."""
    x = np.linspace(-8.0, 8.0, nodes)
    p = np.exp(-0.5 * x * x) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    tokens = np.stack(np.meshgrid(*[x] * n, indexing="ij"))  # [n, ...]
    weight = np.prod(np.stack(np.meshgrid(*[p] * n, indexing="ij")), axis=0)
    keys = []
    for k in range(1, n + 1):
        share = r ** np.arange(k, dtype=float)
        keys.append(np.tensordot(share[::-1], tokens[:k], axes=1) / np.sum(share))

    def attention(logits: np.ndarray) -> np.ndarray:
        e = np.exp(logits - np.max(logits, axis=0))
        return e / np.sum(e, axis=0)

    student, target = attention(a * np.stack(keys)), attention(b * tokens)
    # values of key k: x_{k+1}; that of the last key is a token of its own, mean 0, variance 1
    f_student = np.sum(student[:-1] * tokens[1:], axis=0)
    f_target = np.sum(target[:-1] * tokens[1:], axis=0)
    along = f_student * f_target + student[-1] * target[-1]
    alone = f_student**2 + student[-1] ** 2
    across = np.sum(student * target, axis=0), np.sum(student**2, axis=0)
    return (
        float(np.sum(weight * (along + (d - 1) * across[0]))),
        float(np.sum(weight * (alone + (d - 1) * across[1]))),
    )


@pytest.mark.parametrize(("n", "nodes"), [(2, 121), (3, 61)])
@pytest.mark.parametrize(("r", "a", "b", "d"), [(0.5, 0.8, 1.3, 1), (0.9, 1.2, 0.7, 3), (1.0, -0.6, 1.0, 2)])
def test_direct_integration(n: int, nodes: int, r: float, a: float, b: float, d: int) -> None:
    cross, alone = by_integration(n, r, a, b, d, nodes)
    rough, _ = by_integration(n, r, a, b, d, nodes - 8)
    assert abs(rough / cross - 1) < 1e-9  # what the reference itself is good for
    assert cross_overlap(n, r, a, b, d) == pytest.approx(cross, rel=2e-8)
    assert self_overlap(n, r, a, d) == pytest.approx(alone, rel=2e-8)


@pytest.mark.parametrize(
    ("n", "r", "a", "b", "value"),
    [(6, 0.5, 0.8, 1.3, 0.22963596), (6, 0.9, 1.5, 1.0, 0.22995873), (20, 0.6, 1.0, 1.0, 0.07138639)],
)
def test_reference_cross_terms(n: int, r: float, a: float, b: float, value: float) -> None:
    # the references were cut off at 6 standard deviations, which costs 3e-7 of their value
    assert cross_overlap(n, r, a, b) == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(("r", "a", "value"), [(0.9, 2.0, 0.10640536), (0.1, 1.0, 0.10409932)])
def test_reference_self_terms(r: float, a: float, value: float) -> None:
    assert self_overlap(18, r, a) == pytest.approx(value, abs=2e-8)


@pytest.mark.parametrize(("n", "a", "b"), [(8, 1.0, 1.0), (38, 1.5, 2.5), (98, -0.2, 0.9)])
def test_infinite_p11_is_the_other_method(n: int, a: float, b: float) -> None:
    """r = 0 against the GEMM kernel of p11 = inf, which shares no code with the chain."""
    law = gaussian()
    keys = key_quadrature(law, float(n), np.array([1.0]), np.array([1.0]), max(abs(a), b))
    value = cross_batch(keys, [float(n)], 1, np.array([a]), np.array([b]), np.array([1e-15]), 64)[0][0, 0]
    assert cross_overlap(n, 0.0, a, b) == pytest.approx(value, rel=3e-9)


def test_uniform_attention_knows_nothing_of_the_first_layer() -> None:
    """At a = 0 the student averages all values: the same at every r."""
    values = [cross_overlap(30, r, 0.0, 1.0) for r in (0.0, 0.5, 0.97, 1.0)]
    np.testing.assert_allclose(values, values[0], rtol=3e-9)
    # E[f_a^2] at a = 0 is the variance of a mean of n values
    assert self_overlap(30, 0.8, 0.0) == pytest.approx(1 / 30, rel=1e-10)


@pytest.mark.parametrize(("n", "r", "a", "b"), [(18, 0.95, 1.2, 1.0), (60, 1.0, 1.5, 1.2), (120, 0.99, 0.9, 1.0)])
def test_steps_are_fine_enough(n: int, r: float, a: float, b: float) -> None:
    """Every step divided by 1.3: grids in bands and several grids along the chain are met here."""
    rules = make_rules(n, r, np.array([a]), b, 1.0)
    assert len(rules.segments) > 2
    assert any(rules.band(i).width for i in range(len(rules.segments))) or n < 60
    assert cross_overlap(n, r, a, b) == pytest.approx(cross_overlap(n, r, a, b, refine=1.3), rel=1e-8)


@pytest.mark.parametrize("r", [0.0, 1e-12, 0.3, 1 - 1e-9, 1.0, 1.002])
def test_chain(r: float) -> None:
    chain = make_chain(40, r)
    k = np.arange(41)
    N = [sum(r**j for j in range(m)) for m in k]
    np.testing.assert_allclose(chain.N, N, rtol=1e-12)
    np.testing.assert_allclose(np.square(chain.sigma), [sum(r ** (2 * j) for j in range(m)) for m in k], rtol=1e-12)


def test_segments_cover_every_key_once() -> None:
    for n, r in itertools.product((2, 17, 150), (0.0, 0.9, 1.0)):
        segments = make_rules(n, r, np.array([1.0]), 1.0, 1.0).segments
        keys = [k for last, first, _ in segments for k in range(last, first - 1, -1)]
        assert keys == list(range(n, 0, -1))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="whole number"):
        cross_overlap(1, 0.5, 1.0, 1.0)
    with pytest.raises(InputError, match="between 0"):
        cross_overlap(8, 1.5, 1.0, 1.0)
    with pytest.raises(TableError, match="smaller"):
        cross_overlap(38, 0.5, 60.0, 60.0)
