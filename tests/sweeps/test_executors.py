"""Executors with real processes and a real Dask cluster: every task once, whatever happens to those who compute it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gflow.errors import InputError, WorkerError
from gflow.sweeps.executors import Executor, Finished, make_executor
from gflow.sweeps.executors.dask import Dask
from gflow.sweeps.executors.local import Local
from gflow.sweeps.executors.serial import Serial

HERE = Path(__file__).parent
PARALLEL = ("local", "dask")
Make = Callable[..., Any]


@pytest.fixture
def chores(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The work, in a module that workers can import."""
    monkeypatch.syspath_prepend(HERE)
    import chores  # pyright: ignore[reportMissingImports]

    return chores


@pytest.fixture
def make() -> Iterator[Make]:
    """Executors of two workers that load nothing, ended with the test."""
    made = []

    def begin(kind: str, workers: int = 2, modules: tuple[str, ...] = ()) -> Any:
        executor = {"local": Local, "dask": Dask}[kind](workers, modules=modules) if kind != "serial" else Serial()
        made.append(executor)
        return executor

    yield begin
    for executor in made:
        executor.close(kill=True)


def outcomes(executor: Executor, function: Any, tasks: Any) -> dict[Any, Finished]:
    """What became of each task; no task has two fates."""
    found = [finished for finished in executor.run(function, tasks) if finished.task is not None]
    by_task = {finished.task: finished for finished in found}
    assert len(by_task) == len(found)
    return by_task


def processes(executor: Any) -> list[int]:
    if isinstance(executor, Local):
        return executor.pids
    return [nanny.pid for nanny in executor._cluster.workers.values()]


@pytest.mark.parametrize("kind", ["serial", *PARALLEL])
def test_results_belong_to_their_tasks_and_a_failure_ends_nothing(kind: str, chores: Any, make: Make) -> None:
    executor = make(kind)
    assert executor.workers == (1 if kind == "serial" else 2)
    for _ in range(2):  # an executor is used more than once
        found = outcomes(executor, chores.power, iter(range(-1, 40)))
        assert {task: f.result for task, f in found.items() if task > 0} == {n: n * n for n in range(1, 40)}
        assert [f.error for f in found.values() if f.task > 0] == [None] * 39
        assert found[-1] == Finished(-1, None, "ValueError: -1 is too little")
        if kind != "serial":
            assert found[0].result is None
            assert "lock" in str(found[0].error)
    assert outcomes(executor, chores.power, []) == {}
    executor.close()


@pytest.mark.parametrize("kind", PARALLEL)
def test_tasks_are_taken_as_they_are_needed_in_any_order_with_signs_of_life(
    kind: str, chores: Any, make: Make, tmp_path: Path
) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[tuple[str, int, float]]:
        for number in range(12):
            taken.append(number)
            yield str(tmp_path), number, 1.5 if number == 0 else 0.05

    order, silent, since = [], 0.0, time.monotonic()
    alive = 0
    for finished in make(kind).run(chores.trace, tasks()):
        silent, since = max(silent, time.monotonic() - since), time.monotonic()
        if finished.task is None:
            assert finished == Finished()
            alive += 1
            continue
        order.append(finished.result)
        assert len(taken) <= len(order) - 1 + 4  # two for each worker
    assert sorted(order) == list(range(12))
    assert order[0] != 0  # nobody waits for the slow one
    assert order.index(0) >= 9  # with Dask one or two may wait behind it
    assert alive >= 1
    assert silent < 2.0  # half a second, and what a busy machine adds
    assert len(list(tmp_path.iterdir())) == 12


@pytest.mark.parametrize("kind", PARALLEL)
def test_a_task_whose_worker_is_killed_is_done_again(kind: str, chores: Any, make: Make, tmp_path: Path) -> None:
    executor = make(kind)
    before = processes(executor)
    found, killed = [], 0
    for finished in executor.run(chores.trace, [(str(tmp_path), n, 0.15) for n in range(16)]):
        if finished.task is not None:
            found.append(finished.result)
            if len(found) == 4:
                killed = processes(executor)[0]
                os.kill(killed, signal.SIGKILL)
    assert sorted(found) == list(range(16))
    begun = [path.name.split("-") for path in tmp_path.iterdir()]
    assert len(begun) >= 16  # what it had begun was begun again, and counts once
    assert {number for number, *_ in begun} == set(map(str, range(16)))
    assert killed in before
    assert killed not in processes(executor)
    deadline = time.monotonic() + 20
    while executor.workers != 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("kind", PARALLEL)
def test_out_of_memory_once_costs_nothing_and_always_costs_one_task(
    kind: str, chores: Any, make: Make, tmp_path: Path
) -> None:
    executor = make(kind)
    tasks = [(str(tmp_path), n) for n in range(4)]
    found = outcomes(executor, chores.die_at_first, tasks)
    assert {task: f.result for task, f in found.items()} == {task: task[1] for task in tasks}
    executor.close()
    executor = make(kind, 1)  # one worker: no other task can be under way where it dies
    found = outcomes(executor, chores.die, range(6))
    assert {n: f.result for n, f in found.items() if n != 3} == {n: n for n in range(6) if n != 3}
    assert {"local": "its worker process died 3 times", "dask": "every worker process that had it died"}[kind] in str(
        found[3].error
    )


