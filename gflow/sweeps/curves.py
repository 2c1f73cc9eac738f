"""The common times of the curves."""

from __future__ import annotations

import numpy as np

from gflow.config.integrate import IntegrateConfig
from gflow.sweeps.design import Grid

_BEYOND = 10.0  # how far the last time lies after the leading order of the slowest lane's T_III


def curve_times(grid: Grid) -> np.ndarray | None:
    """Log-spaced times; None where no curves are wanted.

    Unless the file says when they end, that is 10 times the largest `(1 + alpha*)^2 L log(1/sigma) / w*^2`, the leading
    order of T_III, over the values of the axes.
    """
    curves = grid.config.curves
    if curves is None:
        return None
    last = curves.last
    if last is None:
        with np.errstate(all="ignore"):
            last = _BEYOND * (1 + _extreme(grid, "alpha_star", np.max)) ** 2 * _extreme(grid, "L", np.max)
            last *= max(1.0, -np.log(_extreme(grid, "sigma_init", np.min))) / _extreme(grid, "w_star", np.min) ** 2
        last = max(float(last), 10.0 * curves.first)
    return np.geomspace(curves.first, last, curves.points)


def _extreme(grid: Grid, key: str, which: np.ufunc | object) -> float:
    """Largest or smallest value of a key among those that are in range."""
    for dim, within in zip(grid.dims, grid.validity.within, strict=True):
        if key in dim.keys and within.any():
            return float(which(dim.keys[key].numbers[within]))  # pyright: ignore
    default = getattr(IntegrateConfig, key)
    return float(grid.config.fixed.get(key, default))
