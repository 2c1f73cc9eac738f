"""How a grid is cut: chunks of equal shape, decided by the sweep file alone, each a chunk of the Zarr store too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

FAST = 4096  # lanes of a chunk where a lane costs microseconds
SLOW = 16  # where it costs seconds
MOST_CHUNKS = 4000  # about: each is a file per column
# of keys that decide the overlap tables: a chunk has as few values of these as it can, first those of the first.
# L comes last, as tables that differ in L alone share their work
TABLE_KEYS = ("tokens", "d", "w_star", "L")


@dataclasses.dataclass(frozen=True)
class Chunks:
    """A grid of `shape` in pieces of shape `chunk` (smaller at the far ends), counted in C order."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Pieces along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    def __len__(self) -> int:
        return math.prod(self.counts)

    def corner(self, index: int) -> tuple[int, ...]:
        """Which piece it is along each dimension."""
        out = []
        for count in reversed(self.counts):
            index, at = divmod(index, count)
            out.append(at)
        return tuple(reversed(out))

    def region(self, index: int) -> tuple[slice, ...]:
        """Where a piece lies in the grid."""
        corner = self.corner(index)
        return tuple(
            slice(at * c, min((at + 1) * c, n)) for at, c, n in zip(corner, self.chunk, self.shape, strict=True)
        )

    def lanes(self, index: int) -> int:
        """How many lanes a piece has."""
        return math.prod(s.stop - s.start for s in self.region(index))


def chunk_shape(
    shape: Sequence[int], keys: Sequence[tuple[str, ...]], wanted: int | None, *, fast: bool
) -> tuple[int, ...]:
    """Shape of a chunk of at most about `wanted` lanes (None: as suits cost and number of lanes, see FAST and SLOW).

    The dimensions of TABLE_KEYS are cut first, then the others as they come.
    """
    total = math.prod(shape)
    if wanted is None:
        # small sweeps are cut too, so that there is something to share out and to resume
        wanted = min(FAST, max(64, total // 4)) if fast else min(SLOW, max(1, total // 32))
        wanted = max(wanted, total // MOST_CHUNKS)
    order = sorted(range(len(shape)), key=lambda i: min(map(_rank, keys[i])))
    chunk = list(shape)
    for i in order:
        lanes = math.prod(chunk)
        if lanes <= wanted:
            break
        most = max(1, chunk[i] * wanted // lanes)
        chunk[i] = math.ceil(chunk[i] / math.ceil(chunk[i] / most))  # as even as can be
    return tuple(chunk)


def _rank(key: str) -> int:
    return TABLE_KEYS.index(key) if key in TABLE_KEYS else len(TABLE_KEYS)
