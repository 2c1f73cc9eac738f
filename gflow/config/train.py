"""The configuration of `gflow train`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from gflow.config._checks import show
from gflow.config._problem import CONDITIONAL, PROBLEM_RULES, ProblemConfig, whole_length
from gflow.config._rules import Choice, Limit, Rule
from gflow.errors import InputError

# the numbers of each optimiser
OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "gd": (),
    "sgd": (),
    "momentum": ("momentum",),
    "adam": ("b1", "b2", "eps"),
    "adamw": ("b1", "b2", "eps", "weight_decay"),
}
_NUMBERS = ("momentum", "b1", "b2", "eps", "weight_decay")


@dataclasses.dataclass(frozen=True)
class TrainConfig(ProblemConfig):
    """One discrete-time run of the induction head: the problem, the optimiser, the outputs.

    Names are those of the flags with `_` for `-`. `None` leaves a choice to the command: `steps`, until the last
    milestone and half as far again; `batch`, the full gradient; the optimiser's numbers, its defaults. Raises
    InputError: one line that names the value, the limit and the way out.
    """

    optimizer: str = "sgd"
    lr: float | None = None
    steps: int | None = None
    batch: int | None = None
    momentum: float | None = None
    b1: float | None = None
    b2: float | None = None
    eps: float | None = None
    weight_decay: float | None = None

    rules: ClassVar[dict[str, Rule]] = PROBLEM_RULES | {
        "training": Choice(("second-layer", "joint")),
        "optimizer": Choice(tuple(OPTIMIZERS)),
        "lr": Limit(0, 1e6, "a step goes downhill, and somewhere", open_below=True),
        "steps": Limit(0, 10**9, "steps are counted from 0", whole=True),
        "batch": Limit(1, 2**24, "a batch has at least one sequence, and fits into memory", whole=True),
        "momentum": Limit(0, 1, "at 1 nothing is ever forgotten", open_above=True),
        "b1": Limit(0, 1, "at 1 nothing is ever forgotten", open_above=True),
        "b2": Limit(0, 1, "at 1 nothing is ever forgotten", open_above=True),
        "eps": Limit(0, 1e6, "it is added to the root of the second moment"),
        "weight_decay": Limit(0, 1e6, "weights do not grow on their own"),
    }
    conditional: ClassVar[dict[tuple[str, str], tuple[str, ...]]] = CONDITIONAL

    def _agree(self) -> None:
        super()._agree()
        if self.batch is not None:
            whole_length(self, "batch")
            if self.optimizer == "gd":
                raise InputError(
                    f"batch = {self.batch} has no meaning for optimizer = 'gd', which uses the full gradient; "
                    "use 'sgd', or leave batch out"
                )
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and name not in OPTIMIZERS[self.optimizer]:
                of = " or ".join(repr(other) for other, names in OPTIMIZERS.items() if name in names)
                raise InputError(
                    f"{name} = {show(value)} has no meaning for optimizer = {self.optimizer!r}; "
                    f"use optimizer = {of}, or leave {name} out"
                )

    @property
    def numbers(self) -> dict[str, float]:
        """The optimiser's numbers that were given."""
        values = {name: getattr(self, name) for name in OPTIMIZERS[self.optimizer]}
        return {name: value for name, value in values.items() if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON and for a TOML file (there, without the None's); keys that mean something."""
        unread = set(_NUMBERS) - set(OPTIMIZERS[self.optimizer])
        return {key: value for key, value in super().as_dict().items() if key not in unread}
