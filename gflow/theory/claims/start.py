"""The start: how fast v2 and wK move where every parameter equals sigma."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from gflow.theory import plateau
from gflow.theory.claims._claim import REFUTED, Claim, Law, Plot, Row, about
from gflow.theory.claims._lab import Lab, Point, grid, point

V2, V2_N = "L |dv2/dt|", "n |dv2/dt|"
WK, WK_N = "L |dwK/dt| / wK", "n |dwK/dt| / (wK sigma)"
ORDER = "d log(L |dwK/dt| / wK) / d log sigma"


@eqx.filter_jit
def _gradient(loss: Any, params: Any) -> Any:
    return jax.grad(lambda p: loss(p))(params)


def _measured(lab: Lab) -> list[Row]:
    """|dv2/dt| and |d log wK/dt| at t = 0, by differentiating the exact loss."""
    rows = []
    lengths = lab.choose([100, 1e4, 1e6], [100, 1e3, 1e4, 1e5, 1e6])
    for at in grid(L=lengths, sigma_init=[1e-6, 1e-3], alpha_star=lab.choose([1.0, 3.0], [0.3, 1.0, 3.0]), w_star=0.5):
        force = _gradient(lab.induction(at), lab.start(at))
        n, sigma, error = at["L"] - 2.0, at["sigma_init"], 4.0 * lab.table_error(at) + 1e-12
        v2, wK = abs(float(force.v2)), abs(float(force.wK)) / sigma
        large = at["L"] >= 1e4
        for name, value, inside in (
            (V2, at["L"] * v2, True),
            (V2_N, n * v2, large),
            (WK, at["L"] * wK, True),
            (WK_N, n * wK / sigma, large),
        ):
            rows.append(Row(name, at, value, value * error, inside))
    return rows


def _only(*names: str) -> Callable[[Lab], list[Row]]:
    def measure(lab: Lab) -> list[Row]:
        return [row for row in lab.once("initial rates", lambda: _measured(lab)) if row.quantity in names]

    return measure


def _order(lab: Lab) -> list[Row]:
    """The exponent of sigma in wK's initial rate, between neighbouring sigmas."""
    rows = []
    for L in (100, 1e4):
        ends = [point(L=L, sigma_init=sigma, w_star=0.5) for sigma in (1e-6, 1e-4, 1e-2)]
        rates = [abs(float(_gradient(lab.induction(at), lab.start(at)).wK)) / at["sigma_init"] for at in ends]
        for low, high, at in zip(rates, rates[1:], ends, strict=False):
            exponent = math.log(high / low) / math.log(100.0)
            rows.append(Row(ORDER, at, exponent, 8.0 * lab.table_error(at) + 1e-12))
    return rows


def _exact(lab: Lab, name: str) -> Callable[[Point], Any]:
    return lambda p: about(plateau.initial_rates(lab.induction(p), "untied", p["sigma_init"])[name], 1e-7)


CLAIMS = [
    Claim(
        name="initial-rate-v2",
        title="At the start v2 moves at a rate of order 1/L",
        statement="With every parameter at sigma, v2 moves at a rate inversely proportional to the sequence length.",
        formula="|dv2/dt| ~ 1/L;   n |dv2/dt| -> A_i - sigma",
        source="[WYEW], four phases (order); constant derived, docs/theory.md",
        assumptions="p11 = inf, Gaussian tokens; the limit for L >= 1e4",
        rule="The exact loss is differentiated at the start. L |dv2/dt| must equal A_i K1 - sigma K2 (times L) to "
        "1e-7, "
        "and n |dv2/dt| its limit to 1%.",
        measure=_only(V2, V2_N),
        law=lambda lab: Law(
            "1/L",
            "n |dv2/dt| -> A_i - sigma",
            {V2: _exact(lab, "v2"), V2_N: lambda p: about(plateau.A_i(p["alpha_star"]) - p["sigma_init"], 0.01)},
        ),
        control=lambda lab: Law(
            "1/sqrt(L)",
            "|dv2/dt| ~ L^(-1/2), with the same value at L = 1e4",
            {V2_N: lambda p: about(plateau.A_i(p["alpha_star"]) * math.sqrt(p["L"] / 1e4), 0.01)},
        ),
        plot=Plot(V2_N, "L", "n |dv2/dt| at t = 0", by="alpha_star"),
    ),
    Claim(
        name="initial-rate-wK",
        title="At the start wK grows at a rate sigma A_i w*^2/n",
        statement="With every parameter at sigma, wK and wQ grow relative to themselves at a rate that is sigma times "
        "a "
        "constant over L: the quadratic product starts slower than v2.",
        formula="|dwK/dt| / wK = A_i sigma K1' - sigma^2 K2'/2 ~ A_i w*^2 sigma / n",
        source="[WYEW], four phases (order); constant derived, docs/theory.md",
        assumptions="p11 = inf, Gaussian tokens, d = 1; the limit for L >= 1e4 and small sigma",
        rule="The exact loss is differentiated at the start. L |dwK/dt|/wK must equal the formula to 1e-7, and "
        "n |dwK/dt|/(wK sigma) the limit A_i w*^2 to 1%.",
        measure=_only(WK, WK_N),
        law=lambda lab: Law(
            "sigma/L",
            "n |dwK/dt|/(wK sigma) -> A_i w*^2",
            {
                WK: _exact(lab, "logit_weight"),
                WK_N: lambda p: about(plateau.A_i(p["alpha_star"]) * p["w_star"] ** 2, 0.01),
            },
        ),
        control=lambda lab: Law(
            "plateau-rate",
            "wK grows at the plateau's rate from the start",
            {WK: lambda p: about(p["L"] * plateau.rho(lab.induction(p)), 0.01)},
        ),
    ),
    Claim(
        name="initial-rate-wK-literal",
        title="Read literally, |dwK/dt| ~ wK/L at t = 0 is off by a factor sigma",
        statement="At the start wK changes at a rate of order wK/L, with constants that do not depend on sigma.",
        formula="|dwKQ/dt| ~ wKQ/L at t = 0, uniformly in sigma",
        source="[WYEW], as a literal statement; the exact rate is in docs/theory.md",
        assumptions="every parameter, v2 too, starts at sigma",
        rule="The exponent of sigma in L |dwK/dt|/wK must be 0 up to 0.05. It is 1, since v2 = sigma at the start: the "
        "statement is right as an upper bound, and as an order from the time when v2 has reached its plateau value "
        "(claim plateau-growth).",
        measure=_order,
        law=lambda lab: Law("uniform", "the rate does not depend on sigma", {ORDER: lambda p: about(0.0, 0.0, 0.05)}),
        control=lambda lab: Law("quadratic", "the rate goes as sigma^2", {ORDER: lambda p: about(2.0, 0.0, 0.05)}),
        expected_verdict=REFUTED,
    ),
]
