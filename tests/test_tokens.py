"""Token laws: moments, symmetry, and one-line refusals of what is not a law."""

from __future__ import annotations

import numpy as np
import pytest

from gflow import tokens
from gflow.errors import InputError, TokenLawError


@pytest.mark.parametrize("name", tokens.NAMES)
def test_named_laws_are_standardised(name: str) -> None:
    law = tokens.from_name(name)
    assert law.name == name
    assert law.is_symmetric
    assert float(np.sum(law.weights)) == pytest.approx(1.0, abs=1e-14)
    assert float(law.mean) == pytest.approx(0.0, abs=1e-14)
    assert float(law.variance) == pytest.approx(1.0, abs=1e-13)


def test_fourth_moments() -> None:
    expected = {"gaussian": 3.0, "rademacher": 1.0, "uniform": 9.0 / 5.0}
    for name, value in expected.items():
        law = tokens.from_name(name)
        assert float(np.sum(law.weights * law.nodes**4)) == pytest.approx(value, rel=1e-13)


def test_finite_law_with_a_mean() -> None:
    law = tokens.finite([3.0, -1.0], [0.25, 0.75])
    assert float(law.mean) == pytest.approx(0.0, abs=1e-15)
    assert not law.is_symmetric
    law = tokens.finite([2.0, 0.0], [0.5, 0.5])
    assert (float(law.mean), float(law.second_moment), float(law.variance)) == (1.0, 2.0, 1.0)
    assert tokens.finite([-1, 0, 1], [0.3, 0.4, 0.3]).is_symmetric
    assert "finite" in law.name
    assert "2: 0.5" in repr(law)


@pytest.mark.parametrize(
    ("values", "probabilities", "words"),
    [
        ([1.0], [1.0], "at least 2"),
        ([1.0, 2.0], [0.5], "same length"),
        ([1.0, 2.0], [0.5, 0.6], "sum to 1.1"),
        ([1.0, 2.0], [-0.5, 1.5], "must be positive"),
        ([1.0, float("nan")], [0.5, 0.5], "finite number"),
        ([1.0, float("inf")], [0.5, 0.5], "finite number"),
        ([1.0, 2.0], [float("nan"), 0.5], "must be positive"),
        ([1.0, 1.0], [0.5, 0.5], "given twice"),
        (["a", 1.0], [0.5, 0.5], "lists of numbers"),
        ([[1.0, 2.0]], [[0.5, 0.5]], "flat lists"),
    ],
)
def test_what_is_not_a_law_is_refused_in_one_line(values: list, probabilities: list, words: str) -> None:
    with pytest.raises(TokenLawError, match=words) as caught:
        tokens.finite(values, probabilities)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


def test_unknown_names_come_with_a_suggestion() -> None:
    with pytest.raises(TokenLawError, match="did you mean 'rademacher'"):
        tokens.from_name("radmacher")
    with pytest.raises(TokenLawError, match="gaussian, rademacher, uniform"):
        tokens.from_name("zipf")
