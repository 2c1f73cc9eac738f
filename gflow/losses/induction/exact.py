"""The exact population loss of the induction-head model at p11 = inf: closed form plus overlap tables (MATH 3, 4)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gflow.flows import Block, LogClock, ScaledClock
from gflow.losses.induction.fourgram import FourgramLoss
from gflow.losses.induction.growth import LawData, grown_table
from gflow.losses.induction.params import MergedParams, TiedParams
from gflow.losses.induction.table import OverlapTable
from gflow.tokens import TokenLaw


class InductionHeadLoss(eqx.Module):
    """`Loss_IH = 1/2 [A_i^2 K(c,c) - 2 A_i v2 K(w,c) + v2^2 K(w,w)]`, `A_i = 1/(1+alpha*)`, c = w*^2 (MATH section 4).

    Reads v2 and `logit_scale` of the parameters only. NaN where w leaves the table's domain.
    """

    alpha_star: Float[Array, ""]
    table: OverlapTable
    law: LawData  # only growth reads it
    block: ClassVar[str] = "induction"

    @property
    def amplitude(self) -> Float[Array, ""]:
        """A_i = 1/(1+alpha*)."""
        return 1.0 / (1.0 + self.alpha_star)

    def __call__(self, params: Any) -> Float[Array, ""]:
        K = self.table.pair(jnp.asarray(params.logit_scale))
        A, v = self.amplitude, params.v2
        return 0.5 * (A * A * self.table.kcc - 2.0 * A * v * K[0] + v * v * K[1])

    def error_bound(self, params: Any) -> Float[Array, ""]:
        """Bound of the absolute error of the loss that the tables can cause."""
        K = jnp.abs(self.table.pair(jnp.asarray(params.logit_scale)))
        A, v = self.amplitude, jnp.abs(params.v2)
        e = self.table.relative_error
        return 0.5 * (A * A * self.table.kcc * e[1] + 2.0 * A * v * K[0] * e[0] + v * v * K[1] * e[1])

    def domain(self, params: Any) -> Bool[Array, ""]:
        """True where the table holds `params` with a margin; False: `grow` before going on."""
        return self.table.in_domain(jnp.asarray(params.logit_scale))

    def grow(self, params: Any) -> InductionHeadLoss:
        """The same loss on a table that holds `params` with room to spare (host). Raises `TableError`."""
        return dataclasses.replace(self, table=grown_table(self.table, self.law, float(params.logit_scale)))


def fourgram_leaves(params: Any) -> tuple[Any, ...]:
    """The leaves of the second layer that the 4-gram part reads."""
    return params.p21, params.v1


def induction_leaves(params: Any) -> tuple[Any, ...]:
    """The leaves of the second layer that the induction part reads."""
    if isinstance(params, TiedParams):
        return params.v2, params.wKQ
    if isinstance(params, MergedParams):
        return params.v2, params.w
    return params.v2, params.wK, params.wQ


def growing_leaves(params: Any) -> tuple[Any, ...]:
    """Those that grow exponentially on the plateau."""
    # a merged w starts linearly, not exponentially
    return () if isinstance(params, MergedParams) else induction_leaves(params)[1:]


class PopulationLoss(eqx.Module):
    """`Loss(theta) = Loss_G4(p21, v1) + Loss_IH(v2, w)`, exact up to `error_bound`, at p11 = inf (MATH sections 2-4).

    A pure function of parameters of any of the three parametrisations; jit, vmap and differentiate it at will. All
    numbers are array leaves, so every L, alpha*, w* shares one compilation. Differentiable in L, alpha_star, w_star:
    `jax.grad(lambda L: loss.at(L=L)(params))(loss.L)`.
    """

    fourgram: FourgramLoss
    induction: InductionHeadLoss

    def __call__(self, params: Any) -> Float[Array, ""]:
        return self.fourgram(params) + self.induction(params)

    @property
    def L(self) -> Float[Array, ""]:
        return self.induction.table.L

    @property
    def alpha_star(self) -> Float[Array, ""]:
        return self.induction.alpha_star

    @property
    def w_star(self) -> Float[Array, ""]:
        return self.induction.table.w_star

    @property
    def law(self) -> TokenLaw:
        """The law of the tokens (host)."""
        return self.induction.law.law()

    def parts(self, params: Any) -> dict[str, Float[Array, ""]]:
        """The two terms by name: {"fourgram": Loss_G4, "induction": Loss_IH}."""
        return {"fourgram": self.fourgram(params), "induction": self.induction(params)}

    def error_bound(self, params: Any) -> Float[Array, ""]:
        """Bound of the absolute error of the loss (the closed form has none beyond rounding)."""
        return self.induction.error_bound(params)

    def domain(self, params: Any) -> Bool[Array, ""]:
        """True where the tables hold `params` with a margin; False: `grow` before going on."""
        return self.induction.domain(params)

    def at(self, L: Any = None, alpha_star: Any = None, w_star: Any = None) -> PopulationLoss:
        """The same loss as a function of L, alpha_star, w_star, to differentiate through.

        alpha_star may have any value. The tables know their first derivatives in L and w_star, not other values: for
        another L or w_star build another loss.
        """
        loss = self
        if L is not None:
            loss = eqx.tree_at(lambda s: (s.fourgram.L, s.induction.table.L), loss, (L, L))
        if alpha_star is not None:
            both = (alpha_star, alpha_star)
            loss = eqx.tree_at(lambda s: (s.fourgram.alpha_star, s.induction.alpha_star), loss, both)
        if w_star is not None:
            loss = eqx.tree_at(lambda s: s.induction.table.w_star, loss, w_star)
        return loss

    def grow(self, params: Any) -> PopulationLoss:
        """The loss on tables whose domain holds `params` with room to spare (computed now, on the host).

        Raises `TableError` if the logit scale is beyond what can be tabulated.
        """
        return dataclasses.replace(self, induction=self.induction.grow(params))

    def blocks(self) -> tuple[Block, ...]:
        """The two groups of parameters that never meet, on their own clocks (MATH section 5, "The flow splits")."""
        one = jnp.ones_like(self.L)
        return (
            Block("fourgram", fourgram_leaves, self.fourgram, LogClock(one)),
            Block("induction", induction_leaves, self.induction, ScaledClock(self.L - 2.0), growing_leaves),
        )

    def __repr__(self) -> str:
        try:
            e = float(jnp.max(self.induction.table.relative_error))
            numbers = f"L={float(self.L):g}, alpha_star={float(self.alpha_star):g}, w_star={float(self.w_star):g}"
            return f"PopulationLoss({numbers}, tokens={self.law.name}, table error {e:.0e})"
        except (TypeError, ValueError):  # traced or batched leaves have no numbers to show
            return "PopulationLoss(...)"
