"""`train_matrices`: many seeds of the toy in R^d side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gflow.errors import InputError
from gflow.flows._interrupt import Interrupt
from gflow.training._optimizers import as_rule
from gflow.training.matrices._advance import QUANTITIES, Record, Setting, State, advance, begin
from gflow.training.matrices._model import Toy, seed_keys
from gflow.training.matrices._run import Failure, MatrixRun
from gflow.training.matrices.signs import sign_ranks

LEARNING_RATES = {"adam": 1e-3, "adamw": 1e-3, "sgd": 1.0, "gd": 1.0, "momentum": 0.1}
EXPLODED = 1e4  # times its start: a training loss above that will not come back
EVALUATION_SEED = 2**31 - 1  # of the evaluation sample, which is the same for all seeds and apart from all streams
ROWS = 8  # records in one call of the device: short enough to hear Ctrl-C
PRECISIONS = {"float64": jnp.float64, "float32": jnp.float32}

Progress = Callable[[dict[str, Any]], None]


def train_matrices(
    seeds: Sequence[int],
    *,
    d: int = 10,
    L: int = 32,
    alpha_star: float = 1.0,
    w_star: float = 1.0,
    sigma_init: float = 1e-2,
    optimizer: Any = "adam",
    lr: float | None = None,
    batch: int = 256,
    steps: int = 600,
    every: int = 5,
    evaluation: int = 2048,
    precision: str = "float64",
    progress: Progress | None = None,
) -> MatrixRun:
    """`params_{k+1} = params_k - lr direction(grad of Loss on a fresh batch)`, for every seed, all side by side.

    `Loss = E ||f* - out||^2 / (2 d)` with V1, V2, WK, WQ in R^{d x d} at first sigma_init N(0, 1), p21 at sigma_init.
    Arguments:
    - `seeds`: non-negative integers. A seed decides its initial matrices and its own stream of batches, whatever runs
      beside it.
    - `optimizer`: a name or a `gflow.training.optimizer(...)`; `lr`: by default 1e-3 (adam), 1 (sgd), .1 (momentum).
    - `batch`: sequences per step; `steps`; `every`: steps between records.
    - `evaluation`: sequences of the fixed sample on which losses are recorded.
    - `precision`: "float64" or "float32".
    - `progress`: called with a dict (step, loss) now and then.

    A loss, gradient or parameter that is not finite, or a training loss above 10^4 times its start, stops its seed:
    `.failures` names seed, step and quantity; what came before is kept. Ctrl-C keeps the records so far.
    Raises `InputError` for arguments that cannot be used. Source: MATH section 6; EXPERIMENTS (a).
    """
    began = time.perf_counter()
    _check(seeds, d, L, batch, steps, every, evaluation, precision)
    dtype = jnp.zeros((), PRECISIONS[precision]).dtype
    rule = as_rule(optimizer)
    rate = LEARNING_RATES.get(rule.name, 1.0) if lr is None else lr
    toy = Toy.of(d, L, alpha_star, w_star, dtype)
    sample = toy.sequences(jax.random.key(EVALUATION_SEED), evaluation)
    setting = Setting(toy, rule, jnp.asarray(rate, dtype), jnp.asarray(EXPLODED, dtype), sample, batch)
    keys = jax.vmap(seed_keys)(jnp.asarray(seeds))
    states, first = begin(setting, keys, jnp.asarray(sigma_init, dtype))
    ranks = sign_ranks(np.asarray(states.params.WK) + np.asarray(states.params.WQ))
    kept = [jax.tree.map(lambda x: np.asarray(x)[None], first)]
    at, status = [0], "reached_steps"
    rows = min(ROWS, -(-steps // every)) if steps else 0
    with Interrupt() as interrupt:
        while at[-1] < steps:
            states, records = advance(
                setting, states, jnp.asarray(at[-1]), jnp.asarray(steps), jnp.asarray(every), rows
            )
            new = [k for k in range(at[-1] + every, at[-1] + (rows + 1) * every, every) if k - every < steps]
            filled = slice(len(new))
            kept.append(jax.tree.map(lambda x, filled=filled: np.asarray(x)[filled], records))
            at += [min(k, steps) for k in new]
            alive = kept[-1].induction[-1][np.isfinite(kept[-1].induction[-1])]
            if len(alive) == 0:  # every seed has stopped
                break
            if progress is not None:
                progress({"step": at[-1], "steps": steps, "loss": float(alive.mean())})
            if interrupt.asked and at[-1] < steps:
                status = "interrupted"
                break
    failures = _failures(seeds, states)
    status = "failed" if failures and status == "reached_steps" else status
    run = _collect(seeds, at, kept, ranks, failures, status)
    run.seconds["train"] = time.perf_counter() - began
    return run


def _check(
    seeds: Sequence[int], d: int, L: int, batch: int, steps: int, every: int, evaluation: int, precision: str
) -> None:
    limits = {"d": (d, 1), "L": (L, 4), "batch": (batch, 1), "steps": (steps, 0), "every": (every, 1)}
    for name, (value, least) in (limits | {"evaluation": (evaluation, 2)}).items():
        if value < least:
            raise InputError(f"{name} = {value} is out of range; give a whole number >= {least}")
    if len(seeds) == 0:
        raise InputError("seeds is empty; give at least one, for example [0]")
    if min(seeds) < 0 or max(seeds) > 2**31 - 2:
        raise InputError(f"seeds: {min(seeds)} .. {max(seeds)} is out of range; give integers from 0 to 2147483646")
    if precision not in PRECISIONS:
        raise InputError(f"precision = {precision!r} is unknown; give one of {', '.join(PRECISIONS)}")
    if precision == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError("precision = 'float64' needs JAX_ENABLE_X64=1; unset JAX_ENABLE_X64, or give 'float32'")


def _failures(seeds: Sequence[int], states: State) -> list[Failure]:
    codes, steps = np.asarray(states.stopped_by), np.asarray(states.step)
    rows = zip(seeds, codes, steps, strict=True)
    return [Failure(int(seed), int(step) + 1, QUANTITIES[int(code)]) for seed, code, step in rows if code >= 0]


def _collect(
    seeds: Sequence[int], at: list[int], kept: list[Record], ranks: np.ndarray, failures: list[Failure], status: str
) -> MatrixRun:
    joined = jax.tree.map(lambda *x: np.moveaxis(np.concatenate(x), 0, 1).astype(float), *kept)
    # when all seeds have failed the rows after the last record of any of them say nothing
    last = int(np.max(np.flatnonzero(np.any(np.isfinite(joined.induction), axis=0)), initial=0)) + 1
    return MatrixRun(
        seeds=np.asarray(seeds, int),
        steps=np.asarray(at[:last], int),
        start_rank=ranks,
        failures=failures,
        status=status,
        **{name: getattr(joined, name)[:, :last] for name in Record.__dataclass_fields__},
    )
