"""A loss of anybody's own under the gradient flow, from scaled initial values: what it passes, where it waits.

    d theta/dt = -grad loss(theta),     theta(0) = s theta_0,     s = 1, 10^-1/2, 10^-1, ...

No theory of the loss is needed: each statement is checked on the solution itself (docs/landscape.md).
"""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from gflow.errors import GflowError, InputError
from gflow.flows import GradientFlow, Status, Trajectory
from gflow.flows._interrupt import Interrupt
from gflow.flows._request import Request
from gflow.theory.landscape import DENSE_LIMIT, Spectrum, as_real, spectrum
from gflow.theory.own._balance import Balance, rate, rise
from gflow.theory.own._critical import Critical, critical_points, kind_of, refine
from gflow.theory.own._plateaus import Path, Plateau, plateaus, sample

SCALES = {  # effort -> the scales of the initial values
    "quick": tuple(10.0 ** (-k / 2) for k in range(7)),
    "full": tuple(10.0 ** (-k / 4) for k in range(17)),
}
MAX_STEPS = 20_000
RTOL = {4: 1e-5, 8: 3e-9}  # by the bytes of a number
LOOSER = 32.0  # the tolerance of the second solve, whose difference is the error of a plateau's length
AT_REST = 1e-3  # of 1 + |theta|: how far from the end of the run its critical point may be


@dataclasses.dataclass(frozen=True)
class Waited:
    """A plateau and the error of its length (None: the looser solve has no such plateau)."""

    plateau: Plateau
    error: float | None


@dataclasses.dataclass(frozen=True)
class ScaleRun:
    """The flow from `scale * theta_0`. `failure`: why nothing could be integrated; the rest is then empty."""

    scale: float
    status: Status | None = None
    message: str = ""
    t_end: float = 0.0
    initial_loss: float = float("nan")
    final_loss: float = float("nan")
    rise: Balance | None = None
    rate: Balance | None = None
    end: Spectrum | None = None  # at the critical point nearest to the end of the run
    end_distance: float = float("nan")
    end_size: float = float("nan")  # |theta| at the end
    end_gradient: float = float("nan")
    fastest: float = float("nan")  # largest |grad loss| of the run
    critical: tuple[Critical, ...] = ()
    plateaus: tuple[Waited, ...] = ()
    failure: str = ""

    @property
    def settled(self) -> bool:
        """The run has an end: rest, or the `t1` asked for."""
        return self.status in (Status.converged, Status.reached_t1)

    @property
    def end_kind(self) -> str:
        """Of the end of the run: minimum, saddle, degenerate; "moving" when it is not at rest; "far" when grad loss
        vanishes only further away, perhaps at infinity; "unknown" without a Hessian.
        """
        if not self.settled and self.end_gradient != 0.0:
            return "moving"
        if self.end is None:
            return "unknown"
        if not self.end.gradient_norm <= max(1e-6 * self.fastest, self.end.noise):
            return "moving"
        if not self.end_distance <= AT_REST * (1.0 + self.end_size):
            return "far" if self.status is Status.converged else "moving"
        return kind_of(self.end)

    @property
    def why(self) -> str:
        """How the run ended, or why there is none."""
        return self.failure or self.message


@dataclasses.dataclass(frozen=True)
class Track:
    """One plateau through the scales: `scales` [n] (descending), `lengths` [n], `errors` [n], `depth` of the last."""

    scales: np.ndarray
    lengths: np.ndarray
    errors: np.ndarray
    depth: float

    @property
    def slopes(self) -> np.ndarray:
        """`dT/dlog(1/s)` between neighbouring scales: [n-1]; constant if T ~ log(1/s)."""
        return np.diff(self.lengths) / -np.diff(np.log(self.scales))

    @property
    def exponents(self) -> np.ndarray:
        """`dlog T/dlog(1/s)` between neighbouring scales: [n-1]; constant if T is a power of 1/s."""
        return np.diff(np.log(self.lengths)) / -np.diff(np.log(self.scales))


