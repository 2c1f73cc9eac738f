"""Tables for many L at once: the matrix products of `K(., c)` are those of every L (MATH section 4).

L enters the overlaps only through `phi^{n-...}`, so all L of a decade are computed from the same moments, on nodes
that do for the whole decade. Which these are depends on the decade alone, and every L is computed by the same compiled
loop: a table is the same, bit for bit, whatever L it was computed beside.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from gflow.errors import TableError
from gflow.io.cache import load_or_build
from gflow.losses.induction.build import (
    FINER,
    NAMES,
    Resolution,
    assemble,
    build_arrays,
    checked_at,
    default_domain,
    description,
    enough_nodes,
    from_arrays,
    nodes_on,
    until_resolved,
)
from gflow.losses.induction.expectation import Setting, StudentOverlap, TargetOverlaps, query_groups, target_overlaps
from gflow.losses.induction.quadrature import Vector
from gflow.losses.induction.table import OverlapTable
from gflow.tokens import TokenLaw

TOGETHER = 6  # L of one call; fewer are filled up, so that there is one program


def bucket(L: float) -> int:
    """The decade of n = L - 2: tables of one bucket share their matrix products."""
    return math.floor(math.log10(L - 2.0))


def make_tables(
    law: TokenLaw,
    Ls: Sequence[float],
    w_star: float,
    d: int = 1,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[OverlapTable | TableError]:
    """The tables of `make_table` on the default domain for every L, through the disk cache, each kept once finished.

    An L whose table cannot be built has its `TableError` in the table's place. `progress(done, of)` is called along the
    way. The numbers differ from those of `make_table` by less than both errors: their quadratures do for more L.
    """
    done: dict[float, OverlapTable | TableError] = {}
    wanted = list(dict.fromkeys(float(L) for L in Ls))
    for number in sorted({bucket(L) for L in wanted}):
        group = _Group(law, number, w_star, d)
        mine = [L for L in wanted if bucket(L) == number]
        for L in mine:
            done[L] = _one(group, L, mine, cache)
            if progress is not None:
                progress(len(done), len(wanted))
    return [done[float(L)] for L in Ls]


def _one(group: _Group, L: float, mine: Sequence[float], cache: bool) -> OverlapTable | TableError:
    def build() -> dict[str, Vector]:
        return group.arrays(L, mine)

    try:
        if not cache:
            return from_arrays(build())
        known = description(group.law, L, group.w_star, group.d, group.lo, group.hi, Resolution())
        return from_arrays(load_or_build("table", known | {"bucket": group.number}, build, NAMES))
    except TableError as error:
        return error


class _Group:
    """One decade of n: its quadratures, and the overlaps of those L that were asked for so far."""

    def __init__(self, law: TokenLaw, number: int, w_star: float, d: int) -> None:
        self.law, self.number, self.w_star, self.d = law, number, w_star, d
        self.lo, self.hi = default_domain(w_star)
        self._found: dict[float, tuple[TargetOverlaps, TargetOverlaps]] = {}
        self._prepared: tuple[Setting, Setting, Vector] | None = None
        self._alone = False

    def _setting(self, n: float, **more: object) -> Setting:
        c = self.w_star**2
        return Setting(self.law, n, c, self.d, max(abs(self.lo), self.hi, c), **more)  # pyright: ignore[reportArgumentType]

    def _prepare(self) -> tuple[Setting, Setting, Vector]:
        """Quadratures, finer ones, and the Chebyshev nodes in w, all good for every n of the decade."""
        if self._prepared is None:
            span = (max(10.0**self.number, 2.0), 10.0 ** (self.number + 1))
            count = 0
            for n in span:
                end = self._setting(n)
                count = max(count, enough_nodes(end))
                L = n + 2.0
                count = max(count, until_resolved(StudentOverlap(end), L, self.w_star, self.lo, self.hi, count))
            setting = self._setting(span[1], span=span)
            query_groups(setting, count)  # refuses what would take minutes
            self._prepared = setting, dataclasses.replace(setting, refine=FINER), nodes_on(self.lo, self.hi, count)
        return self._prepared

    def arrays(self, L: float, mine: Sequence[float]) -> dict[str, Vector]:
        """The numbers of the table of L; the next ones of `mine` are computed along with it."""
        if not self._alone:
            try:
                setting, fine, nodes = self._prepare()
            except TableError:  # one end of the decade is out of reach: each L for itself
                self._alone = True
        if self._alone:
            return build_arrays(self.law, L, self.w_star, self.d, self.lo, self.hi, Resolution())
        if L not in self._found:
            left = [other for other in mine if other not in self._found and other != L]
            some = [L, *left][:TOGETHER]
            ns = [other - 2.0 for other in some] + [L - 2.0] * (TOGETHER - len(some))
            check = checked_at(self.lo, self.hi, self.w_star**2)
            rows = zip(target_overlaps(setting, nodes, ns), target_overlaps(fine, check, ns), strict=True)  # pyright: ignore[reportPossiblyUnboundVariable]
            self._found |= dict(zip(some, rows, strict=False))
        own = self._setting(L - 2.0)
        return assemble(own, self.w_star, self.lo, self.hi, StudentOverlap(own), *self._found[L])


__all__ = ["bucket", "make_tables"]
