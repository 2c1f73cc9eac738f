"""The landscape under a flow: eigenvalues of the Hessian at a point and along a trajectory, and the plateau's saddle.

    H = Hess loss(theta),     d theta/dt = -g,     dg/dt = -H g,     d log|g|/dt = -(g.H g)/(g.g)

Minus an eigenvalue of H is the rate at which a displacement along its eigenvector grows. Everything is in the metric in
which the flow is a gradient flow with rates 1 (docs/landscape.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from gflow.errors import InputError
from gflow.flows import GradientFlow, LogSpaced
from gflow.losses.induction.exact import induction_leaves
from gflow.theory._hessian import dense_along, dense_at, lanczos, table_noise

DENSE_LIMIT = 500  # with more parameters only the extreme eigenvalues are computed, without the matrix
POINTS = 200  # times along a trajectory, if none are given
ROUNDINGS = 64  # eigenvalues below this many roundings of the largest are not told from zero


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the Hessian at one point, ascending.

    - `eigenvalues` [k]; `eigenvectors` [m, k], column i belongs to eigenvalue i and row j to the entry `names[j]`.
    - `gradient` [m]; `loss`; `noise`: an eigenvalue closer to 0 than that has no sign.
    - `method`: "dense" (all m of them, k = m) or "lanczos" (the k/2 lowest and the k/2 highest).
    """

    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    names: tuple[str, ...]
    gradient: np.ndarray
    loss: float
    noise: float
    method: str
    shape: Any = dataclasses.field(repr=False)  # flat vector -> PyTree

    @property
    def index(self) -> int:
        """Number of negative eigenvalues, those within the noise not counted: 0 at a minimum."""
        return int(np.sum(self.eigenvalues < -self.noise))

    @property
    def flat(self) -> int:
        """Number of eigenvalues within the noise."""
        return int(np.sum(np.abs(self.eigenvalues) <= self.noise))

    @property
    def sharpness(self) -> float:
        """The largest eigenvalue."""
        return float(self.eigenvalues[-1])

    @property
    def gradient_norm(self) -> float:
        """|grad loss|."""
        return float(np.linalg.norm(self.gradient))

    def vector(self, i: int) -> PyTree:
        """Eigenvector i, of unit length, as parameters (None at the leaves that do not move)."""
        return self.shape(jnp.asarray(self.eigenvectors[:, i]))

    def __repr__(self) -> str:
        values = ", ".join(f"{value:.6g}" for value in self.eigenvalues[:6])
        more = ", ..." if len(self.eigenvalues) > 6 else ""
        counts = f"{self.index} negative, {self.flat} within the noise {self.noise:.1e}"
        return f"Spectrum({self.method}, |grad| {self.gradient_norm:.3g}, {values}{more}: {counts})"


@dataclasses.dataclass(frozen=True)
class SpectrumPath:
    """Eigenvalues of the Hessian along a trajectory, at `times` [n].

    `eigenvalues` [n, k] ascending; `noise` [n]; `index` [n]; `sharpness` [n]; `gradient_norm` [n]; `loss` [n];
    `rayleigh` [n]: `g.H g/g.g`, minus the rate at which |g| grows just then; `method`: as in `Spectrum`.
    """

    times: np.ndarray
    eigenvalues: np.ndarray
    gradient_norm: np.ndarray
    rayleigh: np.ndarray
    loss: np.ndarray
    noise: np.ndarray
    method: str

    @property
    def index(self) -> np.ndarray:
        """Number of eigenvalues below minus the noise at each time."""
        return np.sum(self.eigenvalues < -self.noise[:, None], axis=1)

    @property
    def sharpness(self) -> np.ndarray:
        """The largest eigenvalue at each time."""
        return self.eigenvalues[:, -1]

    def __repr__(self) -> str:
        ends = f"t = {self.times[0]:g} .. {self.times[-1]:.6g}"
        index = f"index {self.index[0]} .. {self.index[-1]}, at most {self.index.max()}"
        return f"SpectrumPath({self.method}, {len(self.times)} times, {ends}; {index})"