@dataclasses.dataclass(frozen=True)
class Examination:
    """What was found: a run per scale, and each plateau through the scales. `status`: done, or interrupted."""

    runs: tuple[ScaleRun, ...]
    tracks: tuple[Track, ...]
    status: str
    scalable: bool  # False: theta_0 = 0, which no scale changes

    def __repr__(self) -> str:
        lines = [f"Examination: {len(self.runs)} scales, {self.status}"]
        for run in self.runs:
            waits = ", ".join(f"{w.plateau.start:.4g} .. {w.plateau.end:.6g}" for w in run.plateaus) or "none"
            met = ", ".join(c.kind for c in run.critical) or "none"
            lines.append(
                f"  scale {run.scale:.3g}: {run.failure or (run.status and run.status.value)}, "
                f"end {run.end_kind}, plateaus {waits}, critical points {met}"
            )
        return "\n".join(lines)


def examine(
    loss: Callable[[Any], Any],
    params: PyTree,
    *,
    scales: Sequence[float] | None = None,
    t1: float | None = None,
    rtol: float | None = None,
    max_steps: int = MAX_STEPS,
    progress: Callable[[str], None] | None = None,
) -> Examination:
    """Run the gradient flow of `loss` from `scale * params` for every scale, and look at what it does.

    - `params`: any PyTree of real numbers and arrays (whole numbers count as reals); `scales`: positive, by default
      1, 10^-1/2, ..., 1e-3. `t1`: end there rather than at rest. `max_steps`: steps tried per run.
    - `progress`: called with a line now and then.

    A run that fails is kept with its reason. Ctrl-C keeps the scales that are done (`status` "interrupted"). Raises
    `InputError` for scales or parameters that cannot be used.
    """
    scales = _checked_scales(SCALES["quick"] if scales is None else scales)
    params = as_real(params)
    largest = max((float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(params) if leaf.size), default=0.0)
    if not np.isfinite(largest):
        raise InputError("the initial values must be finite numbers")
    if t1 is not None and not (np.isfinite(t1) and t1 > 0):
        raise InputError(f"t1={t1:g} must be a positive finite number; the flow starts at t = 0")
    if rtol is None:
        rtol = RTOL[min(leaf.dtype.itemsize for leaf in jax.tree.leaves(params))]
    tell = progress or (lambda _: None)
    runs: list[ScaleRun] = []
    status = "done"
    # one for all solves: a Ctrl-C that comes between two steps of a solve that is just over must not be lost
    with Interrupt() as interrupt:
        try:
            for scale in scales if largest > 0 else scales[:1]:
                tell(f"scale {scale:.3g}")
                start = jax.tree.map(lambda x, s=scale: x * jnp.asarray(s, x.dtype), params)
                run = _run(loss, start, scale, Policy(t1, rtol, max_steps, interrupt), tell)
                if run.status is not Status.interrupted:
                    runs.append(run)
                if interrupt.asked:
                    status = "interrupted"
                    break
        except KeyboardInterrupt:
            status = "interrupted"
    return Examination(tuple(runs), tuple(_tracks(runs)), status, largest > 0)


def _checked_scales(scales: Sequence[float]) -> list[float]:
    numbers = [float(s) for s in scales]
    bad = [s for s in numbers if not (np.isfinite(s) and s > 0)]
    if bad or not numbers:
        raise InputError(f"scales: {bad[0] if bad else 'none given'}; a scale is a positive finite number, such as 0.1")
    return sorted(set(numbers), reverse=True)


@dataclasses.dataclass(frozen=True)
class Policy:
    """How each scale is solved."""

    t1: float | None
    rtol: float
    max_steps: int
    interrupt: Interrupt

    def solve(self, loss: Any, start: PyTree, progress: Any, looser: float = 1.0) -> Trajectory:
        """The flow from `start`, ended by this policy's interrupt."""
        rtol = looser * self.rtol
        request = Request(
            GradientFlow(loss), {}, 0.0, self.t1, None, "auto", rtol, None, self.max_steps, None, 0.0, False
        )
        request.check()
        return request.run(start, self.interrupt, progress)


