"""`SampledLoss`: the population loss replaced by its mean over a fixed sample, with its own error (MATH section 6)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from gflow.errors import InputError
from gflow.flows import Block, LogClock, ScaledClock
from gflow.losses.induction.exact import fourgram_leaves, growing_leaves, induction_leaves
from gflow.losses.induction.params import MatrixParams
from gflow.losses.induction.sampled._parts import ExactFourgramLoss, SampledFourgramLoss, SampledInductionLoss
from gflow.losses.induction.sampled._table import TabulatedInductionLoss, logit_range, tabulate

LEVEL = 0.95


def student_factor(scrambles: int, level: float = LEVEL) -> float:
    """Half-width of Student's two-sided interval in standard errors, `scrambles - 1` degrees of freedom; inf for 1."""
    from scipy.stats import t  # slow to import

    if not 0.0 < level < 1.0:
        raise InputError(f"level={level:g} must lie between 0 and 1, for example 0.95")
    return float(t.ppf(0.5 + 0.5 * level, scrambles - 1)) if scrambles > 1 else math.inf


def standard_error(values: Float[Array, "S *r"]) -> Float[Array, "*r"]:
    """`sd / sqrt(S)` over the scrambles (first axis); infinite for a single one."""
    S = values.shape[0]
    if S == 1:
        return jnp.full(values.shape[1:], jnp.inf, values.dtype)
    return jnp.std(values, axis=0, ddof=1) / math.sqrt(S)