def spectrum(loss: Any, params: PyTree, *, trainable: Any = None) -> Spectrum:
    """Eigenvalues and eigenvectors of `Hess loss` at `params`.

    - `loss`: a pure JAX function of `params` (any PyTree of numbers and arrays; whole numbers count as reals).
    - `trainable`: the leaves that move, as for `GradientFlow`: `lambda p: (p.v2, p.wK, p.wQ)`; by default all.

    Up to 500 entries the whole matrix is built and diagonalised; above, Lanczos with products H v finds the 3 lowest
    and 3 highest eigenvalues. `noise` is the rounding of the Hessian (measured, by moving `params` by a rounding), and
    for a loss with overlap tables the derivative noise of these (docs/landscape.md). Raises `InputError` where the
    Hessian is not finite.
    """
    params = as_real(params)
    moving, frozen = eqx.partition(params, GradientFlow(loss, trainable=trainable).mask(params))
    y, shape = ravel_pytree(moving)
    names = entry_names(moving)
    if y.size > DENSE_LIMIT:
        values, vectors, gradient, level, rounding, _ = lanczos(loss, moving, frozen)
        method = "lanczos"
    else:
        point = jax.tree.map(np.asarray, dense_at(loss, moving, frozen))
        values, vectors, gradient, level = point.values, point.vectors, point.gradient, float(point.loss)
        rounding, method = float(point.rounding), "dense"
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(gradient))):
        raise InputError("spectrum: the gradient or the Hessian is not finite there; look where the loss is smooth")
    eps = float(jnp.finfo(y.dtype).eps)
    noise = rounding + ROUNDINGS * eps * float(np.max(np.abs(values)))
    noise += float(table_noise(loss, jax.tree.map(lambda x: x[None], params))[0])
    return Spectrum(values, vectors, names, gradient, level, noise, method, shape)


def spectrum_along(traj: Any, loss: Any = None, times: Any = None, *, trainable: Any = None) -> SpectrumPath:
    """Eigenvalues of `Hess loss` along a trajectory, in one compiled call.

    - `traj`: a `Trajectory`, solved or loaded (then give `loss`, on tables that hold the whole path or can grow).
    - `times` [n]: by default 200, log-spaced over the run. `trainable`: as in `spectrum`.

    Above 500 entries Lanczos is run at each time, one after another. Raises `InputError` if there is no loss.
    """
    loss = loss if loss is not None else getattr(getattr(traj, "flow", None), "loss", None)
    if loss is None:
        raise InputError("spectrum_along: a loaded trajectory does not know its loss; give loss=")
    times = LogSpaced(POINTS).times(traj) if times is None else np.atleast_1d(np.asarray(times, float))
    path = jax.tree.map(jnp.asarray, traj.at(times))
    loss = covering(loss, path, len(times))
    first = jax.tree.map(lambda x: x[0], path)
    mask = GradientFlow(loss, trainable=trainable).mask(first)
    moving, frozen = eqx.filter(path, mask), eqx.filter(first, mask, inverse=True)
    size = sum(leaf.size for leaf in jax.tree.leaves(moving)) // max(len(times), 1)
    if size > DENSE_LIMIT:
        rows = [lanczos(loss, jax.tree.map(lambda x: x[i], moving), frozen) for i in range(len(times))]  # noqa: B023
        values = np.stack([row[0] for row in rows])
        norms = np.array([np.linalg.norm(row[2]) for row in rows])
        levels, rounding = np.array([row[3] for row in rows]), np.array([row[4] for row in rows])
        rayleigh = np.array([row[5] for row in rows])
        method = "lanczos"
    else:
        point = jax.tree.map(np.asarray, dense_along(loss, moving, frozen))
        values, levels, rounding, rayleigh = point.values, point.loss, point.rounding, point.rayleigh
        norms, method = np.linalg.norm(point.gradient, axis=1), "dense"
    eps = float(np.finfo(values.dtype).eps)
    noise = rounding + ROUNDINGS * eps * np.max(np.abs(values), axis=1) + table_noise(loss, path)
    return SpectrumPath(times, values, norms, rayleigh, levels, noise, method)


