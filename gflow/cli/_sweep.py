"""What `gflow sweep` says: at the beginning, on the way, at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gflow.cli._output import Output
from gflow.cli._summary import table
from gflow.errors import InputError

TABLES = (".parquet", ".csv")
_REASONS = 8  # told in the summary


def check_table(path: str) -> None:
    """The suffix says which kind of table it is. Raises InputError."""
    if Path(path).suffix.lower() not in TABLES:
        raise InputError(f"table = {path!r} must end in {' or '.join(TABLES)}; for example 'table.parquet'")


def check_drawable(plan: Any) -> None:
    """Has the sweep the axes of some figure? Asked before anything is computed. Raises InputError."""
    long = {dim.name for dim in plan.grid.dims if dim.size > 1}
    if not long & {"L", "sigma_init"} and not {"alpha_star", "w_star"} <= long:
        raise InputError(
            "plot: the figures of a sweep need the axis L or sigma_init, or alpha_star and w_star; "
            f"axes with several values: {', '.join(sorted(long)) or 'none'}; leave --plot out"
        )


def opening(plan: Any, *, resume: bool) -> str:
    """What is going to be computed."""
    grid = plan.grid
    sizes = " x ".join(f"{dim.name} {dim.size}" for dim in grid.dims)
    verb = "going on with" if resume and plan.path.exists() else "sweep of"
    chunks = "one chunk" if len(grid.chunks) == 1 else f"{len(grid.chunks)} chunks of up to {grid.chunks.lanes(0)}"
    return f"{verb} {grid.size} lanes ({sizes}) in {chunks}"


def show(news: Any, output: Output) -> None:
    """How far it is."""
    if news.rate is None:
        text = "starting"
    else:
        text = f"{news.rate:.3g} lanes/s, {duration(news.left)} left"
    text += f", {news.failed} failed" if news.failed else ""
    output.bar(news.done, news.lanes, "lanes", text)


def duration(seconds: float | None) -> str:
    """Seconds in a form that suits their size."""
    if seconds is None:
        return "unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def summary(found: Any) -> str:
    """A finished sweep for people."""
    fine = found.lanes - found.failed - found.pending
    lines = ["", f"{found.lanes} lanes: {fine} done, {found.failed} failed" + _unusual(found)]
    if found.ranges:
        rows = [("milestone", "earliest", "latest")]
        rows += [(name, f"{ends['min']:.6g}", f"{ends['max']:.6g}") for name, ends in found.ranges.items()]
        lines += ["", table(rows, left=1)]
    if found.reasons:
        lines += ["", "failed:"]
        told = list(found.reasons.items())
        lines += [f"  {count} x {reason}" for reason, count in told[:_REASONS]]
        if len(told) > _REASONS:
            lines.append(f"  {sum(n for _, n in told[_REASONS:])} for {len(told) - _REASONS} other reasons")
    if found.check is not None:
        told = found.check
        unlike = f", {told['unlike']} milestones found by only one of both" if told["unlike"] else ""
        lines += [
            "",
            f"{told['lanes']} lanes again by gflow.solve: milestones within {told['largest_difference']:.1e}{unlike}",
        ]
    if found.computed:
        seconds = found.seconds
        rate = f", {found.lanes_per_second:.3g} lanes/s" if found.lanes_per_second else ""
        lines += [
            "",
            f"{found.computed} lanes computed in {duration(seconds['total'])}: tables {seconds['tables']:.2g} s, "
            f"compilation {seconds['compile']:.2g} s, solve {seconds['solve']:.2g} s, store {seconds['store']:.2g} s"
            f"{rate} with {found.workers} worker{'' if found.workers == 1 else 's'}",
        ]
    else:
        lines += ["", "nothing was left to compute"]
    return "\n".join(lines)


def _unusual(found: Any) -> str:
    text = f", {found.not_reached} of those done did not reach some milestone" if found.not_reached else ""
    return text + (f", {found.pending} not computed" if found.pending else "")


def so_far(plan: Any) -> dict[str, Any]:
    """What is in the store of a sweep that was stopped."""
    from gflow.sweeps.records import records

    kept = records(plan.path).values()
    done = sum(record.lanes for record in kept)
    failed = sum(len(record.failures) for record in kept)
    return {"lanes": plan.grid.size, "done": done, "failed": failed, "pending": plan.grid.size - done}