class SampledLoss(eqx.Module):
    """`Loss(theta) = 1/N sum_i 1/2 ||f*(X_i) - out(X_i; theta)||^2` over N fixed sequences: S scrambles of N/S each.

    A deterministic smooth function of the parameters (any of the three parametrisations, or `MatrixParams`), so its
    flow is a true gradient flow; how far it is from the population's shows in the spread of the scrambles, which are
    independent and unbiased. Memory beyond the sample itself does not grow with N, in reverse mode either.

    All numbers are array leaves: one compilation for every seed, alpha*, w*. Made by `sample_loss`, or by
    `InductionProblem.sampled_loss`. Source: MATH sections 2, 6.
    """

    fourgram: SampledFourgramLoss | ExactFourgramLoss
    induction: SampledInductionLoss | TabulatedInductionLoss
    w_star: Float[Array, ""]
    number: Int[Array, ""]  # N
    L: int = eqx.field(static=True)
    splits: bool = eqx.field(static=True, default=False)

    def __call__(self, params: Any) -> Float[Array, ""]:
        return self.fourgram(params) + self.induction(params)

    @property
    def alpha_star(self) -> Float[Array, ""]:
        return self.induction.alpha_star

    @property
    def scrambles(self) -> int:
        """S, the number of independent scrambles."""
        return self.induction.norm.shape[0]

    @property
    def samples(self) -> int:
        """N, the number of sequences, all scrambles together (host)."""
        return int(self.number)

    def parts(self, params: Any) -> dict[str, Float[Array, ""]]:
        """The two terms by name: {"fourgram": Loss_G4, "induction": Loss_IH}."""
        return {"fourgram": self.fourgram(params), "induction": self.induction(params)}

    def scramble_parts(self, params: Any) -> dict[str, Float[Array, " S"]]:
        """The two terms and their "total" on each scramble alone."""
        parts = {"fourgram": self.fourgram.scrambles(params), "induction": self.induction.scrambles(params)}
        return parts | {"total": parts["fourgram"] + parts["induction"]}

    def without_output(self) -> dict[str, Float[Array, ""]]:
        """The two terms for a model whose output is zero: the scale that milestones refer to."""
        return {"fourgram": self.fourgram.without_output(), "induction": self.induction.without_output()}

    def standard_error(self, params: Any) -> dict[str, Float[Array, ""]]:
        """Standard error `sd/sqrt(S)` of "fourgram", "induction" and "total" (infinite for a single scramble)."""
        return {name: standard_error(values) for name, values in self.scramble_parts(params).items()}

    def interval(self, params: Any, level: float = LEVEL) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
        """Two-sided confidence interval of the population's value of each term: Student's t, S-1 degrees of freedom.

        It covers as it says where a scramble's mean is nearly Gaussian (measured: Gaussian tokens, 2^10 sequences per
        scramble). Sobol points under a finite law in few dimensions err in jumps instead: at L=6 the 95% intervals of
        a *sampled* 4-gram part hold in 89% of cases; those of `points="random"` hold as stated.
        Raises `InputError` for a level outside (0, 1).
        """
        factor = student_factor(self.scrambles, level)
        values = self.scramble_parts(params)
        centre = {name: jnp.mean(v) for name, v in values.items()}
        width = {name: factor * standard_error(v) for name, v in values.items()}
        return {name: (centre[name] - width[name], centre[name] + width[name]) for name in values}

    def error_bound(self, params: Any) -> Float[Array, ""]:
        """Half-width of the 95% interval of the loss: a statistical bound, exceeded once in twenty on average."""
        return student_factor(self.scrambles) * standard_error(self.scramble_parts(params)["total"])

    def gradient_error(self, params: PyTree) -> PyTree:
        """Standard error of every entry of the gradient; costs about one gradient."""
        alone = jax.lax.map(lambda i: jax.grad(lambda p: self.scramble(i)(p))(params), jnp.arange(self.scrambles))
        return jax.tree.map(standard_error, alone)

    def scramble(self, i: Any) -> SampledLoss:
        """The loss on scramble i alone, i = 0..S-1 (it may be traced)."""
        fourgram, induction = self.fourgram.scramble(i), self.induction.scramble(i)
        return dataclasses.replace(self, fourgram=fourgram, induction=induction, number=self.number // self.scrambles)

    def pooled(self) -> SampledLoss:
        """Of a tabulated loss: all scrambles as a single one of the same shapes (one compilation for it and them)."""
        if not isinstance(self.induction, TabulatedInductionLoss):
            return self
        return dataclasses.replace(self, fourgram=self.fourgram.pooled(), induction=self.induction.pooled())

    def tabulated(
        self, params: Any, *, w_range: tuple[float, float] | None = None, tolerance: float = 1e-6
    ) -> SampledLoss:
        """The same loss with the sample's overlaps in a Chebyshev table, made now: evaluations then cost microseconds.

        For flows that start at `params` (isotropic; p11 None or at least 0) and stay within `w_range`, by default
        somewhat more than [0, w*^2]; NaN beyond. `tolerance`: relative error of the table, checked off its nodes.
        Raises `InputError` for `MatrixParams`, `TableError` if the tolerance cannot be met.
        """
        if isinstance(params, MatrixParams) or not isinstance(self.induction, SampledInductionLoss):
            raise InputError("tabulated: a table needs scalar parameters, and a loss that is not a table already")
        lo, hi = w_range or logit_range(float(self.w_star) ** 2, float(params.logit_scale))
        table = tabulate(self.induction, lo, hi, params.p11 is not None, tolerance)
        return dataclasses.replace(self, induction=table)

    def blocks(self) -> tuple[Block, ...]:
        """One block on a logarithmic clock; with `splits` (p11 infinite, or frozen) the two that then never meet."""
        one = jnp.ones_like(self.alpha_star)
        n = (self.L - 2) * one
        if not self.splits:
            return (Block("all", jax.tree.leaves, self, LogClock(n), _curved),)
        return (
            Block("fourgram", fourgram_leaves, self.fourgram, LogClock(one)),
            Block("induction", induction_leaves, self.induction, ScaledClock(n), growing_leaves),
        )

    def __repr__(self) -> str:
        try:
            numbers = f"L={self.L}, alpha_star={float(self.alpha_star):g}, w_star={float(self.w_star):g}"
            return f"SampledLoss({numbers}, {self.samples} sequences in {self.scrambles} scrambles)"
        except (TypeError, ValueError):  # traced or batched leaves have no numbers to show
            return "SampledLoss(...)"


def _curved(params: Any) -> tuple[Any, ...]:
    return () if isinstance(params, MatrixParams) else growing_leaves(params)
