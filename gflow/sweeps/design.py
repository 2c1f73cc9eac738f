"""The grid of a sweep: its dimensions, its lanes as columns, its chunks. No object per lane, no JAX.

Values are a function of the sweep file alone: random ones come from PCG64, seeded with the file's seed and the key.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from gflow.config._axes import Axis
from gflow.config._rules import Limit
from gflow.config.integrate import IntegrateConfig
from gflow.config.sweep import SweepConfig
from gflow.sweeps.chunks import Chunks, chunk_shape
from gflow.sweeps.validity import Validity

ZIP = "zip"  # the dimension of the axes that move together


@dataclasses.dataclass(frozen=True)
class Values:
    """The values of one key along its dimension: `numbers` [n], or names as `codes` [n] into `levels`."""

    key: str
    numbers: np.ndarray | None = None
    levels: tuple[Any, ...] = ()
    codes: np.ndarray | None = None

    def take(self, index: np.ndarray) -> np.ndarray | list[Any]:
        """The values at these positions."""
        if self.numbers is not None:
            return self.numbers[index]
        assert self.codes is not None
        return [self.levels[code] for code in self.codes[index]]

    def labels(self) -> np.ndarray:
        """The values as a coordinate: numbers, or text."""
        if self.numbers is not None:
            return self.numbers
        assert self.codes is not None
        return np.array(self.names(), dtype=object)[self.codes]

    def names(self) -> list[str]:
        """The levels as text."""
        return [label(level) for level in self.levels]


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One dimension of the grid: `size` positions, one key, or several that move together."""

    name: str
    size: int
    keys: dict[str, Values]


@dataclasses.dataclass(frozen=True)
class Grid:
    """All lanes of a sweep: the product of `dims`, in C order, cut into `chunks`."""

    config: SweepConfig
    dims: tuple[Dimension, ...]
    chunks: Chunks
    validity: Validity

    @classmethod
    def of(cls, config: SweepConfig) -> Grid:
        """The grid of a sweep file. Raises InputError for settings that fit together in no lane."""
        dims = [Dimension(key, len(axis), {key: values_of(axis)}) for key, axis in config.axes.items()]
        if config.zipped:
            together = {key: values_of(axis) for key, axis in config.zipped.items()}
            dims.append(Dimension(ZIP, len(next(iter(config.zipped.values()))), together))
        validity = Validity.of(config.fixed, [dim.keys for dim in dims])
        shape = tuple(dim.size for dim in dims)
        chunk = chunk_shape(shape, [tuple(dim.keys) for dim in dims], config.chunk, fast=validity.fast)
        return cls(config, tuple(dims), Chunks(shape, chunk), validity)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lanes along each dimension."""
        return self.chunks.shape

    @property
    def size(self) -> int:
        """How many lanes there are."""
        return math.prod(self.shape)

    def lanes(self, index: int, keep: np.ndarray | None = None) -> dict[str, np.ndarray | list[Any]]:
        """The values of every key that varies, one per lane of a chunk, or of those that `keep` [lanes] marks."""
        positions = self._positions(index, keep)
        return {
            key: values.take(at)
            for dim, at in zip(self.dims, positions, strict=True)
            for key, values in dim.keys.items()
        }

    def valid(self, index: int) -> np.ndarray:
        """Which lanes of a chunk have values that their keys accept: [lanes] of bool."""
        return self.validity.mask(self.chunks.region(index))

    def reasons(self, index: int, bad: np.ndarray) -> list[tuple[int, str]]:
        """For each lane of a chunk that `bad` [lanes] marks: its number in the chunk, and what is wrong with it."""
        return list(zip(np.flatnonzero(bad).tolist(), self.validity.reasons(self.lanes(index, bad)), strict=True))

    def coordinates(self, index: int, lane: int) -> dict[str, Any]:
        """What one lane of a chunk is called: key -> number or text."""
        at = self._positions(index, None)
        return {
            key: values.labels()[where[lane]] if values.numbers is None else plain(values.numbers[where[lane]])
            for dim, where in zip(self.dims, at, strict=True)
            for key, values in dim.keys.items()
        }

    def _positions(self, index: int, keep: np.ndarray | None) -> list[np.ndarray]:
        """For each dimension, where the lanes of a chunk lie on it."""
        region = self.chunks.region(index)
        grids = np.meshgrid(*(np.arange(s.start, s.stop) for s in region), indexing="ij")
        return [grid.ravel() if keep is None else grid.ravel()[keep] for grid in grids]


def values_of(axis: Axis) -> Values:
    """The values of an axis, made if a rule makes them."""
    if not axis.numeric:
        levels = tuple(dict.fromkeys(axis.values))
        codes = {level: i for i, level in enumerate(levels)}
        return Values(axis.key, None, levels, np.array([codes[value] for value in axis.values], dtype=np.int64))
    rule = IntegrateConfig.rules[axis.key]
    assert isinstance(rule, Limit)
    if axis.maker == "list":
        exact = rule.whole and all(isinstance(value, int) and abs(value) < 2**63 for value in axis.values)
        return Values(axis.key, np.array(axis.values, dtype=np.int64 if exact else np.float64))
    a, b = axis.numbers
    if axis.maker == "random":
        numbers = _drawn(axis)
    elif axis.maker == "linspace":
        numbers = np.linspace(a, b, axis.size)
    else:
        numbers = np.geomspace(a, b, axis.size)
    return Values(axis.key, np.rint(numbers) if axis.whole else numbers)


def _drawn(axis: Axis) -> np.ndarray:
    """Numbers of a law; keys with the same seed are independent of each other."""
    seed = np.random.SeedSequence([axis.seed, *axis.key.encode()])
    generator = np.random.Generator(np.random.PCG64(seed))
    a, b = axis.numbers
    if axis.law == "uniform":
        return generator.uniform(a, b, axis.size)
    if axis.law == "loguniform":
        # within the ends to the last bit, whatever exp(log(.)) rounds to
        return np.clip(np.exp(generator.uniform(math.log(a), math.log(b), axis.size)), a, b)
    numbers = generator.normal(a, b, axis.size)
    return np.exp(numbers) if axis.law == "lognormal" else numbers


def label(value: Any) -> str:
    """A name, or a finite law in one word: `-1:0.5,1:0.5`."""
    if isinstance(value, str):
        return value
    return ",".join(f"{v:.15g}:{p:.15g}" for v, p in zip(value.values, value.probabilities, strict=True))


def plain(value: Any) -> Any:
    """A numpy number as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
