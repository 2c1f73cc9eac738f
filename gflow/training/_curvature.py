"""Which learning rate would have been stable: `2 / (largest Hessian eigenvalue)`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

DENSE = 64  # up to this many parameters the whole Hessian is cheap
WALK, CALLS, SECONDS = 20, 20, 5.0  # steps in a call, calls at most, seconds at most, of the walk downhill
STATES = 8  # of the path, at which the Hessian is looked at where there are more parameters
POWER_STEPS = 40  # of the power iteration there


@eqx.filter_jit
def walk(
    loss: Callable[[Any], Any], moving: PyTree, frozen: PyTree, modulus: Float[Array, ""]
) -> tuple[PyTree, Float[Array, ""], Float[Array, " W"], Float[Array, " W"]]:
    """W steps downhill, with learning rate 1 / (2 x the largest modulus of a Hessian eigenvalue so far, `modulus`).

    Returns where they lead, that modulus, and the largest eigenvalue and the loss before each step.
    """
    y0, rebuild = ravel_pytree(moving)

    def flat(y: Array) -> Array:
        return loss(eqx.combine(rebuild(y), frozen))

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        y, most = carry
        eigenvalues = jnp.linalg.eigvalsh(jax.hessian(flat)(y))
        most = jnp.maximum(most, jnp.max(jnp.abs(eigenvalues)))  # at an inflection the present ones say nothing
        return (y - 0.5 * jax.grad(flat)(y) / most, most), (eigenvalues[-1], flat(y))

    (y, modulus), (largest, losses) = jax.lax.scan(step, (y0, modulus), None, length=WALK)
    return rebuild(y), modulus, largest, losses


@eqx.filter_jit
def by_power(loss: Callable[[Any], Any], moving: PyTree, frozen: PyTree) -> Float[Array, ""]:
    """The Hessian eigenvalue of largest modulus, by power iteration (its modulus is approached from below)."""
    y0, rebuild = ravel_pytree(moving)

    def multiply(v: Array) -> Array:
        return jax.jvp(jax.grad(lambda y: loss(eqx.combine(rebuild(y), frozen))), (y0,), (v,))[1]

    def improve(_: Any, v: Array) -> Array:
        u = multiply(v)
        return u / jnp.linalg.norm(u)

    v = jax.random.normal(jax.random.key(0), y0.shape, y0.dtype)
    v = jax.lax.fori_loop(0, POWER_STEPS, improve, v / jnp.linalg.norm(v))
    return jnp.vdot(v, multiply(v))


def _sharpest_downhill(loss: Any, path: Any, start: float) -> float:
    """Largest eigenvalue on a careful way down from the start: also where the failed run never came."""
    moving, found, began = path.moving(0), [], time.perf_counter()
    modulus = jnp.zeros((), jax.tree.leaves(moving)[0].dtype)
    for _ in range(CALLS):
        moving, modulus, largest, losses = walk(loss, moving, path.frozen, modulus)
        fine = np.isfinite(largest) & (np.asarray(losses) <= start)
        found += list(np.asarray(largest)[fine])
        if not np.all(fine) or time.perf_counter() - began > SECONDS:
            break
    return max(found, default=0.0)


def _sharpest_seen(loss: Any, path: Any, start: float) -> float:
    """Largest eigenvalue at states of the run whose loss was not above its start."""
    sane = np.flatnonzero(path.losses["total"] <= start)
    chosen = np.unique(sane[np.linspace(0, len(sane) - 1, STATES).astype(int)]) if len(sane) else []
    found = [float(by_power(loss, path.moving(int(i)), path.frozen)) for i in chosen]
    return max((value for value in found if np.isfinite(value)), default=0.0)


def advice(loss: Callable[[Any], Any], path: Any, rule: Any, start: float) -> str:
    """A sentence on the learning rate that would be stable; empty where none is known (Adam; no positive curvature)."""
    slack = {"gd": 1.0, "sgd": 1.0}.get(rule.name)
    if rule.name == "momentum":
        slack = 1.0 + float(rule.numbers["momentum"])  # heavy ball: lr < 2 (1 + momentum) / eigenvalue
    if slack is None:
        return ""
    size = sum(np.size(x) for x in jax.tree.leaves(path.moving(0)))
    sharpest = (_sharpest_downhill if size <= DENSE else _sharpest_seen)(loss, path, start)
    if sharpest <= 0:
        return ""
    where = "on a careful way down from the start" if size <= DENSE else "where this run was sane"
    return (
        f"use a smaller lr: {where} the largest Hessian eigenvalue is {sharpest:.3g}, "
        f"so {rule.name} is stable below lr = {2.0 * slack / sharpest:.3g}"
    )
