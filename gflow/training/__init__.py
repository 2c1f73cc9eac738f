"""Training in discrete time: optax's optimisers on the same losses, with the milestones of the flow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "descend": "gflow.training._descend",
    "Descent": "gflow.training._descent",
    "Outcome": "gflow.training._status",
    "StepMilestone": "gflow.training._status",
    "distance_to_flow": "gflow.training._distance",
    "FlowDistance": "gflow.training._distance",
    "FixedSample": "gflow.training._batches",
    "FreshBatches": "gflow.training._batches",
    "optimizer": "gflow.training._optimizers",
}

if TYPE_CHECKING:
    from gflow.training._batches import FixedSample as FixedSample, FreshBatches as FreshBatches
    from gflow.training._descend import descend as descend
    from gflow.training._descent import Descent as Descent
    from gflow.training._distance import FlowDistance as FlowDistance, distance_to_flow as distance_to_flow
    from gflow.training._optimizers import optimizer as optimizer
    from gflow.training._status import Outcome as Outcome, StepMilestone as StepMilestone


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: optax costs half a second."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gflow.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
