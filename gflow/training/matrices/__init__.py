"""The high-dimensional toy: full matrices W_K, W_Q, W_V on tokens in R^d, trained on fresh batches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "train_matrices": "_train",
    "MatrixRun": "_run",
    "Failure": "_run",
    "Toy": "_model",
    "Plateau": "plateaus",
    "find_plateaus": "plateaus",
    "start_ranks": "signs",
    "pick_seeds": "signs",
    "singular_probability": "signs",
    "mechanism_test": "mechanism",
    "Mechanism": "mechanism",
    "spread": "_claims",
}

if TYPE_CHECKING:
    from gflow.training.matrices._claims import spread as spread
    from gflow.training.matrices._model import Toy as Toy
    from gflow.training.matrices._run import Failure as Failure, MatrixRun as MatrixRun
    from gflow.training.matrices._train import train_matrices as train_matrices
    from gflow.training.matrices.mechanism import Mechanism as Mechanism, mechanism_test as mechanism_test
    from gflow.training.matrices.plateaus import Plateau as Plateau, find_plateaus as find_plateaus
    from gflow.training.matrices.signs import (
        pick_seeds as pick_seeds,
        singular_probability as singular_probability,
        start_ranks as start_ranks,
    )


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: optax costs half a second."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gflow.training.matrices' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gflow.training.matrices.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
