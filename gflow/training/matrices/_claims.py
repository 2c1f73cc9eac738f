"""Claims about two properties of the seeds, and the rules by which they are accepted, fixed before looking."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
P_VALUE = 0.01  # one-sided, below which an association is taken as real
EXACT = 0.8  # what "exactly when" must reach among singular seeds; its complement bounds it among full-rank seeds
WEAK = 0.2  # a difference of frequencies surely below this is no association
WEAK_CORRELATION = 0.3  # nor is a rank correlation surely below this


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement, its verdict ("supported", "refuted", "undecided") and the numbers it rests on."""

    name: str
    statement: str
    verdict: str
    measured: dict[str, Any]


def proportion(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a frequency; (0, 1) for no trials."""
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high


def difference(a: int, m: int, b: int, n: int, z: float = 2.576) -> tuple[float, float]:
    """99% interval of `a/m - b/n` (Newcombe 1998: Wilson's intervals combined); (-1, 1) for an empty class."""
    if m == 0 or n == 0:
        return -1.0, 1.0
    (p, low1, high1), (q, low2, high2) = _wilson(a, m, z), _wilson(b, n, z)
    return (
        p - q - math.sqrt((p - low1) ** 2 + (high2 - q) ** 2),
        p - q + math.sqrt((high1 - p) ** 2 + (q - low2) ** 2),
    )


def _wilson(k: int, n: int, z: float) -> tuple[float, float, float]:
    p, s = k / n, z * z / n
    half = z * math.sqrt(p * (1 - p) / n + s / (4 * n))
    return p, (p + s / 2 - half) / (1 + s), (p + s / 2 + half) / (1 + s)


def association(waits: Bool[np.ndarray, " S"], singular: Bool[np.ndarray, " S"]) -> Claim:
    """Singular seeds wait more often.

    Supported: Fisher's exact test, one-sided, p < 0.01. Refuted: the 99% interval of the difference of frequencies
    ends below 0.2. Otherwise undecided.
    """
    from scipy.stats import fisher_exact

    a, m, b, n = _table(waits, singular)
    found: Any = fisher_exact([[a, m - a], [b, n - b]], alternative="greater")
    p = float(found.pvalue)
    low, high = difference(a, m, b, n)
    verdict = SUPPORTED if p < P_VALUE else REFUTED if high < WEAK else UNDECIDED
    measured = {"singular": [a, m], "full": [b, n], "p": p, "difference": [low, high]}
    return Claim(
        "association", "seeds with a singular sign matrix have an interior plateau more often", verdict, measured
    )


def exactly(waits: Bool[np.ndarray, " S"], singular: Bool[np.ndarray, " S"]) -> Claim:
    """A seed waits exactly when its matrix is singular, up to one in five.

    Supported: the 95% Clopper-Pearson intervals of P(plateau | singular) and P(plateau | full rank) lie above 0.8 and
    below 0.2. Refuted: one lies wholly on the wrong side of its bound. Otherwise undecided.
    """
    a, m, b, n = _table(waits, singular)
    one, two = proportion(a, m), proportion(b, n)
    right = one[0] > EXACT and two[1] < 1 - EXACT
    wrong = one[1] < EXACT or two[0] > 1 - EXACT
    verdict = SUPPORTED if right else REFUTED if wrong else UNDECIDED
    measured = {"singular": [a, m], "full": [b, n], "P(plateau|singular)": list(one), "P(plateau|full)": list(two)}
    return Claim(
        "exactly", "a seed has an interior plateau exactly when its sign matrix is singular", verdict, measured
    )


def follows(name: str, statement: str, values: Num[np.ndarray, " S"], missing: Int[np.ndarray, " S"]) -> Claim:
    """The larger the missing rank, the larger the value.

    Supported: Spearman's correlation, one-sided, p < 0.01. Refuted: its 95% interval (Fisher's z) ends below 0.3.
    Otherwise undecided; also when one of the two does not vary.
    """
    from scipy.stats import spearmanr

    if len(values) < 4 or np.ptp(values) == 0 or np.ptp(missing) == 0:
        return Claim(name, statement, UNDECIDED, {"correlation": None, "p": None})
    found: Any = spearmanr(missing, values, alternative="greater")
    rho, p = float(found.statistic), float(found.pvalue)
    high = math.tanh(math.atanh(min(rho, 1 - 1e-12)) + 1.96 / math.sqrt(len(values) - 3))
    verdict = SUPPORTED if p < P_VALUE else REFUTED if high < WEAK_CORRELATION else UNDECIDED
    return Claim(name, statement, verdict, {"correlation": rho, "p": p, "at most": high})


def _table(waits: Bool[np.ndarray, " S"], singular: Bool[np.ndarray, " S"]) -> tuple[int, int, int, int]:
    """Plateaus among singular seeds, singular seeds, plateaus among full-rank seeds, full-rank seeds."""
    return (
        int(np.sum(waits & singular)),
        int(np.sum(singular)),
        int(np.sum(waits & ~singular)),
        int(np.sum(~singular)),
    )


def spread(values: Float[np.ndarray, " S"]) -> dict[str, float | None]:
    """Median and range of the finite ones."""
    good = values[np.isfinite(values)]
    if len(good) == 0:
        return {"median": None, "min": None, "max": None}
    return {"median": float(np.median(good)), "min": float(good.min()), "max": float(good.max())}
