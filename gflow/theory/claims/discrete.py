"""Discrete time: gradient descent follows the flow, Adam has no plateau; and other token laws have the same phases."""

from __future__ import annotations

from typing import Any

import numpy as np

from gflow.theory import limits, manifold, plateau
from gflow.theory.claims._claim import Claim, Expected, Law, Row, about, between
from gflow.theory.claims._lab import Lab, Point, grid, point

RATIO = {name: f"{name} of gradient descent over the flow's" for name in ("T_II", "T_III")}
CLOSER = "distance to the flow at half the rate, over that at the whole"
SPAN, MOVED = "(T_II - T_o)/T_o under Adam", "movement of v2 per step over lr"
LATER, EQUAL = "T_III of rademacher tokens", "T_I of rademacher tokens over gaussian"
LR = 0.5


def _descent(lab: Lab, optimizer: str, lr: float) -> Any:
    def compute() -> Any:
        from gflow.training import descend

        lab.tell(f"{optimizer} at lr = {lr:g}")
        problem = lab.problem(_at())
        return descend(lab.loss(_at()), lab.start(_at()), optimizer, lr=lr, milestones=problem.milestones(), save=None)

    return lab.once((optimizer, lr), compute)


def _at() -> dict[str, Any]:
    return point(L=40, w_star=0.8, sigma_init=1e-2)


def _gradient_descent(lab: Lab) -> list[Row]:
    flow, rows, distance = lab.run(_at()), [], []
    for lr in (LR, 0.5 * LR):
        run = _descent(lab, "gd", lr)
        apart = 0.0
        for name, quantity in RATIO.items():
            ratio = run.milestones[name].time / flow.milestones[name].time
            # a milestone lies between two steps, interpolated: off by about lr^2 |L''/L'| / 8, far below this
            rows.append(Row(quantity, _at() | {"lr": lr}, float(ratio), 1e-5))
            apart = max(apart, abs(float(ratio) - 1.0))
        distance.append(apart)
    rows.append(Row(CLOSER, _at() | {"lr": LR}, distance[1] / distance[0], 0.01))
    return rows


def _adam(lab: Lab) -> list[Row]:
    rows = []
    for lr in lab.choose([1e-3], [1e-3, 1e-2]):
        run = _descent(lab, "adam", lr)
        T_o, T_II = (run.milestones[name].time for name in ("T_o", "T_II"))
        rows.append(Row(SPAN, _at() | {"lr": lr}, float(T_II / T_o - 1.0), 2.0 * lr / T_o))
        # while v2 climbs to its plateau value; the first steps have no history
        path = np.asarray(run.params.v2)
        last = int(T_o / lr)
        rows.append(Row(MOVED, _at() | {"lr": lr}, float(path[last // 2] - path[1]) / lr / (last // 2 - 1), 1e-9))
    return rows


def _boolean(lab: Lab) -> list[Row]:
    rows = []
    cases = grid(tokens="rademacher", L=lab.choose([100], [100, 1e4]), w_star=[0.5, 0.8], sigma_init=1e-6)
    gaussian = [{key: value for key, value in at.items() if key != "tokens"} for at in cases]
    found, usual = (lab.times(points, ("T_I", "T_III")) for points in (cases, gaussian))
    for i, at in enumerate(cases):
        ratio = float(found.time["T_I"][i] / usual.time["T_I"][i])
        error = float(found.error["T_I"][i] / found.time["T_I"][i] + usual.error["T_I"][i] / usual.time["T_I"][i])
        rows.append(Row(EQUAL, at, ratio, error * ratio))
        rows.append(Row(LATER, at, float(found.time["T_III"][i]), float(found.error["T_III"][i])))
    return rows


def _predicted(lab: Lab, at: Point) -> Expected:
    induction = lab.induction(at)
    level = 0.01 * plateau.plateau_level(induction)
    found = manifold.escape_times(induction, "untied", at["sigma_init"], {"T_III": level})["T_III"]
    return about(found or float("nan"), 1e-4)


def _leading(at: Point) -> Expected:
    """log(1/sigma)/g with w*^2 in place of tanh w*^2."""
    n = at["L"] - 2.0
    rate = at["w_star"] ** 2 * plateau.A_i(at["alpha_star"]) ** 2 / n
    return about(limits.escape_leading(-float(np.log(at["sigma_init"])), rate), 0.05)


CLAIMS = [
    Claim(
        name="descent-follows-flow",
        title="Gradient descent at lr 0.5 follows the flow",
        statement="Plateau and times of plain gradient descent are those of the flow, up to a distance of order lr.",
        formula="step * lr at T_II, T_III -> the flow's times, distance O(lr)",
        source="docs/training.md; measured",
        assumptions="L = 40, w* = 0.8, sigma = 0.01; full gradient",
        rule="T_II and T_III differ from the flow's by less than 0.5%, and halving lr halves the difference to 20%.",
        measure=_gradient_descent,
        law=lambda lab: Law(
            "first order",
            "same times, error O(lr)",
            {**dict.fromkeys(RATIO.values(), lambda p: about(1.0, 0.005)), CLOSER: lambda p: about(0.5, 0.2)},
        ),
        control=lambda lab: Law("second order", "the distance falls as lr^2", {CLOSER: lambda p: about(0.25, 0.2)}),
    ),
    Claim(
        name="adam-no-plateau",
        title="Adam on the scalar model has no plateau",
        statement="Adam moves every parameter by about lr per step, however small its gradient, so the exponential "
        "growth "
        "that makes the plateau does not happen.",
        formula="(T_II - T_o)/T_o << 1,   |delta v2| ~ lr per step",
        source="docs/training.md; measured",
        assumptions="L = 40, w* = 0.8, sigma = 0.01, default betas",
        rule="(T_II - T_o)/T_o is below 0.1 (the flow: 5.2), and v2 moves by lr per step to 25% on its way.",
        measure=_adam,
        law=lambda lab: Law(
            "sign-like",
            "no plateau, lr per step",
            {SPAN: lambda p: between(-0.1, 0.1), MOVED: lambda p: about(1.0, 0.25)},
        ),
        control=lambda lab: Law(
            "as the flow", "a plateau five times as long as the way to it", {SPAN: lambda p: about(5.2, 0.1)}
        ),
    ),
    Claim(
        name="boolean-tokens",
        title="Boolean tokens go through the same phases",
        statement="With Rademacher tokens the 4-gram part is the same, and the induction part waits and emerges by the "
        "same formulas, with its own overlaps.",
        formula="T_I equal;   T_III of the unstable manifold, with rho ~ tanh(w*^2)/((1+alpha*)^2 n)",
        source="[WYEW] (experiments); derived, docs/theory.md",
        assumptions="sigma = 1e-6",
        rule="T_I equals that of Gaussian tokens to 1e-6, T_III the unstable manifold's prediction to 1e-4.",
        measure=_boolean,
        law=lambda lab: Law(
            "same phases",
            "same T_I, predicted T_III",
            {EQUAL: lambda p: about(1.0, 1e-6), LATER: lambda p: _predicted(lab, p)},
        ),
        control=lambda lab: Law("gaussian", "log(1/sigma)/g with the Gaussian rate", {LATER: _leading}),
    ),
]
