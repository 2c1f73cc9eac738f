"""The sign matrix that Adam follows at small initialisation, its rank, and how often a random one is singular."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gflow.training.matrices._model import Toy, seed_keys

ENUMERATED = 5  # largest d whose sign matrices are all looked at: 2^((d-1)^2) of them
_CHUNK = 1 << 16


def sign_ranks(sums: Float[np.ndarray, "*b d d"]) -> Int[np.ndarray, "*b"]:
    """Rank of `S = sign(W_K0 + W_Q0)`, given the sums; every rank is exact.

    Where W_K and W_Q have the gradients -g W_Q, -g W_K (A = W_K^T W_Q small, mean gradient in A equal to -g I), a
    sign-like step moves both along the signs of the other until those agree: both then grow along S. Modes of the
    null space of S wait. *derived*; EXPERIMENTS (a).
    """
    signs = np.where(np.asarray(sums) >= 0, 1.0, -1.0)
    return np.asarray(np.linalg.matrix_rank(signs, tol=1e-6))


def start_ranks(seeds: Any, d: int, dtype: Any = float) -> Int[np.ndarray, " S"]:
    """Rank of the sign matrix of each seed, as `train_matrices` will draw it (for any L, alpha*, sigma_init)."""
    toy = Toy.of(d, dtype=dtype)

    def total(seed: Any) -> Any:
        params = toy.initial_params(seed_keys(seed)[0], jnp.asarray(1.0, toy.dtype))
        return jnp.asarray(params.WK) + jnp.asarray(params.WQ)

    return sign_ranks(np.asarray(jax.vmap(total)(jnp.asarray(seeds))))


def pick_seeds(d: int, ranks: tuple[int, ...], count: int, first: int, most: int = 1 << 17) -> Int[np.ndarray, " k"]:
    """The first at most `count` seeds from `first` on whose sign matrix has one of these ranks, among `most` seeds."""
    found: list[int] = []
    for start in range(first, first + most, 4096):
        block = np.arange(start, min(start + 4096, first + most))
        found += block[np.isin(start_ranks(block, d), ranks)].tolist()
        if len(found) >= count:
            break
    return np.asarray(found[:count], int)


@dataclasses.dataclass(frozen=True)
class Probability:
    """A probability with its standard error (0: exact)."""

    value: float
    error: float
    how: str


def singular_probability(d: int, draws: int = 1 << 20, seed: int = 0) -> Probability:
    """P(a d x d matrix of independent signs is singular): all of them up to d = 5, `draws` random ones beyond.

    Exact by `det(+-1, d) = +-2^(d-1) det(0/1, d-1)`. In the sample a matrix counts as singular when
    `|det| / 2^(d-1) < 1/2`, an integer that rounding leaves apart for d <= 24. It falls like
    `(1/2 + o(1))^d` (Tikhomirov 2020), slowly at first: .66, .63, .52, .37 at d = 4, 6, 8, 10.
    """
    if d <= ENUMERATED:
        count = sum(int(np.sum(np.abs(np.linalg.det(block)) < 0.5)) for block in _binary(d - 1)) if d > 1 else 0
        return Probability(count / 2 ** ((d - 1) ** 2), 0.0, "enumeration")
    random, singular, left = np.random.default_rng(seed), 0, draws
    while left > 0:
        size = min(left, _CHUNK)
        signs = 2.0 * random.integers(0, 2, (size, d, d)) - 1.0
        singular += int(np.sum(np.abs(np.linalg.det(signs)) < 0.5 * 2.0 ** (d - 1)))
        left -= size
    p = singular / draws
    return Probability(p, math.sqrt(max(p * (1 - p), 1 / draws) / draws), f"{draws} random matrices")


def _binary(m: int) -> Iterator[Float[np.ndarray, "b m m"]]:
    """All m x m matrices of zeros and ones, in blocks."""
    total = 2 ** (m * m)
    for start in range(0, total, _CHUNK):
        index = np.arange(start, min(start + _CHUNK, total))
        yield ((index[:, None] >> np.arange(m * m)[None]) & 1).reshape(-1, m, m).astype(float)
