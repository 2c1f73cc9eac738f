"""Flags that several commands have, each described once. None: not given."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from cyclopts import Group, Parameter

PROBLEM = Group("Problem", sort_key=10)
OUTPUT = Group("Output", sort_key=90)


def flag(name: str, group: Group, text: str) -> Parameter:
    """A flag of that name."""
    return Parameter(name=name, group=group, help=text)


def whole(name: str, group: Group, text: str) -> Parameter:
    """A flag for a whole number, which may be written 1e5."""
    return Parameter(name=name, group=group, help=text, converter=_integer)


def _integer(type_: Any, tokens: Any) -> int:
    """A whole number; cyclopts' own conversion rounds 2.5 to 2 without a word."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():
        raise ValueError(f'"{text}" is not a whole number.')
    return int(value)


def given(*groups: Any) -> dict[str, Any]:
    """The flags of these dataclasses that were given, by the names that a configuration has for them."""
    flags = {field.name: getattr(group, field.name) for group in groups for field in dataclasses.fields(group)}
    return {name: value for name, value in flags.items() if value is not None and value is not False}


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Common:
    """How a command reports."""

    json: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, group=OUTPUT, help="Print one JSON object on stdout, all else on stderr."
        ),
    ] = False
    quiet: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="No progress and no remarks.")
    ] = False
    debug: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Show the traceback of an error.")
    ] = False


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class ProblemFlags:
    """The induction-head problem and its loss."""

    L: Annotated[float | None, flag("--L", PROBLEM, "Sequence length, real and >= 4. [default: 40]")] = None
    alpha_star: Annotated[
        float | None,
        flag("--alpha-star", PROBLEM, "Weight of the 4-gram part against the induction part. [default: 1]"),
    ] = None
    w_star: Annotated[
        float | None, flag("--w-star", PROBLEM, "Square root of the target's logit scale. [default: 0.49]")
    ] = None
    sigma_init: Annotated[
        float | None, flag("--sigma-init", PROBLEM, "Initial value of every parameter. [default: 0.01]")
    ] = None
    tokens: Annotated[
        str | None,
        flag("--tokens", PROBLEM, "gaussian, rademacher or uniform (a finite law: in TOML). [default: gaussian]"),
    ] = None
    d: Annotated[int | None, whole("--d", PROBLEM, "Dimension of a token. [default: 1]")] = None
    parametrization: Annotated[
        str | None, flag("--parametrization", PROBLEM, "untied, tied or merged. [default: untied]")
    ] = None
    training: Annotated[str | None, flag("--training", PROBLEM, "What is trained. [default: second-layer]")] = None
    evaluate: Annotated[
        str | None, flag("--evaluate", PROBLEM, "exact or sampled. [default: exact, where there is an exact loss]")
    ] = None
    samples: Annotated[int | None, whole("--samples", PROBLEM, "Sampled: how many sequences.")] = None
    scrambles: Annotated[
        int | None, whole("--scrambles", PROBLEM, "Sampled: independent sets, for the error. [default: 8]")
    ] = None
    accuracy: Annotated[
        float | None, flag("--accuracy", PROBLEM, "Sampled: relative error of the loss, instead of --samples.")
    ] = None
    seed: Annotated[
        int | None,
        whole("--seed", PROBLEM, "Of whatever is drawn at random; the exact loss uses no randomness. [default: 0]"),
    ] = None


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class OutputFlags:
    """Files to write."""

    out: Annotated[str | None, flag("--out", OUTPUT, "Save the run (.nc, netCDF).")] = None
    plot: Annotated[str | None, flag("--plot", OUTPUT, "Draw it (.png, .pdf or .svg).")] = None
    overwrite: Annotated[
        bool,
        Parameter(name="--overwrite", negative="", show_default=False, group=OUTPUT, help="Replace existing outputs."),
    ] = False
