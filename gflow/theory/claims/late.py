"""What holds all along a run, and how it ends: invariants, independent blocks, the exponential end of Loss_IH."""

from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gflow.flows import GradientFlow, solve
from gflow.losses.induction import InductionProblem
from gflow.theory import limits, plateau
from gflow.theory.claims._claim import Claim, Expected, Law, Row, about, between
from gflow.theory.claims._lab import REFERENCE, Lab, Point, grid, point

DECAY = "decay rate of Loss_IH"
RISE = "largest rise of the loss, over its start"
DISSIPATION = "(loss dropped) / (integral of |grad|^2)"
DRIFT = "change of wK^2 - wQ^2, over wK^2 + wQ^2"
MIXED = "largest mixed second derivative"
FAST = "Hessian of Loss_G4 in v1, at late times"


def _kind(at: Point) -> str:
    return {**REFERENCE, **at}["parametrization"]


def _decay(lab: Lab) -> list[Row]:
    """-d log Loss_IH/dt where little of it is left but far more than rounding."""
    cases = grid(w_star=[0.5, 1.0], sigma_init=1e-2) + grid(alpha_star=3.0, sigma_init=1e-2)
    cases += lab.choose([], grid(parametrization=["tied", "merged"], sigma_init=1e-2) + grid(tokens="rademacher", L=40))
    rows = []
    for at in cases:
        first = lab.run(at)
        start = first.losses_at(0.0)["induction"]
        run = solve(GradientFlow(lab.induction(at)), lab.start(at), t1=3.5 * first.milestones["T_III"].time, rtol=1e-11)
        times = np.linspace(1.2 * first.milestones["T_III"].time, run.t1_reached, 2000)
        left = run.losses_at(times)["total"] / start
        window = np.flatnonzero((left < 1e-6) & (left > 1e-9))
        if len(window) < 3:
            rows.append(Row(DECAY, at, None, 0.0))
            continue
        i, j = window[0], window[-1]
        m = (i + j) // 2
        early, late = ((math.log(left[a] / left[b])) / float(times[b] - times[a]) for a, b in ((i, m), (m, j)))
        # what the next mode still adds shows as a difference between the two halves
        rows.append(Row(DECAY, at, late, abs(late - early)))
    return rows


@eqx.filter_jit
def _squared_gradient(loss: Any, params: Any) -> Any:
    def one(p: Any) -> Any:
        leaves = jax.tree.leaves(jax.grad(lambda q: loss(q))(p))
        return sum(jnp.sum(jnp.square(g)) for g in leaves)

    return jax.vmap(one)(params)


def _dissipated(loss: Any, run: Any, points: int) -> float:
    """The integral of |grad|^2 along a run, by Gauss's rule on each of its steps."""
    x, w = np.polynomial.legendre.leggauss(points)
    ends = run.step_times
    half = 0.5 * np.diff(ends)
    inner = (0.5 * (ends[1:] + ends[:-1])[:, None] + half[:, None] * x).ravel()
    power = np.asarray(_squared_gradient(loss, jax.tree.map(jnp.asarray, run.at(inner))))
    return float(np.sum(power.reshape(-1, points) @ w * half))


def _descent(lab: Lab) -> list[Row]:
    """The loss at many times: does it ever rise? And is what it loses the integral of |grad|^2?"""
    rows = []
    kinds = lab.choose(["untied"], ["untied", "tied", "merged"])
    for at in grid(parametrization=kinds, sigma_init=1e-3) + lab.choose([], grid(tokens="rademacher", L=40)):
        run = lab.run(at, tail=1.0)
        ends = run.step_times
        fine = np.unique(np.concatenate([np.linspace(a, b, 9) for a, b in itertools.pairwise(ends)]))
        total = run.losses_at(fine)["total"]
        rise = float(np.max(np.diff(total)) / total[0])
        rows.append(Row(RISE, at, max(rise, 0.0), 1e-13))
        drop = float(total[0] - total[-1])
        fine, coarse = (drop / _dissipated(lab.loss(at), run, points) for points in (6, 4))
        rows.append(Row(DISSIPATION, at, fine, abs(fine - coarse) + 1e-9))
    return rows


def _balance(lab: Lab) -> list[Row]:
    """From wK != wQ: wK^2 - wQ^2 along the run."""
    rows = []
    for w, (wK, wQ) in zip(lab.choose([1.0], [1.0, 0.5]), [(0.03, 0.01), (1e-3, 1e-5)], strict=False):
        problem = InductionProblem(L=100, alpha_star=1.0, w_star=w)
        params = problem.initial_params(1e-3, wK=wK, wQ=wQ)
        run = solve(GradientFlow(problem.population_loss()), params, milestones=problem.milestones())
        path = run.params
        change = np.abs(limits.conserved(path) - (wK**2 - wQ**2))
        worst = float(np.max(change / (np.square(path.wK) + np.square(path.wQ))))
        rows.append(Row(DRIFT, point(w_star=w, sigma_init=1e-3) | {"wK_init": wK, "wQ_init": wQ}, worst, 1e-12))
    return rows


