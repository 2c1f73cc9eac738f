"""The configuration of `gflow integrate`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from gflow.config._checks import show
from gflow.config._problem import CONDITIONAL, PROBLEM_RULES, SAMPLED_KEYS, ProblemConfig
from gflow.config._rules import Choice, Limit, Rule, Text
from gflow.errors import InputError

_STAGE_KEYS = ("p11_until", "stage1_t1", "p11_after")
# what a user's own loss does not read
_PROBLEM_KEYS = (
    "L", "alpha_star", "w_star", "sigma_init", "wK_init", "wQ_init", "tokens", "d", "parametrization", "training",
    "evaluate", "model", *_STAGE_KEYS, *SAMPLED_KEYS,
)  # fmt: skip
_EXAMPLES = {"loss": "module:function", "init": "init.toml"}


@dataclasses.dataclass(frozen=True)
class IntegrateConfig(ProblemConfig):
    """One trajectory: the problem, the policy of the solver, the outputs. Construction checks every value.

    Names are those of the flags with `_` for `-`. `None` leaves a choice to `solve`, or to the command. Stage I of
    layerwise training ends when p11 reaches `p11_until`, or at the time `stage1_t1`; in stage II p11 is infinite, or
    stays where it is ("reached"). Raises InputError: one line that names the value, the limit and the way out.
    """

    p11_until: float | None = None
    stage1_t1: float | None = None
    p11_after: str = "infinite"
    model: str = "induction"
    solver: str = "auto"
    rtol: float | None = None
    atol: float | None = None
    t1: float | None = None
    max_steps: int | None = None
    loss: str | None = None
    init: str | None = None

    rules: ClassVar[dict[str, Rule]] = PROBLEM_RULES | {
        "training": Choice(("second-layer", "layerwise", "joint")),
        "p11_until": Limit(0, 1e3, "the first layer attends to one token once p11 is a few units", open_below=True),
        "stage1_t1": Limit(0, 1e300, "stage I starts at t = 0 and ends later", open_below=True),
        "p11_after": Choice(("infinite", "reached")),
        "model": Choice(("induction",), ("markov",)),
        "solver": Choice(("auto", "tsit5", "dopri5", "dopri8", "rodas5p", "kvaerno3", "kvaerno5")),
        "rtol": Limit(1e-14, 0.1, "a tolerance below the rounding error cannot be met"),
        "atol": Limit(0, 1, "a tolerance is positive", open_below=True),
        "t1": Limit(0, 1e300, "the flow starts at t = 0"),
        "max_steps": Limit(1, 10**9, "a solve takes at least one step", whole=True),
        "loss": Text(_EXAMPLES["loss"]),
        "init": Text(_EXAMPLES["init"]),
    }
    conditional: ClassVar[dict[tuple[str, str], tuple[str, ...]]] = CONDITIONAL | {
        ("training", "layerwise"): _STAGE_KEYS
    }

    def _agree(self) -> None:
        super()._agree()
        if (self.loss is None) != (self.init is None):
            have, lack = ("loss", "init") if self.init is None else ("init", "loss")
            raise InputError(f"{have} = {show(getattr(self, have))} needs {lack} too; add {lack} = {_EXAMPLES[lack]!r}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON and for a TOML file (there, without the None's); keys that mean something."""
        unread = ("loss", "init") if self.loss is None else _PROBLEM_KEYS
        return {key: value for key, value in super().as_dict().items() if key not in unread}

    @classmethod
    def from_given(cls, given: Any) -> IntegrateConfig:
        """As for every configuration; a loss of the user's own leaves the keys of the problem without a meaning."""
        if given.get("loss") is not None:
            unread = [key for key in _PROBLEM_KEYS if key in given]
            if unread:
                raise InputError(f"{unread[0]} has no meaning for the loss {show(given['loss'])}; leave it out")
        return super().from_given(given)