@dataclasses.dataclass(frozen=True)
class PlateauSaddle:
    """The point `(v2, logit weights) = (v_p, 0)` at which Loss_IH waits, and whether it is a saddle.

    `params`: of the type of the parametrisation; `stationary`: the gradient in the induction leaves vanishes;
    `note`: one sentence.
    """

    params: Any
    stationary: bool
    note: str


def plateau_saddle(problem: Any, loss: Any = None, params: Any = None) -> PlateauSaddle:
    """`v2 = v_p = A_i K1(0)/K2(0)`, logit weights 0: where the induction block waits (derived, docs/theory.md).

    - untied: a saddle; Hessian in (v2, wK, wQ) with eigenvalues `K2(0), rho, -rho`, unstable along (0, 1, 1)/sqrt 2.
    - tied: a saddle; in (v2, wKQ) `K2(0), -2 rho`. Both where rho > 0.
    - merged: no stationary point: `dw/dt = F = rho` there, and the flow passes it.

    `loss`: by default the exact one at p11 = inf. `params`: the other leaves are theirs (default: the initial ones at
    sigma = 0.01). In all leaves no such point is stationary at finite p21: the 4-gram part has its infimum at infinity.
    """
    loss = problem.population_loss() if loss is None else loss
    params = problem.initial_params(1e-2) if params is None else params
    zero = jnp.zeros(())
    leaves = induction_leaves(params)
    moved = (jnp.asarray(problem.v_plateau()), *[zero] * (len(leaves) - 1))
    at = eqx.tree_at(induction_leaves, jax.tree.map(lambda x: jnp.asarray(x, float), params), moved)
    stationary = problem.parametrization != "merged"
    weights = "wKQ = 0" if problem.parametrization == "tied" else "wK = wQ = 0"
    note = (
        f"a saddle of Loss_IH: v2 = v_p, {weights}, one unstable direction"
        if stationary
        else "no saddle: with w itself as the parameter dw/dt = rho there, and the flow goes through"
    )
    return PlateauSaddle(at, stationary, note)


def distance_to(saddle: PlateauSaddle, traj: Any, times: Any = None) -> np.ndarray:
    """`|(v2, logit weights) - (v_p, 0)|` along a trajectory, at `times` [n] (by default those kept): [n]."""
    path = traj.params if times is None else traj.at(np.atleast_1d(np.asarray(times, float)))
    goal = [float(x) for x in induction_leaves(saddle.params)]
    return np.sqrt(sum((np.asarray(x) - y) ** 2 for x, y in zip(induction_leaves(path), goal, strict=True)))


def as_real(params: PyTree) -> PyTree:
    """The same with arrays of real numbers for leaves. Raises `InputError` for complex ones."""

    def one(x: Any) -> Array:
        array = jnp.asarray(x)
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise InputError("parameters must be real; split a complex one into its real and imaginary part")
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)

    return jax.tree.map(one, params)


def entry_names(params: PyTree) -> tuple[str, ...]:
    """One name per entry: "wK", "W[0,1]", in the order of the flat vector."""
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        places = np.ndindex(*leaf.shape)
        names += [f"{name}[{','.join(map(str, place))}]" if place else name for place in places]
    return tuple(names)


def covering(loss: Any, path: PyTree, n: int) -> Any:
    """The loss on tables that hold all n points of a path (losses without a domain: unchanged)."""
    if not (hasattr(loss, "domain") and hasattr(loss, "grow")):
        return loss
    for _ in range(16):
        inside = np.asarray(eqx.filter_vmap(loss.domain)(path)) & np.ones(n, bool)
        if np.all(inside):
            break
        outside = int(np.flatnonzero(~inside)[-1])
        loss = loss.grow(jax.tree.map(lambda x: x[outside], path))  # noqa: B023
    return loss
