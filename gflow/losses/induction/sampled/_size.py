"""How many sequences a requested accuracy takes: pilot samples, the rate at which their error falls, extrapolation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gflow.errors import InputError
from gflow.losses.induction.params import PARAMETRIZATIONS
from gflow.losses.induction.sampled._draw import most_samples, sample_loss
from gflow.losses.induction.sampled._loss import SampledLoss

PILOTS = (2**6, 2**8, 2**10)  # sequences per scramble
PILOT_SCRAMBLES = 32  # for the spread of a pilot to 13%
RATES = (0.5, 1.0)  # independent points; the best that Sobol points can do on a rough integrand
DEFAULT_LIMIT = 2**22
DEFAULT_SAMPLES = 2**14  # to explore with; 2^16 to report
FAR_ENOUGH = 5.0  # p11 and p21 that count as learned


@dataclasses.dataclass(frozen=True)
class SampleSize:
    """`samples` sequences for the wanted accuracy: the pilots' `errors` [3] at `pilots` [3] sequences, their `rate`."""

    samples: int
    pilots: tuple[int, ...]
    errors: tuple[float, ...]
    rate: float


def reference_params(
    parametrization: str, alpha_star: float, w_star: float, sigma: float, finite_p11: bool
) -> tuple[Any, Any, Any]:
    """Initial parameters (all sigma), those at which the model is the target, and the middle between them."""
    w = {"untied": {"wK": w_star, "wQ": w_star}, "tied": {"wKQ": w_star}, "merged": {"w": w_star**2}}[parametrization]
    A = alpha_star / (1.0 + alpha_star)
    learned = {"p21": FAR_ENOUGH, "v1": A, "v2": 1.0 - A, **w} | ({"p11": FAR_ENOUGH} if finite_p11 else {})
    make = lambda weight: PARAMETRIZATIONS[parametrization](  # noqa: E731
        **{k: jnp.asarray((1.0 - weight) * sigma + weight * v, float) for k, v in learned.items()}
    )
    return make(0.0), make(1.0), make(0.5)


@eqx.filter_jit
def _relative_errors(loss: SampledLoss, points: tuple[Any, ...]) -> tuple[Any, Any]:
    """Spread over scrambles of each part at each point, and the parts' values for a model without output."""
    rows = [loss.scramble_parts(p) for p in points]
    spread = jnp.stack([jnp.std(r[k], ddof=1) for r in rows for k in ("fourgram", "induction")])
    zero = loss.without_output()
    return spread, jnp.stack([zero["fourgram"], zero["induction"]] * len(points))


def samples_for(
    problem: Any,
    accuracy: float,
    *,
    scrambles: int = 8,
    seed: int = 0,
    sigma: float = 0.01,
    finite_p11: bool = True,
    limit: int = DEFAULT_LIMIT,
    **options: Any,
) -> SampleSize:
    """Sequences for which the standard error of each part, over its value without output, is at most `accuracy`.

    Pilots of 2^6, 2^8, 2^10 sequences in each of 32 scrambles give the largest error over the initial parameters, the
    target's and their middle, and the rate at which it falls (a straight line in logarithms, kept in [1/2, 1]);
    the answer is the power of two per scramble that the line asks for. `options` go to `sample_loss`.

    The answer is itself an estimate (its standard error scatters by a quarter with 8 scrambles); what a loss achieves
    it says itself: `loss.standard_error(params)`. Raises `InputError` beyond `limit`, or beyond memory.
    """
    if not (math.isfinite(accuracy) and 0.0 < accuracy < 1.0):
        raise InputError(f"accuracy={accuracy:g} must lie between 0 and 1: a relative standard error, for example 0.01")
    L = whole_length(problem.L)
    alpha, w = problem.alpha_star, problem.w_star
    points = reference_params(problem.parametrization, alpha, w, sigma, finite_p11)
    dtype = np.dtype(options.get("dtype", "float64"))
    points = jax.tree.map(lambda x: x.astype(dtype), points)
    errors = []
    for each in PILOTS:
        drawn: dict[str, Any] = {
            "samples": PILOT_SCRAMBLES * each,
            "scrambles": PILOT_SCRAMBLES,
            "seed": seed + 1,
        } | options
        loss = sample_loss(problem.tokens, L, alpha, w, problem.d, **drawn)
        spread, size = _relative_errors(loss, points)
        errors.append(float(np.max(np.asarray(spread / size))))
    rate, at_last = _line(np.array(errors))
    # error of the mean of S scrambles of m sequences: at_last (m / m_last)^-rate / sqrt(S)
    ratio = at_last / (accuracy * math.sqrt(scrambles))
    each = PILOTS[-1] * ratio ** (1.0 / rate) if ratio > 0 else 1.0
    samples = scrambles * 2 ** max(0, math.ceil(math.log2(max(each, 1.0))))
    most = min(limit, most_samples(L, problem.d, dtype.itemsize, scrambles))
    if most < samples:
        best = at_last * (most / scrambles / PILOTS[-1]) ** -rate / math.sqrt(scrambles)
        raise InputError(
            f"accuracy={accuracy:g} takes about {samples:.2g} sequences, more than {most}; ask for {1.1 * best:.1g} or "
            "more, or use the exact loss where there is one"
        )
    pilots = tuple(PILOT_SCRAMBLES * each for each in PILOTS)
    return SampleSize(samples, pilots, tuple(e / math.sqrt(PILOT_SCRAMBLES) for e in errors), rate)


def _line(errors: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """Rate of the straight line through log error against log sequences, and its value at the last pilot."""
    x = np.log(np.array(PILOTS) / PILOTS[-1])
    y = np.log(np.maximum(errors, 1e-300))
    rate = float(np.clip(-np.polyfit(x, y, 1)[0], *RATES))
    return rate, float(np.exp(np.mean(y + rate * x)))


def whole_length(L: float) -> int:
    """L as a whole number; raises `InputError`."""
    if int(L) != L:
        raise InputError(f"L={L:g} is not whole: a sampled loss needs sequences; the nearest is L={round(L)}")
    return int(L)
