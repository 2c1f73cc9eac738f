"""What a run of the toy leaves behind: losses, singular values and p21 of every seed along the steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gflow.training.matrices.plateaus import Plateau, find_plateaus


@dataclasses.dataclass(frozen=True)
class Failure:
    """A seed that stopped before its last step: the step that it could not take, and the quantity that was not fit."""

    seed: int
    step: int
    quantity: str

    def __str__(self) -> str:
        grown = self.quantity.endswith("(exploded)")
        what = self.quantity.removesuffix(" (exploded)")
        return (
            f"seed {self.seed}: {what} {'exploded' if grown else 'is not finite'} at step {self.step}; "
            "use a smaller lr (the records before are kept)"
        )


@dataclasses.dataclass
class MatrixRun:
    """S seeds of the toy in R^d, N records each; after a failure the records of a seed are NaN.

    - `seeds` [S]; `steps` [N]: steps of the optimiser taken at each record, the first is 0.
    - `fourgram`, `induction` [S, N]: losses on the fixed evaluation sample, divided by d; `fourgram_error`,
      `induction_error`: their standard errors for the population losses (common to all times of a run, for the sample
      is fixed: levels carry it, steps hardly do).
    - `singular_KQ`, `singular_V1`, `singular_V2` [S, N, d], descending: of `W_K^T W_Q`, `W_V1`, `W_V2`;
      `singular_sign`: of the sign matrix `sign(W_K + W_Q)`. `p21` [S, N].
    - `start_rank` [S]: rank of `sign(W_K0 + W_Q0)`.
    - `failures`: seeds that stopped early. `status`: "reached_steps", "failed" (some seeds) or "interrupted".
    """

    seeds: Int[np.ndarray, " S"]
    steps: Int[np.ndarray, " N"]
    fourgram: Float[np.ndarray, "S N"]
    induction: Float[np.ndarray, "S N"]
    fourgram_error: Float[np.ndarray, "S N"]
    induction_error: Float[np.ndarray, "S N"]
    singular_KQ: Float[np.ndarray, "S N d"]
    singular_V1: Float[np.ndarray, "S N d"]
    singular_V2: Float[np.ndarray, "S N d"]
    singular_sign: Float[np.ndarray, "S N d"]
    p21: Float[np.ndarray, "S N"]
    start_rank: Int[np.ndarray, " S"]
    failures: list[Failure]
    status: str
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> Float[np.ndarray, "S N"]:
        """Both parts together."""
        return self.fourgram + self.induction

    def loss(self, part: str) -> Float[np.ndarray, "S N"]:
        """ "induction", "fourgram" or "total"."""
        return getattr(self, part)

    def plateaus(self, part: str = "induction", **rule: Any) -> list[list[Plateau]]:
        """Interior plateaus of each seed's loss: `find_plateaus` with its arguments as keywords.

        The evaluation sample is the same at all records, so its error makes no waits and needs no wider band.
        """
        return [find_plateaus(self.steps, row, **rule) for row in self.loss(part)]

    def passage(self, fraction: float, part: str = "induction") -> Float[np.ndarray, " S"]:
        """Step at which a loss first falls below `fraction` of its start, linear between records; NaN if it never does.

        Resolved to the distance of the records, within which the loss is taken as linear in the step.
        """
        found = np.full(len(self.seeds), np.nan)
        for i, row in enumerate(self.loss(part)):
            below = np.flatnonzero(row <= fraction * row[0])
            if len(below) and below[0] > 0:
                k = below[0]
                share = (row[k - 1] - fraction * row[0]) / (row[k - 1] - row[k])
                found[i] = self.steps[k - 1] + share * (self.steps[k] - self.steps[k - 1])
        return found

    def to_xarray(self) -> Any:
        """A dataset along "seed", "step" and "mode"."""
        from gflow.training.matrices._persist import to_dataset

        return to_dataset(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write netCDF, complete or not at all; raises `OutputError` when it exists and `overwrite` is False."""
        from gflow.training.matrices._persist import save

        return save(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        ends = [row[np.isfinite(row)][-1] / row[0] for row in self.induction]
        return (
            f"MatrixRun: {len(self.seeds)} seeds, d = {self.singular_KQ.shape[-1]}, {int(self.steps[-1])} steps "
            f"({self.status}), {len(self.failures)} failed; induction loss ends at {min(ends):.3g} to {max(ends):.3g} "
            "of its start"
        )
