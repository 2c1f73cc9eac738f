"""The induction head near its plateau: everything that K1, K2 and their derivatives at one point decide.

Write `K1(w) = K(w, c)`, `K2(w) = K(w, w)`, `c = w*^2`, `A_i = 1/(1+alpha*)`:

    Loss_IH = 1/2 [A_i^2 K(c,c) - 2 A_i v2 K1(w) + v2^2 K2(w)].

All functions are exact consequences of that formula (derived, docs/theory.md); they take the induction part of a
population loss and return Python floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gflow.losses.induction import problem
from gflow.losses.induction.near_plateau import (
    POWER as POWER,
    Overlaps as Overlaps,
    growth_rate as growth_rate,
    overlaps as overlaps,
    rho as rho,
)


def A_g(alpha_star: float | int) -> float:
    """`A_g = alpha*/(1+alpha*)`: amplitude of the 4-gram part of the target [WYEW, mixed target]."""
    return alpha_star / (1.0 + alpha_star)


def A_i(alpha_star: float | int) -> float:
    """`A_i = 1/(1+alpha*)`: amplitude of the in-context 2-gram part of the target [WYEW, mixed target]."""
    return 1.0 / (1.0 + alpha_star)


def v_plateau(induction: Any) -> float:
    """`v_p = A_i K1(0)/K2(0)`: the value of v2 on the plateau (derived, docs/theory.md)."""
    return float(problem.v_plateau(induction))


def plateau_level(induction: Any) -> float:
    """`plateau = 1/2 A_i^2 [K(c,c) - K1(0)^2/K2(0)]`: where Loss_IH waits (derived, docs/theory.md)."""
    return float(problem.plateau(induction))


def zero_output_level(induction: Any) -> float:
    """`1/2 A_i^2 K(c,c)`: Loss_IH of a model that outputs nothing, the limit of its start as sigma -> 0."""
    K = overlaps(induction)
    return 0.5 * K.amplitude**2 * K.kcc


def plateau_fraction(induction: Any) -> float:
    """`1 - K1(0)^2/(K2(0) K(c,c))`: the plateau as a fraction of the zero-output loss (trap (i) of docs/theory.md)."""
    return plateau_level(induction) / zero_output_level(induction)


def slope(induction: Any, parametrization: str) -> float | None:
    """`d T_II / d log(1/sigma) = d T_III / d log(1/sigma) = 1/g` as sigma -> 0; None where nothing grows."""
    rate = growth_rate(induction, parametrization)
    return 1.0 / rate if rate is not None and rate > 0 else None


def time_to_plateau(induction: Any, fraction: float | int = 0.01) -> float:
    """`T_o = log(1/fraction)/(2 K2(0))`: Loss_IH above its plateau is down to `fraction` of its start.

    While w ~ 0, `v2' = A_i K1(0) - K2(0) v2`, so `Loss_IH - plateau = K2(0)/2 (v2 - v_p)^2` decays at rate 2 K2(0); at
    1% this is log(10)/K2(0). K2(0) = d/n for standard tokens: T_o = n log(10)/d (derived, docs/theory.md).
    """
    return math.log(1.0 / fraction) / (2.0 * overlaps(induction).K2)


def initial_rates(induction: Any, parametrization: str, sigma: float | int) -> dict[str, float]:
    """`L |d w_K/dt| / w_K` and `L |d v2/dt|` at t = 0, where every parameter equals sigma.

    `dv2/dt = A_i K1(sigma^2) - sigma K2(sigma^2)`, `d log wK/dt = A_i sigma K1' - 1/2 sigma^2 K2'` (twice if tied).
    [WYEW] states `|d wKQ/dt| ~ wKQ/L` and `|d v2/dt| ~ 1/L`. The logit weight is absent for merged.
    """
    length = float(induction.table.L)
    K = overlaps(induction, sigma if parametrization == "merged" else sigma**2)
    rates = {"v2": length * abs(K.amplitude * K.K1 - sigma * K.K2)}
    if parametrization in POWER:
        force = K.amplitude * sigma * K.dK1 - 0.5 * sigma**2 * K.dK2
        rates["logit_weight"] = length * POWER[parametrization] * abs(force)
    return rates


def final_hessian(induction: Any, parametrization: str) -> np.ndarray:
    """Hessian of Loss_IH at (A_i, w*, w*) in v2 and the direction that changes w: 2 x 2.

    `H_vv = K(c,c)`, `H_vw = A_i [K2'(c) - K1'(c)]`, `H_ww = A_i^2 [1/2 K2''(c) - K1''(c)]`, where w moves `s` per unit
    length: s = sqrt(2c) untied, 2 sqrt(c) tied, 1 merged.
    Untied has one more eigenvalue, 0: `wK^2 - wQ^2` is conserved.
    """
    c = float(induction.table.c)
    K = overlaps(induction, c)
    scale = {"untied": math.sqrt(2.0 * c), "tied": 2.0 * math.sqrt(c), "merged": 1.0}[parametrization]
    mixed = scale * K.amplitude * (K.dK2 - K.dK1)
    curved = scale**2 * K.amplitude**2 * (0.5 * K.ddK2 - K.ddK1)
    return np.array([[K.kcc, mixed], [mixed, curved]])


def final_decay_rate(induction: Any, parametrization: str) -> float:
    """`Loss_IH ~ e^{-2 lambda t}`, lambda the smallest non-zero Hessian eigenvalue at the minimum; returns 2 lambda."""
    return 2.0 * float(np.linalg.eigvalsh(final_hessian(induction, parametrization))[0])
