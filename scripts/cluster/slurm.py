"""A sweep on a Slurm cluster: Dask workers as Slurm jobs, which may come, end and return.

    python scripts/cluster/slurm.py sweep.toml sweep.zarr --jobs 20 --queue NAME [--account NAME]

Needs gflow[cluster] and dask-jobqueue. Runs on the login node (or in a job of its own) and writes the store; workers
need gflow, but no disk in common. Stop it when you like; the same command goes on. An example to adapt: it was never
run on a cluster.
"""

from __future__ import annotations

import argparse
import os

from dask.distributed import Client
from dask_jobqueue import SLURMCluster  # pyright: ignore[reportMissingImports]

import gflow


def main() -> None:
    """Ask Slurm for workers, and fill the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep")
    parser.add_argument("store")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--memory", default="16GB")
    parser.add_argument("--walltime", default="01:00:00")
    parser.add_argument("--queue")
    parser.add_argument("--account")
    arguments = parser.parse_args()
    with SLURMCluster(
        queue=arguments.queue,
        account=arguments.account,
        cores=arguments.cores,
        processes=arguments.cores,  # one worker per core: gflow's workers compute on one thread
        memory=arguments.memory,
        walltime=arguments.walltime,
        job_script_prologue=["export XLA_FLAGS='--xla_cpu_multi_thread_eigen=false'", "export OMP_NUM_THREADS=1"],
    ) as cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=arguments.jobs)
        with Client(cluster) as client:
            assert client.scheduler is not None
            gflow.sweep(
                arguments.sweep,
                arguments.store,
                executor="dask",
                scheduler=cluster.scheduler_address,
                resume=os.path.exists(arguments.store),
            )


if __name__ == "__main__":
    main()
