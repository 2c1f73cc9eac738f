"""`descend`: discrete-time training, the counterpart of `solve`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError, SolveError
from gflow.flows._initial import as_arrays
from gflow.flows._interrupt import Interrupt
from gflow.training._descent import Descent
from gflow.training._optimizers import LEARNING_RATES, Rule, Schedule, as_rule
from gflow.training._rows import Saving
from gflow.training._run import Progress, Run

EXPLODED = 1e4  # times its start: a loss above that will not come back


def descend(
    loss: Callable[[Any], Any],
    params: PyTree,
    optimizer: Any = "gd",
    steps: int | None = None,
    *,
    lr: float | int | Callable[[Any], Any] | None = None,
    milestones: Mapping[str, Any] | None = None,
    trainable: Any = None,
    batches: Callable[[Any], Any] | None = None,
    key: Any = None,
    save: Any = 100,
    max_steps: int = 1_000_000,
    tail: float | int = 0.0,
    explode: float | int = EXPLODED,
    throw: bool = False,
    progress: Progress | None = None,
) -> Descent:
    """Train in discrete time: `params_{k+1} = params_k - lr(k) * direction(gradient_k)`, at time `sum of lr`.

    With `steps` the run ends exactly there. Without, it ends when every milestone is found (then goes on for `tail`
    times as many steps), or after `max_steps`. It returns what it has, with a status that says why it ended.

    Arguments:
    - `loss`: any pure JAX function `params -> scalar`. Its gradient drives the steps unless `batches` is given; rows
      and milestones are always evaluated on it and on the milestones' own functions, so they carry no batch noise.
    - `optimizer`: "gd" or "sgd", "momentum", "adam", "adamw", one of those with numbers (`optimizer("adam", b2=0.99)`),
      or an optax `GradientTransformation`, which has its own learning rate: `lr` then only tells time.
    - `lr`: a positive number or a schedule `k -> lr`; default .5 (gd, sgd), .05 (momentum), 1e-3 (adam, adamw).
    - `milestones`: name -> `Below`, `Above` or `Crosses`, looked at after every step; `step` and `time` are
      interpolated between the two steps that enclose the crossing.
    - `trainable`: as in `GradientFlow`. `batches`: key -> loss-like function, called afresh at each step with
      `fold_in(key, step)`: pure JAX. `key`: a JAX key or a whole number.
    - `save`: rows of the path per decade of steps, None for every step, or an array of steps. The end is always kept.
    - `explode`: the run has diverged when the loss exceeds this multiple of its start.
    - `progress`: called with a dict (step, t, loss, found, wanted) now and then.

    A loss, gradient or parameter that is not finite, or a loss that explodes, ends the run: `status` and `message` name
    the step and the quantity, and the path up to it is kept. Raises `InputError` for arguments that cannot be used,
    `SolveError` (with `.trajectory`) if `throw`.
    """
    began = time.perf_counter()
    rule = as_rule(optimizer)
    if lr is None:
        lr = LEARNING_RATES[rule.name] if isinstance(rule, Rule) else 1.0
    run = Run(loss, as_arrays(params), rule, Schedule(lr), dict(milestones or {}), trainable, batches, key, explode)
    _check_steps(steps, max_steps, tail, run.conditions)
    saving = Saving(save)
    with Interrupt() as interrupt:
        descent = run.run(steps, max_steps, tail, saving, interrupt, progress)
    descent.seconds["solve"] = time.perf_counter() - began
    if throw and not descent.status.ok:
        raise SolveError(descent.message, descent)
    return descent


def _check_steps(steps: int | None, max_steps: int, tail: float | int, conditions: Mapping[str, Any]) -> None:
    for name, value, least in (("steps", steps, 0), ("max_steps", max_steps, 1)):
        if value is not None and (isinstance(value, bool) or int(value) != value or value < least):
            raise InputError(f"{name} = {value} must be a whole number, at least {least}")
    if steps is None and not conditions:
        raise InputError("descend: give steps, or milestones to stop at")
    if not (np.isfinite(tail) and tail >= 0):
        raise InputError(f"tail = {tail} must be zero or positive")
