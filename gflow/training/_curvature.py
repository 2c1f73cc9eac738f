"""Which learning rate would have been stable: `2 / (largest Hessian eigenvalue)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

STATES = 8  # of the path, at which the Hessian is looked at
DENSE = 64  # up to this many parameters the whole Hessian is cheap
POWER_STEPS = 40  # of the power iteration beyond


@eqx.filter_jit
def largest_eigenvalue(loss: Callable[[Any], Any], moving: PyTree, frozen: PyTree) -> Float[Array, ""]:
    """Largest eigenvalue of the Hessian of `loss` with respect to `moving`.

    Beyond `DENSE` parameters by power iteration, which finds the eigenvalue of largest modulus, from below.
    """
    y0, rebuild = ravel_pytree(moving)

    def flat(y: Array) -> Array:
        return loss(eqx.combine(rebuild(y), frozen))

    if y0.size <= DENSE:
        return jnp.max(jnp.linalg.eigvalsh(jax.hessian(flat)(y0)))

    def multiply(_: Any, v: Array) -> Array:
        u = jax.jvp(jax.grad(flat), (y0,), (v,))[1]
        return u / jnp.linalg.norm(u)

    v = jax.random.normal(jax.random.key(0), y0.shape, y0.dtype)
    v = jax.lax.fori_loop(0, POWER_STEPS, multiply, v / jnp.linalg.norm(v))
    return jnp.vdot(v, jax.jvp(jax.grad(flat), (y0,), (v,))[1])


def advice(loss: Callable[[Any], Any], path: Any, rule: Any, start: float) -> str:
    """A sentence on the learning rate, from the sharpest place the run saw while its loss was not above its start."""
    slack = {"gd": 1.0, "sgd": 1.0}.get(rule.name)
    if rule.name == "momentum":
        slack = 1.0 + float(rule.numbers["momentum"])  # heavy ball: lr < 2 (1 + momentum) / eigenvalue
    if slack is None:
        return ""
    sane = np.flatnonzero(path.losses["total"] <= start)
    chosen = np.unique(sane[np.linspace(0, len(sane) - 1, STATES).astype(int)]) if len(sane) else []
    found = [(float(largest_eigenvalue(loss, path.moving(int(i)), path.frozen)), int(path.steps[i])) for i in chosen]
    found = [pair for pair in found if np.isfinite(pair[0]) and pair[0] > 0]
    if not found:
        return ""
    sharpest, step = max(found)
    return (
        f"use a smaller lr: at step {step} the largest Hessian eigenvalue is {sharpest:.3g}, "
        f"so {rule.name} is stable there below lr = {2.0 * slack / sharpest:.3g}"
    )
