"""The parameters of the six-parameter transformer, one type per parametrisation of the logit scale (MATH section 2)."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from gflow.flows import register_params

# None: the leaf belongs to another block, or p11 is infinite and not part of the integrated state
Leaf = Float[Array, "*batch"] | None


@register_params
class UntiedParams(eqx.Module):
    """`w = wK wQ`. Leaves: p21, v1 (4-gram head), v2, wK, wQ (induction head), p11 (layer 1; None means p11 = inf)."""

    p21: Leaf
    v1: Leaf
    v2: Leaf
    wK: Leaf
    wQ: Leaf
    p11: Leaf = None

    @property
    def logit_scale(self) -> Float[Array, "*batch"]:
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

    @property
    def logit_scale(self) -> Float[Array, "*batch"]:
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

    @property
    def logit_scale(self) -> Float[Array, "*batch"]:
        """w."""
        return self.w  # pyright: ignore[reportReturnType]


InductionParams = UntiedParams | TiedParams | MergedParams
PARAMETRIZATIONS: dict[str, type[UntiedParams] | type[TiedParams] | type[MergedParams]] = {
    "untied": UntiedParams,
    "tied": TiedParams,
    "merged": MergedParams,
}
