"""Time, accuracy and memory of the overlap tables: `python benchmarks/table.py` prints one line per table.

Goals on two cores: first table at w*=1 within 6 s after compilation, L = 1e6 at most 1.5 times L = 1e2, from the cache
within 50 ms, peak memory below 1.5 GB.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("JAX_ENABLE_X64", "1")


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print the table of timings."""
    start = time.perf_counter()
    import jax
    import numpy as np

    from gflow import tokens
    from gflow.losses.induction import build_table, make_table

    print(f"imports {time.perf_counter() - start:.2f} s, {jax.devices()[0]}, {os.cpu_count()} cores")
    cases = [
        ("gaussian", 100.0, 1.0, 1),
        ("gaussian", 1e6, 1.0, 1),
        ("gaussian", 40.0, 0.49, 1),
        ("gaussian", 40.0, 0.6, 4),
        ("rademacher", 40.0, 0.8, 1),
        ("uniform", 40.0, 0.8, 1),
        ("gaussian", 40.0, 1.5, 1),
        ("gaussian", 1e6, 1.5, 1),
        ("gaussian", 4.0, 1.5, 1),
    ]
    print(
        f"{'law':>10} {'L':>8} {'w*':>5} {'d':>2} {'compile/s':>9} {'build/s':>8} {'cached/ms':>9}"
        f" {'error K1':>8} {'K2':>8}"
    )
    build: dict[tuple[str, float, float, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GFLOW_CACHE_DIR"] = folder
        for case in cases:
            name, L, w_star, d = case
            law = tokens.from_name(name)
            first = seconds(lambda law=law, L=L, w_star=w_star, d=d: make_table(law, L, w_star, d))
            build[case] = seconds(lambda law=law, L=L, w_star=w_star, d=d: build_table(law, L, w_star, d))
            stored = seconds(lambda law=law, L=L, w_star=w_star, d=d: make_table(law, L, w_star, d))
            error = np.asarray(make_table(law, L, w_star, d).relative_error)
            print(
                f"{name:>10} {L:8g} {w_star:5g} {d:2d} {first - build[case]:9.2f} {build[case]:8.2f}"
                f" {1e3 * stored:9.1f} {error[0]:8.0e} {error[1]:8.0e}"
            )
    ratio = build[("gaussian", 1e6, 1.0, 1)] / build[("gaussian", 100.0, 1.0, 1)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"L=1e6 / L=1e2: {ratio:.2f}, peak memory {peak:.2f} GB")


if __name__ == "__main__":
    main()
