"""The configuration of `gflow train matrices`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gflow.config._base import Config
from gflow.config._checks import show
from gflow.config._problem import PROBLEM_RULES
from gflow.config._rules import Choice, Limit, Rule, Text, flag
from gflow.errors import InputError

LEARNING_RATES = {"adam": 1e-3, "sgd": 1.0, "momentum": 0.1}
LARGEST = 1 << 26  # numbers in one batch of all seeds: half a gigabyte in float64, of which a step keeps a few


@dataclasses.dataclass(frozen=True)
class MatricesConfig(Config):
    """The toy in R^d: problem, optimiser, how many seeds, outputs. Construction checks every value.

    Names are those of the flags with `_` for `-`. `None` leaves a choice to the command: `lr` 1e-3 (adam), 1 (sgd), .1
    (momentum); `steps` 600 (adam), 1500 (sgd, momentum), and with `test_mechanism` enough for every seed; `seeds` 4,
    with `test_mechanism` 20 of each rank; `d` 10, with `test_mechanism` 4. Raises InputError: one line that names the
    value, the limit and the way out.
    """

    d: int | None = None
    L: int = 32
    alpha_star: float = 1.0
    w_star: float = 1.0
    sigma_init: float = 1e-2
    optimizer: str = "adam"
    lr: float | None = None
    eps: float = 1e-8
    batch: int = 256
    steps: int | None = None
    every: int = 5
    evaluation: int = 2048
    seeds: int | None = None
    seed: int = 0
    precision: str = "float64"
    test_mechanism: bool = False
    out: str | None = None
    plot: str | None = None
    overwrite: bool = False

    rules: ClassVar[dict[str, Rule]] = {
        "d": Limit(1, 256, "tokens have d components, and matrices d x d", whole=True),
        "L": Limit(4, 4096, "the target needs at least 4 tokens", whole=True),
        "alpha_star": PROBLEM_RULES["alpha_star"],
        "w_star": PROBLEM_RULES["w_star"],
        "sigma_init": PROBLEM_RULES["sigma_init"],
        "optimizer": Choice(("adam", "sgd", "momentum")),
        "lr": Limit(0, 1e6, "a learning rate is positive", open_below=True),
        "eps": Limit(0, 1, "eps is added to the root of Adam's second moment", open_below=True),
        "batch": Limit(1, 2**20, "a batch has at least one sequence", whole=True),
        "steps": Limit(1, 10**7, "training takes at least one step", whole=True),
        "every": Limit(1, 10**6, "steps between records", whole=True),
        "evaluation": Limit(2, 2**20, "losses are recorded on this many sequences", whole=True),
        "seeds": Limit(1, 4096, "seeds run side by side", whole=True),
        "seed": Limit(0, 2**30, "seeds are numbered from this one on", whole=True),
        "precision": Choice(("float64", "float32")),
        "test_mechanism": flag,
        "out": Text("run.nc", (".nc",)),
        "plot": Text("run.png", (".png", ".pdf", ".svg")),
        "overwrite": flag,
    }
    conditional: ClassVar[dict[tuple[str, str], tuple[str, ...]]] = {("optimizer", "adam"): ("eps",)}

    def _agree(self) -> None:
        numbers = self.batch * self.L * (self.d or 4) * (self.seeds or 1)
        if numbers > LARGEST:
            raise InputError(
                f"batch * L * d * seeds = {numbers} numbers a step do not fit (at most {LARGEST}); "
                f"give a smaller one, for example batch = {show(max(1, self.batch * LARGEST // numbers))}"
            )
        if self.test_mechanism and self.optimizer != "adam":
            raise InputError(
                f"optimizer = {show(self.optimizer)}: the mechanism that test_mechanism tests is Adam's; "
                "leave one of the two out"
            )
