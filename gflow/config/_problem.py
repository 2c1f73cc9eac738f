"""The keys of the induction-head problem, the same for every command that has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gflow.config._base import Config
from gflow.config._checks import show
from gflow.config._rules import Choice, FiniteTokens, Limit, Rule, Text, flag, token_law
from gflow.errors import InputError

_INITIAL = Limit(1e-100, 10, "the flow starts from a small positive value; at 0 it never moves")
PROBLEM_RULES: dict[str, Rule] = {
    "L": Limit(4, 1e12, "the target needs at least 4 tokens"),
    "alpha_star": Limit(0, 1e6, "alpha* weighs the 4-gram part, and at 0 there is none", open_below=True),
    "w_star": Limit(0, 10, "w*^2 is the target's logit scale, and at 0 there is nothing to learn", open_below=True),
    "sigma_init": _INITIAL,
    "wK_init": _INITIAL,
    "wQ_init": _INITIAL,
    "tokens": token_law,
    "d": Limit(1, 4096, "tokens have d components", whole=True),
    "parametrization": Choice(("untied", "tied", "merged")),
    "evaluate": Choice(("exact", "sampled")),
    "samples": Limit(64, 2**26, "fewer sequences say nothing, more do not fit", whole=True),
    "scrambles": Limit(2, 64, "the standard error is that of independent scrambles", whole=True),
    "accuracy": Limit(0, 1, "a relative standard error of the loss", open_below=True, open_above=True),
    "out": Text("run.nc", (".nc",)),
    "plot": Text("run.png", (".png", ".pdf", ".svg")),
    "overwrite": flag,
    "seed": Limit(0, 2**63 - 1, "a seed is a non-negative integer", whole=True),
}
SAMPLED_KEYS = ("samples", "scrambles", "accuracy")
# keys that only one value of another key gives a meaning to, for every command
CONDITIONAL: dict[tuple[str, str], tuple[str, ...]] = {
    ("evaluate", "sampled"): SAMPLED_KEYS,
    ("parametrization", "untied"): ("wK_init", "wQ_init"),
}


@dataclasses.dataclass(frozen=True)
class ProblemConfig(Config):
    """What `gflow integrate` and `gflow train` share: the problem, its loss, the outputs.

    `wK_init`, `wQ_init`: where wK and wQ start; None: at `sigma_init`, like every other parameter.
    """

    L: float = 40.0
    alpha_star: float = 1.0
    w_star: float = 0.49
    sigma_init: float = 1e-2
    wK_init: float | None = None
    wQ_init: float | None = None
    tokens: str | FiniteTokens = "gaussian"
    d: int = 1
    parametrization: str = "untied"
    training: str = "second-layer"
    evaluate: str | None = None
    samples: int | None = None
    scrambles: int = 8
    accuracy: float | None = None
    seed: int = 0
    out: str | None = None
    plot: str | None = None
    overwrite: bool = False

    @classmethod
    def _settled(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return _evaluation(values)

    @property
    def balanced(self) -> bool:
        """Every parameter starts at `sigma_init`, as theory supposes."""
        return {self.wK_init or self.sigma_init, self.wQ_init or self.sigma_init} == {self.sigma_init}

    def _agree(self) -> None:
        _agree(self)
        if self.training != "second-layer":
            whole_length(self, "training")
        if self.evaluate == "sampled":
            whole_length(self, "evaluate")


def _evaluation(values: Any) -> dict[str, Any]:
    """Exact wherever there is an exact loss: at p11 = inf always, at finite p11 for gaussian tokens."""
    if values["evaluate"] is not None:
        return {}
    exact = values["training"] == "second-layer" or values["tokens"] == "gaussian"
    return {"evaluate": "exact" if exact else "sampled"}


def _agree(config: Any) -> None:
    """Cross checks of the problem's keys. Raises InputError."""
    if config.d > 1 and config.tokens != "gaussian":
        name = "finite" if isinstance(config.tokens, FiniteTokens) else config.tokens
        raise InputError(f"d = {config.d} needs gaussian tokens, and tokens = {name}; give d = 1 or gaussian tokens")
    if config.samples is not None and config.accuracy is not None:
        raise InputError(
            f"samples = {config.samples} and accuracy = {config.accuracy:g} exclude each other: "
            "an accuracy decides how many samples it needs; keep one"
        )


def whole_length(config: Any, key: str) -> None:
    """L must be whole for this value of `key`. Raises InputError."""
    if int(config.L) != config.L:
        raise InputError(
            f"L = {show(config.L)} is not a whole number, which {key} = {getattr(config, key)!r} needs "
            f"(a fraction has a meaning only for the exact loss at p11 = inf); give L = {round(config.L)}"
        )
