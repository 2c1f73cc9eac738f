"""The two parts of the loss on a fixed sample, scramble by scramble."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.losses.induction.forward import fourgram_output, induction_output, position_weights
from gflow.losses.induction.params import MatrixParams
from gflow.losses.induction.sampled._moments import Sample, overlaps


def per_scramble(values: Float[Array, "C *r"], scrambles: int) -> Float[Array, "S *r"]:
    """Mean of the chunks of each scramble."""
    return jnp.mean(values.reshape(scrambles, -1, *values.shape[1:]), axis=1)


def _through(function: Callable[[Sample], Array], sample: Sample, scrambles: int) -> Float[Array, " S"]:
    """Mean over each scramble of a chunk's mean, chunk by chunk; nothing of a chunk is kept for the backward pass."""
    return per_scramble(jax.lax.map(jax.checkpoint(function), sample), scrambles)


def cut(tree: Any, i: Any, scrambles: int) -> Any:
    """The share of scramble i in arrays whose first axis holds all scrambles one after the other."""
    each = lambda x: x.shape[0] // scrambles  # noqa: E731
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, i * each(x), each(x)), tree)


class SampledInductionLoss(eqx.Module):
    """`Loss_IH = 1/2 mean || A_i t - out_2 ||^2`, t what the target attends to, `A_i = 1/(1+alpha*)`.

    For isotropic parameters `1/2 [A_i^2 E|t|^2 - 2 A_i v2 K1 + v2^2 K2]` with the sample's overlaps K1, K2. `norm` [S]
    is E|t|^2 of each scramble. Reads p11, v2 and the logit scale (V2, WK, WQ). Source: MATH sections 2, 4, 6.
    """

    alpha_star: Float[Array, ""]
    sample: Sample
    norm: Float[Array, " S"]
    block: ClassVar[str] = "induction"

    def scrambles(self, params: Any) -> Float[Array, " S"]:
        """The loss on each scramble alone."""
        if isinstance(params, MatrixParams):
            A = 1.0 / (1.0 + self.alpha_star)

            def chunk(part: Sample) -> Array:
                rest = A * part.attended - induction_output(params, part.tokens)
                return 0.5 * jnp.mean(jnp.sum(rest**2, axis=0))

            return _through(chunk, self.sample, self.norm.shape[0])
        coordinates = [params.logit_scale] + ([] if params.p11 is None else [params.p11])
        z = jnp.stack([jnp.asarray(v, self.norm.dtype) for v in coordinates])
        K = per_scramble(overlaps(z, sample=self.sample), self.norm.shape[0])
        return from_overlaps(self.alpha_star, params.v2, self.norm, K)

    def scramble(self, i: Any) -> SampledInductionLoss:
        """The loss of scramble i alone."""
        S = self.norm.shape[0]
        return dataclasses.replace(self, sample=cut(self.sample, i, S), norm=cut(self.norm, i, S))

    def without_output(self) -> Float[Array, ""]:
        """`A_i^2 E|t|^2 / 2`: the loss of a model that says nothing."""
        return silent(self.alpha_star, self.norm)

    def __call__(self, params: Any) -> Float[Array, ""]:
        return jnp.mean(self.scrambles(params))


def silent(alpha_star: Float[Array, ""], norm: Float[Array, " S"]) -> Float[Array, ""]:
    """`A_i^2 E|t|^2 / 2`."""
    return 0.5 * jnp.mean(norm) / (1.0 + alpha_star) ** 2


def from_overlaps(
    alpha_star: Float[Array, ""], v2: Any, norm: Float[Array, " S"], K: Float[Array, "S 2"]
) -> Float[Array, " S"]:
    """`1/2 [A_i^2 E|t|^2 - 2 A_i v2 K1 + v2^2 K2]` of each scramble (MATH section 4)."""
    A = 1.0 / (1.0 + alpha_star)
    return 0.5 * (A * A * norm - 2.0 * A * v2 * K[:, 0] + v2**2 * K[:, 1])


