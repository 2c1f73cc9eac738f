"""The runs of an ablation, one after another in one process: what fails, or is interrupted, costs no finished run."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable
from typing import Any

from gflow.cli import _ablation, _descend, _run, integrate, train
from gflow.cli._finish import attempt, write
from gflow.cli._output import Output
from gflow.cli._prepare import describe
from gflow.config import TrainConfig
from gflow.config.compare import CompareConfig
from gflow.errors import GflowError

SYMBOLS = {"alpha-star": "$\\alpha^*$ = ", "w-star": "$w^*$ = ", "sigma-init": "$\\sigma$ = ", "L": "$L$ = "}
NAMES = {"flow": "gradient flow", "gd": "GD", "sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@dataclasses.dataclass
class Variant:
    """One run of the ablation: its trajectory and JSON document; `failure`: what went wrong, in a line."""

    value: str
    run: Any
    document: dict[str, Any]
    failure: str | None = None


@dataclasses.dataclass
class Ablation:
    """The runs begun so far."""

    config: CompareConfig
    variants: list[Variant] = dataclasses.field(default_factory=list)
    problems: dict[str, str] = dataclasses.field(default_factory=dict)
    interrupted: bool = False

    @property
    def times(self) -> list[_ablation.Times | None]:
        """Milestones of each value; None for one without a run."""
        runs = {variant.value: variant.run for variant in self.variants}
        found = [runs.get(value) for value in self.config.values]
        return [None if run is None else _ablation.times_of(run) for run in found]

    @property
    def plateau(self) -> dict[str, list[Any]]:
        """How long each run waits."""
        return _ablation.plateau(self.times, [settings.sigma_init for settings in self.config.runs])

    @property
    def shows(self) -> list[str]:
        """What the numbers say."""
        config = self.config
        return _ablation.shows(config.key, config.values, config.numbers, self.times, self.plateau)

    @property
    def files(self) -> list[str]:
        """What was written."""
        wanted = [*self.config.outs[: len(self.variants)], *([self.config.plot] if self.config.plot else [])]
        return [path for path in wanted if path not in self.problems and os.path.exists(path)]

    @property
    def status(self) -> str:
        """done, failed or interrupted."""
        return "interrupted" if self.interrupted else "failed" if self.problems else "done"

    def drawn(self) -> dict[str, Any]:
        """Name in a figure -> run, of those that have begun."""
        key = self.config.key
        return {
            SYMBOLS.get(key, "") + (NAMES.get(v.value, v.value) if key == "optimizer" else v.value): v.run
            for v in self.variants
            if v.run is not None and float(v.run.ts[-1]) > float(v.run.t0)  # a run without any length is no curve
        }


def run_all(ablation: Ablation, output: Output, leave: Callable[[], None], *, debug: bool) -> None:
    """Run the variants in turn into `ablation`; `leave` as in `_run.run`. Stops at an interruption."""
    config = ablation.config
    for value, settings in zip(config.values, config.runs, strict=True):
        output.remark(f"{config.key} = {value}: {describe(settings)}")
        notes: dict[str, str] = {}
        try:
            variant = (_train if isinstance(settings, TrainConfig) else _integrate)(
                value, settings, output, leave, notes
            )
        except KeyboardInterrupt:
            ablation.interrupted = True
            return
        except Exception as error:  # one variant's failure, foreseen or not, must not cost the others
            if debug:
                traceback.print_exc()
            text = " ".join(str(error).split())
            text = text if isinstance(error, GflowError) else f"unexpected {type(error).__name__}: {text}"
            document = {
                "status": "failed",
                "message": text,
                "error": type(error).__name__,
                "config": settings.as_dict(),
            }
            variant = Variant(value, None, document, text)
        ablation.variants.append(variant)
        ablation.problems |= {what if what == settings.out else f"{value}: {what}": t for what, t in notes.items()}
        if variant.run is not None and variant.run.status.value == "interrupted":
            ablation.interrupted = True
            return
        if variant.failure is not None:
            ablation.problems[value] = f"{config.key} = {value}: {variant.failure}"
            output.warn(ablation.problems[value])


def _integrate(value: str, settings: Any, output: Output, leave: Callable[[], None], notes: dict[str, str]) -> Variant:
    finished = _run.run(settings, output, leave)
    traj = finished.traj
    if traj.status.value != "interrupted":
        attempt(notes, "theory", lambda _: _run.compare(finished, settings, output))
    write(traj, settings, output, notes, draw_too=False)
    return Variant(value, traj, integrate.document(finished, settings, notes), _failure(traj))


def _train(value: str, settings: Any, output: Output, leave: Callable[[], None], notes: dict[str, str]) -> Variant:
    trained = _descend.run(settings, output, leave)
    descent = trained.descent
    write(descent, settings, output, notes, draw_too=False)
    return Variant(value, descent, train.document(trained, notes), _failure(descent))


def _failure(run: Any) -> str | None:
    fine = run.status.ok and getattr(run, "finished", True)
    return None if fine or run.status.value == "interrupted" else run.message
