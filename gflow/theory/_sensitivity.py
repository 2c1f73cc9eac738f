"""Forward sensitivities of one block of the flow, and of the times at which it passes its milestones.

    dx/ds = f(x, theta),     dS_i/ds = (df/dx) S_i + df/dtheta_i,     S_i = dx/dtheta_i,

integrated as one system with error control on all of it. A milestone is a zero of `h(x, theta)`, so at its time
(implicit function theorem)

    ds*/dtheta_i = - (dh/dx . S_i + dh/dtheta_i) / (dh/dx . f).

theta = (L, alpha*, w*, log sigma). f is minus the gradient of the block's loss, and f, its directional derivatives and
those of h all come from automatic differentiation. The clock s and the coordinates x are fixed numbers of the point,
so `dT/dtheta = (dt/ds) ds*/dtheta`. Derived, docs/exponents.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gflow.flows import AbstractClock
from gflow.flows._charts import Coordinates
from gflow.flows._rodas import Rodas5P
from gflow.losses.induction.exact import PopulationLoss
from gflow.losses.induction.problem import plateau

FOURGRAM = ("T_I",)
INDUCTION = ("T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
MILESTONES = {"fourgram": FOURGRAM, "induction": INDUCTION}
FOURGRAM_LEAVES = ("p21", "v1")
MAX_STEPS = 100_000


class Point(eqx.Module):
    """One block at one point: everything is data but the type of the parameters and the block's name.

    `theta` [4]: L, alpha*, w*, log sigma. `directions` [4, 4]: the rows along which is differentiated.
    """

    loss: PopulationLoss
    theta: Float[Array, "4"]
    directions: Float[Array, "4 4"]
    clock: AbstractClock
    coordinates: Coordinates
    kind: type = eqx.field(static=True)
    block: str = eqx.field(static=True)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the parameters that the block moves."""
        return block_leaves(self.kind, self.block)

    def part(self, theta: Float[Array, "4"]) -> Any:
        """The block's loss at theta."""
        return getattr(self.loss.at(L=theta[0], alpha_star=theta[1], w_star=theta[2]), self.block)

    def params(self, y: Float[Array, " m"]) -> Any:
        """The block's parameters, the others None."""
        others = {field.name: None for field in dataclasses.fields(self.kind)}
        return self.kind(**others | {name: y[i] for i, name in enumerate(self.leaves)})

    def start(self, theta: Float[Array, "4"]) -> Float[Array, " m"]:
        """x at t = 0: every parameter is sigma."""
        return self.coordinates.forward(jnp.full(len(self.leaves), jnp.exp(theta[3])))

    def field(self, s: Float[Array, ""], x: Float[Array, " m"], theta: Float[Array, "4"]) -> Float[Array, " m"]:
        """`dx/ds = (dt/ds) Dx . (-grad loss)`."""
        part = self.part(theta)
        gradient = jax.grad(lambda y: part(self.params(y)))(self.coordinates.back(x))
        return self.clock.rate(s) * self.coordinates.push_forward(x, -gradient)

    def gaps(self, x: Float[Array, " m"], theta: Float[Array, "4"]) -> Float[Array, " M"]:
        """h of each milestone of the block, in the order of `MILESTONES`: the loss less the level (MATH section 5)."""
        part = self.part(theta)
        loss = part(self.params(self.coordinates.back(x)))
        start = part(self.params(self.coordinates.back(self.start(theta))))
        if self.block == "fourgram":
            return jnp.stack([loss - 0.01 * start])
        floor = plateau(part)
        levels = (floor + 0.01 * (start - floor), 0.99 * floor, 0.01 * floor, 0.99 * start, 0.01 * start)
        return loss - jnp.stack(levels)


def block_leaves(kind: type, block: str) -> tuple[str, ...]:
    """Names of the parameters that a block moves."""
    if block == "fourgram":
        return FOURGRAM_LEAVES
    return tuple(f.name for f in dataclasses.fields(kind) if f.name not in (*FOURGRAM_LEAVES, "p11"))


