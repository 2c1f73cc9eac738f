"""How a milestone's time depends on L, alpha*, w* and sigma, by differentiation through the flow and the milestone.

    d log T / d log L,   d log T / d log(1+alpha*),   d log T / d log w*,   d log T / d log sigma,   dT / d log(1/sigma)

at one point: exact local exponents, no fit and no finite difference. Derived, docs/exponents.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from gflow.errors import InputError, SolveError
from gflow.flows import GradientFlow, solve
from gflow.losses.induction.exact import PopulationLoss
from gflow.losses.induction.params import PARAMETRIZATIONS
from gflow.losses.induction.problem import InductionProblem
from gflow.theory._sensitivity import FOURGRAM, INDUCTION, MILESTONES, crossings, make_point

LOOSER = 32.0  # the second solve that measures the error uses a tolerance this much looser
MANY = 1e4  # relaxation times within T from which an implicit method repays its compilation
VARIABLES = ("L", "alpha_star", "w_star", "log_sigma")


@dataclasses.dataclass(frozen=True)
class LocalExponents:
    """Derivatives of one milestone's time T at one point.

    - `name`, `time`; the point: `L`, `alpha_star`, `w_star`, `sigma_init`.
    - `gradient`: {"L": dT/dL, "alpha_star": dT/dalpha*, "w_star": dT/dw*, "log_sigma": dT/dlog sigma}.
    - `gradient_error`, `time_error`: absolute, the change when the tolerance is 32 times looser. They measure the
      integration; the tables' error (`loss.induction.table.relative_error`) comes on top.
    """

    name: str
    time: float
    time_error: float
    gradient: dict[str, float]
    gradient_error: dict[str, float]
    L: float
    alpha_star: float
    w_star: float
    sigma_init: float

    @property
    def slope(self) -> float:
        """dT/dlog(1/sigma)."""
        return -self.gradient["log_sigma"]

    @property
    def slope_error(self) -> float:
        """Absolute error of `slope`."""
        return self.gradient_error["log_sigma"]

    def _factors(self) -> dict[str, tuple[str, float]]:
        # exponent -> (variable, d variable/d log(quantity)/T)
        return {
            "L": ("L", self.L / self.time),
            "n": ("L", (self.L - 2.0) / self.time),
            "one_plus_alpha_star": ("alpha_star", (1.0 + self.alpha_star) / self.time),
            "w_star": ("w_star", self.w_star / self.time),
            "sigma_init": ("log_sigma", 1.0 / self.time),
            "log_inverse_sigma": ("log_sigma", math.log(self.sigma_init) / self.time),
        }

    @functools.cached_property
    def exponents(self) -> dict[str, float]:
        """`d log T/d log q` for q = L, n = L-2, one_plus_alpha_star, w_star, sigma_init, log_inverse_sigma."""
        return {key: self.gradient[name] * factor for key, (name, factor) in self._factors().items()}

    @functools.cached_property
    def errors(self) -> dict[str, float]:
        """Absolute error of each of the `exponents`."""
        relative = self.time_error / self.time
        return {
            key: self.gradient_error[name] * abs(factor) + abs(self.exponents[key]) * relative
            for key, (name, factor) in self._factors().items()
        }

    def __repr__(self) -> str:
        point = f"L={self.L:g}, alpha_star={self.alpha_star:g}, w_star={self.w_star:g}, sigma_init={self.sigma_init:g}"
        lines = [f"{self.name} = {self.time:.9g} at {point}"]
        lines += [
            f"  d log T/d log {key}: {value:.9g} +- {self.errors[key]:.1g}" for key, value in self.exponents.items()
        ]
        return "\n".join([*lines, f"  dT/d log(1/sigma): {self.slope:.9g} +- {self.slope_error:.1g}"])


def local_exponents(
    problem: InductionProblem,
    sigma_init: float | int,
    milestones: Sequence[str] = (*FOURGRAM, *INDUCTION),
    *,
    rtol: float = 1e-10,
) -> dict[str, LocalExponents]:
    """Exact derivatives of milestone times in L, alpha*, w* and sigma, at p11 = inf.

    T from `gflow.solve`; then each block's flow once more with its variational equations up to there, and the implicit
    function theorem at the crossing, whose level may depend on the same variables (docs/exponents.md). A milestone
    that is not reached, or holds at t = 0 already, is absent from the answer.

    - `problem`: any parametrisation, token law, d. `sigma_init` > 0, where all parameters start.
    - `rtol`: of both integrations; each is repeated with a looser one to measure the errors.

    Raises `InputError` for an unknown milestone, `TableError` as `population_loss` does, `SolveError` where an
    integration does not end.
    """
    known = (*FOURGRAM, *INDUCTION)
    for name in milestones:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InputError(f"milestone {name!r} has no exponents; {hint}")
    loss = problem.population_loss()
    start = problem.initial_params(sigma_init)
    wanted = {name: condition for name, condition in problem.milestones().items() if name in milestones}
    if not wanted:
        return {}
    run = solve(GradientFlow(loss), start, milestones=wanted, rtol=rtol, throw=True)
    times = {name: found.time for name, found in run.milestones.items() if found.time is not None and found.time > 0}
    flow: Any = run.flow
    loss = flow.loss  # on tables that hold the whole path: a merged w may overshoot c
    theta = np.array([problem.L, problem.alpha_star, problem.w_star, math.log(sigma_init)])
    # along log n, log(1+alpha*), log w*, log sigma: derivatives of one size, which one tolerance serves
    steps = np.array([problem.L - 2.0, 1.0 + problem.alpha_star, problem.w_star, 1.0])
    answer: dict[str, LocalExponents] = {}
    for block, names in MILESTONES.items():
        mine = {name: times[name] for name in names if name in times}
        for name, (time, error, gradient, gradient_error) in _block(
            problem, loss, block, mine, theta, steps, rtol
        ).items():
            answer[name] = LocalExponents(
                name,
                time,
                error,
                dict(zip(VARIABLES, gradient.tolist(), strict=True)),
                dict(zip(VARIABLES, gradient_error.tolist(), strict=True)),
                problem.L,
                problem.alpha_star,
                problem.w_star,
                float(sigma_init),
            )
    return {name: answer[name] for name in milestones if name in answer}


def _block(
    problem: InductionProblem,
    loss: PopulationLoss,
    block: str,
    times: dict[str, float],
    theta: np.ndarray,
    steps: np.ndarray,
    rtol: float,
) -> dict[str, tuple[float, float, np.ndarray, np.ndarray]]:
    """Time, its error, gradient and its error for the milestones of one block, found near `times`."""
    if not times:
        return {}
    kind = PARAMETRIZATIONS[problem.parametrization]
    point = make_point(loss, kind, block, theta, np.diag(steps))
    order = sorted(times, key=lambda name: times[name])
    # one length for all, whatever was asked for: one compilation
    padded = order + [order[-1]] * (len(MILESTONES[block]) - len(order))
    when = jnp.asarray([times[name] for name in padded])
    which = jnp.asarray([MILESTONES[block].index(name) for name in padded])
    # v2 relaxes at the rate K2(0): many relaxations on the plateau are many steps for an explicit method
    relaxations = times[order[-1]] * float(loss.induction.table.student(jnp.zeros(())))
    stiff = block == "induction" and relaxations > MANY
    fine, loose = (crossings(point, when, which, jnp.asarray(r), stiff) for r in (rtol, LOOSER * rtol))
    if not bool(fine.ok) or not bool(loose.ok):
        raise SolveError(
            f"the variational equations of the {block} block did not reach {order[-1]}; loosen rtol={rtol:g}"
        )
    answer = {}
    for i, name in enumerate(order):
        gradient, other = (np.asarray(run.gradient[i]) / steps for run in (fine, loose))
        shift, other_shift = (float(run.correction[i]) for run in (fine, loose))
        answer[name] = (times[name] + shift, abs(shift - other_shift) + abs(shift), gradient, np.abs(gradient - other))
    return answer
