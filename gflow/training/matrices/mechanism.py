"""Does the rank of a sign matrix decide whether Adam waits? A test over many seeds, its rules fixed before looking."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from gflow.errors import InputError
from gflow.training.matrices import _claims, _verdicts
from gflow.training.matrices._claims import Claim
from gflow.training.matrices._model import Toy, seed_keys
from gflow.training.matrices._run import MatrixRun
from gflow.training.matrices._train import train_matrices
from gflow.training.matrices.signs import pick_seeds, sign_ranks

LEAST = 20  # seeds in a class
FORMED = 0.9  # of its start: the induction loss at which the sign matrix counts as formed
STEPS = {4: 1500}  # long enough for the slowest seeds to leave; elsewhere 900
MATRICES = {
    "initial": "sign(W_K + W_Q) before the first step",
    "formed": f"sign(W_K + W_Q) when the induction loss has fallen to {FORMED:.0%} of its start",
    "unrelated": "sign(W_V1) before the first step, which has no part in the induction loss (the control)",
}


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """What the test found: for each matrix of `MATRICES` its rank per seed, and the claims about that rank.

    `plateaus` [S]: how many interior plateaus the induction loss of a seed has; `level` [S]: the highest, relative to
    the start, 0 without one. `unfinished`: seeds that did not fall below the finder's floor, or failed; in no table.
    `control_rejected`: no claim of association, level or number is supported for the unrelated matrix.
    """

    run: MatrixRun
    ranks: dict[str, Int[np.ndarray, " S"]]
    plateaus: Int[np.ndarray, " S"]
    level: np.ndarray
    claims: dict[str, list[Claim]]
    unfinished: list[int]

    @property
    def dimension(self) -> int:
        """d."""
        return self.run.singular_KQ.shape[-1]

    @property
    def control_rejected(self) -> bool:
        """Whether the control is what it should be."""
        return all(c.verdict != _claims.SUPPORTED for c in self.claims["unrelated"])

    def verdicts(self) -> dict[str, dict[str, str]]:
        """matrix -> claim -> verdict; a claim is undecided when the control is not rejected."""
        sound = self.control_rejected
        return {
            matrix: {c.name: c.verdict if sound else _claims.UNDECIDED for c in claims}
            for matrix, claims in self.claims.items()
            if matrix != "unrelated"
        }

    def by_rank(self, matrix: str) -> dict[int, dict[str, Any]]:
        """rank -> seeds, how many have a plateau, median level of those."""
        found = {}
        kept = ~np.isin(self.run.seeds, self.unfinished)
        for rank in np.unique(self.ranks[matrix][kept]):
            those = kept & (self.ranks[matrix] == rank)
            waits = those & (self.plateaus > 0)
            level = float(np.median(self.level[waits])) if np.any(waits) else None
            found[int(rank)] = {"seeds": int(those.sum()), "plateau": int(waits.sum()), "level": level}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return _verdicts.as_dict(self)

    def report(self) -> str:
        """Tables and verdicts for people."""
        return _verdicts.report(self, MATRICES)


def rank_classes(d: int) -> list[tuple[int, ...]]:
    """Every rank up to d = 4; beyond, where low ranks are rare: full, one missing, more missing."""
    if d <= 4:
        return [(rank,) for rank in range(1, d + 1)]
    return [(d,), (d - 1,), tuple(range(1, d - 1))]


def class_seeds(d: int, members: int, first: int = 0, most: int | None = None) -> Int[np.ndarray, " S"]:
    """The first `members` seeds from `first` on of every rank class of `sign(W_K0 + W_Q0)`, among `most` seeds.

    Raises `InputError` if there are too few singular ones, as for large d.
    """
    if d < 2:
        raise InputError(f"d = {d}: a sign matrix of one entry is never singular; give d >= 2")
    # low ranks of small matrices are rare, and quickly found; among large ones any rank takes its time
    most = most or (1 << 17 if d <= 8 else 1 << 14)
    groups = [pick_seeds(d, ranks, members, first, most) for ranks in rank_classes(d)]
    singular = sum(len(g) for g, ranks in zip(groups, rank_classes(d), strict=True) if d not in ranks)
    if singular < min(members, LEAST):
        raise InputError(
            f"d = {d}: only {singular} singular sign matrices among the seeds looked at, {min(members, LEAST)} are "
            "needed; give a smaller d, where they are common"
        )
    return np.sort(np.concatenate(groups))


def mechanism_test(d: int = 4, members: int = LEAST, first: int = 0, **training: Any) -> Mechanism:
    """Train `members` seeds of every rank class and judge: is it the rank of the sign matrix that makes Adam wait?

    Hypothesis (EXPERIMENTS (a)): under Adam at small init, the induction loss has interior plateaus exactly when
    `S = sign(W_K0 + W_Q0)` is singular, and their number and height follow the missing rank. Four claims, each judged
    by the rule in its docstring: `association`, `exactly`, `follows` for level and number. They are judged for the
    initial sign matrix, for the one that training has formed when the loss has fallen by a tenth, and for one that has
    nothing to do with it, for which none of association, level, number may be supported. Rules and `FORMED` were fixed
    on seeds from 100000 on; the test's seeds start at 0.

    `training`: as for `train_matrices`. A seed that has not fallen below the finder's floor at the end (it may still
    wait) or has failed is left out, and named.
    """
    seeds = class_seeds(d, members, first)
    settings: dict[str, Any] = {"steps": STEPS.get(d, 900)} | training
    return judge(train_matrices(seeds.tolist(), d=d, **settings))


def judge(run: MatrixRun) -> Mechanism:
    """The claims about a run, whose seeds should have been chosen by `class_seeds`."""
    d = run.singular_KQ.shape[-1]
    found = run.plateaus()
    last = np.array([row[np.isfinite(row)][-1] / row[0] for row in run.induction])
    failed = np.isin(run.seeds, [f.seed for f in run.failures])
    kept = (last < 0.02) & ~failed
    plateaus = np.array([len(p) for p in found])
    level = np.array([max((p.level for p in ps), default=0.0) for ps in found])
    ranks = {
        "initial": run.start_rank,
        "formed": _formed(run),
        "unrelated": _unrelated(run.seeds, d),
    }
    claims = {name: _about(rank[kept], d, plateaus[kept], level[kept]) for name, rank in ranks.items()}
    # "exactly" is a claim of its own kind: a control that fails it says nothing
    claims["unrelated"] = [c for c in claims["unrelated"] if c.name != "exactly"]
    return Mechanism(run, ranks, plateaus, level, claims, run.seeds[~kept].tolist())


def _about(rank: np.ndarray, d: int, plateaus: np.ndarray, level: np.ndarray) -> list[Claim]:
    waits, missing = plateaus > 0, d - rank
    return [
        _claims.association(waits, missing > 0),
        _claims.exactly(waits, missing > 0),
        _claims.follows("level", "the more rank is missing, the higher the plateau (none: 0)", level, missing),
        _claims.follows("number", "the more rank is missing, the more plateaus there are", plateaus, missing),
    ]


def _formed(run: MatrixRun) -> Int[np.ndarray, " S"]:
    """Rank of the sign matrix at the first record with the induction loss below `FORMED` of its start."""
    below = run.induction < FORMED * run.induction[:, :1]
    at = np.where(below.any(axis=1), below.argmax(axis=1), 0)
    values = run.singular_sign[np.arange(len(run.seeds)), at]
    return np.asarray(np.sum(values > 1e-3, axis=-1))


def _unrelated(seeds: np.ndarray, d: int) -> Int[np.ndarray, " S"]:
    """Rank of sign(W_V1) at the start."""
    toy = Toy.of(d)

    def matrix(seed: Any) -> Any:
        return jnp.asarray(toy.initial_params(seed_keys(seed)[0], jnp.asarray(1.0, toy.dtype)).V1)

    return sign_ranks(np.asarray(jax.vmap(matrix)(jnp.asarray(seeds))))
