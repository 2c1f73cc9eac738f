"""Trajectories per second and core against the accuracy of their milestone: gflow's ensemble beside other solvers.

    python benchmarks/ensembles.py [--lanes N] [--plot ensembles.png] [--scaling]

One problem, one process pinned to one core: L = 100, w* = 1, sigma_init log-uniform in 1e-6 ... 1e-1, alpha* uniform
in 0.3 ... 10; wanted is the time at which the induction loss is 1% of its start. Slow methods get fewer lanes, evenly
taken from the same ones. Errors are against the ensemble at rtol 1e-11, itself compared with DOP853 at 1e-12 first.
Compilation and tables are not counted, the whole call (preparation and fetching included) is. heyoka is measured where
it is installed, in the variables in which it is fastest. `--scaling`: rate against the number of lanes, up to 2^20,
with the occupancy of the batches, and against L.
"""

from __future__ import annotations

import argparse
import os
import time

# before JAX: one thread
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from numpy.polynomial import polynomial
from scipy.integrate import solve_ivp

import gflow
from gflow.config.sweep import MILESTONES
from gflow.sweeps import fast
from gflow.sweeps.columns import columns_of
from gflow.sweeps.ensemble.polynomials import polynomials_of
from gflow.sweeps.tasks import ChunkTask, Options

L, W_STAR = 100.0, 1.0
WANTED = "T_III_of_initial"
REPEAT = 3


class Problem:
    """The lanes, and the reduced polynomials that every method uses."""

    def __init__(self, lanes: int) -> None:
        rng = np.random.default_rng(0)
        self.sigma, self.alpha = 10 ** rng.uniform(-6, -1, lanes), rng.uniform(0.3, 10, lanes)
        table = gflow.InductionProblem(L, 1.0, W_STAR).population_loss().induction.table
        self.table = polynomials_of(table)
        self.n, self.A = L - 2, 1 / (1 + self.alpha)
        self.nu = self.sigma / self.A
        self.level = 0.01 * self.value(self.nu, self.sigma**2)

    def value(self, nu, w):
        K1, K2 = self.table.at(w)
        return 0.5 * self.table.kcc - nu * K1 + 0.5 * nu**2 * K2

    def some(self, count: int) -> np.ndarray:
        """Lanes evenly taken from all."""
        return np.unique(np.linspace(0, len(self.sigma) - 1, min(count, len(self.sigma))).astype(int))


def ensemble(problem, chosen, rtol, milestones=(WANTED,), lanes=None, fixed=None):
    """Lanes through the engine of `gflow sweep`: columns and seconds of the call."""
    lanes = lanes or {"sigma_init": problem.sigma[chosen], "alpha_star": problem.alpha[chosen]}
    columns = tuple(c.name for c in columns_of(("untied",), ("second-layer",), milestones))
    fixed = {"L": L, "w_star": W_STAR, "rtol": rtol} | (fixed or {})
    started = time.perf_counter()
    result, left = fast.solve_lanes(ChunkTask(0, lanes, fixed, Options(tuple(milestones)), columns))
    wall = time.perf_counter() - started
    assert not left.any()
    return result, wall - result.seconds["tables"]


def by_scipy(method):
    def run(problem, chosen, rtol):
        p, slope = problem.table, problem.table.slope
        c1, c2 = p.coefficients
        d1, d2 = polynomial.polyder(c1), polynomial.polyder(c2)
        out = []
        for i in chosen:
            A = problem.A[i]

            def field(_, y, A=A):
                v, k, q = y
                x = slope * k * q + p.offset
                F = A * v * slope * polynomial.polyval(x, d1) - 0.5 * v * v * slope * polynomial.polyval(x, d2)
                rise = A * polynomial.polyval(x, c1) - v * polynomial.polyval(x, c2)
                return rise / problem.n, F * q / problem.n, F * k / problem.n

            def event(_, y, i=i, A=A):
                return problem.value(y[0] / A, y[1] * y[2]) - problem.level[i]

            event.terminal = True
            start = [problem.sigma[i]] * 3
            done = solve_ivp(field, (0, 1e9), start, method, rtol=rtol, atol=rtol * problem.sigma[i], events=event)
            out.append(done.t_events[0][0])
        return np.array(out)

    return run


