"""Laws of the scalar tokens: Gaussian, Rademacher, uniform, and any finite law given as values and probabilities."""

from __future__ import annotations

import difflib
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gflow.errors import TokenLawError

NAMES = ("gaussian", "rademacher", "uniform")
# beyond 8.5 a standard Gaussian has probability 2e-17: nothing that float64 can see
GAUSSIAN_EDGE = 8.5


class TokenLaw(eqx.Module):
    """`E[h(x)] = sum_i weights_i h(nodes_i)`: the law of one token, as nodes and weights (MATH sections 4 and 6).

    A finite law is its own quadrature. The Gaussian and the uniform law are carried as a fine quadrature (exact
    moments) and named, so that the overlap integrals can choose nodes that suit their integrand.

    Build one with `gaussian()`, `rademacher()`, `uniform()`, `finite(values, probabilities)` or `from_name(name)`.

    - `nodes`, `weights`: token values and their probabilities, both [m].
    - `name`: "gaussian", "rademacher", "uniform" or "finite".
    - `is_symmetric`: x and -x have the same law.
    """

    nodes: Float[Array, " m"]
    weights: Float[Array, " m"]
    name: str = eqx.field(static=True)
    is_symmetric: bool = eqx.field(static=True)

    @property
    def mean(self) -> Float[Array, ""]:
        """E[x]."""
        return jnp.sum(self.weights * self.nodes)

    @property
    def second_moment(self) -> Float[Array, ""]:
        """E[x^2]."""
        return jnp.sum(self.weights * self.nodes**2)

    @property
    def variance(self) -> Float[Array, ""]:
        """E[(x - E x)^2]."""
        return jnp.sum(self.weights * (self.nodes - self.mean) ** 2)

    def __repr__(self) -> str:
        if self.name != "finite":
            return f"TokenLaw({self.name})"
        pairs = ", ".join(f"{x:g}: {p:g}" for x, p in zip(self.nodes.tolist(), self.weights.tolist(), strict=True))
        return f"TokenLaw({{{pairs}}})"


def _law(nodes: Any, weights: Any, name: str, is_symmetric: bool) -> TokenLaw:
    return TokenLaw(jnp.asarray(nodes, dtype=float), jnp.asarray(weights, dtype=float), name, is_symmetric)


def gaussian() -> TokenLaw:
    """Standard Gaussian tokens, as a trapezium on [-8.5, 8.5] (spectrally accurate: moments to 1e-16)."""
    step = GAUSSIAN_EDGE / 64
    x = step * np.arange(-64, 65)
    return _law(x, step * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi), "gaussian", True)


def rademacher() -> TokenLaw:
    """Tokens +1 and -1 with probability 1/2 each."""
    return _law([-1.0, 1.0], [0.5, 0.5], "rademacher", True)


def uniform() -> TokenLaw:
    """Tokens uniform on [-sqrt 3, sqrt 3] (mean 0, variance 1), as a Gauss-Legendre rule."""
    x, w = np.polynomial.legendre.leggauss(96)
    return _law(math.sqrt(3.0) * x, 0.5 * w, "uniform", True)


def finite(values: Any, probabilities: Any) -> TokenLaw:
    """A law on finitely many values; it may have a mean.

    Two sequences of numbers: `values` [m] distinct and finite, `probabilities` [m] positive with sum 1 (to 1e-9; they
    are then normalised).
    Raises `TokenLawError`.
    """
    try:
        x = np.asarray(values, dtype=float)
        p = np.asarray(probabilities, dtype=float)
    except (TypeError, ValueError) as error:
        raise TokenLawError(f"tokens: values and probabilities must be lists of numbers ({error})") from error
    if x.ndim != 1 or x.shape != p.shape:
        raise TokenLawError(
            f"tokens: values has shape {x.shape} and probabilities {p.shape}; give two flat lists of the same length"
        )
    if x.size < 2:
        raise TokenLawError(f"tokens: {x.size} value(s) given, at least 2 are needed; a constant carries no signal")
    if not np.all(np.isfinite(x)):
        bad = x[~np.isfinite(x)][0]
        raise TokenLawError(f"tokens: values contains {bad}; every value must be a finite number")
    if not np.all(np.isfinite(p)) or np.any(p <= 0):
        bad = p[~(np.isfinite(p) & (p > 0))][0]
        raise TokenLawError(
            f"tokens: probabilities contains {bad:g}; each must be positive; leave out impossible values"
        )
    total = float(np.sum(p))
    if abs(total - 1.0) > 1e-9:
        raise TokenLawError(f"tokens: probabilities sum to {total:.12g}, not to 1; divide each by {total:.12g}")
    order = np.argsort(x)
    x, p = x[order], p[order] / total
    if np.any(np.diff(x) == 0.0):
        bad = x[:-1][np.diff(x) == 0.0][0]
        raise TokenLawError(f"tokens: value {bad:g} is given twice; give it once with the sum of its probabilities")
    # exact symmetry only: an almost symmetric law is cheap to treat as a general one
    symmetric = bool(np.array_equal(x, -x[::-1]) and np.allclose(p, p[::-1], rtol=1e-15, atol=0.0))
    return _law(x, p, "finite", symmetric)


def from_name(name: str) -> TokenLaw:
    """The law called `name`: "gaussian", "rademacher" or "uniform". Raises `TokenLawError`."""
    laws = {"gaussian": gaussian, "rademacher": rademacher, "uniform": uniform}
    if isinstance(name, str) and name in laws:
        return laws[name]()
    near = difflib.get_close_matches(str(name).lower(), NAMES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "give a finite law as values and probabilities instead"
    raise TokenLawError(f"tokens: no law is called {name!r}; the names are {', '.join(NAMES)}; {hint}")
