"""The 4-gram block of many lanes: from numbers per lane to its milestone, final states and step counts."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from gflow.sweeps.ensemble._batches import run_lanes
from gflow.sweeps.ensemble.fourgram import FourgramLanes
from gflow.sweeps.ensemble.lanes import HORIZON, Columns, Course, Lanes, blank, put, stretch

# the 4-gram part bears a larger tolerance for the same error of its milestone (measured)
RTOL_FACTOR = 10.0


def solve_fourgram(
    lanes: Lanes, wanted: bool = True, dtype: Any = np.float64, curve_times: np.ndarray | None = None
) -> tuple[Columns, np.ndarray]:
    """The 4-gram block: columns, with T_I if `wanted`, and how each lane ended.

    It reads neither w* nor the logit scale: lanes that differ in these only are solved once.
    """
    n = lanes.L - 2.0
    A = lanes.alpha_star / (1.0 + lanes.alpha_star)
    key = np.stack([n, A, lanes.sigma, lanes.d, lanes.mean, lanes.variance, lanes.t1, lanes.rtol])
    _, first, again = np.unique(key, axis=1, return_index=True, return_inverse=True)
    again = again.reshape(-1)
    n, A, sigma, d, mean, variance, t1, rtol = key[:, first]
    nu = sigma / A
    numbers = {"n": n, "per_n": 1.0 / n, "square": A**2, "d": d, "mean": mean, "variance": variance}

    def system(chosen: np.ndarray) -> FourgramLanes:
        return FourgramLanes(**{name: values[chosen] for name, values in numbers.items()}, one=np.ones(()))

    whole = system(np.arange(len(n)))
    initial = np.asarray(whole.value(jnp.asarray(nu), jnp.asarray(sigma)))
    expected = (10.0 - np.log(np.minimum(np.minimum(sigma, 1.0 / n), 1.0))) / A + 50.0 / A**2
    least, end, curve = stretch(t1, curve_times, 1.0, HORIZON * expected)
    levels = np.array([0.01 * initial] if wanted else []).reshape(int(wanted), len(n))
    course = Course(nu, sigma, levels, least, end, RTOL_FACTOR * rtol, curve)
    ended = blank(len(n), len(levels), len(curve))
    order = np.lexsort((sigma, A))
    put(ended, order, run_lanes(lambda chosen: course.batch(system(chosen), chosen, dtype), order)[0])
    columns = {
        **({"T_I": ended.times[0]} if wanted else {}),
        "p21_final": ended.b,
        "v1_final": A * ended.a,
        "loss_fourgram_initial": A**2 * initial,
        "loss_fourgram_final": A**2 * np.asarray(whole.value(jnp.asarray(ended.a, float), jnp.asarray(ended.b, float))),
        **({"curve_fourgram": (A**2 * ended.curve).T} if len(ended.curve) else {}),
        "steps_fourgram": ended.accepted,
    }
    return {name: values[again] for name, values in columns.items()}, ended.ended[again]