def horner(coefficients, x):
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def by_diffrax(solver, *, reduced, chunk):
    """vmapped over `chunk` lanes (None: all); in (v2, wK, wQ), or in nu, log w and t/n, sorted by predicted time."""

    def one(y0, A, level, table, rtol):
        c1, c2, slope, offset, kcc, n = table
        d1, d2 = ([k * c[k] for k in range(1, len(c))] for c in (c1, c2))

        def field(t, y, args):
            if reduced:
                nu, u = y
                x = slope * jnp.exp(u) + offset
                F = A * A * nu * (horner(d1, x) - 0.5 * nu * horner(d2, x)) * slope
                return horner(c1, x) - nu * horner(c2, x), 2 * F
            v, k, q = y
            x = slope * k * q + offset
            F = (A * v * horner(d1, x) - 0.5 * v * v * horner(d2, x)) * slope / n
            return (A * horner(c1, x) - v * horner(c2, x)) / n, F * q, F * k

        def event(t, y, args, **_):
            nu, w = (y[0], jnp.exp(y[1])) if reduced else (y[0] / A, y[1] * y[2])
            x = slope * w + offset
            return 0.5 * kcc - nu * horner(c1, x) + 0.5 * nu**2 * horner(c2, x) - level

        atol = rtol if reduced else rtol * y0[0]
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(field), solver, 0.0, 1e9, 0.1, y0,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            event=diffrax.Event(event, optimistix.Newton(1e-10, 1e-10)), adjoint=diffrax.ForwardMode(),
            saveat=diffrax.SaveAt(t1=True), max_steps=None, throw=False,
        )  # fmt: skip
        assert found.ts is not None
        return found.ts[0]

    program = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None, None)))

    def run(problem, chosen, rtol):
        p = problem.table
        table = ([jnp.asarray(c) for c in p.coefficients[0]], [jnp.asarray(c) for c in p.coefficients[1]],
                 *(jnp.asarray(x) for x in (p.slope, p.offset, p.kcc, problem.n)))  # fmt: skip
        order = chosen[np.argsort(np.log(1 / problem.sigma[chosen]) / problem.A[chosen] ** 2)] if reduced else chosen
        size = chunk or len(order)
        out = np.empty(len(problem.sigma))
        for at in range(0, len(order), size):
            lanes = order[at : at + size]
            padded = np.concatenate([lanes, np.repeat(lanes[-1:], size - len(lanes))])
            sigma = jnp.asarray(problem.sigma[padded])
            y0 = (jnp.asarray(problem.nu[padded]), 2 * jnp.log(sigma)) if reduced else (sigma,) * 3
            times = program(y0, jnp.asarray(problem.A[padded]), jnp.asarray(problem.level[padded]), table, rtol)
            out[lanes] = np.asarray(times)[: len(lanes)] * (problem.n if reduced else 1.0)
        return out[chosen]

    return run


def by_heyoka():
    """Batches of as many lanes as the processor's vectors hold, in nu, log w and t/n, a terminal event on the loss."""
    try:
        import heyoka as hy  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    width = hy.recommended_simd_size()
    integrators = {}

    def build(problem, rtol):
        p = problem.table
        c1, c2 = p.coefficients
        nu, u = hy.make_vars("nu", "u")
        gain, level = hy.par[0], hy.par[1]
        x = p.slope * hy.exp(u) + p.offset
        d1, d2 = polynomial.polyder(c1), polynomial.polyder(c2)
        field = [
            (nu, horner(list(c1), x) - nu * horner(list(c2), x)),
            (u, gain * nu * (horner(list(d1), x) - 0.5 * nu * horner(list(d2), x))),
        ]
        loss = 0.5 * p.kcc - nu * horner(list(c1), x) + 0.5 * nu**2 * horner(list(c2), x) - level
        event = hy.t_event_batch(loss, direction=hy.event_direction.negative)
        return hy.taylor_adaptive_batch(
            field, np.zeros((2, width)), pars=np.zeros((2, width)), t_events=[event], tol=rtol, fast_math=True
        )

    def run(problem, chosen, rtol):
        if rtol not in integrators:
            integrators[rtol] = build(problem, rtol)
        solver = integrators[rtol]
        order = chosen[np.argsort(np.log(1 / problem.sigma[chosen]) / problem.A[chosen] ** 2)]
        out = np.empty(len(problem.sigma))
        for at in range(0, len(order), width):
            lanes = order[at : at + width]
            padded = np.concatenate([lanes, np.repeat(lanes[-1:], width - len(lanes))])
            solver.state[:] = problem.nu[padded], 2 * np.log(problem.sigma[padded])
            solver.pars[:] = 2 * problem.A[padded] ** 2 * problem.table.slope, problem.level[padded]
            solver.set_time([0.0] * width)
            solver.reset_cooldowns()
            times = np.full(width, np.nan)
            # lanes that have ended wait at their end: their limit is the time they are at
            ends = np.full(width, 1e7)
            while np.isnan(times).any():
                solver.propagate_until(ends)
                for lane, (why, *_rest) in enumerate(solver.propagate_res):
                    if np.isnan(times[lane]) and int(why) == -1:  # the first event
                        times[lane] = solver.time[lane]
                        ends[lane] = times[lane]
            out[lanes] = times[: len(lanes)] * problem.n
        return out[chosen]

    return run


def methods():
    """Name -> (run, lanes, tolerances)."""
    out = {
        "scipy LSODA, (v2, wK, wQ)": (by_scipy("LSODA"), 16, (1e-6, 1e-8)),
        "scipy DOP853, (v2, wK, wQ)": (by_scipy("DOP853"), 8, (1e-6, 1e-8)),
        "diffrax Tsit5, vmap, (v2, wK, wQ)": (
            by_diffrax(diffrax.Tsit5(), reduced=False, chunk=None), 512, (1e-5, 1e-6, 1e-7),
        ),
        "diffrax Tsit5, reduced, sorted chunks": (
            by_diffrax(diffrax.Tsit5(), reduced=True, chunk=64), 4096, (1e-5, 1e-6, 1e-7),
        ),
    }  # fmt: skip
    heyoka = by_heyoka()
    if heyoka is not None:
        out["heyoka batch, reduced, sorted"] = (heyoka, 1024, (1e-4, 1e-5, 1e-6, 1e-8))
    return out