def make_point(loss: PopulationLoss, kind: type, block: str, theta: Any, directions: Any) -> Point:
    """The point with coordinates that suit the block: arcsinh(y/sigma) for what grows exponentially from sigma.

    v2 in units of A_i and a merged w in units of c = w*^2 start near 0 and move at a finite speed, so they stay linear.
    """
    theta = jnp.asarray(theta, dtype=float)
    sigma = jnp.exp(theta[3])
    units = {"v2": 1.0 / (1.0 + theta[1]), "w": theta[2] ** 2}
    names = block_leaves(kind, block)
    scale = jnp.stack([units.get(name, sigma) for name in names])
    coordinates = Coordinates(scale, jnp.asarray([name not in units for name in names]))
    clock = next(b.clock for b in loss.blocks() if b.name == block)
    return Point(loss, theta, jnp.asarray(directions, dtype=float), clock, coordinates, kind, block)


class Crossings(eqx.Module):
    """At each time asked for: `correction` [M] to add to it, `gradient` [M, 4] along the directions, `ok`."""

    correction: Float[Array, " M"]
    gradient: Float[Array, "M 4"]
    ok: Array


def _augmented(s: Any, y: Any, point: Point) -> Array:
    x, S = _split(y, point)
    velocity, along = jax.linearize(lambda x, theta: point.field(s, x, theta), x, point.theta)
    return _join(velocity, jax.vmap(along)(S, point.directions))


def _join(x: Array, S: Array) -> Array:
    return jnp.concatenate([x[None], S]).ravel()


def _split(y: Array, point: Point) -> tuple[Array, Array]:
    rows = y.reshape(-1, len(point.leaves))
    return rows[0], rows[1:]


@eqx.filter_jit
def crossings(
    point: Point, times: Float[Array, " M"], which: Int[Array, " M"], rtol: Float[Array, ""], stiff: bool
) -> Crossings:
    """Derivatives of the times of milestones number `which` (in `MILESTONES`), known to be near `times` (ascending).

    A repeated entry costs nothing, so unused ones may be filled up with the last. `stiff`: by Rodas5P, not Dopri8.
    """
    solver = Rodas5P() if stiff else diffrax.Dopri8(scan_kind="lax")
    controller = diffrax.PIDController(rtol=rtol, atol=rtol, pcoeff=0.2, icoeff=0.5)
    term = diffrax.ODETerm(_augmented)  # pyright: ignore[reportArgumentType]

    def leg(carry: Any, target: Any) -> Any:
        s0, y0, fine = carry
        time, k = target
        s1 = point.clock.solver_time(time, jnp.zeros_like(time))
        # from milestone to milestone: their states are ends of steps, not values of an interpolation
        found = diffrax.diffeqsolve(
            term,
            solver,
            s0,
            s1,
            None,
            y0,
            point,
            stepsize_controller=controller,
            adjoint=diffrax.ForwardMode(),
            max_steps=MAX_STEPS,
            throw=False,
        )
        assert found.ys is not None
        y1 = found.ys[0]
        fine = fine & (found.result == diffrax.RESULTS.successful)
        x, S = _split(y1, point)
        h, along = jax.linearize(point.gaps, x, point.theta)
        moved = jax.vmap(along)(S, point.directions)[:, k]
        speed = along(point.field(s1, x, point.theta), jnp.zeros_like(point.theta))[k]
        rate = point.clock.rate(s1)
        return (s1, y1, fine), (-rate * h[k] / speed, -rate * moved / speed)

    x0, along = jax.linearize(point.start, point.theta)
    begin = (jnp.zeros_like(rtol), _join(x0, jax.vmap(along)(point.directions)), jnp.asarray(True))
    (_, _, fine), (correction, gradient) = jax.lax.scan(leg, begin, (times, which))
    return Crossings(correction, gradient, fine)
