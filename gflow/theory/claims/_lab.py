"""Where claims get their numbers: times of many lanes at once, single trajectories, losses; each computed once.

Nothing here knows what theory expects. Times come from the ensemble solver at two tolerances, and their difference is
their error; trajectories from `gflow.solve`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gflow.flows import GradientFlow, solve
from gflow.flows._interrupt import heard
from gflow.losses.induction import InductionProblem
from gflow.sweeps.compute import compute_chunk
from gflow.sweeps.ensemble.fourgram_block import solve_fourgram
from gflow.sweeps.ensemble.lanes import Lanes
from gflow.sweeps.tasks import ChunkTask, Options

Point = Mapping[str, Any]
QUICK, FULL = "quick", "full"
# where nothing else is said
REFERENCE: dict[str, Any] = {
    "L": 100.0,
    "alpha_star": 1.0,
    "w_star": 1.0,
    "sigma_init": 1e-6,
    "tokens": "gaussian",
    "d": 1,
    "parametrization": "untied",
}
SHOWN = ("L", "alpha_star", "w_star", "sigma_init")  # always part of a point; the others if they are not usual
MILESTONES = ("T_I", "T_o", "T_II", "T_III", "T_II_of_initial", "T_III_of_initial")
RTOL, LOOSE = 1e-9, 1e-7  # of the ensemble; the looser one also shows the error of single trajectories
ROUNDING = 1e-12


def point(**coordinates: Any) -> dict[str, Any]:
    """A point of parameter space: the reference with some coordinates changed."""
    whole = REFERENCE | coordinates
    return {
        key: float(value) if key in SHOWN else value
        for key, value in whole.items()
        if key in SHOWN or key not in REFERENCE or value != REFERENCE[key]
    }


def grid(**axes: Any) -> list[dict[str, Any]]:
    """Every combination of the axes' values (lists) and fixed coordinates (anything else)."""
    listed = {key: value if isinstance(value, list | tuple | np.ndarray) else [value] for key, value in axes.items()}
    return [point(**dict(zip(listed, values, strict=True))) for values in itertools.product(*listed.values())]


@dataclasses.dataclass(frozen=True)
class Times:
    """Milestones of points [n]: `time["T_III"][n]`, NaN where never reached, and their errors."""

    time: dict[str, np.ndarray]
    error: dict[str, np.ndarray]


