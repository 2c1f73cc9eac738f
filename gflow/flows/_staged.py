"""`StagedTrajectory`: the trajectories of a schedule, one after another, each on its own clock."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows._status import Milestone, Status
from gflow.flows._trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class StagedMilestone:
    """A milestone of one stage of a schedule.

    - `stage`: the stage's name; `local`: time since that stage began, as accurate as its solver; `time`: since the
      schedule began, `offset + local`. Both times are None when it was not reached.
    - `error`, `error_kind`, `status`, `reason`, `level`, `condition`: as in `Milestone`; the error is that of `local`.
    """

    stage: str
    offset: float
    milestone: Milestone

    @property
    def local(self) -> float | None:
        """Time since the stage began."""
        return self.milestone.time

    @property
    def time(self) -> float | None:
        """Time since the schedule began."""
        return None if self.milestone.time is None else self.offset + self.milestone.time

    def __getattr__(self, name: str) -> Any:
        # what a milestone knows besides its time; dunder names are looked up by copy and pickle before there is one
        if name.startswith("__") or "milestone" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.milestone, name)

    def __repr__(self) -> str:
        return f"{self.milestone!r} of stage {self.stage!r}"


@dataclasses.dataclass
class StagedTrajectory:
    """What `solve_stages` returns: for each stage a `Trajectory` whose time starts at 0, and a view of the whole.

    - `stages`: name -> `Trajectory`, those that were begun; `planned`: the names of all; `offsets`: name -> when it
      began, the sum of the durations before it. After a long stage `offset + local` has lost the digits of the next
      one's times, so read short times from `stages[name]` or `Milestone.local`.
    - `ts` [N] (global), `local_ts` [N], `stage_of` [N] (names); `params`: the union of the stages' PyTrees with a
      leading axis N; `losses`: name of part -> [N]. The end of a stage and the start of the next are both there, at
      one time. A leaf that is None in a stage shows what None means there, NaN unless the class of the parameters says
      otherwise by `absent = {"p11": inf}`; so does a part that a stage's loss does not have.
    - `milestones`: name -> `StagedMilestone`, of the stage that reached it first; `status`, `message`: of the last
      stage begun; `finished`: whether every stage did what was asked.
    """

    stages: dict[str, Trajectory]
    planned: tuple[str, ...]
    finished: bool
    message: str
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def _last(self) -> Trajectory:
        return list(self.stages.values())[-1]

    @property
    def status(self) -> Status:
        """Why the last stage begun ended."""
        return self._last.status

    @property
    def offsets(self) -> dict[str, float]:
        """Global time at which each stage began."""
        durations = [trajectory.t1_reached for trajectory in self.stages.values()]
        return dict(zip(self.stages, np.cumsum([0.0, *durations])[:-1].tolist(), strict=True))

    @property
    def t0(self) -> float:
        """0: where the schedule begins."""
        return 0.0

    @property
    def t1_reached(self) -> float:
        """Global time at the end."""
        return sum(trajectory.t1_reached for trajectory in self.stages.values())

    @property
    def initial(self) -> PyTree:
        """Parameters at the start of the first stage, in its own PyTree."""
        return next(iter(self.stages.values())).initial

    @property
    def final(self) -> PyTree:
        """Parameters at the end of the last stage begun, in its own PyTree."""
        return self._last.final

    @property
    def stats(self) -> dict[str, Any]:
        """Steps of all stages together."""
        all_stats = [trajectory.stats for trajectory in self.stages.values()]
        return {key: sum(stats[key] for stats in all_stats) for key in ("accepted", "rejected")}

    @property
    def milestones(self) -> dict[str, StagedMilestone]:
        """Every milestone's first meeting; where no stage met it, what the last stage that watched it says."""
        found: dict[str, StagedMilestone] = {}
        for stage, offset in self.offsets.items():
            for name, milestone in self.stages[stage].milestones.items():
                if name not in found or found[name].local is None:
                    found[name] = StagedMilestone(stage, offset, milestone)
        return found

    @functools.cached_property
    def local_ts(self) -> np.ndarray:
        """Times since the stage of each sample began: [N]."""
        return np.concatenate([trajectory.ts for trajectory in self.stages.values()])

    @functools.cached_property
    def stage_of(self) -> np.ndarray:
        """Name of the stage of each sample: [N]."""
        return np.repeat(np.array(list(self.stages), str), [len(t.ts) for t in self.stages.values()])

    @functools.cached_property
    def ts(self) -> np.ndarray:
        """Global times of the samples: [N], not decreasing."""
        return np.concatenate([self.offsets[name] + t.ts for name, t in self.stages.items()])

    @functools.cached_property
    def params(self) -> PyTree:
        """Parameters at every sample: leaves [N, ...]."""
        return join(
            [trajectory.params for trajectory in self.stages.values()], [len(t.ts) for t in self.stages.values()]
        )

    @functools.cached_property
    def losses(self) -> dict[str, np.ndarray]:
        """Parts of the loss at every sample, and "total": each [N]."""
        runs = list(self.stages.values())
        return join_losses([run.losses for run in runs], [len(run.ts) for run in runs])

    def at(self, t: Any) -> PyTree:
        """Parameters at global time `t` (a number, an array [M], or a milestone's name), like `params`.

        Where one stage ends and the next begins it is the next one's start. A milestone by name is read on its own
        stage's clock, so it loses no digits. Raises `InputError` outside [0, t1_reached].
        """
        if isinstance(t, str):
            path = self.stages[self._milestone(t).stage].at(t)
            return join([jax.tree.map(lambda x: np.asarray(x)[None], path)], [1], like=self._shapes(), squeeze=True)
        pieces, back = self._split(t)
        paths = [trajectory.at(local) for trajectory, local in pieces]
        joined = join(paths, [len(local) for _, local in pieces], like=self._shapes())
        pick = (lambda x: x[back]) if np.ndim(t) else (lambda x: np.asarray(x[0]))
        return jax.tree.map(lambda x: pick(x) if isinstance(x, np.ndarray) else x, joined)

    def losses_at(self, t: Any) -> dict[str, Any]:
        """Parts of the loss at time `t` (as in `at`), and "total"; NaN where the stage's loss has no such part."""
        if isinstance(t, str):
            return self.stages[self._milestone(t).stage].losses_at(t)
        pieces, back = self._split(t)
        joined = join_losses([run.losses_at(local) for run, local in pieces], [len(local) for _, local in pieces])
        return {name: values[back] if np.ndim(t) else float(values[0]) for name, values in joined.items()}

    def _milestone(self, name: str) -> StagedMilestone:
        if name not in self.milestones:
            raise InputError(f"at({name!r}): no such milestone; there are {', '.join(self.milestones) or 'none'}")
        return self.milestones[name]

    def _split(self, t: Any) -> tuple[list[tuple[Trajectory, np.ndarray]], np.ndarray]:
        """The stages that hold times `t`, with local times; and the order that puts results end to end back."""
        ts = np.atleast_1d(np.asarray(t, dtype=float))
        end = self.t1_reached
        if ts.size and not (np.min(ts) >= 0 and np.max(ts) <= end * (1 + 1e-12)):
            raise InputError(f"at(t): t = {np.min(ts):g} .. {np.max(ts):g} leaves the run, 0 .. {end:g}")
        offsets = np.array(list(self.offsets.values()))
        which = np.clip(np.searchsorted(offsets, ts, side="right") - 1, 0, None)
        runs = list(self.stages.values())
        pieces = [
            (runs[i], np.clip(ts[which == i] - offsets[i], 0.0, runs[i].t1_reached))
            for i in (np.unique(which) if ts.size else [0])
        ]
        return pieces, np.argsort(np.argsort(which, kind="stable"))

    def _shapes(self) -> list[PyTree]:
        return [trajectory.initial for trajectory in self.stages.values()]

    def complete(self) -> StagedTrajectory:
        """Fill in every stage's path now, rather than when it is first asked for; returns itself."""
        for trajectory in self.stages.values():
            trajectory.complete()
        return self

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` along "sample": coordinates time (global), local_time, stage; parameters and losses.

        `stages[name].to_xarray()` has each stage's milestones, dense output and numbers.
        """
        from gflow.flows._staged_persist import to_dataset

        return to_dataset(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a netCDF file with one group per stage (atomically); `gflow.load` brings it back.

        Raises `OutputError` when it exists and `overwrite` is False.
        """
        from gflow.flows._staged_persist import save

        return save(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        steps = f"{self.stats['accepted']} steps, {self.stats['rejected']} rejected"
        count = f"{len(self.stages)} of {len(self.planned)}" if len(self.stages) < len(self.planned) else "all"
        lines = [f"StagedTrajectory: {count} stages, t = 0 .. {self.t1_reached:.6g}, {steps}", f"  {self.message}"]
        for name, offset in self.offsets.items():
            first, *rest = repr(self.stages[name]).splitlines()
            lines.append(f"  {name}, from t = {offset:.6g}: {first.removeprefix('Trajectory: ')}")
            lines += [f"  {line}" for line in rest]
        lines += [f"  {name}: not begun" for name in self.planned if name not in self.stages]
        return "\n".join(lines)


def join_losses(parts: list[dict[str, np.ndarray]], sizes: list[int]) -> dict[str, np.ndarray]:
    """Parts of losses of those sizes, end to end; NaN where one has no such part."""
    names = dict.fromkeys(name for part in parts for name in part)
    gaps = [np.full(size, np.nan) for size in sizes]
    return {
        name: np.concatenate([part.get(name, gap) for part, gap in zip(parts, gaps, strict=True)]) for name in names
    }


def join(paths: list[PyTree], sizes: list[int], like: list[PyTree] | None = None, squeeze: bool = False) -> PyTree:
    """Paths with leading axes `sizes`, end to end, as the union of their PyTrees (and of those in `like`).

    A leaf that is None everywhere stays None; one that is None in some takes its class's `absent` value there.
    Raises `InputError` where the PyTrees differ by more than leaves that are None.
    """
    empty: Any = lambda x: x is None  # noqa: E731
    trees = [*paths, *(like or [])]
    structure = jax.tree.structure(trees[0], is_leaf=empty)
    if any(jax.tree.structure(tree, is_leaf=empty) != structure for tree in trees):
        raise InputError("the stages' parameters have different structures; read stages[name].params one by one")
    absent = getattr(type(trees[0]), "absent", {})
    names = [
        ".".join(str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", k)))) for k in path)
        for path, _ in jax.tree.leaves_with_path(trees[0], is_leaf=empty)
    ]
    columns = [jax.tree.leaves(tree, is_leaf=empty) for tree in trees]

    def column(i: int) -> Any:
        leaves = [leaves[i] for leaves in columns]
        known = [leaf for leaf in leaves if leaf is not None]
        if not known or not isinstance(known[0], np.ndarray | np.generic | jax.Array):
            return known[0] if known else None
        parts = [leaf for leaf in leaves[: len(paths)] if leaf is not None]
        # shapes without the leading axis: those of the paths, or (where no path has the leaf) of `like`
        shape = np.shape(parts[0])[1:] if parts else np.shape(known[0])
        if any(np.shape(part)[1:] != shape for part in parts):
            raise InputError(f"{names[i]} has another shape in each stage; read stages[name].params one by one")
        fill = absent.get(names[i], np.nan)
        dtype = np.asarray(known[0]).dtype
        pieces = [
            np.full((n, *shape), fill, dtype) if leaf is None else np.asarray(leaf)
            for leaf, n in zip(leaves, sizes, strict=False)
        ]
        return np.concatenate(pieces)[0] if squeeze else np.concatenate(pieces)

    return jax.tree.unflatten(structure, [column(i) for i in range(len(names))])
