"""The host side of a descent: chunks of steps, growth of tables, Ctrl-C, and what is known at the end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gflow.conditions import Condition
from gflow.errors import InputError, TableError
from gflow.flows import GradientFlow
from gflow.flows._driver import grow
from gflow.flows._initial import check_finite, precision
from gflow.flows._interrupt import Interrupt
from gflow.flows._persist import leaf_names
from gflow.training import _chunk
from gflow.training._chunk import DOMAIN, GOING, GRADIENT, LARGE, LOSS, PARAMETER, State, Task
from gflow.training._curvature import advice
from gflow.training._descent import Descent, Path
from gflow.training._optimizers import Schedule
from gflow.training._rows import Saving
from gflow.training._status import Outcome, StepMilestone

Progress = Callable[[dict[str, Any]], None]

ROWS = 64  # rows of the path in one call of the device
FIRST_STEPS = 16  # of the first call, before a step's price is known
CALL_SECONDS = 0.3  # of a call: enough to keep the device busy, short enough to hear Ctrl-C


class Run:
    """The host side: chunks of steps, rows, growth of tables, Ctrl-C."""

    def __init__(
        self,
        loss: Any,
        params: PyTree,
        rule: Any,
        schedule: Schedule,
        conditions: dict[str, Any],
        trainable: Any,
        batches: Any,
        key: Any,
        explode: float | int,
    ) -> None:
        flow = GradientFlow(loss, trainable=trainable)
        self.dtype = precision(params)
        check_finite(params)
        for name, condition in conditions.items():
            if not isinstance(condition, Condition):
                kind = type(condition).__name__
                raise InputError(f"milestone {name!r}: expected Below, Above or Crosses, got {kind}")
        if not explode > 1:
            raise InputError(f"explode = {explode} must exceed 1: it is a multiple of the loss at the start")
        self.params, self.rule, self.schedule, self.conditions = params, rule, schedule, conditions
        self.explode = explode
        moving, frozen = eqx.partition(params, flow.mask(params))
        _check_scalar(loss, params, self.dtype)
        functions, index = _distinct(list(conditions.values()))
        domain = getattr(loss, "domain", None)
        if domain is not None and not bool(jnp.all(domain(params))):
            loss, functions = grow(loss, params), tuple(grow(f, params) for f in functions)
        value, values, optimizer = _chunk.start(loss, functions, rule, moving, frozen)
        self.start = float(value)
        if not np.isfinite(self.start):
            raise InputError(f"loss: its value at the initial parameters is {self.start}, not a finite number")
        picked = values[np.array(index, int)]
        level, sign = self._levels(np.asarray(picked))
        first = np.where(sign * (np.asarray(picked) - level) >= 0, 0, -1)
        ceiling = explode * abs(self.start) if self.start else np.inf
        self.task = Task(
            loss=loss,
            batches=batches,
            key=_key(key) if batches is not None else None,
            rule=rule.plain(),
            rate=schedule.rate,
            frozen=frozen,
            functions=functions,
            index=index,
            level=jnp.asarray(level, self.dtype),
            sign=jnp.asarray(sign, self.dtype),
            ceiling=jnp.asarray(ceiling, self.dtype),
            tail=jnp.asarray(-1.0, self.dtype),
            steps=jnp.asarray(0),
        )
        zero = jnp.asarray(0)
        self.state = State(
            zero, moving, moving, moving, optimizer, value, values, jnp.asarray(first),
            jnp.zeros(len(index), self.dtype), zero + GOING, zero,
        )  # fmt: skip
        self.path = Path(frozen)
        self.refused = ""  # why a table could not grow

    def _levels(self, picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level, sign = np.zeros(len(picked)), np.zeros(len(picked))
        for i, (name, condition) in enumerate(self.conditions.items()):
            if not np.isfinite(picked[i]):
                raise InputError(f"milestone {name!r}: its function is {picked[i]} at the initial parameters")
            level[i] = float(condition.resolve(jnp.asarray(picked[i])))
            sign[i] = condition.direction or (1.0 if picked[i] <= level[i] else -1.0)
        return level, sign

    def run(
        self,
        steps: int | None,
        max_steps: int,
        tail: float | int,
        saving: Saving,
        interrupt: Interrupt,
        progress: Progress | None,
    ) -> Descent:
        """Step until something ends it."""
        limit = max_steps if steps is None else steps
        tail = tail if steps is None else -1.0
        self.task = dataclasses.replace(self.task, steps=jnp.asarray(limit), tail=jnp.asarray(tail, self.dtype))
        self._keep_now()
        budget, cold = FIRST_STEPS, True
        while True:
            before = int(self.state.step)
            targets, keep, _ = saving.plan(before, min(budget, limit - before), ROWS)
            began = time.perf_counter()
            self.state, rows, over = _chunk.advance(self.task, self.state, jnp.asarray(targets), jnp.asarray(keep))
            code, step = int(self.state.code), int(self.state.step)
            seconds = time.perf_counter() - began
            self.path.extend(jax.device_get(rows))
            if not cold and step > before:  # the first call compiles, so its time says nothing
                budget = int(np.clip(budget * CALL_SECONDS / seconds, budget / 4, budget * 16))
            cold = False
            budget = max(budget, 1)
            if progress is not None:
                progress(self._report())
            if code == DOMAIN:
                self._grow()
                if self.refused:
                    break
            elif bool(over) or interrupt.asked:
                break
        status, detail = self._outcome(steps, bool(over))
        milestones = self._milestones(steps, status)
        self._finish()
        return self._descent(status, detail, milestones)

    def _report(self) -> dict[str, Any]:
        """Where it stands, for a progress line."""
        k, firsts = int(self.state.step), np.asarray(self.state.first)
        names = [name for name, first in zip(self.conditions, firsts, strict=True) if first >= 0]
        loss = float(self.state.loss)
        return {"step": k, "t": self.schedule.time(k), "loss": loss, "found": names, "wanted": len(self.conditions)}

    def _keep_now(self) -> None:
        """The present state as a row of the path, if its loss is finite."""
        here = jnp.asarray(self.state.step)[None]
        _, rows, _ = _chunk.advance(self.task, self.state, jnp.repeat(here, ROWS), jnp.arange(ROWS) == 0)
        self.path.extend(jax.device_get(rows))

    def _grow(self) -> None:
        """Tables of the loss, and of watched functions, large enough for where the step leads."""
        proposed = self.task.full(self.state.proposed)
        try:
            loss = grow(self.task.loss, proposed)
            functions = tuple(grow(f, proposed) for f in self.task.functions)
        except TableError as error:
            self.refused = f"the step after step {int(self.state.step)} leaves what the loss can evaluate: {error}"
            return
        self.task = dataclasses.replace(self.task, loss=loss, functions=functions)
        self._resume()

    def _resume(self) -> None:
        self.state = dataclasses.replace(self.state, code=jnp.zeros_like(self.state.code))

    def _finish(self) -> None:
        """The last state as the last row; the one before it if the loss is not finite there."""
        self._resume()
        if self.path.last_step != int(self.state.step):
            self._keep_now()
        if self.path.last_step != int(self.state.step) and int(self.state.step) > 0:
            earlier = self.state.step - 1
            self.state = dataclasses.replace(self.state, step=earlier, params=self.state.previous)
            if self.path.last_step != int(earlier):
                self._keep_now()

    def _outcome(self, steps: int | None, over: bool) -> tuple[Outcome, str]:
        """Status and message, while the state still says why it stopped."""
        k, code = int(self.state.step), int(self.state.code)
        what = f"step {k}, t = {self.schedule.time(k):.6g}"
        if code == GOING and not over:
            return Outcome.interrupted, f"interrupted at {what}"
        if code == GOING and steps is not None:
            return Outcome.reached_steps, f"all {steps} steps were made"
        if code == GOING:
            if np.all(np.asarray(self.state.first) >= 0):
                return Outcome.milestones_reached, "every milestone was found"
            return Outcome.max_steps, f"{k} steps were made and a milestone is still missing"
        value = float(self.state.loss)
        of = "training loss" if self.task.batches is not None else "loss"
        leaf = leaf_names(self.state.params)[int(self.state.leaf)]
        text = {
            LOSS: f"the {of} is {value} at {what}",
            GRADIENT: f"the gradient of {leaf} is not finite at {what}",
            PARAMETER: f"{leaf} is not finite after step {k + 1}",
            LARGE: f"the {of} is {value:.4g} at {what}, above {self.explode:g} times its start, {self.start:.4g}",
            DOMAIN: self.refused,
        }[code]
        return (Outcome.diverged if code in (LARGE, DOMAIN) else Outcome.non_finite), text

    def _milestones(self, steps: int | None, status: Outcome) -> dict[str, StepMilestone]:
        firsts, fractions = np.asarray(self.state.first), np.asarray(self.state.fraction)
        values, end = np.asarray(self.state.values), int(self.state.step)
        found = {}
        for i, (name, condition) in enumerate(self.conditions.items()):
            level = float(self.task.level[i])
            text = f"{condition.word} {level:.6g}"
            if firsts[i] >= 0:
                first = int(firsts[i])
                step = first - 1 + float(fractions[i]) if first else 0.0
                reason = "interpolated between two steps" if first else "already true at the start"
                at = (step, first)
                found[name] = StepMilestone(self.schedule.time(step), None, "", "reached", reason, level, text, *at)
                continue
            kind = "not_reached_by_t1" if steps is not None and status is Outcome.reached_steps else "solver_stopped"
            value = float(values[self.task.index[i]])
            reason = f"the run ended at step {end} with the value {value:.6g}, level {level:.6g}"
            found[name] = StepMilestone(None, None, "", kind, reason, level, text)
        return found

    def _descent(self, status: Outcome, detail: str, milestones: dict[str, StepMilestone]) -> Descent:
        steps = self.path.steps
        remedy = status.remedy
        if status in (Outcome.diverged, Outcome.non_finite):
            about_lr = advice(self.task.loss, self.path, self.rule, self.start)
            remedy = remedy.replace("use a smaller lr", about_lr or "use a smaller lr")
        return Descent(
            steps=steps,
            ts=np.array([self.schedule.time(int(k)) for k in steps]),
            params=self.path.params,
            losses=self.path.losses,
            milestones=milestones,
            status=status,
            message=f"{detail}; {remedy}" if remedy else detail,
            optimizer=self.rule.name,
            stats={"steps": int(steps[-1])},
        )


def _check_scalar(loss: Any, params: PyTree, dtype: Any) -> None:
    shape = eqx.filter_eval_shape(loss, params)
    if getattr(shape, "shape", None) != () or shape.dtype != dtype:
        raise InputError(f"loss: it must return one {dtype} scalar for {dtype} parameters, got {shape}")


def _key(key: Any) -> Any:
    if key is None:
        raise InputError("descend: batches are drawn at random; give key, for example key=0")
    return jax.random.key(key) if isinstance(key, int) else key


def _distinct(conditions: list[Condition]) -> tuple[tuple[Callable[[Any], Any], ...], tuple[int, ...]]:
    """The functions that the conditions read, each once, and which of them each condition reads."""
    functions: list[Callable[[Any], Any]] = []
    index = []
    for condition in conditions:
        place = next((i for i, f in enumerate(functions) if f is condition.f), len(functions))
        if place == len(functions):
            functions.append(condition.f)
        index.append(place)
    return tuple(functions), tuple(index)
