"""Seconds of a solve with all milestones, cold and warm, at several L; steps taken; agreement with tighter tolerance.

    python benchmarks/solve.py [--repeat N]

"milestones" is `gflow.solve` alone; "path" is what the first look at the whole path costs on top (the block that
stopped early is continued, losses are evaluated at every step). Medians and minima of N warm runs, one process.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import gflow

CASES = [
    # L, alpha_star, w_star, sigma_init, d, parametrization
    (100.0, 1.0, 1.0, 1e-6, 1, "untied"),
    (1e6, 1.0, 1.0, 1e-6, 1, "untied"),
    (1e6, 30.0, 0.5, 1e-8, 1, "untied"),
    (40.0, 1.0, 0.49, 1e-2, 1, "untied"),
    (64.0, 1.0, 0.8, 1e-3, 1, "tied"),
    (64.0, 1.0, 0.8, 1e-3, 1, "merged"),
    (40.0, 1.0, 0.6, 1e-2, 16, "untied"),
]


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    head = "case", "cold s", "warm ms", "min ms", "path ms", "steps", "rejected", "max |dT|/T"
    print(f"{head[0]:<48} {head[1]:>7} {head[2]:>8} {head[3]:>7} {head[4]:>8} {head[5]:>6} {head[6]:>8} {head[7]:>10}")
    for L, alpha, w, sigma, d, kind in CASES:
        problem = gflow.InductionProblem(L=L, alpha_star=alpha, w_star=w, d=d, parametrization=kind)
        flow = gflow.GradientFlow(problem.population_loss())
        start, marks = problem.initial_params(sigma_init=sigma), problem.milestones()

        def run(flow=flow, start=start, marks=marks, **policy):
            return gflow.solve(flow, start, milestones=marks, **policy)

        cold = timed(run)[0]
        warm = [timed(run)[0] for _ in range(repeat)]
        trajectory = run()
        timed(lambda t=trajectory: t.complete().losses)
        trajectory = run()
        path = timed(lambda t=trajectory: t.complete().losses)[0]
        # the reference uses another solver as well as a tighter tolerance
        reference = run(rtol=1e-12, solver="dopri8" if alpha < 10 else "auto")
        times = [(m.time, reference.milestones[k].time) for k, m in trajectory.milestones.items()]
        error = max((abs(a / b - 1) for a, b in times if a and b), default=np.nan)
        name = f"L={L:g} alpha*={alpha:g} w*={w:g} sigma={sigma:g} d={d} {kind}"
        print(
            f"{name:<48} {cold:7.2f} {1e3 * statistics.median(warm):8.2f} {1e3 * min(warm):7.2f} {1e3 * path:8.2f} "
            f"{trajectory.stats['accepted']:6d} {trajectory.stats['rejected']:8d} {error:10.1e}",
            flush=True,
        )


def timed(function):
    """Seconds and result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
