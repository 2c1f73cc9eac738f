"""How many steps to hand to the device at a time: enough to keep it busy, few enough to hear Ctrl-C."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

FIRST_BUDGET = 8  # steps tried before anything is known of their price
SEGMENT_SECONDS = 0.3

# seconds per step of each kind of problem met so far: a repeated solve starts with segments of the right size
_KNOWN: dict[Hashable, float] = {}


class Pace:
    """Steps per segment for one kind of problem, learnt from the time that the last segments took."""

    def __init__(self, kind: Hashable) -> None:
        self._kind = kind
        self._cold = kind not in _KNOWN  # the first call of a kind compiles, so its time says nothing

    def budget(self, most: int) -> int:
        """Steps for the next segment, at least 1."""
        if self._kind not in _KNOWN:
            return min(FIRST_BUDGET, most)
        return int(np.clip(SEGMENT_SECONDS / _KNOWN[self._kind], 1, most))

    def record(self, steps: int, seconds: float) -> None:
        """A segment of that many steps took that long."""
        if self._cold:
            self._cold = False
        elif steps > 0:
            if len(_KNOWN) > 256:  # a kind may hold on to a caller's function
                _KNOWN.clear()
            _KNOWN[self._kind] = seconds / steps
