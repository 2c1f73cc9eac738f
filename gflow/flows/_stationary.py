"""Where a flow has come to rest: minimum or saddle? The Hessian tells."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse.linalg import lobpcg_standard
from jaxtyping import Array, Float

from gflow.flows._law import AbstractLaw
from gflow.flows._problem import FlatProblem, Layout, field
from gflow.flows._status import StationaryPoint

DENSE_LIMIT = 256  # beyond this many parameters only the extreme eigenvalues are computed
EIGENVALUE_NOISE = 1e-8  # |eigenvalue| below this fraction of the largest is flat


class Curvature(eqx.Module):
    """Hessian data at one point, in the metric of the rates (x = rates^{-1/2} y)."""

    eigenvalues: Float[Array, " k"]
    slopes: Float[Array, " k"]  # gradient along each eigenvector
    doubled: Float[Array, ""]  # curvature along the lowest one after the displacement has doubled
    doublings: Float[Array, ""]  # how many more doublings until that curvature has changed by half
    energy: Float[Array, ""]  # of the law's state


@eqx.filter_jit
def curvature(problem: FlatProblem, t: Float[Array, ""], z: Float[Array, " m"]) -> Curvature:
    """Eigenvalues of `R^{1/2} Hess R^{1/2}` at z, gradient along eigenvectors, and how far the lowest one reaches."""
    moving, state = problem.parts(z)
    assert problem.law is not None
    energy = problem.law.energy(t - problem.t0, state, problem.rates).astype(z.dtype)
    layout = Layout.of(moving)
    y = layout.flatten(moving)
    root = jnp.sqrt(layout.flatten(jax.tree.map(lambda r, p: r * jnp.ones_like(p), problem.rates, moving)))

    def gradient(y: Float[Array, " m"]) -> Float[Array, " m"]:
        return root * layout.flatten(problem.gradient(layout.unflatten(y)))

    def times_hessian(y: Array, v: Array) -> Array:
        return jax.jvp(gradient, (y,), (root * v,))[1]

    if y.size <= DENSE_LIMIT:
        hessian = jax.vmap(lambda v: times_hessian(y, v))(jnp.eye(y.size, dtype=y.dtype))
        values, vectors = jnp.linalg.eigh((hessian + hessian.T) / 2)
    else:
        start = jax.random.normal(jax.random.key(0), (y.size, 4), y.dtype)
        product = jax.vmap(lambda v: times_hessian(y, v), in_axes=1, out_axes=1)
        high, _, _ = lobpcg_standard(product, start)
        # lobpcg wants a positive operator: shift by the largest eigenvalue to get at the lowest ones
        shift = jnp.max(high)
        low, low_vectors, _ = lobpcg_standard(lambda v: shift * v - product(v), start)
        values = jnp.concatenate([shift - low, jnp.flip(high)])
        vectors = jnp.concatenate([low_vectors, jnp.zeros_like(low_vectors)], axis=1)
    g = gradient(y)
    slopes = g @ vectors
    lowest, unit = values[0], vectors[:, 0]
    # distance from the saddle along its unstable direction, and one more such distance downhill
    distance = jnp.abs(slopes[0] / jnp.where(lowest == 0, 1.0, lowest))
    downhill = -jnp.sign(slopes[0]) * unit

    def bend(extra: Array) -> Array:
        place = y + root * downhill * extra
        return downhill @ times_hessian(place, downhill)

    def straight(state: tuple[Array, Array]) -> Array:
        k, value = state
        return (jnp.abs(value - lowest) < 0.5 * jnp.abs(lowest)) & (k < 200.0)

    def double(state: tuple[Array, Array]) -> tuple[Array, Array]:
        k = state[0] + 1.0
        return k, bend(distance * (jnp.exp2(k) - 1.0))

    zero = jnp.zeros((), y.dtype)
    doublings, _ = jax.lax.while_loop(straight, double, (zero, lowest))
    return Curvature(values, slopes, bend(distance), doublings, energy)


def classify(problem: FlatProblem, z: Array, t: float, fallen: float, loss: float, quiet: float) -> StationaryPoint:
    """Minimum, saddle or neither, at a point where the loss has stopped changing.

    `fallen` is how much the loss has fallen so far, `quiet` the fraction of it that is taken for nothing.
    """
    data = curvature(problem, jnp.asarray(t, z.dtype), z)
    assert problem.law is not None
    values, slopes = np.asarray(data.eigenvalues), np.asarray(data.slopes)
    if not np.all(np.isfinite(values)):
        return StationaryPoint("unresolved", t, values, note="the Hessian is not finite")
    scale = float(np.max(np.abs(values), initial=0.0))
    flat = np.abs(values) <= EIGENVALUE_NOISE * scale
    if values[0] < 0 and not flat[0]:
        return _saddle(data, t, values, slopes, problem.law)
    # what is left to fall: a Newton step along stiff directions, a doubling of time along flat ones (at unit speed
    # where the step is normalised), and what the flow's own state may still do
    speed = np.abs(slopes[flat]) if problem.law.growth(1.0) is not None else 1.0
    left = np.sum(slopes[~flat] ** 2 / (2 * values[~flat])) + np.sum(np.abs(slopes[flat]) * speed) * abs(t)
    left += float(data.energy)
    eps = float(np.finfo(values.dtype).eps)
    if left <= 100 * quiet * max(fallen, 0.0) + 100 * eps * abs(loss):
        count = int(np.sum(flat))
        note = f"{count} flat direction{'s' * (count > 1)}" if count else ""
        return StationaryPoint("minimum", t, values, note=note)
    return StationaryPoint("unresolved", t, values, note="the loss is not changing, yet it has somewhere to fall")


def _saddle(data: Curvature, t: float, values: np.ndarray, slopes: np.ndarray, law: AbstractLaw) -> StationaryPoint:
    rate = -float(values[0])
    if slopes[0] == 0.0 and data.energy == 0:
        note = "the gradient along the unstable direction is exactly zero: the flow never leaves"
        return StationaryPoint("saddle", t, values, note=note, stuck=True)
    growth = law.growth(rate)
    if growth is None:
        note = "the flow's step is normalised, so it leaves without a constant rate and no escape time is predicted"
        return StationaryPoint("saddle", t, values, note=note)
    if abs(float(data.doubled) + rate) > 0.1 * rate:
        note = "the unstable rate is not constant over a doubling of the displacement, so no escape time is predicted"
        return StationaryPoint("degenerate saddle", t, values, note=note)
    escape = t + float(data.doublings) * float(np.log(2.0)) / growth
    return StationaryPoint("saddle", t, values, escape_time=escape, note=f"unstable rate {growth:.6g}")


def spectral_radius(problem: FlatProblem, s: Float[Array, ""], z: Float[Array, " m"]) -> Float[Array, ""]:
    """Largest |eigenvalue| of the vector field's Jacobian in (s, z), by power iteration."""

    def push(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        v, _size = carry
        w = jax.jvp(lambda x: field(s, x, problem), (z,), (v,))[1]
        size = jnp.linalg.norm(w)
        return w / jnp.where(size > 0, size, 1.0), size

    start = jax.random.normal(jax.random.key(1), z.shape, z.dtype)
    start = start / jnp.linalg.norm(start)
    return jax.lax.fori_loop(0, 24, push, (start, jnp.zeros((), z.dtype)))[1]