def timed(run, repeat=REPEAT):
    """Result of a warm call, and the least of its seconds."""
    run()
    best = np.inf
    for _ in range(repeat):
        started = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - started)
    return result, best


def work_precision(problem: Problem) -> list[tuple[str, float, float, float]]:
    """(method, tolerance, trajectories per second, largest relative error), each printed."""
    exact = ensemble(problem, np.arange(len(problem.sigma)), 1e-11)[0].columns[WANTED]
    few = problem.some(8)
    other = by_scipy("DOP853")(problem, few, 1e-12)
    print(f"reference: ensemble at 1e-11 against DOP853 at 1e-12, {len(few)} lanes: {gap(exact[few], other):.1e}\n")
    rows = []
    print(f"{'method':<40} {'tolerance':>9} {'lanes':>7} {'per s':>9} {'max error':>10} {'cold s':>7}")
    for name, (run, count, tolerances) in methods().items():
        chosen = problem.some(count)
        for rtol in tolerances:
            started = time.perf_counter()
            run(problem, chosen, rtol)
            cold = time.perf_counter() - started
            found, seconds = timed(lambda r=run, c=chosen, t=rtol: r(problem, c, t), repeat=1 if "scipy" in name else 2)
            rows.append(row(name, rtol, len(chosen), seconds, gap(found, exact[chosen]), cold))
    everything = np.arange(len(problem.sigma))
    for name, milestones in (("gflow ensemble", (WANTED,)), ("gflow ensemble, six milestones", MILESTONES)):
        for rtol in (1e-4, 1e-5, 5e-6, 3e-6, 1e-6, 1e-7):
            started = time.perf_counter()
            ensemble(problem, everything, rtol, milestones)
            cold = time.perf_counter() - started
            runs = [ensemble(problem, everything, rtol, milestones) for _ in range(REPEAT)]
            found = runs[0][0].columns[WANTED]
            rows.append(row(name, rtol, len(everything), min(r[1] for r in runs), gap(found, exact), cold))
    return rows


def row(name, rtol, lanes, seconds, error, cold):
    """One line of the table."""
    print(f"{name:<40} {rtol:9.0e} {lanes:7d} {lanes / seconds:9.0f} {error:10.1e} {cold:7.1f}", flush=True)
    return name, rtol, lanes / seconds, error


def gap(found, exact):
    """Largest relative difference."""
    return float(np.max(np.abs(np.asarray(found) / np.asarray(exact) - 1.0)))


def scaling() -> None:
    """Rate and occupancy against the number of lanes and against L."""
    for name, milestones in (("one milestone", (WANTED,)), ("six milestones", MILESTONES)):
        print(f"\n{name}: {'lanes':>9} {'per s':>9} {'occupancy':>10}")
        for power in (10, 12, 14, 16, 18, 20):
            problem = Problem(2**power)
            chosen = np.arange(2**power)
            ensemble(problem, chosen[:1024], 5e-6, milestones)
            result, seconds = min((ensemble(problem, chosen, 5e-6, milestones) for _ in range(2)), key=lambda r: r[1])
            share = result.statistics["needed"] / result.statistics["taken"]
            print(f"{'':<{len(name)}}  {2**power:9d} {2**power / seconds:9.0f} {share:10.2f}", flush=True)
    print(f"\n{'L':>9} {'per s':>9} {'steps':>7}")
    problem = Problem(4096)
    for length in (10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
        fixed, chosen = {"L": length, "w_star": 0.8}, np.arange(4096)
        ensemble(problem, chosen, 5e-6, fixed=fixed)
        result, seconds = min((ensemble(problem, chosen, 5e-6, fixed=fixed) for _ in range(3)), key=lambda r: r[1])
        print(f"{length:9.0e} {4096 / seconds:9.0f} {np.mean(result.columns['steps']):7.1f}", flush=True)


def draw(rows, path) -> None:
    """The work-precision diagram."""
    from matplotlib.figure import Figure

    from gflow.plots.style import paper

    with paper():
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for name in dict.fromkeys(r[0] for r in rows):
            mine = [r for r in rows if r[0] == name]
            axes.loglog([r[3] for r in mine], [r[2] for r in mine], "o-", label=name)
        axes.set_xlabel("largest relative error of the milestone")
        axes.set_ylabel("trajectories per second and core")
        axes.legend(fontsize="small")
        figure.savefig(path)
    print(f"wrote {path}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=16384)
    parser.add_argument("--plot")
    parser.add_argument("--scaling", action="store_true")
    arguments = parser.parse_args()
    gflow.enable_compilation_cache()
    if arguments.scaling:
        scaling()
        return
    rows = work_precision(Problem(arguments.lanes))
    if arguments.plot:
        draw(rows, arguments.plot)


if __name__ == "__main__":
    main()
