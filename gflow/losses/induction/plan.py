"""From a checked configuration to what is integrated: problem, loss, start, schedule, milestones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gflow import tokens
from gflow.conditions import Above
from gflow.config import FiniteTokens, IntegrateConfig
from gflow.flows import GradientFlow, Stage, solve, solve_stages
from gflow.losses.induction.joint_build import Progress
from gflow.losses.induction.problem import InductionProblem, Leaf
from gflow.losses.induction.sampled import run_scrambles

TAIL = 1.0  # how far a run goes on after its last milestone, in units of that milestone's time: shows the convergence
DEFAULT_P11 = 3.0  # where stage I ends if nothing else is said: y_{k+1} is then 95% x_k
SAMPLED_SOLVER = "rodas5p"
SAMPLED_RTOL = 1e-6  # far below the sampling error


@dataclasses.dataclass
class Plan:
    """A run about to begin: `run(**policy)` gives its trajectory."""

    problem: Any
    loss: Any
    params: Any
    sampled: bool
    integrate: Callable[..., Any]  # (loss, **policy): the trajectory of a loss of the same kind

    def run(self, *, estimate_error: bool = False, **policy: Any) -> Any:
        """The trajectory; of a sampled loss one per scramble too, which is where its errors come from."""
        if not self.sampled:
            return self.integrate(self.loss, estimate_error=estimate_error, **policy)
        if policy.get("rtol") is None:
            policy["rtol"] = SAMPLED_RTOL
        if policy.get("solver") == "auto":
            policy["solver"] = SAMPLED_SOLVER
        return run_scrambles(self.loss, self.params, lambda loss: self.integrate(loss, **policy))


def make_problem(config: Any) -> InductionProblem:
    """The `InductionProblem` of a checked configuration."""
    if isinstance(config.tokens, FiniteTokens):
        law = tokens.finite(config.tokens.values, config.tokens.probabilities)
    else:
        law = tokens.from_name(config.tokens)
    return InductionProblem(
        L=config.L,
        alpha_star=config.alpha_star,
        w_star=config.w_star,
        tokens=law,
        d=config.d,
        parametrization=config.parametrization,
    )


def make_loss(problem: Any, config: Any, progress: Progress | None = None) -> Any:
    """The loss that a configuration asks for: exact at p11 = inf or at finite p11, or sampled.

    `progress` is told how far the tables at finite p11 are, which take minutes.
    """
    if config.evaluate == "sampled":
        return problem.sampled_loss(
            config.samples, scrambles=config.scrambles, seed=config.seed, accuracy=config.accuracy
        )
    if config.training == "second-layer":
        return problem.population_loss()
    return problem.full_loss(progress=progress)


def start(problem: InductionProblem, config: Any) -> Any:
    """The initial parameters of a configuration."""
    p11 = None if config.training == "second-layer" else config.sigma_init
    return problem.initial_params(config.sigma_init, p11=p11, wK=config.wK_init, wQ=config.wQ_init)


def policy_of(config: IntegrateConfig) -> dict[str, Any]:
    """What a configuration says about the solver, as `solve` takes it."""
    policy: dict[str, Any] = {"solver": config.solver, "rtol": config.rtol, "atol": config.atol}
    if config.max_steps is not None:
        policy["max_steps"] = config.max_steps
    return policy


def make_plan(config: IntegrateConfig, problem: InductionProblem, loss: Any) -> Plan:
    """Nothing is integrated yet; `loss` is that of `make_loss`."""
    params = start(problem, config)
    problem.milestones(loss)  # the plateau's tables too
    sampled = config.evaluate == "sampled"
    # a sample's own noise is no reason to go on past the last milestone
    tail = 0.0 if config.t1 is not None or sampled else TAIL

    def one(loss: Any, **policy: Any) -> Any:
        conditions = problem.milestones(loss) | (problem.emergence(loss) if config.training == "joint" else {})
        return solve(GradientFlow(loss), params, milestones=conditions, t1=config.t1, tail=tail, **policy)

    def staged(loss: Any, **policy: Any) -> Any:
        return solve_stages(_stages(problem, loss, config, tail), params, **policy)

    return Plan(problem, loss, params, sampled, staged if config.training == "layerwise" else one)


def _stages(problem: InductionProblem, loss: Any, config: IntegrateConfig, tail: float) -> list[Stage]:
    """Layer-wise training: p11 alone, then everything else, with p11 infinite or where stage I left it."""
    level = config.p11_until
    if level is None and config.stage1_t1 is None:
        level = DEFAULT_P11
    reached = {} if level is None else {"T_p11": Above(Leaf("p11"), level)}
    first = Stage(
        "I",
        GradientFlow(loss, trainable=lambda p: p.p11),
        milestones=reached,
        until="T_p11" if reached else None,
        t1=config.stage1_t1,
    )
    if config.p11_after == "infinite":
        after = problem.population_loss() if config.evaluate == "exact" else loss
        flow = GradientFlow(after)
        second = Stage("II", flow, enter=lambda p: dataclasses.replace(p, p11=None))
    else:
        after = loss.second_layer() if config.evaluate == "exact" else loss
        flow = GradientFlow(after, trainable=_second_layer)
        second = Stage("II", flow)
    return [first, dataclasses.replace(second, milestones=problem.milestones(after), t1=config.t1, tail=tail)]


def _second_layer(params: Any) -> tuple[Any, ...]:
    return tuple(getattr(params, field.name) for field in dataclasses.fields(params) if field.name != "p11")