def _run(loss: Any, start: PyTree, scale: float, policy: Policy, tell: Callable[[str], None]) -> ScaleRun:
    def told(news: dict[str, Any]) -> None:
        tell(f"scale {scale:.3g}, t = {news['t']:.4g}, loss {news['loss']:.4g}, {news['steps']} steps")

    began = clock.perf_counter()
    try:
        traj = policy.solve(loss, start, told)
        if traj.status is Status.interrupted:
            return ScaleRun(scale, traj.status)
        path = sample(traj, loss)
    except GflowError as error:
        return ScaleRun(scale, failure=str(error))
    if not len(path.times):
        return ScaleRun(scale, traj.status, traj.message, failure="the loss or its gradient is not finite at the start")
    tell(f"scale {scale:.3g}, solved in {clock.perf_counter() - began:.2g} s, looking at it")
    # what diverges does so on the way to the largest number there is
    with np.errstate(over="ignore", invalid="ignore"):
        balances = rise(path, policy.rtol), rate(path, policy.rtol)
    run = ScaleRun(
        scale, traj.status, traj.message, traj.t1_reached, float(path.levels[0]), float(path.levels[-1]),
        *balances,
    )  # fmt: skip
    run = _add_end(run, path)
    if not run.settled:
        return dataclasses.replace(run, critical=tuple(critical_points(path)))
    waits = plateaus(path)
    looser: list[Plateau] = []
    if waits and not policy.interrupt.asked:
        again = policy.solve(loss, start, told, LOOSER)
        looser = plateaus(sample(again, loss)) if again.status is not Status.interrupted else []
    return dataclasses.replace(
        run, critical=tuple(critical_points(path)), plateaus=tuple(Waited(p, _error(p, looser)) for p in waits)
    )


def _error(plateau: Plateau, looser: list[Plateau]) -> float | None:
    near = [other for other in looser if abs(other.depth - plateau.depth) < 0.02]
    return min((abs(other.length - plateau.length) for other in near), default=None)


def _add_end(run: ScaleRun, path: Path) -> ScaleRun:
    """The critical point nearest to the end of the run."""
    last = jax.tree.map(jnp.asarray, path.traj.at(float(path.times[-1])))
    gradient = float(np.sqrt(path.squared[-1]))
    fastest, size = float(np.sqrt(np.max(path.squared))), float(jnp.linalg.norm(ravel_pytree(last)[0]))
    run = dataclasses.replace(run, end_gradient=gradient, fastest=fastest, end_size=size)
    small = sum(leaf.size for leaf in jax.tree.leaves(last)) <= DENSE_LIMIT
    at = refine(path.loss, last) if small else last
    moved = float(jnp.linalg.norm(ravel_pytree(at)[0] - ravel_pytree(last)[0]))
    try:
        return dataclasses.replace(run, end=spectrum(path.loss, at), end_distance=moved)
    except (InputError, eqx.EquinoxRuntimeError):
        return run


def _tracks(runs: Sequence[ScaleRun]) -> list[Track]:
    """Plateaus at the same share of the drop, from the smallest scale up as long as there is one."""
    with_some = [run for run in runs if run.plateaus]
    if not with_some:
        return []
    tracks = []
    for last in with_some[-1].plateaus:
        chain: list[tuple[float, Waited]] = []
        depth = last.plateau.depth
        for run in reversed(with_some):
            near = min(run.plateaus, key=lambda w: abs(w.plateau.depth - depth))
            if abs(near.plateau.depth - depth) > 0.1:
                break
            depth = near.plateau.depth
            chain.append((run.scale, near))
        chain.reverse()
        errors = [w.error if w.error is not None else w.plateau.length for _, w in chain]
        tracks.append(
            Track(
                np.array([s for s, _ in chain]),
                np.array([w.plateau.length for _, w in chain]),
                np.array(errors),
                last.plateau.depth,
            )
        )
    return tracks
