"""Dense output of a finished run: any time, to the solver's accuracy, from the steps that were kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gflow.flows._problem import FlatProblem
from gflow.flows._segment import Log


@dataclasses.dataclass
class Leg:
    """Consecutive accepted steps of one solver: ends in solver time [N], dense data with leading axis N (numpy)."""

    solver: diffrax.AbstractSolver
    s0: np.ndarray
    s1: np.ndarray
    dense: Any

    @classmethod
    def collect(cls, solver: diffrax.AbstractSolver, logs: list[Log]) -> Leg:
        """One leg from the logs of several segments."""
        trim = lambda log: jax.tree.map(lambda x: np.asarray(x)[: int(log.count)], (log.s0, log.s1, log.dense))  # noqa: E731
        parts = [trim(log) for log in logs]
        s0, s1, dense = jax.tree.map(lambda *xs: np.concatenate(xs), *parts)
        return cls(solver, s0, s1, dense)


@eqx.filter_jit
def _interpolate(
    solver: diffrax.AbstractSolver, s0: Array, s1: Array, dense: PyTree, s: Float[Array, " n"]
) -> Float[Array, "n m"]:
    def one(s0: Array, s1: Array, dense: PyTree, s: Array) -> Array:
        return solver.interpolation_cls(t0=s0, t1=s1, **dense).evaluate(s)

    return jax.vmap(one)(s0, s1, dense, s)


@eqx.filter_jit
def _decode(problem: FlatProblem, z: Float[Array, "n m"]) -> PyTree:
    return jax.vmap(problem.parts)(z)


def no_loss(params: PyTree) -> jax.Array:
    """Stands where the loss was."""
    raise TypeError("a dense path does not evaluate the loss")


class DenseBlock:
    """One block's path z(s): legs in order of time, and the way back to parameters."""

    def __init__(self, problem: FlatProblem, z0: np.ndarray, legs: list[Leg]) -> None:
        # the loss plays no part in decoding, and a user's fresh lambda would compile the decoder anew
        self.problem = dataclasses.replace(problem, loss=no_loss)
        self.z0 = z0
        self.legs = [leg for leg in legs if len(leg.s1)]

    def step_times(self) -> np.ndarray:
        """Flow times at the ends of the steps, the start included: [N+1]."""
        t0 = np.asarray(self.problem.t0)[None]
        if not self.legs:
            return t0
        s = np.concatenate([leg.s1 for leg in self.legs])
        return np.concatenate([t0, np.asarray(self.problem.time(jnp.asarray(s)))])

    def moving(self, t: np.ndarray) -> PyTree:
        """The block's moving leaves at times t [n]: numpy leaves [n, ...]. Times are clipped to those integrated."""
        return self._parts(t)[0]

    def state(self, t: np.ndarray) -> dict[str, PyTree]:
        """The law's state at times t [n]: name -> PyTree like the moving leaves."""
        return self._parts(t)[1]

    def _parts(self, t: np.ndarray) -> PyTree:
        n = len(t)
        # a power of two of points, so that few sizes are ever compiled
        padded = np.concatenate([t, np.full(max(8, 1 << (n - 1).bit_length()) - n, t[-1])]) if n else t
        s = np.asarray(self.problem.solver_time(jnp.asarray(padded, self.z0.dtype)))
        z = np.broadcast_to(self.z0, (len(s), self.z0.size)).copy()
        for leg in self.legs:
            here = np.flatnonzero(s > leg.s0[0])
            if not len(here):
                continue
            step = np.clip(np.searchsorted(leg.s1, s), 0, len(leg.s1) - 1)
            at = np.clip(s, leg.s0[0], leg.s1[-1])
            s0, s1, dense = jax.tree.map(lambda x: x[step], (leg.s0, leg.s1, leg.dense))  # noqa: B023
            z[here] = np.asarray(_interpolate(leg.solver, s0, s1, dense, jnp.asarray(at)))[here]
        decoded = _decode(self.problem, jnp.asarray(z))
        return jax.tree.map(lambda x: np.asarray(x)[:n], decoded)
