"""Flags that several commands have, each described once. None: not given."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from cyclopts import Group, Parameter

PROBLEM = Group("Problem", sort_key=10)
STAGES = Group("Layer-wise training", sort_key=15)
SOLVER = Group("Solver", sort_key=20)
OPTIMIZER = Group("Optimiser", sort_key=20)
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
    wK_init: Annotated[
        float | None, flag("--wK-init", PROBLEM, "Initial value of wK, untied only. [default: sigma-init]")
    ] = None
    wQ_init: Annotated[
        float | None, flag("--wQ-init", PROBLEM, "Initial value of wQ, untied only. [default: sigma-init]")
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
class FlowFlags:
    """How a flow is integrated."""

    p11_until: Annotated[
        float | None, flag("--p11-until", STAGES, "Stage I ends when p11 reaches this. [default: 3]")
    ] = None
    stage1_t1: Annotated[float | None, flag("--stage1-t1", STAGES, "Stage I ends at this time.")] = None
    p11_after: Annotated[
        str | None, flag("--p11-after", STAGES, "p11 in stage II: infinite or reached. [default: infinite]")
    ] = None
    solver: Annotated[
        str | None,
        flag("--solver", SOLVER, "auto, tsit5, dopri5, dopri8, rodas5p, kvaerno3 or kvaerno5. [default: auto]"),
    ] = None
    rtol: Annotated[float | None, flag("--rtol", SOLVER, "Relative tolerance of a step. [default: 3e-9]")] = None
    atol: Annotated[
        float | None, flag("--atol", SOLVER, "Absolute tolerance. [default: rtol times the initial values]")
    ] = None
    t1: Annotated[float | None, flag("--t1", SOLVER, "End exactly there. [default: after the last milestone]")] = None
    max_steps: Annotated[int | None, whole("--max-steps", SOLVER, "Steps tried at most. [default: 1000000]")] = None


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class StepFlags:
    """How an optimiser takes its steps."""

    lr: Annotated[
        float | None, flag("--lr", OPTIMIZER, "Learning rate. [default: 0.5; momentum 0.05; adam, adamw 1e-3]")
    ] = None
    steps: Annotated[
        int | None, whole("--steps", OPTIMIZER, "End exactly there. [default: half as far again as the last milestone]")
    ] = None
    batch: Annotated[
        int | None, whole("--batch", OPTIMIZER, "Fresh sequences in each step. [default: the full gradient]")
    ] = None
    momentum: Annotated[float | None, flag("--momentum", OPTIMIZER, "Of momentum. [default: 0.9]")] = None
    b1: Annotated[float | None, flag("--b1", OPTIMIZER, "Of adam, adamw. [default: 0.9]")] = None
    b2: Annotated[float | None, flag("--b2", OPTIMIZER, "Of adam, adamw. [default: 0.999]")] = None
    eps: Annotated[float | None, flag("--eps", OPTIMIZER, "Of adam, adamw. [default: 1e-8]")] = None
    weight_decay: Annotated[float | None, flag("--weight-decay", OPTIMIZER, "Of adamw. [default: 1e-4]")] = None


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
