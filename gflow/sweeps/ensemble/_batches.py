"""Many lanes as compiled batches: every batch of one kind has one shape, so it is compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gflow.sweeps.ensemble import _loop
from gflow.sweeps.ensemble._landing import landing_times

# lanes of a batch: few enough that it stays in a core's cache and that its lanes end at about the same time, many
# enough that starting a loop costs nothing. An accelerator wants many more.
SIZES_CPU, SIZES_ELSEWHERE = (64, 512), (1024, 65536)


class Batch(NamedTuple):
    """Lanes about to be integrated, from states `y` with steps of length `first`; arrays are numpy's until it runs."""

    system: Any  # a PlanarSystem
    y: Any  # [lanes], complex
    first: Any  # [lanes]
    policy: _loop.Policy


class Ended(NamedTuple):
    """Lanes at their end: state, time, step counts, how they ended (`_loop.FOUND`, ...), when levels were crossed, and
    the value along the way."""

    a: Any
    b: Any
    time: Any
    accepted: Any
    rejected: Any
    ended: Any
    times: Any  # [levels, lanes]
    curve: Any  # [points, lanes]

    def select(self, lanes: Any) -> Ended:
        """These lanes only."""
        return Ended(*(np.asarray(field)[..., lanes] for field in self))


def _run(batch: Batch) -> Ended:
    system, policy = batch.system, batch.policy
    state = _loop.advance(system, _loop.start(system, batch.y, batch.first, policy), policy)
    times = landing_times(system, state.crossings, policy.levels)
    y, t = state.y, state.clock.real
    return Ended(y.real, y.imag, t, state.accepted, state.rejected, state.ended, times, state.curve)


@functools.cache
def _program(devices: int) -> Callable[[Batch], Ended]:
    """`_run`, compiled; on several devices each has its share of the lanes and a loop of its own."""
    if devices == 1:
        return jax.jit(_run)
    mesh = Mesh(np.array(jax.local_devices()), ("lanes",))

    @jax.jit
    def sharded(batch: Batch) -> Ended:
        lanes, spread = batch.y.shape[0], PartitionSpec("lanes")
        split = jax.shard_map(
            _run,
            mesh=mesh,
            in_specs=(jax.tree.map(lambda x: _place(x, lanes), batch),),
            out_specs=Ended(*[spread] * 6, *[PartitionSpec(None, "lanes")] * 2),  # pyright: ignore[reportCallIssue]
            check_vma=False,
        )
        return split(batch)

    def placed(batch: Batch) -> Ended:
        lanes = batch.y.shape[0]
        return sharded(jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, _place(x, lanes))), batch))

    return placed


def _place(x: Any, lanes: int) -> PartitionSpec:
    """Arrays whose last axis is that of the lanes are cut there; all others are everywhere."""
    if x.ndim and x.shape[-1] == lanes and lanes > 1:
        return PartitionSpec(*[None] * (x.ndim - 1), "lanes")
    return PartitionSpec()


def sizes() -> tuple[int, int]:
    """The two sizes of a batch on this machine's devices."""
    devices = jax.local_devices()
    small, large = SIZES_CPU if devices[0].platform == "cpu" else SIZES_ELSEWHERE
    return small * len(devices), large * len(devices)


def cut(count: int) -> Iterator[tuple[int, int, int]]:
    """(first, last, size of the batch) of the batches of `count` lanes in a row; the last lanes are padded."""
    small, large = sizes()
    at = 0
    while at < count:
        left = count - at
        size = large if left > large // 3 else small
        yield at, min(at + size, count), size
        at += size


def run_lanes(make: Callable[[np.ndarray], Batch], order: np.ndarray) -> tuple[Ended, dict[str, int]]:
    """Integrate the lanes `order` (neighbours end together), `make` being asked for one batch at a time.

    All batches are under way before the first result is fetched. Returns the lanes in the order given, and how many
    steps they `needed` of those that their batches have `taken` (a batch runs to its longest lane).
    """
    program = _program(len(jax.local_devices()))
    under_way = []
    for first, last, size in cut(len(order)):
        lanes = order[first:last]
        padded = np.concatenate([lanes, np.repeat(lanes[-1:], size - len(lanes))])
        under_way.append((last - first, size, program(make(padded))))
    parts, needed, taken = [], 0, 0
    for count, size, ended in under_way:
        part = ended.select(slice(0, count))
        tried = part.accepted + part.rejected
        needed += int(np.sum(tried))
        taken += size * int(np.max(tried))
        parts.append(part)
    whole = Ended(*(np.concatenate(fields, axis=-1) for fields in zip(*parts, strict=True)))
    return whole, {"needed": needed, "taken": taken}
