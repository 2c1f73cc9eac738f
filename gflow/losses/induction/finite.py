"""The exact population loss of all six parameters, at any p11 (MATH sections 2, 3, 8)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gflow.flows import Block, LogClock, ScaledClock
from gflow.losses.induction.exact import fourgram_leaves, growing_leaves, induction_leaves
from gflow.losses.induction.finite_fourgram import FiniteFourgramLoss
from gflow.losses.induction.growth import wider_domain
from gflow.losses.induction.joint_build import build_joint_table
from gflow.losses.induction.joint_table import JointTable


class FiniteInductionLoss(eqx.Module):
    """`Loss_IH = 1/2 [A_i^2 K(c,c) - 2 A_i v2 K1(w, r) + v2^2 K2(w, r)]`, r = e^{-p11}, c = w*^2 (MATH section 8).

    Reads p11 (None: infinite, r = 0), v2 and `logit_scale`. NaN where w or p11 leaves the table's domain.
    """

    alpha_star: Float[Array, ""]
    table: JointTable
    block: ClassVar[str] = "induction"

    @property
    def amplitude(self) -> Float[Array, ""]:
        """A_i = 1/(1+alpha*)."""
        return 1.0 / (1.0 + self.alpha_star)

    @property
    def without_output(self) -> Float[Array, ""]:
        """The loss of a model that puts out nothing, v2 = 0: `1/2 A_i^2 K(c,c)`."""
        return 0.5 * self.amplitude**2 * self.table.base.kcc

    def _overlaps(self, params: Any) -> Float[Array, "2"]:
        w = jnp.asarray(params.logit_scale)
        if params.p11 is None:
            return self.table.base.pair(w)
        return self.table.pair(w, jnp.exp(-jnp.asarray(params.p11)))

    def __call__(self, params: Any) -> Float[Array, ""]:
        K, A, v = self._overlaps(params), self.amplitude, params.v2
        return 0.5 * (A * A * self.table.base.kcc - 2.0 * A * v * K[0] + v * v * K[1])

    def error_bound(self, params: Any) -> Float[Array, ""]:
        """Bound of the absolute error of the loss that the tables can cause."""
        K, A, v, e = jnp.abs(self._overlaps(params)), self.amplitude, jnp.abs(params.v2), self.table.relative_error
        least = self.table.base.relative_error[1]
        return 0.5 * (A * A * self.table.base.kcc * least + 2.0 * A * v * K[0] * e[0] + v * v * K[1] * e[1])

    def domain(self, params: Any) -> Bool[Array, ""]:
        """True where the table holds the logit scale with a margin."""
        return self.table.in_domain(jnp.asarray(params.logit_scale))

    def grow(self, params: Any) -> FiniteInductionLoss:
        """The same loss on a table that holds `params` with room to spare: minutes (host). Raises `TableError`."""
        domain = wider_domain(self.table, float(params.logit_scale))
        if domain is None:
            return self
        base = self.table.base
        larger = build_joint_table(float(base.L), float(base.w_star), int(base.d), *domain)
        return dataclasses.replace(self, table=larger)


def _every_leaf(params: Any) -> tuple[Any, ...]:
    first = () if params.p11 is None else (params.p11,)
    return (*first, *fourgram_leaves(params), *induction_leaves(params))


class FullLoss(eqx.Module):
    """`Loss(theta) = Loss_G4(p11, p21, v1) + Loss_IH(p11, v2, w)`: exact for all six parameters, at any p11.

    A pure function of parameters of any parametrisation, up to `error_bound`. p11 ties both parts together, so they are
    one block; `second_layer()` is the same loss for a p11 that stays where it is, whose parts never meet.
    """

    fourgram: FiniteFourgramLoss
    induction: FiniteInductionLoss
    frozen_first_layer: bool = eqx.field(static=True, default=False)

    def __call__(self, params: Any) -> Float[Array, ""]:
        return self.fourgram(params) + self.induction(params)

    @property
    def L(self) -> Float[Array, ""]:
        return self.induction.table.base.L

    @property
    def alpha_star(self) -> Float[Array, ""]:
        return self.induction.alpha_star

    @property
    def w_star(self) -> Float[Array, ""]:
        return self.induction.table.base.w_star

    def parts(self, params: Any) -> dict[str, Float[Array, ""]]:
        """The two terms by name: {"fourgram": Loss_G4, "induction": Loss_IH}."""
        return {"fourgram": self.fourgram(params), "induction": self.induction(params)}

    def error_bound(self, params: Any) -> Float[Array, ""]:
        """Bound of the absolute error of the loss (the 4-gram part has none beyond rounding)."""
        return self.induction.error_bound(params)

    def domain(self, params: Any) -> Bool[Array, ""]:
        """True where the table holds `params` with a margin; False: `grow` before going on."""
        return self.induction.domain(params)

    def grow(self, params: Any) -> FullLoss:
        """The loss on a table whose domain holds `params` with room to spare. Raises `TableError`."""
        return dataclasses.replace(self, induction=self.induction.grow(params))

    def second_layer(self) -> FullLoss:
        """The same loss, to be used with a p11 that does not move: it splits into two independent blocks."""
        return dataclasses.replace(self, frozen_first_layer=True)

    def blocks(self) -> tuple[Block, ...]:
        """One block, in log t: joint training ends in algebraic tails, and stage I lasts for decades."""
        one = jnp.ones_like(self.alpha_star)
        if not self.frozen_first_layer:
            whole = dataclasses.replace(self, frozen_first_layer=True)  # any loss will do inside a block
            return (Block("all", _every_leaf, whole, LogClock(one), growing_leaves),)
        return (
            Block("fourgram", fourgram_leaves, self.fourgram, LogClock(one)),
            Block("induction", induction_leaves, self.induction, ScaledClock(self.L - 2.0), growing_leaves),
        )

    def __repr__(self) -> str:
        try:
            e = float(jnp.max(self.induction.table.relative_error))
            return (
                f"FullLoss(L={float(self.L):g}, alpha_star={float(self.alpha_star):g}, w_star={float(self.w_star):g}, "
                f"table error {e:.0e})"
            )
        except (TypeError, ValueError):  # traced or batched leaves have no numbers to show
            return "FullLoss(...)"
