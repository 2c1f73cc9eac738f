"""Tick labels as plain text (no mathtext, whose glyphs would not be the page's), with digits as their spacing needs."""

from __future__ import annotations

import math
from typing import Any

from gflow.report import _numbers


def set_ticks(axes: Any) -> None:
    """Place and label the ticks of both axes, few enough for a small figure."""
    for axis, most in ((axes.xaxis, 5), (axes.yaxis, 6)):
        if axis.get_scale() == "log":
            _logarithmic(axis, most)
        else:
            _linear(axis, most)


def _linear(axis: Any, most: int) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    low, high = sorted(axis.get_view_interval())
    inside = [
        tick for tick in MaxNLocator(most, steps=(1, 2, 2.5, 5, 10)).tick_values(low, high) if low <= tick <= high
    ]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(_labels(inside))


def _logarithmic(axis: Any, most: int) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    ticks = log_ticks(low, high, most)
    if len(ticks) < 2:
        _linear(axis, most)
    else:
        axis.set_major_locator(FixedLocator(ticks))
        plain = ticks[0] > 5e-4 and ticks[-1] < 5e4
        axis.set_major_formatter(lambda value, _: f"{value:.6g}" if plain else _numbers.power(value))
    axis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Decades, or every second, third, ... of them; of few decades some values between, too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 1.4 else (1.0, 3.0) if decades < 2.6 else (1.0,)
    every = max(1, math.ceil((last - first) / most))
    values = [step * 10.0**k for k in range(first, last + 1) if k % every == 0 for step in steps]
    return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def _labels(ticks: list[float]) -> Any:
    """A formatter that gives every tick as many digits as tell it from its neighbour."""
    if len(ticks) < 2:
        return lambda value, _: _numbers.scientific(f"{value:.6g}")
    largest, step = max(abs(tick) for tick in ticks), ticks[1] - ticks[0]
    if 1e-4 <= largest < 1e6:
        decimals = min(max(0, -math.floor(math.log10(step) + 1e-9)), 12)
        decimals += abs(round(step, decimals) - step) > 1e-6 * step  # 0.25, 2.5
        return lambda value, _: _numbers.scientific(f"{value:.{decimals}f}")
    digits = min(max(1, math.ceil(math.log10(largest / step) - 1e-9) + 1), 15)
    return lambda value, _: _numbers.scientific(f"{value:.{digits}g}")