class SampledFourgramLoss(eqx.Module):
    """`Loss_G4 = 1/2 mean || A_g x_{L-2} - out_1 ||^2`, `A_g = alpha*/(1+alpha*)`.

    out_1 is linear in the tokens, so the sample enters through its second moments alone:
    `1/2 a^T G a`, `a = A_g e_n - v1 C`, G [S, n, n] = `mean <x_i, x_j>` of each scramble, C the composed position
    attention. Without G (long sequences), and for `MatrixParams`, the sequences themselves are used.
    Reads p11, p21 and v1 (V1). Source: MATH sections 2, 3.
    """

    alpha_star: Float[Array, ""]
    sample: Sample
    moments: Float[Array, "S n n"] | None
    count: int = eqx.field(static=True)  # S
    block: ClassVar[str] = "fourgram"

    def scrambles(self, params: Any) -> Float[Array, " S"]:
        """The loss on each scramble alone."""
        A = self.alpha_star / (1.0 + self.alpha_star)
        if self.moments is None or isinstance(params, MatrixParams):

            def chunk(part: Sample) -> Array:
                rest = A * part.tokens[-3] - fourgram_output(params, part.tokens)
                return 0.5 * jnp.mean(jnp.sum(rest**2, axis=0))

            return _through(chunk, self.sample, self.count)
        a = (-params.v1 * _weights(params, self.moments.shape[-1], self.moments.dtype)).at[-1].add(A)
        return 0.5 * jnp.einsum("i,sij,j->s", a, self.moments, a)

    def scramble(self, i: Any) -> SampledFourgramLoss:
        """The loss of scramble i alone."""
        sample, moments = cut((self.sample, self.moments), i, self.count)
        return dataclasses.replace(self, sample=sample, moments=moments, count=1)

    def pooled(self) -> SampledFourgramLoss:
        """For isotropic parameters: the mean of all scrambles as a single one (itself where there are no moments)."""
        if self.moments is None:
            return self
        return dataclasses.replace(self.scramble(0), moments=jnp.mean(self.moments, axis=0, keepdims=True))

    def without_output(self) -> Float[Array, ""]:
        """`A_g^2 E|x|^2 / 2`: the loss of a model that says nothing."""
        A = self.alpha_star / (1.0 + self.alpha_star)
        return 0.5 * A * A * jnp.mean(jnp.sum(self.sample.tokens[:, -3] ** 2, axis=1))

    def __call__(self, params: Any) -> Float[Array, ""]:
        return jnp.mean(self.scrambles(params))


class ExactFourgramLoss(eqx.Module):
    """`Loss_G4 = d/2 {s2 |a|^2 + mu^2 (sum a)^2}`, `a = A_g e_n - v1 C`: exact at any p11 (MATH section 3).

    Mean mu and variance s2 of a token; C the composed position attention. For `MatrixParams` (zero mean if d > 1):
    `1/2 {s2 [A_g^2 d - 2 A_g tr(V1) C_n + |V1|^2 sum C^2] + mu^2 (A_g - V1)^2}`. `count`: S equal "scrambles".
    """

    alpha_star: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]
    n: int = eqx.field(static=True)
    d: int = eqx.field(static=True)
    count: int = eqx.field(static=True)
    block: ClassVar[str] = "fourgram"

    def __call__(self, params: Any) -> Float[Array, ""]:
        A = self.alpha_star / (1.0 + self.alpha_star)
        C = _weights(params, self.n, self.variance.dtype)
        if isinstance(params, MatrixParams):
            V = jnp.asarray(params.V1)
            square = A * A * self.d - 2.0 * A * jnp.trace(V) * C[-1] + jnp.sum(V**2) * jnp.sum(C**2)
            return 0.5 * (self.variance * square + self.mean**2 * jnp.sum((A * jnp.eye(self.d) - V) ** 2))
        a = (-params.v1 * C).at[-1].add(A)
        return 0.5 * self.d * (self.variance * jnp.sum(a**2) + self.mean**2 * jnp.sum(a) ** 2)

    def scrambles(self, params: Any) -> Float[Array, " S"]:
        """The same value for each scramble."""
        return jnp.broadcast_to(self(params), (self.count,))

    def scramble(self, i: Any) -> ExactFourgramLoss:
        """The same, for one scramble."""
        del i
        return dataclasses.replace(self, count=1)

    def pooled(self) -> ExactFourgramLoss:
        """The same, for one scramble."""
        return dataclasses.replace(self, count=1)

    def without_output(self) -> Float[Array, ""]:
        """`A_g^2 E|x|^2 / 2`: the loss of a model that says nothing."""
        A = self.alpha_star / (1.0 + self.alpha_star)
        return 0.5 * A * A * self.d * (self.variance + self.mean**2)


def _weights(params: Any, n: int, dtype: Any) -> Float[Array, " n"]:
    p11 = None if params.p11 is None else jnp.asarray(params.p11, dtype)
    return position_weights(p11, jnp.asarray(params.p21, dtype), n)
