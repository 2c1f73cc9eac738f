"""What is kept of each lane: names, types, units, descriptions. NaN: never crossed, or not computed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

PENDING, DONE, NOT_REACHED, FAILED = 0, 1, 2, 3
STATUS = ("pending", "done", "done_some_milestone_not_reached", "failed")
CURVE_TIME = "curve_time"  # the dimension of the curves

_TIMES = {
    "T_I": "4-gram loss at 1% of its start",
    "T_o": "induction loss down to its plateau: 1% of the way is left",
    "T_II": "induction loss leaves the plateau: at 99% of it",
    "T_III": "induction loss at 1% of the plateau",
    "T_II_of_initial": "induction loss at 99% of its start",
    "T_III_of_initial": "induction loss at 1% of its start",
}
_EMERGENCE = {
    "T_v2": "v2 at 90% of its final value",
    "T_fourgram_half": "4-gram loss at half of that without output",
    "T_induction_half": "induction loss at half of that without output",
    "T_induction_half_of_initial": "induction loss at 50% of its start",
    "T_induction_tenth_of_initial": "induction loss at 10% of its start",
}
_FINAL = {
    "untied": ("wK", "wQ"),
    "tied": ("wKQ",),
    "merged": ("w",),
}
AXES = {
    "L": ("sequence length", "tokens"),
    "alpha_star": ("weight alpha* of the 4-gram part against the induction part of the target", "1"),
    "w_star": ("square root w* of the target's logit scale", "1"),
    "sigma_init": ("initial value of every parameter", "1"),
    "wK_init": ("initial value of wK", "1"),
    "wQ_init": ("initial value of wQ", "1"),
    "tokens": ("law of the tokens", ""),
    "d": ("dimension of a token", "1"),
    "parametrization": ("of the logit scale: untied (w = wK wQ), tied (w = wKQ^2), merged (w)", ""),
    "training": ("what is trained", ""),
}


@dataclasses.dataclass(frozen=True)
class Column:
    """One number per lane (or per lane and time of the curves)."""

    name: str
    about: str
    dtype: str = "float64"
    units: str = "1"
    curve: bool = False

    @property
    def fill(self) -> Any:
        """What stands where nothing is computed: NaN, -1 for a count, 0 (pending) for the status."""
        if self.dtype == "float64":
            return math.nan
        return PENDING if self.name == "status" else -1

    def attributes(self) -> dict[str, Any]:
        """As they are written in the store, after the CF conventions."""
        told: dict[str, Any] = {"long_name": self.about, "units": self.units}
        if self.name == "status":
            told |= {"flag_values": list(range(len(STATUS))), "flag_meanings": " ".join(STATUS)}
        return told

    def empty(self, lanes: int, curve_points: int = 0) -> np.ndarray:
        """A column of fill values."""
        return np.full((lanes, curve_points) if self.curve else (lanes,), self.fill, dtype=self.dtype)


def columns_of(
    parametrizations: Iterable[str], trainings: Iterable[str], milestones: Iterable[str], *, curves: bool = False
) -> list[Column]:
    """The columns that some lane of a sweep has; `status` is the last, as it is written last."""
    kinds, training = set(parametrizations), set(trainings)
    wanted = set(milestones)
    time: dict[str, Any] = {"units": "time of the flow"}
    columns = [Column(name, about, **time) for name, about in _TIMES.items() if name in wanted]
    if "layerwise" in training:
        columns.append(Column("T_p11", "p11 reaches the end of stage I, since that stage began", **time))
    if "joint" in training:
        columns += [Column(name, about, **time) for name, about in _EMERGENCE.items()]
    columns += [
        Column("growth_rate", "rate g at which the logit weight grows on the plateau, theory", units="1/time"),
        Column("plateau", "induction loss on the plateau, theory (w = 0)", units="loss"),
        Column("plateau_fraction", "plateau over the induction loss at the start"),
    ]
    finals = ["p11"] if training & {"joint", "layerwise"} else []
    finals += ["p21", "v1", "v2"]
    finals += [name for kind, names in _FINAL.items() if kind in kinds for name in names]
    columns += [Column(f"{name}_final", f"{name} at the end") for name in finals]
    columns.append(Column("logit_scale_final", "logit scale w at the end"))
    columns += [
        Column(f"loss_{part}_{end}", f"{words} loss at the {where}", units="loss")
        for part, words in (("fourgram", "4-gram"), ("induction", "induction"))
        for end, where in (("initial", "start"), ("final", "end"))
    ]
    columns += [
        Column("t_end", "where the solve of the induction block ended", **time),
        Column("steps", "accepted steps of the induction block", "int32"),
        Column("rejected", "rejected steps of the induction block", "int32"),
        Column("steps_fourgram", "accepted steps of the 4-gram block", "int32"),
        Column("table_error", "bound of the relative error of the overlap tables"),
    ]
    if curves:
        columns += [
            Column("curve_fourgram", "4-gram loss at curve_time", units="loss", curve=True),
            Column("curve_induction", "induction loss at curve_time", units="loss", curve=True),
        ]
    columns.append(Column("status", "what became of the lane", "int8"))
    return columns
