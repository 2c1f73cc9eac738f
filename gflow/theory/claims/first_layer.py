"""Finite p11: stage I, where p11 alone is trained and everything else stays at sigma."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gflow.config import IntegrateConfig
from gflow.flows import GradientFlow, solve
from gflow.losses.induction.finite_fourgram import FiniteFourgramLoss
from gflow.losses.induction.plan import make_loss, make_problem
from gflow.theory import limits
from gflow.theory.claims._claim import Claim, Law, Plot, Row, about
from gflow.theory.claims._lab import Lab, Point, point

L_JOINT = 20.0
SAMPLES = 4096
LINEAR = "rate of exp(p11) over A_g sigma M"
PULL = "exponent of sigma in (pull of Loss_IH on p11) / (pull of Loss_G4)"


def _fourgram(L: float) -> FiniteFourgramLoss:
    def number(x: float) -> Any:
        return jnp.asarray(x, dtype=float)

    return FiniteFourgramLoss(int(L) - 2, number(1.0), number(1.0), number(0.0), number(1.0))


def fourgram_run(lab: Lab, L: float, sigma: float, leaves: tuple[str, ...], t1: float, rtol: float = 3e-9) -> Any:
    """The exact 4-gram part at finite p11 from sigma, some leaves trained (alpha* = 1)."""

    def compute() -> Any:
        lab.tell(f"the 4-gram part at finite p11, L={L:g}, sigma_init={sigma:g}")
        start = lab.problem(point(L=L)).initial_params(sigma, p11=sigma)
        flow = GradientFlow(_fourgram(L), trainable=lambda p: tuple(getattr(p, leaf) for leaf in leaves))
        return solve(flow, start, t1=t1, rtol=rtol)

    return lab.once(("4-gram", L, sigma, leaves, t1, rtol), compute)


def _stage_one(lab: Lab) -> list[Row]:
    """The slope of exp(p11) between t/2 and t."""
    rows = []
    for sigma in lab.choose([1e-2], [1e-1, 1e-2, 1e-3]):
        at = point(L=L_JOINT, sigma_init=sigma)
        run, loose = (fourgram_run(lab, L_JOINT, sigma, ("p11",), 1e8, rtol) for rtol in (3e-9, 1e-6))
        for t in (1e2 / sigma, 1e4 / sigma, 1e8):
            grown = [float(np.exp(r.at(t).p11) - np.exp(r.at(0.5 * t).p11)) / (0.5 * t) for r in (run, loose)]
            unit = sigma * math.expm1(-sigma) / math.expm1(-(L_JOINT - 2.0) * sigma) / 2.0  # A_g = 1/2
            value, error = grown[0] / unit, abs(grown[0] - grown[1]) / unit + 1e-7
            rows.append(Row(LINEAR, at | {"t": float(t)}, value, error, inside=t >= 1e4 / sigma and sigma <= 1e-2))
    return rows


@eqx.filter_jit
def _pull(part: Any, params: Any) -> Any:
    return jax.grad(lambda p: part(p))(params).p11


def _pulls(lab: Lab) -> list[Row]:
    """On samples: the tables at finite p11 cannot resolve a pull that is 1e-8 of the other one."""
    exponents = []
    for seed in (0, 1):
        config = IntegrateConfig(
            L=L_JOINT, training="joint", evaluate="sampled", samples=SAMPLES * lab.choose(1, 8), scrambles=4, seed=seed
        )
        loss = make_loss(make_problem(config), config)
        ratios = []
        for sigma in (1e-3, 1e-4):
            start = lab.problem(point(L=L_JOINT)).initial_params(sigma, p11=sigma)
            ratios.append(abs(float(_pull(loss.induction, start)) / float(_pull(loss.fourgram, start))))
        exponents.append(math.log(ratios[0] / ratios[1]) / math.log(10.0))
    error = 2.0 * abs(exponents[0] - exponents[1]) + 1e-4
    return [Row(PULL, point(L=L_JOINT, sigma_init=1e-4), exponents[0], error)]


def _stage_law(p: Point) -> float:
    unit = p["sigma_init"] * math.expm1(-p["sigma_init"]) / math.expm1(-(p["L"] - 2.0) * p["sigma_init"]) / 2.0
    return limits.first_layer_rate(p["alpha_star"], p["L"], p["sigma_init"]) / unit


CLAIMS = [
    Claim(
        name="stage-I-log",
        title="In stage I p11 tends to infinity like log t",
        statement="With p11 alone trained and all else at sigma, exp(p11) grows linearly, at the rate A_g sigma M.",
        formula="d e^{p11}/dt -> A_g sigma M,  M = (1-e^{-sigma})/(1-e^{-n sigma});   p11 ~ log t",
        source="[WYEW], stage I (p11 -> inf); rate derived, docs/theory.md",
        assumptions="t >> 1/sigma, sigma <= 0.01; the 4-gram part alone (claim stage-I-pull)",
        rule="The slope of exp(p11) between t/2 and t is that rate to 1%, from t = 1e4/sigma to 1e8.",
        measure=_stage_one,
        law=lambda lab: Law("linear", "rate A_g sigma M", {LINEAR: lambda p: about(_stage_law(p), 0.01)}),
        control=lambda lab: Law(
            "square root",
            "exp(p11) ~ sqrt(t): the slope falls as t^-1/2",
            {LINEAR: lambda p: about(math.sqrt(1e4 / p["sigma_init"] / p["t"]), 0.01)},
        ),
        plot=Plot(LINEAR, "t", "d exp(p11)/dt over A_g sigma M", by="sigma_init"),
    ),
    Claim(
        name="stage-I-pull",
        title="The induction part's pull on p11 is smaller by a factor of order sigma^2",
        statement="In stage I, where everything is at sigma, Loss_IH moves p11 by O(sigma^2) of what Loss_G4 does.",
        formula="(dLoss_IH/dp11) / (dLoss_G4/dp11) = O(sigma^2)",
        source="derived, docs/theory.md",
        assumptions="L = 20, all six parameters at sigma",
        rule="The exponent of sigma in the ratio, between 1e-3 and 1e-4, is 2 up to 0.03.",
        measure=_pulls,
        law=lambda lab: Law("sigma^2", "exponent 2", {PULL: lambda p: about(2.0, 0.0, 0.03)}),
        control=lambda lab: Law("sigma", "exponent 1", {PULL: lambda p: about(1.0, 0.0, 0.03)}),
    ),
]
