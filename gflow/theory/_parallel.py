"""Claims in several processes: modules of claims are tasks, dearest first; what their claims share stays together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gflow.sweeps.executors._protocol import Finished
from gflow.sweeps.executors.local import Local, available_cores, may_have_accelerator
from gflow.theory.claims import MODULES

MOST = 4  # processes; the dearest module alone takes about a fourth of the whole
DEAREST = ("joint", "selection", "growth", "escape", "order", "late", "sampled", "fourgram", "powers", "discrete")
Task = tuple[str, tuple[str, ...], bool]  # effort, names, onsets in place of verdicts

_labs: dict[str, Any] = {}  # of this process


def default_workers() -> int | None:
    """How many processes by default; None where one is to have all accelerators."""
    return None if may_have_accelerator() else min(MOST, len(available_cores()))


def tasks(names: Sequence[str], effort: str) -> list[Task]:
    """The modules of the claims, dearest first, then the onsets."""
    order = [*DEAREST, *(module for module in MODULES if module not in DEAREST)]
    found: list[Task] = []
    for module in order:
        mine = tuple(name for name in MODULES[module] if name in names)
        if mine:
            found.append((effort, mine, False))
    return [*found, (effort, tuple(names), True)]


def part(task: Task) -> dict[str, Any]:
    """In a worker: the entries of some claims, or the onsets of all, and what computed them."""
    from gflow.io.compilation import prefer_quick_compilation
    from gflow.io.provenance import provenance
    from gflow.theory.claims import load
    from gflow.theory.claims._lab import Lab
    from gflow.theory.onset import onsets
    from gflow.theory.verify import check_claim

    prefer_quick_compilation()
    effort, names, onset = task
    lab = _labs.setdefault(effort, Lab(effort))
    claims = [] if onset else [check_claim(claim, lab) for claim in load(names)]
    return {"claims": claims, "onset": onsets(lab, names) if onset else [], "provenance": provenance()}


def parts(names: Sequence[str], effort: str, workers: int | None) -> Iterator[Finished]:
    """What becomes of every task; the processes are ended at once when the caller stops asking."""
    with contextlib.ExitStack() as stack:
        executor = Local(workers, modules=("gflow.theory.verify",))
        stack.callback(executor.close, kill=True)
        yield from executor.run(part, tasks(names, effort))


def told(error: str, names: Sequence[str], effort: str, on_claim: Callable[[dict[str, Any]], None]) -> None:
    """Claims whose process failed: undecided, with its last words."""
    from gflow.theory.claims import load
    from gflow.theory.claims._outcome import failed

    for claim in load(names):
        on_claim(failed(claim, error, 0.0, effort))
