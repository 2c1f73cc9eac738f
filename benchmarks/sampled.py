"""The sampled loss: time of a value, gradient and Hessian; joint training with errors; peak memory of long sequences.

    python benchmarks/sampled.py [--quick]

"pass" times are medians of 9 for 2^16 sequences; the flow is joint training at L=40, alpha*=1, w*=1, sigma=.01 to
t = 3000 with 8 scrambles, everything included (drawing, table, compiling, nine flows), once with compiling and once
without. Memory is the peak of a process of its own that draws a sample at L=1000 and takes one gradient by JAX's
reverse mode, of the scalar model and of the matrix model.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp

import gflow
from gflow.losses.induction import InductionProblem, MatrixParams, UntiedParams, solve_sampled


def params_at(value: float, p11: float = 0.5) -> UntiedParams:
    """Every parameter at `value`, p11 apart."""
    v = jnp.asarray(value)
    return UntiedParams(v, v, v, v, v, jnp.asarray(p11))


def passes(samples: int) -> None:
    """Seconds of one value, gradient and Hessian."""
    loss = InductionProblem(40, 1.0, 1.0).sampled_loss(samples, exact_fourgram=False)
    params = params_at(0.5)
    kinds = {
        "value": lambda loss, p: loss(p),
        "gradient": lambda loss, p: jax.grad(lambda q: loss(q))(p),
        "Hessian": lambda loss, p: jax.jacfwd(jax.grad(lambda q: loss(q)))(p),
    }
    for name, function in kinds.items():
        compiled = eqx.filter_jit(function)
        times = []
        for _ in range(10):
            started = time.perf_counter()
            jax.block_until_ready(compiled(loss, params))
            times.append(time.perf_counter() - started)
        print(f"{name:<10} {samples} sequences, L=40: {1e3 * statistics.median(times[1:]):8.1f} ms", flush=True)


def joint(samples: int) -> None:
    """Seconds of joint training, and what it found."""
    problem = InductionProblem(40, 1.0, 1.0)

    def milestones(loss):
        without = loss.without_output()
        return {name: gflow.Below(getattr(loss, name), 0.5 * without[name]) for name in ("fourgram", "induction")}

    for label in ("cold", "warm"):
        started = time.perf_counter()
        loss = problem.sampled_loss(samples)
        trajectory = solve_sampled(loss, params_at(0.01, 0.01), milestones=milestones, t1=3000.0)
        seconds = time.perf_counter() - started
        print(
            f"joint {label} {samples} sequences: {seconds:6.1f} s, of which table {trajectory.seconds['table']:.1f} s"
        )
    print(f"  steps {trajectory.stats['accepted']}, rejected {trajectory.stats['rejected']}")
    for name, milestone in trajectory.milestones.items():
        print(f"  {name} halves at {milestone.time:.3f}, standard error {milestone.error:.2g}", flush=True)


def memory(samples: int, matrices: bool) -> None:
    """Peak memory of one gradient at L=1000 (run in a process of its own)."""
    loss = InductionProblem(1000, 1.0, 1.0).sampled_loss(samples, exact_fourgram=False)
    params = params_at(0.5)
    if matrices:
        one = 0.5 * jnp.eye(1)
        params = MatrixParams(params.p21, one, one, one, one, params.p11)
    started = time.perf_counter()
    gradient = eqx.filter_jit(lambda loss, p: jax.grad(lambda q: loss(q))(p))
    jax.block_until_ready(gradient(loss, params))
    jax.block_until_ready(gradient(loss, params))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    kind = "matrix" if matrices else "scalar"
    print(f"memory: {kind} model, {samples} sequences, L=1000: peak {peak:.2f} GiB, {seconds:.1f} s", flush=True)


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2^12 sequences instead of 2^16")
    parser.add_argument("--memory", choices=("scalar", "matrix"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    samples = 2**12 if arguments.quick else 2**16
    if arguments.memory:
        memory(samples, arguments.memory == "matrix")
        return
    passes(samples)
    joint(samples)
    for kind in ("scalar", "matrix"):
        options = ["--quick"] if arguments.quick else []
        subprocess.run([sys.executable, __file__, *options, "--memory", kind], check=True)


if __name__ == "__main__":
    main()
