"""What `gflow integrate` tells about a run of the induction-head model that has stages."""

from __future__ import annotations

from typing import Any


def stages_dict(traj: Any) -> list[dict[str, Any]]:
    """The stages of a schedule, in order; empty for a run without."""
    if not hasattr(traj, "stages"):
        return []
    return [
        {
            "name": name,
            "start": offset,
            "duration": traj.stages[name].t1_reached,
            "status": traj.stages[name].status.value,
            "message": traj.stages[name].message,
        }
        for name, offset in traj.offsets.items()
    ]


def went_well(traj: Any) -> bool:
    """The run, and every stage of a schedule, did what was asked."""
    return traj.status.ok and getattr(traj, "finished", True)
