"""Critical points that a flow passes: where its speed |grad loss| has a deep minimum, refined to grad loss = 0."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from gflow.errors import InputError
from gflow.theory.landscape import DENSE_LIMIT, Spectrum, spectrum
from gflow.theory.own._plateaus import Path

DEPTH = 3.0  # how much faster the flow is before and after
NEAR = 0.5  # of the way from there to the end of the run: a critical point further off is not the one that slowed it
ITERATIONS = 512
VANISHED = 1e-3  # of the gradient where the search began
SEARCHES = 8  # of the slowest places
SETTLED = 1e-7  # of the drop: what comes after is the approach to the end
FLAT = 1e-8  # an eigenvalue below this share of the largest around is flat


@dataclasses.dataclass(frozen=True)
class Critical:
    """A minimum of |grad loss| along the flow, at `time`, and the critical point found from there (None: `reason`).

    `distance`: from the trajectory to the point, where they are closest; `point`: its spectrum, with the gradient's
    norm and the loss; `params`: where it is; `scale`: of the eigenvalues there and where the search began.
    """

    time: float
    loss: float
    gradient_norm: float
    distance: float | None
    point: Spectrum | None
    params: PyTree
    reason: str = ""
    scale: float = 0.0

    @property
    def kind(self) -> str:
        """minimum, saddle, or degenerate; "not found"."""
        return kind_of(self.point, self.scale) if self.point is not None else "not found"


def counts(point: Spectrum, scale: float = 0.0) -> tuple[int, int]:
    """(index, number of flat directions) where eigenvalues of size `scale` are about."""
    noise = max(point.noise, FLAT * scale)
    return int(np.sum(point.eigenvalues < -noise)), int(np.sum(np.abs(point.eigenvalues) <= noise))


def kind_of(point: Spectrum, scale: float = 0.0) -> str:
    """What the signs of the eigenvalues say; "degenerate": flat directions decide, which second derivatives cannot."""
    index, flat = counts(point, scale)
    return "saddle" if index else "degenerate" if flat else "minimum"


def slow_places(path: Path) -> list[int]:
    """Indices of the path's times at which |grad loss| is least between phases DEPTH times as fast.

    The start counts as well, if a faster phase follows. The approach to the end does not.
    """
    speed = np.sqrt(path.squared)
    if path.drop > 0:
        settled = path.levels[-1] + SETTLED * path.drop
        speed = speed[: int(np.searchsorted(-np.minimum.accumulate(path.levels), -settled))]
    places: list[int] = []
    lowest, high, falling = 0, 0.0, True
    for i, s in enumerate(speed):
        if falling:
            if s <= speed[lowest]:
                lowest = i
            elif s >= DEPTH * speed[lowest] and s > 0:
                places.append(lowest)
                falling, high = False, s
        else:
            high = max(high, s)
            if s * DEPTH <= high:
                falling, lowest = True, i
    return places


def critical_points(path: Path) -> list[Critical]:
    """The critical points that the flow passes, in order; slow places that lead to one point are one.

    Of more than `SEARCHES` slow places the slowest are searched.
    """
    places = slow_places(path)
    if len(places) > SEARCHES:
        places = sorted(sorted(places, key=lambda i: path.squared[i])[:SEARCHES])
    found: list[Critical] = []
    for i in places:
        one = _search(path, i)
        if one.point is not None and any(
            other.point is not None and _apart(one.params, other.params) <= 1e-6 * (1 + _size(one.params))
            for other in found
        ):
            continue
        found.append(one)
    return found


def _search(path: Path, i: int) -> Critical:
    time, level, norm = float(path.times[i]), float(path.levels[i]), float(np.sqrt(path.squared[i]))
    here = jax.tree.map(jnp.asarray, path.traj.at(time))

    def missed(reason: str) -> Critical:
        return Critical(time, level, norm, None, None, None, reason)

    if sum(leaf.size for leaf in jax.tree.leaves(here)) > DENSE_LIMIT:
        return missed(f"more than {DENSE_LIMIT} parameters, for which no search is made")
    at = refine(path.loss, here)
    try:
        point, around = spectrum(path.loss, at), spectrum(path.loss, here)
    except InputError:
        return missed("the search left the region where the loss is smooth")
    if not point.gradient_norm <= max(VANISHED * norm, point.noise):
        return missed(f"|grad loss| stays at {point.gradient_norm:.2g} or above, so no critical point is near")
    end = jax.tree.map(jnp.asarray, path.traj.at(float(path.times[-1])))
    if _apart(here, at) > NEAR * _apart(here, end):
        return missed("the nearest critical point is further off than half the way to the end of the run")
    scale = max(float(np.max(np.abs(one.eigenvalues))) for one in (point, around))
    return Critical(time, level, norm, _closest(path, at), point, at, scale=scale)


def refine(loss: Any, params: PyTree) -> PyTree:
    """`grad loss = 0` near `params`: Levenberg-Marquardt on |grad loss|^2, of what it reached the smallest gradient."""
    return _refine(loss, params)


@eqx.filter_jit
def _refine(loss: Any, params: PyTree) -> PyTree:
    own, back = ravel_pytree(params)
    # the search in the widest precision there is, the loss in its own
    y = own.astype(float)

    def gradient(x: Float[Array, " m"], _: Any) -> Float[Array, " m"]:
        return jax.grad(lambda q: jnp.asarray(loss(back(q))))(x.astype(own.dtype)).astype(float)

    size = jnp.linalg.norm(gradient(y, None))
    unit = jnp.where(size > 0, size, 1.0)
    solver = optx.LevenbergMarquardt(rtol=1e-12, atol=1e-14)
    found = optx.least_squares(lambda x, a: gradient(x, a) / unit, solver, y, max_steps=ITERATIONS, throw=False).value
    better = jnp.linalg.norm(gradient(found, None)) < size
    return back(jnp.where(better, found, y).astype(own.dtype))


def _size(params: PyTree) -> float:
    return float(jnp.linalg.norm(ravel_pytree(params)[0]))


def _apart(one: PyTree, other: PyTree) -> float:
    return float(jnp.linalg.norm(ravel_pytree(one)[0] - ravel_pytree(other)[0]))


def _closest(path: Path, at: PyTree) -> float:
    """How close the trajectory comes to a point."""
    along = path.traj.at(path.times)
    squared = [
        np.sum((np.asarray(x).reshape(len(path.times), -1) - np.asarray(y).reshape(1, -1)) ** 2, axis=1)
        for x, y in zip(jax.tree.leaves(along), jax.tree.leaves(at), strict=True)
    ]
    return float(np.sqrt(np.min(np.sum(squared, axis=0))))