@pytest.mark.parametrize("kind", PARALLEL)
def test_kill_takes_less_than_a_second_whatever_is_running(kind: str, chores: Any, make: Make, tmp_path: Path) -> None:
    executor = make(kind)
    for finished in executor.run(chores.trace, [(str(tmp_path), n, 0.0 if n == 0 else 60.0) for n in range(8)]):
        if finished.task is not None:
            break
    alive = [psutil.Process(pid) for pid in processes(executor)]
    asked = time.monotonic()
    executor.close(kill=True)
    assert time.monotonic() - asked < 1.0
    assert psutil.wait_procs(alive, timeout=2.0)[1] == []


@pytest.mark.parametrize("kind", PARALLEL)
def test_workers_leave_ctrl_c_to_the_coordinator_and_end_with_it(kind: str, tmp_path: Path) -> None:
    words = [sys.executable, str(HERE / "chores.py"), kind, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert len(workers) >= 2
        coordinator = psutil.Process(process.pid)
        coordinator.suspend()  # so that only the others can act on the signal
        os.killpg(process.pid, signal.SIGINT)
        assert psutil.wait_procs(workers, timeout=0.7)[0] == []
        process.kill()
    assert psutil.wait_procs(workers, timeout=5.0)[1] == []


def test_what_a_local_worker_finds(chores: Any, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    cores = sorted(os.sched_getaffinity(0))
    executor = Local(modules=())
    try:
        assert executor.workers == len(cores)
        found = [f.result for f in executor.run(chores.surroundings, range(4 * len(cores))) if f.task is not None]
    finally:
        executor.close()
    by_worker = {result["pid"]: result["affinity"] for result in found}
    assert sorted(by_worker.values()) == [[core] for core in cores]
    environment = found[0]["environment"]
    assert environment["XLA_FLAGS"].startswith("--xla_cpu_use_fusion_emitters=false --xla_cpu_multi_thread_eigen=false")
    assert environment["OMP_NUM_THREADS"] == environment["JAX_ENABLE_X64"] == "1"
    assert environment["JAX_COMPILATION_CACHE_DIR"].startswith(os.environ["GFLOW_CACHE_DIR"])
    assert not any(result["jax"] for result in found)
    # more or fewer workers than cores are not bound, so that two sweeps do not share a core while others idle
    executor = make("local", len(cores) + 1)
    assert next(f for f in executor.run(chores.surroundings, [0]) if f.task is not None).result["affinity"] == cores


@pytest.mark.parametrize("kind", PARALLEL)
def test_jax_computes_in_workers_in_double_precision(kind: str, chores: Any, make: Make) -> None:
    found = outcomes(make(kind, 1, ("jax",)), chores.product, [50])
    assert found[50].result == (50.0**3, "float64")


def test_workers_that_cannot_start_end_the_run(chores: Any, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkerError, match="cannot be started: the last one ended with status 1"):
        list(make("local").run(chores.power, [1, 2]))


def test_what_is_asked_for_is_checked() -> None:
    assert isinstance(make_executor("serial"), Serial)
    for wrong, match in (
        ({"kind": "slurm"}, "executor = 'slurm' must be one of local, serial, dask"),
        ({"kind": "local", "workers": 0}, "workers = 0 is out of range"),
        ({"kind": "local", "scheduler": "tcp://a:1"}, "is for the executor 'dask', not 'local'"),
        ({"kind": "dask", "scheduler": "tcp://a:1", "workers": 3}, "workers = 3 is for workers made here"),
        ({"kind": "dask", "scheduler": "nonsense"}, "scheduler = 'nonsense' cannot be used: ValueError: missing port"),
    ):
        with pytest.raises(InputError, match=match):
            make_executor(**wrong)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from gflow.sweeps.executors import dask

    monkeypatch.setattr(dask, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 \(0 s\)"):
        Dask(None, "tcp://127.0.0.1:9")


def test_without_dask_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"needs the package distributed; install it: pip install 'gflow\[cluster\]'"):
        make_executor("dask")


@pytest.fixture
def scheduler() -> Iterator[tuple[str, Callable[[], subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """A scheduler in a process of its own: its address, how to start a worker there, its process."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(HERE)}
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
        begun.append(subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]], **quiet))
        return begun[-1]

    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    server = start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    yield address, lambda: start("worker", address, "--nthreads", "2", "--no-dashboard", "--no-nanny"), server
    for process in begun:
        process.kill()
        process.wait()


def test_workers_of_a_scheduler_come_die_and_return(scheduler: Any, chores: Any, tmp_path: Path) -> None:
    address, start_worker, server = scheduler
    executor = Dask(None, address)
    try:
        workers = [start_worker()]
        numbers, last_words = [], False
        run = executor.run(chores.trace, [(str(tmp_path), n, 0.1) for n in range(60)])
        with contextlib.closing(run):
            for finished in run:
                if finished.task is None:
                    continue
                numbers.append(finished.result)
                if len(numbers) == 5:
                    workers[0].kill()  # the only one: the sweep waits for another
                    workers.append(start_worker())
                if len(numbers) == 12:
                    assert set(numbers) <= set(range(20))
                    assert len(set(numbers)) == 12
                    server.kill()
                    last_words = True
                    break
        assert last_words
        with pytest.raises(WorkerError, match=f"the Dask scheduler at {address} is gone"):
            for _ in executor.run(chores.trace, [(str(tmp_path), 99, 0.1)]):
                pass
    finally:
        executor.close(kill=True)
