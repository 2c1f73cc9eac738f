"""Which steps of a descent are kept."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from gflow.errors import InputError


class Saving:
    """The steps to keep: step 0, then those that `save` names. Asked for one at a time, for the run may end early."""

    def __init__(self, save: Any) -> None:
        self._ratio = 0.0
        self._given: np.ndarray | None = None
        if save is None:
            return
        if isinstance(save, int | np.integer) and not isinstance(save, bool):
            if save < 1:
                raise InputError(f"save = {save}: give the number of rows per decade of steps, at least 1")
            self._ratio = 10.0 ** (1.0 / float(save))
            self._spaced = [1]
            return
        steps = np.asarray(save)
        if steps.ndim != 1 or steps.dtype.kind not in "iu" or np.any(steps < 0) or np.any(np.diff(steps) <= 0):
            raise InputError("save: expected None, rows per decade, or an increasing array of whole steps")
        self._given = steps

    def after(self, step: int) -> int | None:
        """The first step to keep after `step`; None when there is none."""
        if self._given is not None:
            place = int(np.searchsorted(self._given, step, side="right"))
            return int(self._given[place]) if place < len(self._given) else None
        if not self._ratio:
            return step + 1
        # one sequence, wherever a call of the device happened to end
        while self._spaced[-1] <= step:
            last = self._spaced[-1]
            self._spaced.append(max(last + 1, int(np.ceil(last * self._ratio))))
        return self._spaced[bisect.bisect_right(self._spaced, step)]

    def plan(self, step: int, most: int, rows: int) -> tuple[np.ndarray, np.ndarray, int]:
        """(targets [rows], keep [rows], last step) for the next `most` steps from `step`, in one call of the device."""
        targets, keep = np.full(rows, step), np.zeros(rows, bool)
        end, row = step + most, 0
        while row < rows:
            wanted = self.after(step)
            if wanted is None or wanted > end:
                targets[row:], step = end, end
                break
            targets[row:], keep[row], step = wanted, True, wanted
            row += 1
        return targets, keep, step
