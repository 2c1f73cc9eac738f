"""Fresh batches: sequences drawn anew at every step from the token law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gflow.errors import InputError
from gflow.losses.induction.forward import sequence_losses
from gflow.losses.induction.problem import InductionProblem
from gflow.tokens import TokenLaw

LARGEST = 2**28  # tokens in one batch: 2 GiB


class FixedSample(eqx.Module):
    """`batches(key) = loss`: train on one loss, a fixed sample say, and report another, the exact one."""

    loss: Callable[[Any], Any]

    def __call__(self, key: Key[Array, ""]) -> Callable[[Any], Any]:
        return self.loss


class BatchLoss(eqx.Module):
    """`1/B sum_i 1/2 ||f*(X_i) - out(X_i; theta)||^2` over one batch: an unbiased estimate of the population loss."""

    tokens: Float[Array, "B L d"]
    alpha_star: Float[Array, ""]
    w_star: Float[Array, ""]

    def __call__(self, params: Any) -> Float[Array, ""]:
        fourgram, induction = sequence_losses(params, self.tokens, self.alpha_star, self.w_star)
        return jnp.mean(fourgram + induction)


class FreshBatches(eqx.Module):
    """`batches(key)`: the loss on `size` sequences of L independent tokens, for `descend(..., batches=...)`.

    `FreshBatches.of(problem, size)` makes it. Any parametrisation, any p11. Source: MATH sections 1, 2.
    """

    law: TokenLaw
    alpha_star: Float[Array, ""]
    w_star: Float[Array, ""]
    size: int = eqx.field(static=True)
    L: int = eqx.field(static=True)
    d: int = eqx.field(static=True)

    @classmethod
    def of(cls, problem: InductionProblem, size: int) -> FreshBatches:
        """Batches of the problem's token law. Raises `InputError` for a real L, a size below 1, or more than memory."""
        if int(problem.L) != problem.L:
            raise InputError(f"L = {problem.L:g} is not a whole number, and sequences are; give L = {round(problem.L)}")
        if size < 1:
            raise InputError(f"batch = {size}: at least one sequence is needed")
        if size * problem.L * problem.d > LARGEST:
            most = int(LARGEST / (problem.L * problem.d))
            raise InputError(f"batch = {size}: {size} sequences do not fit into memory; give at most {most}")
        alpha, w = jnp.asarray(problem.alpha_star, float), jnp.asarray(problem.w_star, float)
        return cls(problem.tokens, alpha, w, int(size), int(problem.L), problem.d)

    def __call__(self, key: Key[Array, ""]) -> BatchLoss:
        return BatchLoss(self.draw(key), self.alpha_star, self.w_star)

    def draw(self, key: Key[Array, ""]) -> Float[Array, "B L d"]:
        """The sequences of this key."""
        shape, dtype = (self.size, self.L, self.d), self.law.nodes.dtype
        if self.law.name == "gaussian":
            return jax.random.normal(key, shape, dtype)
        if self.law.name == "uniform":
            edge = math.sqrt(3.0)
            return jax.random.uniform(key, shape, dtype, -edge, edge)
        return jax.random.choice(key, self.law.nodes, shape, p=self.law.weights)
