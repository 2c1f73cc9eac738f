"""Limits in closed form: large L, late times, small sigma, other token laws, d dimensions; and what is conserved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.errors import InputError
from gflow.theory.plateau import A_g, A_i
from gflow.tokens import TokenLaw

Real = float | int


def overlap_large_L(w: Real, w_prime: Real, L: Real) -> float:
    """`n K(w,w') -> (1 - 2 w w')^{-1/2}`, n = L-2, for 2 w w' < 1 (d = 1, Gaussian; derived, docs/exact-loss.md).

    Raises `InputError` where 2 w w' >= 1: there the limit does not exist and only the finite-L value is right.
    """
    product = 2.0 * w * w_prime
    if product >= 1.0:
        raise InputError(f"2 w w' = {product:g} must be below 1: beyond it K has no large-L law; use the table's value")
    return 1.0 / math.sqrt(1.0 - product) / (L - 2.0)


def cumulant_slope(law: TokenLaw, b: np.ndarray) -> np.ndarray:
    """`kappa'(b) = E[x e^{bx}] / E[e^{bx}]`: mean of the law tilted by b. tanh b for Rademacher, b for Gaussian."""
    if law.name == "gaussian":  # its finite nodes end before a strongly tilted density does
        return np.asarray(b, dtype=float)
    x, p = np.asarray(law.nodes), np.asarray(law.weights)
    exponent = np.multiply.outer(np.asarray(b, dtype=float), x)
    tilted = p * np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    return (tilted @ x) / tilted.sum(axis=-1)


def growth_rate_large_L(law: TokenLaw, L: Real, alpha_star: Real, w_star: Real, d: int = 1) -> float:
    """`rho ~ A_i^2 s2 E_q[q kappa'(w*^2 q)] / n`, n = L-2; d^2 w*^2 A_i^2 / n for d-dimensional Gaussian tokens.

    `w*^2/((1+alpha*)^2 n)` Gaussian, `tanh(w*^2)/((1+alpha*)^2 n)` Rademacher; s2 the variance of a zero-mean law (1
    for the standard ones). [WYEW] has the order, the constants are derived (docs/theory.md).
    Raises `InputError` for a law with a mean, where this formula does not hold.
    """
    if abs(float(law.mean)) > 1e-12:
        raise InputError(f"mean = {float(law.mean):g}: the large-L rate is for laws of mean 0; use growth_rate")
    n, c = L - 2.0, w_star**2
    if law.name == "gaussian":
        drive = d * d * c
    else:
        q, p = np.asarray(law.nodes), np.asarray(law.weights)
        drive = float(law.variance) * float(p @ (q * cumulant_slope(law, c * q)))
    return A_i(alpha_star) ** 2 * drive / n


def escape_leading(log_inverse_sigma: Real, rate: Real) -> float:
    """`T_II ~ T_III ~ log(1/sigma)/g`: leading order as sigma -> 0 [WYEW: ~ L log(1/sigma) (1+alpha*)^2/w*^2]."""
    return log_inverse_sigma / rate


def time_fourgram(
    alpha_star: Real,
    L: Real,
    sigma: Real,
    d: int = 1,
    variance: Real = 1.0,
    mean: Real = 0.0,
) -> float:
    """`T_I ~ 49.5/(d A_g^2 s2) + min(log L, log 1/sigma)/(d s2 A_g)`, for tokens of mean 0 and variance s2.

    While v1 follows p21, `d(r^-2)/dt = 2 d s2 A_g^2` with r = e^{-p21}, and Loss_G4 = r^2 times its start: r^2 falls
    from 1 to 1% in `(100 - 1)/(2 d s2 A_g^2)`. The escape of (p21, v1) from 0 at rate `d s2 A_g` takes the logarithm.
    Error O(1/A_g). For tokens with a mean mu the late law `Loss_G4 ~ 1/(4t)` alone: `50/(d A_g^2 (s2 + mu^2))` in place
    of the first term, right to a constant over A_g^2 only (derived, docs/theory.md).
    """
    A = A_g(alpha_star)
    waiting = max(min(math.log(L), -math.log(sigma)), 0.0)
    decades = 50.0 if mean else 49.5
    return decades / (d * A**2 * (variance + mean**2)) + waiting / (d * variance * A)


def fourgram_late(t: Real) -> float:
    """`Loss_G4 ~ 1/(4t)`, for every d, variance and mean: the 4-gram part never settles exponentially (derived)."""
    return 0.25 / t


def p21_late(t: Real, alpha_star: Real, d: int = 1, variance: Real = 1.0, mean: Real = 0.0) -> float:
    """`p21 ~ 1/2 log(2 k A_g^2 t)`, `k = d s2 (2 - s2/(s2+mu^2))`: k = d for standard tokens (derived)."""
    k = d * variance * (2.0 - variance / (variance + mean**2))
    return 0.5 * math.log(2.0 * k * A_g(alpha_star) ** 2 * t)


def conserved(params: Any) -> Any:
    """`wK^2 - wQ^2`, constant along the untied flow: both are driven by the same force times the other one.

    None for tied and merged, which have nothing to conserve.
    """
    if not hasattr(params, "wK"):
        return None
    return params.wK**2 - params.wQ**2


def separation_ratio(w_star: Real, alpha_star: Real, L: Real, sigma: Real, time: Real) -> float:
    """`T w*^2 / ((1+alpha*)^2 n log(1/sigma))`: tends to 1 (untied), 1/2 (tied) for T = T_II or T_III as sigma -> 0."""
    return time * w_star**2 * A_i(alpha_star) ** 2 / ((L - 2.0) * -math.log(sigma))


def first_layer_rate(alpha_star: Real, L: Real, sigma: Real, d: int = 1) -> float:
    """`d e^{p11}/dt -> d A_g sigma M`, `M = (1-e^{-sigma})/(1-e^{-n sigma})`: stage I, p11 alone, all else at sigma.

    For large p11 the 4-gram part sees p11 through `c_0 = M (1-r)` only, r = e^{-p11}; up to terms of order sigma/A_g
    (derived, docs/theory.md).
    """
    n = L - 2.0
    return d * A_g(alpha_star) * sigma * math.expm1(-sigma) / math.expm1(-n * sigma)


def fourgram_late_joint(t: Real) -> float:
    """`Loss_G4 ~ 1/(2t)` when p11 is trained, too: each of two layers is as slow as the second is alone (derived)."""
    return 0.5 / t