class Lab:
    """Numbers for claims at one effort, "quick" or "full"; `tell(text)` hears what is being computed."""

    def __init__(self, effort: str = QUICK, tell: Callable[[str], None] | None = None) -> None:
        self.effort = effort
        self.tell = tell or (lambda text: None)
        self._problems: dict[Any, InductionProblem] = {}
        self._kept: dict[Any, Any] = {}
        self._heard = heard()

    @property
    def full(self) -> bool:
        """Is this the thorough one?"""
        return self.effort == FULL

    def choose(self, quick: Any, full: Any) -> Any:
        """The value for this effort."""
        return full if self.full else quick

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """`make()`, or what it gave when `key` was asked for before."""
        if key not in self._kept:
            found = make()
            self.go_on()
            self._kept[key] = found
        return self._kept[key]

    def go_on(self) -> None:
        """Raise the KeyboardInterrupt that a computation answered by returning what it had."""
        if heard() != self._heard:
            raise KeyboardInterrupt

    def problem(self, at: Point) -> InductionProblem:
        """The problem at a point; its tables are built once."""
        whole = REFERENCE | dict(at)
        names = ("L", "alpha_star", "w_star", "tokens", "d", "parametrization")
        key = tuple(whole[name] for name in names)
        if key not in self._problems:
            self._problems[key] = InductionProblem(**dict(zip(names, key, strict=True)))
        return self._problems[key]

    def loss(self, at: Point) -> Any:
        """The exact population loss at a point."""
        return self.problem(at).population_loss()

    def induction(self, at: Point) -> Any:
        """Its induction part."""
        return self.loss(at).induction

    def table_error(self, at: Point) -> float:
        """Bound of the relative error of the overlaps at a point."""
        return float(np.max(np.asarray(self.induction(at).table.relative_error)))

    def start(self, at: Point) -> Any:
        """Every parameter at sigma_init."""
        return self.problem(at).initial_params(at["sigma_init"])

    def run(self, at: Point, *, t1: float | None = None, tail: float = 0.0, rtol: float | None = None) -> Any:
        """The trajectory from a point, to t1 or to its last milestone (and on for `tail` times that time)."""

        def compute() -> Any:
            self.tell(f"a trajectory at {words(at)}")
            problem = self.problem(at)
            conditions = problem.milestones()
            flow = GradientFlow(self.loss(at))
            return solve(flow, self.start(at), milestones=conditions, t1=t1, tail=tail, rtol=rtol, estimate_error=True)

        return self.once(("run", _frozen(at), t1, tail, rtol), compute)

    def read(self, at: Point, reading: Callable[[Any], Any]) -> tuple[np.ndarray, np.ndarray]:
        """`reading(run)`, numbers [n] of the run from a point, and how much a looser tolerance changes them."""
        fine, loose = (np.asarray(reading(self.run(at, rtol=rtol)), dtype=float) for rtol in (None, LOOSE))
        return fine, np.abs(fine - loose) + ROUNDING * np.abs(fine)

    def times(self, points: Sequence[Point], milestones: Sequence[str] = MILESTONES) -> Times:
        """The milestones of many points, side by side."""
        key = ("times", tuple(_frozen(at) for at in points), tuple(milestones))
        return self.once(key, lambda: self._times(points, tuple(milestones)))

    def _times(self, points: Sequence[Point], milestones: tuple[str, ...]) -> Times:
        self.tell(f"{len(points)} trajectories")
        whole = [REFERENCE | dict(at) for at in points]
        if milestones == ("T_I",):  # needs no table, so any L will do
            return _both(*({"T_I": _fourgram(whole, rtol)} for rtol in (RTOL, LOOSE)))
        lanes: dict[str, Any] = {}
        fixed: dict[str, Any] = {}
        for name in REFERENCE:
            values = [at[name] for at in whole]
            if any(value != values[0] for value in values) or name == "sigma_init":
                lanes[name] = np.array(values, dtype=float) if name in SHOWN or name == "d" else values
            else:
                fixed[name] = values[0]
        fine, loose = (
            compute_chunk(ChunkTask(0, lanes, fixed | {"rtol": rtol}, Options(milestones), (*milestones, "status")))
            for rtol in (RTOL, LOOSE)
        )
        if fine.failures:
            number, reason = fine.failures[0]
            raise RuntimeError(f"{words(points[number])}: {reason}")
        exact, other = (
            {name: result.columns.get(name, np.full(len(points), np.nan)) for name in milestones}
            for result in (fine, loose)
        )
        return _both(exact, other)


def _both(exact: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> Times:
    """Times at a tight and at a loose tolerance."""
    least = 1e-10  # what both can have in common
    return Times(exact, {name: np.abs(t - other[name]) + least * np.abs(t) for name, t in exact.items()})


def _fourgram(whole: Sequence[Point], rtol: float) -> np.ndarray:
    """T_I of standard tokens."""
    sigma, ones = np.array([at["sigma_init"] for at in whole]), np.ones(len(whole))
    lanes = Lanes(
        L=np.array([at["L"] for at in whole]),
        alpha_star=np.array([at["alpha_star"] for at in whole]),
        d=np.array([float(at["d"]) for at in whole]),
        mean=0.0 * ones,
        variance=ones,
        kind=np.zeros(len(whole), dtype=int),
        sigma=sigma,
        wK=sigma,
        wQ=sigma,
        table=np.zeros(len(whole), dtype=int),
        t1=np.inf * ones,
        rtol=rtol * ones,
    )
    return solve_fourgram(lanes)[0]["T_I"]


def _frozen(at: Point) -> tuple[Any, ...]:
    return tuple(sorted(at.items(), key=lambda item: item[0]))


def words(at: Point) -> str:
    """A point for people."""
    return ", ".join(
        f"{key}={value:g}" if isinstance(value, float | int) else f"{key}={value}" for key, value in at.items()
    )


def slope(x: Sequence[float], y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Slope of y between two abscissae, and its error."""
    step = x[1] - x[0]
    return float((y[1] - y[0]) / step), float((error[0] + error[1]) / abs(step))
