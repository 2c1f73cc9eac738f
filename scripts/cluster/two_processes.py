"""Lanes of one ensemble shared out over the processes of `jax.distributed`, here N processes of this machine.

    python scripts/cluster/two_processes.py [--processes 2]

Every process takes its share of the lanes, solves it on its own devices without talking to the others, and all
milestones are gathered at the end; they are compared with those of one process alone. On a cluster, start one process
per node with --number and the --coordinator address of the first one.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys

import numpy as np

LANES = 4096
NAMES = ("T_II", "T_III")


def lanes() -> dict[str, np.ndarray]:
    """The same random lanes in every process."""
    rng = np.random.default_rng(0)
    return {"sigma_init": 10 ** rng.uniform(-6, -1, LANES), "alpha_star": rng.uniform(0.3, 10, LANES)}


def solve(some: dict[str, np.ndarray]) -> np.ndarray:
    """Milestones [2, lanes]."""
    from gflow.sweeps import fast
    from gflow.sweeps.tasks import ChunkTask, Options

    result, _ = fast.solve_lanes(ChunkTask(0, some, {"L": 100.0, "w_star": 1.0}, Options(NAMES), NAMES))
    return np.stack([result.columns[name] for name in NAMES])


def member(number: int, processes: int, coordinator: str) -> None:
    """One of the processes."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(coordinator, processes, number)
    from jax.experimental import multihost_utils

    import gflow

    gflow.enable_compilation_cache()
    everything = lanes()
    mine = np.arange(number, LANES, processes)
    found = solve({name: values[mine] for name, values in everything.items()})
    gathered = np.asarray(multihost_utils.process_allgather(found))  # [processes, 2, lanes]
    if number == 0:
        together = np.empty((2, LANES))
        for other in range(processes):
            together[:, other::processes] = gathered[other]
        gap = np.max(np.abs(together / solve(everything) - 1.0))
        print(f"{LANES} lanes by {processes} processes: largest relative difference to one process {gap:.1e}")
        assert gap < 1e-8
    jax.distributed.shutdown()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    """Start the processes, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--number", type=int, help="which one this is [default: all are started here]")
    parser.add_argument("--coordinator", help="address:port of process 0 [default: a free port of this machine]")
    arguments = parser.parse_args()
    if arguments.number is not None:
        member(arguments.number, arguments.processes, arguments.coordinator)
        return
    coordinator = arguments.coordinator or f"127.0.0.1:{free_port()}"
    words = [
        sys.executable,
        __file__,
        "--processes",
        str(arguments.processes),
        "--coordinator",
        coordinator,
        "--number",
    ]
    children = [subprocess.Popen([*words, str(number)]) for number in range(arguments.processes)]
    sys.exit(max(child.wait() for child in children))


if __name__ == "__main__":
    main()
