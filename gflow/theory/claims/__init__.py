"""The statements of the theory, each with the law it must obey and a wrong law that must be rejected.

Names are known without JAX; `load` imports the claims themselves. docs/claims.md lists them.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gflow.errors import InputError

if TYPE_CHECKING:
    from gflow.theory.claims._claim import Claim

# module -> its claims, in the order in which they are told
MODULES: dict[str, tuple[str, ...]] = {
    "start": ("initial-rate-v2", "initial-rate-wK", "initial-rate-wK-literal"),
    "fourgram": ("fourgram-time", "fourgram-time-50", "phase-I-order-one", "phase-I-uniform", "fourgram-late"),
    "growth": ("plateau-level", "plateau-reached", "plateau-growth", "growth-rate-large-L"),
    "escape": ("slope", "escape-times", "leading-constant"),
    "powers": ("exponent-L", "exponent-log-sigma", "exponent-alpha", "exponent-w"),
    "selection": ("law-selection", "exponents-pointwise", "plateau-saddle"),
    "order": (
        "separation-product",
        "separation-alpha",
        "plateau-fraction",
        "initial-99-until-T_II",
        "phase-I-99",
        "phase-I-relaxation",
    ),
    "late": ("induction-late", "loss-never-increases", "balance-conserved", "blocks-independent"),
    "first_layer": ("stage-I-log", "stage-I-pull"),
    "joint": ("joint-order", "joint-order-any-sigma", "joint-plateau", "joint-late"),
    "sampled": ("sampled-emergence",),
    "discrete": ("descent-follows-flow", "adam-no-plateau", "boolean-tokens"),
}
NAMES = tuple(name for names in MODULES.values() for name in names)


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, in the order of the list; all if there are none. Raises `InputError` for one unknown."""
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.4)
            hint = f"did you mean '{near[0]}'?" if near else "gflow verify --list names them"
            raise InputError(f"there is no claim {name!r}; {hint}")
    return tuple(name for name in NAMES if name in names) if names else NAMES


def load(names: Sequence[str] = NAMES) -> list[Claim]:
    """The claims of these names."""
    found: dict[str, Claim] = {}
    for module, mine in MODULES.items():
        if set(mine) & set(names):
            claims = importlib.import_module(f"gflow.theory.claims.{module}").CLAIMS
            found |= {claim.name: claim for claim in claims}
    return [found[name] for name in names]
