"""How far a discrete-time run is from the flow it discretises, and at which order in the learning rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from gflow.errors import InputError
from gflow.flows import GradientFlow, solve
from gflow.training._descend import descend
from gflow.training._optimizers import Rule, as_rule

RTOL = 1e-11  # of the flow: far below any distance of interest


@dataclasses.dataclass(frozen=True)
class FlowDistance:
    """`distances[i] = sup_k |params_k - params(k lr_i)|` (Euclidean) for k lr_i <= t1, and `times[i]` where it occurs.

    `order`: slope of log distance against log lr by least squares; `order_error`: its standard error (NaN for two).
    """

    lrs: np.ndarray
    distances: np.ndarray
    times: np.ndarray
    order: float
    order_error: float

    def __repr__(self) -> str:
        rows = [
            f"  lr {lr:<8g} distance {distance:.4g} at t = {time:.6g}"
            for lr, distance, time in zip(self.lrs, self.distances, self.times, strict=True)
        ]
        return "\n".join([f"FlowDistance: order {self.order:.4g} +- {self.order_error:.1g} in lr", *rows])


def distance_to_flow(
    loss: Callable[[Any], Any],
    params: PyTree,
    optimizer: Any,
    lrs: Sequence[float | int],
    t1: float | int,
    *,
    trainable: Any = None,
) -> FlowDistance:
    """`sup_{k lr <= t1} |theta_k - theta(k lr)|` for each lr, theta(t) the gradient flow from the same `params`.

    `optimizer`: "gd" or "sgd", of `d theta/dt = -grad loss`, or "momentum", of the flow `1/(1 - momentum)` times as
    fast. (Adam follows another flow.) Every step is compared. Source: Euler's method, first order.
    Raises `InputError` for another optimiser, fewer than two rates, or rates that do not fit into t1.
    """
    rule = as_rule(optimizer)
    if not isinstance(rule, Rule) or rule.name not in ("gd", "sgd", "momentum"):
        raise InputError(f"distance_to_flow: {rule.name} does not discretise the gradient flow; use gd or momentum")
    rates = np.sort(np.asarray(lrs, dtype=float))[::-1]
    if len(np.unique(rates)) < 2 or not np.all((rates > 0) & (rates <= t1)):
        raise InputError(f"distance_to_flow: give at least two different rates in (0, t1 = {t1:g}], got {list(lrs)}")
    pace = 1.0 if rule.name != "momentum" else 1.0 / (1.0 - float(rule.numbers["momentum"]))
    flow = solve(GradientFlow(loss, trainable=trainable, rates=pace), params, t1=float(t1), rtol=RTOL, throw=True)
    found = [_compare(loss, params, rule, lr, flow, trainable) for lr in rates]
    distances, times = (np.array(column) for column in zip(*found, strict=True))
    if not np.all(distances > 0):
        raise InputError("distance_to_flow: the run and the flow agree exactly, so there is no order to measure")
    order, error = _slope(np.log(rates), np.log(distances))
    return FlowDistance(rates, distances, times, order, error)


def _compare(loss: Any, params: PyTree, rule: Rule, lr: float, flow: Any, trainable: Any) -> tuple[float, float]:
    steps = int(np.floor(flow.t1_reached / lr * (1 + 1e-12)))
    run = descend(loss, params, rule, steps, lr=float(lr), trainable=trainable, save=None, throw=True)
    exact = flow.at(np.minimum(run.ts, flow.t1_reached))
    square = np.zeros(len(run.ts))
    for mine, its in zip(jax.tree.leaves(run.params), jax.tree.leaves(exact), strict=True):
        square = square + np.sum((mine - its).reshape(len(square), -1) ** 2, axis=1)
    worst = int(np.argmax(square))
    return float(np.sqrt(square[worst])), float(run.ts[worst])


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares slope and its standard error."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = float(dx @ dy / (dx @ dx))
    free = len(x) - 2
    residual = dy - slope * dx
    return slope, float(np.sqrt(residual @ residual / free / (dx @ dx))) if free else float("nan")
