"""CASES 16: Ctrl-C stops a long solve within seconds and keeps what is done."""

import os
import signal
import threading
import time

import jax.numpy as jnp
import numpy as np

from gflow.flows import Status, solve


def slow(p):
    """A flow that never ends and needs many small steps: stability limits an explicit solver."""
    return jnp.sum(jnp.asarray([1.0, 1e7]) * p**2) / 2


def test_case_16_ctrl_c_keeps_the_partial_run():
    start = jnp.asarray([1.0, 1.0])
    solve(slow, start, t1=1e-5, solver="tsit5")  # compile first: the test is about the running loop
    sent: list[float] = []

    def press() -> None:
        time.sleep(1.0)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=press)
    thread.start()
    trajectory = solve(slow, start, t1=1e3, solver="tsit5", max_steps=10**9)
    stopped = time.perf_counter()
    thread.join()
    assert trajectory.status is Status.interrupted
    assert stopped - sent[0] < 3.0
    assert 0 < trajectory.t1_reached < 1e3
    np.testing.assert_allclose(trajectory.params[-1][0], np.exp(-trajectory.t1_reached), rtol=1e-6)
    assert signal.getsignal(signal.SIGINT) is before