def _blocks(lab: Lab) -> list[Row]:
    """Second derivatives between (p21, v1) and (v2, wK, wQ) at p11 = inf, and of Loss_G4 in v1."""
    rows = []
    for at in grid(sigma_init=1e-2, w_star=lab.choose([0.5], [0.5, 1.0])):
        run, loss = lab.run(at), lab.loss(at)
        for t in (0.0, run.milestones["T_I"].time, run.milestones["T_III"].time):
            here = jax.tree.map(jnp.asarray, run.at(t))
            hessian = jax.hessian(loss)(here)
            mixed = [getattr(getattr(hessian, a), b) for a in ("p21", "v1") for b in ("v2", "wK", "wQ")]
            rows.append(Row(MIXED, at | {"t": float(t)}, float(np.max(np.abs(mixed))), 0.0))
        rows.append(Row(FAST, at | {"t": float(t)}, float(hessian.v1.v1), 1e-12))
    return rows


def _fast(at: Point) -> Expected:
    """`N = (1-r)/(1+r) = tanh(p21/2)`, which tends to 1."""
    return about(math.tanh(0.5 * limits.p21_late(at["t"], at["alpha_star"])), 0.01)


CLAIMS = [
    Claim(
        name="induction-late",
        title="Loss_IH ends exponentially, at twice the smallest non-zero eigenvalue of its Hessian",
        statement="In phase IV the induction part converges at the rate that its Hessian at (A_i, w*, w*) gives.",
        formula="Loss_IH ~ e^{-2 lambda t}, lambda the smallest non-zero eigenvalue at the minimum",
        source="derived, docs/theory.md (phase IV); convergence: [WYEW]",
        assumptions="t -> inf",
        rule="-d log Loss_IH/dt, read where 1e-6 to 1e-9 of the start is left, equals 2 lambda to 1%.",
        measure=_decay,
        law=lambda lab: Law(
            "2 lambda",
            "twice the eigenvalue",
            {DECAY: lambda p: about(plateau.final_decay_rate(lab.induction(p), _kind(p)), 0.01)},
        ),
        control=lambda lab: Law(
            "lambda",
            "the eigenvalue itself",
            {DECAY: lambda p: about(0.5 * plateau.final_decay_rate(lab.induction(p), _kind(p)), 0.01)},
        ),
    ),
    Claim(
        name="loss-never-increases",
        title="The loss never increases, and loses exactly the integral of |grad|^2",
        statement="Along the flow the loss falls at the rate of its squared gradient.",
        formula="dLoss/dt = -|grad Loss|^2 <= 0",
        source="definition of the flow; docs/theory.md",
        assumptions="none",
        rule="At nine points of every step the loss is nowhere above an earlier one by more than 1e-10 of its start, "
        "and "
        "its drop equals the integral to 1e-5.",
        measure=_descent,
        law=lambda lab: Law(
            "dissipation",
            "no rise; drop = integral",
            {RISE: lambda p: between(-1.0, 1e-10), DISSIPATION: lambda p: about(1.0, 1e-5)},
        ),
        control=lambda lab: Law("half", "drop = half the integral", {DISSIPATION: lambda p: about(0.5, 1e-5)}),
    ),
    Claim(
        name="balance-conserved",
        title="wK^2 - wQ^2 is conserved",
        statement="wK and wQ are driven by the same force times each other, so the difference of their squares stays.",
        formula="d(wK^2 - wQ^2)/dt = 0 (untied)",
        source="[SMG]; docs/theory.md",
        assumptions="p11 = inf, untied",
        rule="From wK != wQ to the end of the run it changes by less than 1e-7 of wK^2 + wQ^2.",
        measure=_balance,
        law=lambda lab: Law("conserved", "no change", {DRIFT: lambda p: between(-1e-9, 1e-7)}),
        control=lambda lab: Law(
            "balances",
            "wK and wQ become equal",
            {DRIFT: lambda p: about(abs(p["wK_init"] ** 2 - p["wQ_init"] ** 2) / (2.0 * p["w_star"] ** 2), 0.5)},
        ),
    ),
    Claim(
        name="blocks-independent",
        title="At p11 = inf the flow splits, and the 4-gram block relaxes at rate 1",
        statement="(p21, v1) and (v2, wK, wQ) do not interact; the fast rate of the first is 1 whatever L, which makes "
        "one "
        "system of both stiff.",
        formula="d^2 Loss / d(p21, v1) d(v2, wK, wQ) = 0;   d^2 Loss_G4/dv1^2 -> 1",
        source="docs/theory.md, the flow splits",
        assumptions="p11 = inf",
        rule="All six mixed derivatives are exactly 0 along a run; the derivative in v1 at T_III is tanh(p21/2), p21 "
        "of the late law, to 1%.",
        measure=_blocks,
        law=lambda lab: Law("split", "no mixed derivative", {MIXED: lambda p: about(0.0), FAST: _fast}),
        control=lambda lab: Law("slow", "the 4-gram block relaxes at 1/n", {FAST: lambda p: about(1.0 / p["L"], 0.01)}),
    ),
]
