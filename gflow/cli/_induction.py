"""What `gflow integrate` integrates for the induction-head model: loss, start, schedule, milestones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gflow.cli._output import Output
from gflow.cli._prepare import make_loss, make_problem
from gflow.config import IntegrateConfig

TAIL = 1.0  # how far a run goes on after its last milestone, in units of that milestone's time: shows the convergence
DEFAULT_P11 = 3.0  # where stage I ends if nothing else is said: y_{k+1} is then 95% x_k


@dataclasses.dataclass
class Plan:
    """A run about to begin: `integrate(loss, **policy)` gives the trajectory of a loss of the same kind."""

    problem: Any
    loss: Any
    params: Any
    integrate: Callable[..., Any]


def make_plan(config: IntegrateConfig, output: Output) -> Plan:
    """Tables and samples are made here; nothing is integrated yet."""
    problem = make_problem(config)
    loss = make_loss(problem, config, output)
    p11 = None if config.training == "second-layer" else config.sigma_init
    params = problem.initial_params(config.sigma_init, p11=p11)
    problem.milestones(loss)  # the plateau's tables too
    # a sample's own noise is no reason to go on past the last milestone
    tail = 0.0 if config.t1 is not None or config.evaluate == "sampled" else TAIL

    def one(loss: Any, **policy: Any) -> Any:
        import gflow

        conditions = problem.milestones(loss) | (problem.emergence(loss) if config.training == "joint" else {})
        return gflow.solve(gflow.GradientFlow(loss), params, milestones=conditions, t1=config.t1, tail=tail, **policy)

    def staged(loss: Any, **policy: Any) -> Any:
        import gflow

        stages = _stages(problem, loss, config, tail)
        return gflow.solve_stages(stages, params, **policy)

    return Plan(problem, loss, params, staged if config.training == "layerwise" else one)


def _stages(problem: Any, loss: Any, config: IntegrateConfig, tail: float) -> list[Any]:
    """Layer-wise training: p11 alone, then everything else, with p11 infinite or where stage I left it."""
    import gflow
    from gflow.losses.induction.problem import Leaf

    level = config.p11_until
    if level is None and config.stage1_t1 is None:
        level = DEFAULT_P11
    reached = {} if level is None else {"T_p11": gflow.Above(Leaf("p11"), level)}
    first = gflow.Stage(
        "I",
        gflow.GradientFlow(loss, trainable=lambda p: p.p11),
        milestones=reached,
        until="T_p11" if reached else None,
        t1=config.stage1_t1,
    )
    if config.p11_after == "infinite":
        after = problem.population_loss() if config.evaluate == "exact" else loss
        flow = gflow.GradientFlow(after)
        second = gflow.Stage("II", flow, enter=lambda p: dataclasses.replace(p, p11=None))
    else:
        after = loss.second_layer() if config.evaluate == "exact" else loss
        flow = gflow.GradientFlow(after, trainable=_second_layer)
        second = gflow.Stage("II", flow)
    return [first, dataclasses.replace(second, milestones=problem.milestones(after), t1=config.t1, tail=tail)]


def _second_layer(params: Any) -> tuple[Any, ...]:
    return tuple(getattr(params, field.name) for field in dataclasses.fields(params) if field.name != "p11")


def stages_dict(traj: Any) -> list[dict[str, Any]]:
    """The stages of a schedule, in order; empty for a run without."""
    if not hasattr(traj, "stages"):
        return []
    return [
        {
            "name": name,
            "start": offset,
            "duration": traj.stages[name].t1_reached,
            "status": traj.stages[name].status.value,
            "message": traj.stages[name].message,
        }
        for name, offset in traj.offsets.items()
    ]


def went_well(traj: Any) -> bool:
    """The run, and every stage of a schedule, did what was asked."""
    return traj.status.ok and getattr(traj, "finished", True)
