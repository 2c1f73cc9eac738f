"""gflow: gradient-flow trajectories of small neural networks, solved exactly.

A loss is a pure function, a flow turns it into a vector field, `solve` integrates it and finds its milestones;
theorems and figures read trajectories.

    problem = gflow.InductionProblem(L=100, alpha_star=1.0, w_star=0.49)
    loss = problem.population_loss()
    traj = gflow.solve(gflow.GradientFlow(loss), problem.initial_params(1e-2), milestones=problem.milestones())

Names are loaded on first use, so that `import gflow` is immediate. Importing it turns on JAX's 64-bit mode, unless the
environment variable JAX_ENABLE_X64 says otherwise.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> the module that holds it ("" for a module itself)
_HOMES = {
    "InductionProblem": "gflow.losses.induction",
    "PopulationLoss": "gflow.losses.induction",
    "UntiedParams": "gflow.losses.induction",
    "TiedParams": "gflow.losses.induction",
    "MergedParams": "gflow.losses.induction",
    "TokenLaw": "gflow.tokens",
    "GradientFlow": "gflow.flows",
    "Block": "gflow.flows",
    "solve": "gflow.flows",
    "load": "gflow.results",
    "sweep": "gflow.sweeps.driver",
    "Trajectory": "gflow.flows",
    "Stage": "gflow.flows",
    "solve_stages": "gflow.flows",
    "StagedTrajectory": "gflow.flows",
    "Status": "gflow.flows",
    "descend": "gflow.training",
    "Descent": "gflow.training",
    "Below": "gflow.conditions",
    "Above": "gflow.conditions",
    "Crosses": "gflow.conditions",
    "enable_compilation_cache": "gflow.io.compilation",
    "GflowError": "gflow.errors",
    "InputError": "gflow.errors",
    "OutputError": "gflow.errors",
    "TokenLawError": "gflow.errors",
    "TableError": "gflow.errors",
    "SolveError": "gflow.errors",
    "errors": "",
    "tokens": "",
    "theory": "",
    "plots": "",
}

if TYPE_CHECKING:
    from gflow import errors as errors, plots as plots, theory as theory, tokens as tokens
    from gflow.conditions import Above as Above, Below as Below, Crosses as Crosses
    from gflow.errors import (
        GflowError as GflowError,
        InputError as InputError,
        OutputError as OutputError,
        SolveError as SolveError,
        TableError as TableError,
        TokenLawError as TokenLawError,
    )
    from gflow.flows import (
        Block as Block,
        GradientFlow as GradientFlow,
        Stage as Stage,
        StagedTrajectory as StagedTrajectory,
        Status as Status,
        Trajectory as Trajectory,
        solve as solve,
        solve_stages as solve_stages,
    )
    from gflow.io.compilation import enable_compilation_cache as enable_compilation_cache
    from gflow.losses.induction import (
        InductionProblem as InductionProblem,
        MergedParams as MergedParams,
        PopulationLoss as PopulationLoss,
        TiedParams as TiedParams,
        UntiedParams as UntiedParams,
    )
    from gflow.results import load as load
    from gflow.sweeps.driver import sweep as sweep
    from gflow.tokens import TokenLaw as TokenLaw
    from gflow.training import Descent as Descent, descend as descend


def _use_float64() -> None:
    """64-bit mode before the first array: by the environment, or by the configuration when JAX is already there."""
    if "JAX_ENABLE_X64" in os.environ:
        return
    os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)


_use_float64()


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"gflow.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
