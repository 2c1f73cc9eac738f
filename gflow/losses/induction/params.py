"""The parameters of the six-parameter transformer, one type per parametrisation of the logit scale (MATH section 2)."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from gflow.flows import register_params

# a leaf may be a numpy array or number (trajectories that come from a file) as well as a JAX array
Scalars = Float[Array, "*batch"] | Float[np.ndarray, "*batch"] | np.floating | float
Leaf = Scalars | None  # None: it belongs to another block, or p11 is infinite and not part of the integrated state
# what None means along a path where other stages have the leaf
ABSENT = {"p11": math.inf}

Matrix = Float[Array, "*batch d d"] | Float[np.ndarray, "*batch d d"] | None


@register_params
class UntiedParams(eqx.Module):
    """`w = wK wQ`. Leaves: p21, v1 (4-gram head), v2, wK, wQ (induction head), p11 (layer 1; None means p11 = inf)."""

    p21: Leaf
    v1: Leaf
    v2: Leaf
    wK: Leaf
    wQ: Leaf
    p11: Leaf = None
    absent: ClassVar[dict[str, float]] = ABSENT

    @property
    def logit_scale(self) -> Scalars:
        """w = wK wQ."""
        return self.wK * self.wQ  # pyright: ignore


@register_params
class TiedParams(eqx.Module):
    """`w = wKQ^2`: one parameter serves as key and query weight. Other leaves as in `UntiedParams`."""

    p21: Leaf
    v1: Leaf
    v2: Leaf
    wKQ: Leaf
    p11: Leaf = None
    absent: ClassVar[dict[str, float]] = ABSENT

    @property
    def logit_scale(self) -> Scalars:
        """w = wKQ^2."""
        return self.wKQ**2  # pyright: ignore[reportOptionalOperand]


@register_params
class MergedParams(eqx.Module):
    """`w` itself is the parameter: the ablation without the product structure. Other leaves as in `UntiedParams`."""

    p21: Leaf
    v1: Leaf
    v2: Leaf
    w: Leaf
    p11: Leaf = None
    absent: ClassVar[dict[str, float]] = ABSENT

    @property
    def logit_scale(self) -> Scalars:
        """w."""
        return self.w  # pyright: ignore[reportReturnType]


@register_params
class MatrixParams(eqx.Module):
    """The model with full matrices on d-dimensional tokens: logit of key k is `(WQ x_L) . (WK y_{k+1})`.

    `out_1 = V1 sum_k a_k y_{k+1}` (position attention, p21), `out_2 = V2 sum_k softmax_k(logit_k) x_{k+1}`. Leaves:
    p21 and p11 as in `UntiedParams`; V1, V2, WK, WQ [d, d]. The isotropic model is V = v I, WK = wK I, WQ = wQ I.
    Source: MATH section 6, "General matrices".
    """

    p21: Leaf
    V1: Matrix
    V2: Matrix
    WK: Matrix
    WQ: Matrix
    p11: Leaf = None
    absent: ClassVar[dict[str, float]] = ABSENT


InductionParams = UntiedParams | TiedParams | MergedParams
PARAMETRIZATIONS: dict[str, type[UntiedParams] | type[TiedParams] | type[MergedParams]] = {
    "untied": UntiedParams,
    "tied": TiedParams,
    "merged": MergedParams,
}
