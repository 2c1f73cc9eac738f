"""Fixed samples of token sequences: scrambled Sobol points carried to a token law."""

from __future__ import annotations

import math

import numpy as np
import scipy.special
from jaxtyping import Float

from gflow.errors import InputError
from gflow.tokens import TokenLaw

KINDS = ("sobol", "random")
SOBOL_DIMENSIONS = 21201  # direction numbers known to scipy
BITS = 30  # of a Sobol point


def sequences(
    law: TokenLaw, L: int, d: int, count: int, seed: int, stream: int, kind: str = "sobol"
) -> Float[np.ndarray, "L d count"]:
    """`count` = 2^m sequences with tokens of `law`: scramble number `stream` of a Sobol sequence in L d dimensions.

    The query x_L takes the first dimensions, the best distributed ones, then x_{L-1} and so on. Points lie in the
    middle of their cells of width 2^-30, so no coordinate is 0 or 1. `kind` "random" draws independent points instead.
    There are no mirror images: `1/2 ||f* - out||^2` does not change with the sign of all tokens, so x and -x are one
    point twice (measured: the same error as half the sequences); a mirrored query gains nothing at equal cost either.

    Raises `InputError` for more than 21201 dimensions. Source: MATH section 6.
    """
    rng = np.random.default_rng([seed, stream])
    if kind == "random":
        u = rng.random((count, L * d))
        u = np.where(u > 0.0, u, 0.5**54)
    else:
        from scipy.stats import qmc  # slow to import

        if L * d > SOBOL_DIMENSIONS:
            raise InputError(
                f"sampled loss: L*d = {L * d} exceeds {SOBOL_DIMENSIONS}, the dimensions of a Sobol sequence; "
                "use points='random'"
            )
        u = qmc.Sobol(L * d, scramble=True, bits=BITS, rng=rng).random_base2(round(math.log2(count)))
        u += 0.5 ** (BITS + 1)
    return np.ascontiguousarray(_of_law(law, u[:, ::-1]).T).reshape(L, d, count)


def _of_law(law: TokenLaw, u: np.ndarray) -> np.ndarray:
    """Tokens with the law's distribution function at u in (0, 1)."""
    if law.name == "gaussian":
        return scipy.special.ndtri(u)
    if law.name == "uniform":
        return math.sqrt(3.0) * (2.0 * u - 1.0)
    steps = np.cumsum(np.asarray(law.weights))[:-1]
    return np.asarray(law.nodes)[np.searchsorted(steps, u, side="right")]
