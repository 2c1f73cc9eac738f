"""The tables of docs/high-dimensional.md: times of SGD and Adam, how often a sign matrix is singular, what it decides.

    python benchmarks/matrices.py [--quick] [--members N]

--quick: fewer seeds, and no d = 8, no d = 20; half a minute of one core instead of a quarter of an hour. One line for
each setting: steps to 50%, 10%, 1% of the starting induction loss as median (least .. most) over seeds, then how many
seeds have how many interior plateaus; after it the tables and verdicts of the mechanism.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import gflow  # noqa: F401 - turns on float64
from gflow.training import optimizer
from gflow.training.matrices import mechanism_test, singular_probability, spread, train_matrices

# name, seeds, loss whose plateaus are counted, settings
RUNS: list[tuple[str, int, str, dict[str, Any]]] = [
    ("adam, d = 5", 12, "induction", {"d": 5, "steps": 700}),
    ("adam, d = 10", 12, "induction", {"d": 10, "steps": 600}),
    ("adam, d = 20", 8, "induction", {"d": 20, "steps": 560}),
    ("sgd lr 1, d = 10", 6, "total", {"d": 10, "steps": 1600, "every": 10, "optimizer": "sgd", "lr": 1.0}),
    ("adam eps 1e-3, d = 10", 3, "total", {"d": 10, "steps": 4000, "every": 20, "optimizer": ("adam", 1e-3)}),
]


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--members", type=int, default=20, help="seeds of each rank in the test of the mechanism")
    arguments = parser.parse_args()
    for d in (2, 3, 4, 5, 6, 8, 10, 12, 16, 20):
        found = singular_probability(d, draws=1 << (14 if arguments.quick else 19))
        print(f"P(singular), d = {d:<3} {found.value:.5f} +- {found.error:.5f}  ({found.how})", flush=True)
    for name, count, part, settings in RUNS:
        if arguments.quick and settings["d"] > 10:
            continue
        times(name, 2 if arguments.quick else count, part, dict(settings))
    dimensions = ((4, 256), (4, 32), (8, 256))
    for d, batch in dimensions[:1] if arguments.quick else dimensions:
        started = time.perf_counter()
        found = mechanism_test(d, 4 if arguments.quick else arguments.members, batch=batch)
        print(f"\nmechanism, batch {batch}, {time.perf_counter() - started:.0f} s{found.report()}", flush=True)


def times(name: str, count: int, part: str, settings: dict[str, Any]) -> None:
    """One line."""
    if isinstance(settings.get("optimizer"), tuple):
        rule, eps = settings["optimizer"]
        settings["optimizer"] = optimizer(rule, eps=eps)
    started = time.perf_counter()
    run = train_matrices(range(count), **settings)
    seconds = time.perf_counter() - started
    cells = []
    for fraction in (0.5, 0.1, 0.01):
        row = spread(run.passage(fraction))
        ends = [row["median"], row["min"], row["max"]]
        text = ["-" if value is None else f"{value:.0f}" for value in ends]
        cells.append(f"{text[0]} ({text[1]} .. {text[2]})")
    plateaus = run.plateaus(part)
    counts = np.bincount([len(found) for found in plateaus])
    where = [f"{p.start:.0f}-{p.end:.0f} at {p.level:.2f}" for found in plateaus for p in found][:3]
    print(
        f"{name:<22} {count:>3} seeds  {'   '.join(cells)}   seeds with 0, 1, .. plateaus ({part}): {counts.tolist()} "
        f"{'; '.join(where)}   {seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
