"""Drawing the sample of a `SampledLoss`."""

from __future__ import annotations

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gflow.errors import InputError
from gflow.losses.induction.forward import induction_target
from gflow.losses.induction.sampled._loss import SampledLoss
from gflow.losses.induction.sampled._moments import Sample
from gflow.losses.induction.sampled._parts import ExactFourgramLoss, SampledFourgramLoss, SampledInductionLoss
from gflow.losses.induction.sampled._points import KINDS, sequences
from gflow.tokens import TokenLaw

CHUNK = 1024  # sequences in one pass: a few vectors of this length stay in cache
MOMENTS_UP_TO = 1536  # n beyond which the second moments, S n^2 numbers, would outgrow the sample
MEMORY = 2**30  # bytes of tokens


def sample_loss(
    law: TokenLaw,
    L: int,
    alpha_star: float,
    w_star: float,
    d: int = 1,
    *,
    samples: int = 2**14,
    scrambles: int = 8,
    seed: int = 0,
    points: str = "sobol",
    exact_fourgram: bool = True,
    splits: bool = False,
    dtype: Any = "float64",
    chunk: int = CHUNK,
) -> SampledLoss:
    """Draw `scrambles` independent scrambled Sobol samples of samples/scrambles = 2^m sequences each.

    - `exact_fourgram`: the 4-gram part from the law's mean and variance, without sampling error. It needs no sample,
      and sampled it is by far the noisier part (its signal, the correlation of two tokens, is 1/n of its noise per
      sequence): at L=40 with 2^12 sequences the time at which it halves scatters by a third. False samples it too.
    - `points`: "sobol" or "random". `splits`: promise that p11 is infinite or frozen (two blocks).
    - `chunk`: sequences per pass. `dtype`: "float64" or "float32".

    Raises `InputError`.
    """
    kind = np.dtype(dtype)
    if kind.name not in ("float32", "float64"):
        raise InputError(f"dtype={kind.name}: a sampled loss is float32 or float64")
    if points not in KINDS:
        raise InputError(f"points={points!r} is unknown; choose one of {', '.join(KINDS)}")
    N, S = check_size(samples, scrambles, L, d, kind.itemsize)
    each, n = N // S, L - 2
    m = min(each, 2 ** int(math.log2(max(chunk, 1))))
    data = jnp.zeros((N // m, L, d, m), kind)
    moments = None if exact_fourgram or n > MOMENTS_UP_TO else np.empty((S, n, n))
    for s in range(S):
        x = sequences(law, L, d, each, seed, s, points)
        if moments is not None:
            flat = x[:n].reshape(n, d * each)
            moments[s] = flat @ flat.T / each
        # in place, or a long sample would be in memory twice
        data = _put(data, np.moveaxis(x.reshape(L, d, each // m, m), 2, 0).astype(kind), s * (each // m))
    alpha, w = jnp.asarray(alpha_star, kind), jnp.asarray(w_star, kind)
    sample = Sample(data, _attended(data, w))
    norm = jnp.mean(jnp.sum(sample.attended**2, axis=1).reshape(S, -1), axis=1)
    if exact_fourgram:
        mean, variance = (jnp.asarray(v, kind) for v in (law.mean, law.variance))
        fourgram = ExactFourgramLoss(alpha, mean, variance, n, d, S)
    else:
        fourgram = SampledFourgramLoss(alpha, sample, None if moments is None else jnp.asarray(moments, kind), S)
    return SampledLoss(fourgram, SampledInductionLoss(alpha, sample, norm), w, jnp.asarray(N), L, splits)


@functools.partial(jax.jit, donate_argnums=0)
def _put(data: Any, chunks: Any, start: Any) -> Any:
    return jax.lax.dynamic_update_slice_in_dim(data, chunks, start, 0)


@eqx.filter_jit
def _attended(tokens: Float[Array, "C L d m"], w_star: Float[Array, ""]) -> Float[Array, "C d m"]:
    return jax.lax.map(lambda x: induction_target(x, w_star), tokens)


def most_samples(L: int, d: int, itemsize: int, scrambles: int) -> int:
    """The largest sample, `scrambles` times a power of two, that memory is meant for."""
    return scrambles * 2 ** int(math.log2(max(MEMORY // (L * d * itemsize) // scrambles, 1)))


def check_size(samples: Any, scrambles: Any, L: int, d: int, itemsize: int) -> tuple[int, int]:
    """N and S as whole numbers, N = S 2^m and small enough for memory. Raises `InputError`."""
    for name, value in (("samples", samples), ("scrambles", scrambles)):
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise InputError(f"{name}={value} must be a whole number, at least 1; for example samples=65536")
    N, S = int(samples), int(scrambles)
    each = N / S
    if each < 1 or not math.log2(each).is_integer():
        power = 2 ** max(0, round(math.log2(max(each, 1.0))))
        raise InputError(
            f"samples={N}: each of the {S} scrambles holds a power of two; the nearest is samples={S * power}"
        )
    most = most_samples(L, d, itemsize, S)
    if most < N:
        other = "" if itemsize == 4 else ", or dtype='float32' for twice as many"
        raise InputError(f"samples={N} with L*d = {L * d} exceed {MEMORY >> 20} MB; use at most samples={most}{other}")
    return N, S
