"""What `gflow train matrices` computes, and what it says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gflow.cli._output import Output
from gflow.cli._prepare import watched
from gflow.cli._signals import prompt_exit
from gflow.config.matrices import LEARNING_RATES, MatricesConfig
from gflow.io.atomic import atomic_path
from gflow.io.compilation import prefer_quick_compilation

FRACTIONS = {"50%": 0.5, "10%": 0.1, "1%": 0.01}


@dataclasses.dataclass
class Trained:
    """A run, and the test of the mechanism if it was asked for."""

    run: Any
    mechanism: Any = None
    surprises: list[str] = dataclasses.field(default_factory=list)  # verdicts that are not the expected ones


def part(settings: MatricesConfig) -> str:
    """The loss whose plateaus are shown: SGD waits in the total, Adam in the induction part."""
    return "induction" if settings.optimizer == "adam" and settings.eps < 1e-5 else "total"


def opening(settings: MatricesConfig) -> str:
    """What is going to be done, in words."""
    seeds = settings.seeds or (20 if settings.test_mechanism else 4)
    return (
        f"{settings.optimizer} on matrices: d = {_dimension(settings)}, L = {settings.L}, "
        f"alpha* = {settings.alpha_star:g}, w* = {settings.w_star:g}, sigma_init = {settings.sigma_init:g}, "
        f"{seeds} seeds{' of each rank' if settings.test_mechanism else ''}"
    )


def run(settings: MatricesConfig, output: Output, leave: Callable[[], None]) -> Trained:
    """Train what `settings` describes; `leave` is called before a phase with nothing to save is cut short."""

    def told(news: dict[str, Any]) -> None:
        alive()
        output.progress(f"step {news['step']} of {news['steps']}, mean induction loss {news['loss']:.3g}")

    with prompt_exit(leave):
        output.phase("loading JAX")
        import gflow

        gflow.enable_compilation_cache()
        prefer_quick_compilation()
        from gflow.io.provenance import provenance
        from gflow.training import optimizer
        from gflow.training.matrices import mechanism_test, train_matrices
        from gflow.training.matrices._verdicts import surprises

    with watched(leave, {}) as alive:
        numbers = {"eps": settings.eps} if settings.optimizer == "adam" else {}
        training: dict[str, Any] = {
            "optimizer": optimizer(settings.optimizer, **numbers),
            "lr": LEARNING_RATES[settings.optimizer] if settings.lr is None else settings.lr,
            "progress": told,
            **{key: getattr(settings, key) for key in _PASSED},
        }
        output.phase("training")
        if settings.test_mechanism:
            if settings.steps is not None:
                training["steps"] = settings.steps
            found = mechanism_test(_dimension(settings), settings.seeds or 20, settings.seed, **training)
            trained = Trained(found.run, found, surprises(found, _as_expected(settings)))
        else:
            steps = settings.steps or (600 if settings.optimizer == "adam" else 1500)
            chosen = range(settings.seed, settings.seed + (settings.seeds or 4))
            trained = Trained(train_matrices(chosen, d=_dimension(settings), steps=steps, **training))
    trained.run.provenance.update(provenance(settings.as_dict()))
    return trained


_PASSED = ("L", "alpha_star", "w_star", "sigma_init", "batch", "every", "evaluation", "precision")


def _dimension(settings: MatricesConfig) -> int:
    return settings.d or (4 if settings.test_mechanism else 10)


def _as_expected(settings: MatricesConfig) -> bool:
    """Are these the settings for which verdicts are known? Seeds and precision may differ."""
    usual = MatricesConfig()
    free = {"d", "seed", "seeds", "precision", "test_mechanism", "every", "evaluation", "out", "plot", "overwrite"}
    return (
        all(
            getattr(settings, f.name) == getattr(usual, f.name) for f in dataclasses.fields(usual) if f.name not in free
        )
        and (settings.seeds or 20) >= 20
    )


def draw(found: Any, settings: MatricesConfig, path: str) -> None:
    """The figure, to a file."""
    from gflow.plots.matrices import matrices

    figure = matrices(found, part=part(settings))
    with atomic_path(path, settings.overwrite) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower())


def document(trained: Trained, settings: MatricesConfig) -> dict[str, Any]:
    """What --json prints, but for the problems of the outputs."""
    from gflow.training.matrices import spread

    found = trained.run
    waits = found.plateaus(part(settings))
    times = {name: found.passage(share) for name, share in FRACTIONS.items()}
    rows = [
        {
            "seed": int(seed),
            "start_rank": int(found.start_rank[i]),
            "steps_to": {name: float(values[i]) for name, values in times.items()},
            "plateaus": [dataclasses.asdict(plateau) for plateau in waits[i]],
            "singular_KQ": found.singular_KQ[i, -1].tolist(),
            "final": {"fourgram": float(found.fourgram[i, -1]), "induction": float(found.induction[i, -1])},
        }
        for i, seed in enumerate(found.seeds)
    ]
    about = {
        "status": found.status,
        "config": settings.as_dict() | {"d": _dimension(settings)},
        "steps": int(found.steps[-1]),
        "plateaus_of": part(settings),
        "steps_to": {name: spread(values) for name, values in times.items()},
        "steps_to_total": {name: spread(found.passage(share, "total")) for name, share in FRACTIONS.items()},
        "start": {
            "fourgram": float(found.fourgram[:, 0].mean()),
            "induction": float(found.induction[:, 0].mean()),
            "standard_error": float(found.induction_error[:, 0].mean()),
        },
        "seeds": rows,
        "failures": [dataclasses.asdict(failure) for failure in found.failures],
        "seconds": found.seconds,
        "provenance": {key: value for key, value in found.provenance.items() if key != "config"},
    }
    if trained.mechanism is not None:
        about["mechanism"] = trained.mechanism.as_dict() | {"surprises": trained.surprises}
    return about


def table(trained: Trained, about: dict[str, Any]) -> str:
    """The same for people."""
    if trained.mechanism is not None:
        return trained.mechanism.report()
    heading = f"interior plateaus of the {about['plateaus_of']} loss"
    lines = ["", f"{'':>13}  steps to x of the induction loss", f"{'seed':>7} {'rank':>5} {_names()}  {heading}"]
    for row in about["seeds"]:
        times = " ".join(_number(value) for value in row["steps_to"].values())
        waits = "; ".join(f"{p['start']:.0f}-{p['end']:.0f} at {p['level']:.2f}" for p in row["plateaus"]) or "none"
        lines.append(f"{row['seed']:>7} {row['start_rank']:>5} {times}  {waits}")
    medians = " ".join(_number(entry["median"]) for entry in about["steps_to"].values())
    return "\n".join([*lines, f"{'median':>13} {medians}"])


def _names() -> str:
    return " ".join(f"{name:>8}" for name in FRACTIONS)


def _number(value: float | None) -> str:
    return f"{'-':>8}" if value is None or value != value else f"{value:8.1f}"
