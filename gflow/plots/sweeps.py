"""Figures of sweeps: how T_III scales, how far theory is from it, where there is a plateau."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gflow.errors import InputError
from gflow.plots._cells import contours, draw_cells, finish, panels
from gflow.plots._grid import (
    MOST,
    Group,
    fates,
    groups,
    named,
    needs_axes,
    needs_columns,
    rising,
    select as select,
    value,
)
from gflow.plots.style import COLOURS, DASHED, MARKERS, WIDTH, new_figure, paper

KINDS = ("scaling", "ratio", "phase")
LEAST = 1e-2  # of the plateau's relative length that colours tell apart
FAR = 2.0  # ratio to the prediction, and its inverse, that colours tell apart
SIZE: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}  # contours of T_III


def sweep_figure(data: Any, kind: str | None = None, chosen: Mapping[str, str] | None = None) -> Any:
    """A figure of a sweep's dataset: "scaling", "ratio" or "phase", by default the one that its axes suit.

    `chosen`: name of an axis -> the value, as text, of the lanes to draw.
    """
    data = select(data, chosen or {})
    if kind is None:
        kind = default_kind(data)
    return {"scaling": scaling, "ratio": ratio, "phase": phase}[kind](data)


def default_kind(data: Any) -> str:
    """The figure that the axes of a dataset suit. Raises InputError when they suit none."""
    long = {name for name, size in data.sizes.items() if size > 1}
    if {"alpha_star", "w_star"} <= long and not long & {"L", "sigma_init"}:
        return "phase"
    if long & {"L", "sigma_init"}:
        return "scaling"
    raise InputError(
        "this sweep has no figure: scaling needs the axis L or sigma_init, ratio both, phase alpha_star and w_star; "
        f"axes with several values: {', '.join(map(str, sorted(long - {'curve_time'}))) or 'none'}"
    )


def scaling(data: Any) -> Any:
    """T_III against L, and against log(1/sigma_init), with theory's lines. Dims: L, sigma_init or both.

    Solid: the exact rate g of growth on the plateau, log(1/sigma)/g against L, and the slope 1/g from the smallest
    sigma on. Dashed: the leading order at large L, (1 + alpha*)^2 L log(1/sigma)/w*^2, for Gaussian tokens, d = 1. At
    most six groups of lanes; of an axis with more values some are drawn. Returns a matplotlib `Figure`.
    """
    axes = [key for key in ("L", "sigma_init") if data.sizes.get(key, 0) > 1]
    if not axes:
        needs_axes(data, "scaling", ("L",))
    needs_columns(data, "scaling", ("T_III", "growth_rate"))
    found = groups(data, "scaling", axes)
    thinned = {key: _thinned(found, [other for other in axes if other != key]) for key in axes}
    with paper():
        rows = -(-max(map(len, thinned.values())) // 2)
        figure = new_figure(height=3.2 + 0.13 * rows, width=WIDTH if len(axes) == 2 else 0.62 * WIDTH)
        dashed = False
        for panel, key in zip(np.atleast_1d(figure.subplots(1, len(axes))), axes, strict=True):
            for k, group in enumerate(thinned[key]):
                dashed |= _line(panel, group, key, k)
            panel.set_yscale("log")
            panel.set_ylabel("$T_{III}$")
            if key == "L":
                panel.set_xscale("log")
                panel.set_xlabel("$L$")
            else:
                panel.set_xlabel(r"$\log(1/\sigma_\mathrm{init})$")
            if any(group.name for group in thinned[key]):
                _below(panel)
        _key(figure, dashed)
        note = fates(data, "T_III")
        if note:
            figure.supxlabel(note, fontsize=6.5, x=0.01, ha="left")
    return figure


def ratio(data: Any) -> Any:
    """Heat map of T_III / T_predicted over (L, sigma_init), T_predicted = log(1/sigma_init)/growth_rate.

    A panel for each group of lanes, at most six; failed, pending and unreached lanes are marked. Returns a `Figure`.
    """
    needs_axes(data, "ratio", ("L", "sigma_init"))
    needs_columns(data, "ratio", ("T_III", "growth_rate"))
    found = groups(data, "ratio", ("L", "sigma_init"))
    shown = [group.data["T_III"] / _predicted(group) for group in found]
    values = np.concatenate([part.values.ravel() for part in shown])
    if not np.isfinite(values).any():
        raise InputError("the figure ratio needs lanes with T_III and a growth rate; there are none in this selection")
    with paper():
        from matplotlib.colors import Normalize, TwoSlopeNorm

        figure, drawn = panels(len(found))
        least, most = np.nanmin(values), np.nanmax(values)
        low, high = max(least, 1 / FAR), min(most, FAR)
        if low < 1.0 < high:
            norm, colours = TwoSlopeNorm(1.0, low, high), "RdBu_r"
        else:
            low, high = (low, high) if low < high else (least, most)  # all far on one side
            norm, colours = Normalize(low, high), "viridis"
        beyond = ("neither", "max", "min", "both")[2 * bool(least < low) + bool(most > high)]
        marks: set[str] = set()
        mesh = None
        for axes, group, part in zip(drawn, found, shown, strict=True):
            mesh, _, needed = draw_cells(axes, group, "L", "sigma_init", part, {"norm": norm, "cmap": colours})
            marks |= needed
        bar = figure.colorbar(mesh, ax=drawn, extend=beyond)
        bar.set_label(r"$T_{III}\,/\,T_\mathrm{predicted}$,  $T_\mathrm{predicted} = \log(1/\sigma_\mathrm{init})/g$")
        finish(figure, drawn, "L", "sigma_init", marks, fates(data, "T_III"))
    return figure


def phase(data: Any) -> Any:
    """Diagram in (alpha_star, w_star): is there a plateau? Its length (T_II - T_o)/T_o, with its contour at 1.

    Dotted contours: T_III at powers of ten.
    A panel for each group of lanes, at most six. Milestones not reached are hatched, failed and pending lanes marked.
    Returns a matplotlib `Figure`.
    """
    needs_axes(data, "phase", ("alpha_star", "w_star"))
    needs_columns(data, "phase", ("T_o", "T_II"))
    found = groups(data, "phase", ("alpha_star", "w_star"))
    # T_II < T_o: no plateau at all, the same colour as a very short one
    lengths = [((g.data["T_II"] - g.data["T_o"]) / g.data["T_o"]).clip(min=LEAST) for g in found]
    values = np.concatenate([length.values.ravel() for length in lengths])
    if not np.isfinite(values).any():
        raise InputError("the figure phase needs lanes with T_o and T_II; there are none in this selection")
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    with paper():
        from matplotlib.colors import LogNorm

        figure, drawn = panels(len(found))
        marks: set[str] = set()
        mesh, sized = None, False
        most = max(1 / LEAST, high)
        look = {"norm": LogNorm(1 / most, most), "cmap": "PuOr"}  # white at 1
        for axes, group, length in zip(drawn, found, lengths, strict=True):
            mesh, shown, needed = draw_cells(axes, group, "alpha_star", "w_star", length, look)
            marks |= needed
            where = [rising(length, key)[key].values for key in ("alpha_star", "w_star")]
            if min(map(len, where)) > 1:
                contours(axes, where, shown, [1.0], colors="black", linewidths=1.2)
                sized |= _sizes(axes, group, where)
        bar = figure.colorbar(mesh, ax=drawn)
        bar.ax.set_ylim(max(low / 1.1, 1 / most), max(high, 1.1))
        bar.set_label(r"length of the plateau, $(T_{II} - T_o)\,/\,T_o$")
        bar.ax.axhline(1.0, color="black", linewidth=1.2)
        finish(figure, drawn, "alpha_star", "w_star", marks, fates(data, "T_II"), {"$T_{III}$": SIZE} if sized else {})
    return figure


def _sizes(axes: Any, group: Group, where: list[np.ndarray]) -> bool:
    """Contours of T_III at powers of ten; are there any?"""
    if "T_III" not in group.data:
        return False
    times = rising(rising(group.data["T_III"], "alpha_star"), "w_star").transpose("w_star", "alpha_star").values
    if not (times > 0).any():
        return False
    times = np.where(times > 0, times, np.nan)
    decades = np.arange(np.ceil(np.log10(np.nanmin(times))), np.log10(np.nanmax(times)))
    look = {"colors": "black", "linestyles": SIZE["linestyle"], "linewidths": SIZE["linewidth"]}
    return contours(axes, where, times, (10.0**decades).tolist(), **look)


def _below(axes: Any) -> None:
    """The legend of a panel, under the name of its axis, where it hides no lane."""
    from matplotlib.transforms import ScaledTranslation

    under = axes.transAxes + ScaledTranslation(0.0, -30 / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=under, ncols=2, fontsize=6, handlelength=1.2,
        borderaxespad=0.0, columnspacing=1.2,
    )  # fmt: skip


def _thinned(found: list[Group], others: list[str]) -> list[Group]:
    """Groups with single values of another axis, some of them if it has many."""
    if not others:
        return found
    (key,) = others
    each = max(1, MOST // len(found))
    thin = []
    for group in found:
        data = rising(group.data, key)
        size = data.sizes[key]
        for at in np.unique(np.linspace(0, size - 1, min(each, size)).round().astype(int)) if size else ():
            part = data.isel({key: int(at)})
            name = named(key, part[key].values.item())
            thin.append(Group(", ".join(filter(None, (group.name, name))), part))
    return thin


def _line(axes: Any, group: Group, key: str, k: int) -> bool:
    """The lanes of a group as points, with theory's lines; was the leading order among them?"""
    data = rising(group.data, key)
    if not data.sizes[key]:
        return False
    x = data[key].values if key == "L" else np.log(1.0 / data[key].values)
    points = data["T_III"].values
    reached = np.isfinite(points)
    colour = {"color": COLOURS[k % len(COLOURS)]}
    axes.plot(x[reached], points[reached], linestyle="", marker=MARKERS[k % len(MARKERS)], label=group.name, **colour)
    line: dict[str, Any] = {"linewidth": 1.0, "zorder": 1, **colour}
    leading = _leading(data)
    if key == "L":
        _positive(axes, x, _predicted(group, data).values, line)
    else:  # straight lines: they do not bend from lane to lane
        if leading is not None:
            leading = leading[0] / x[0] * np.linspace(x.min(), x.max(), 200)
        at = np.flatnonzero(reached)[:1]  # through the smallest sigma, where the slope is closest to its limit
        ends, x = x[at], np.linspace(x.min(), x.max(), 200)
        if len(at):
            _positive(axes, x, points[at] + (x - ends) / _rate(group, data).values[at], line)
    if leading is None:
        return False
    _positive(axes, x, leading, line | {"linestyle": DASHED, "linewidth": 0.9})
    return True


def _positive(axes: Any, x: np.ndarray, values: np.ndarray, look: dict[str, Any]) -> None:
    """A line where a logarithmic axis shows it."""
    values = np.broadcast_to(values, x.shape)
    with np.errstate(invalid="ignore"):
        shown = np.isfinite(values) & (values > 0)
    axes.plot(x[shown], values[shown], **look)


def _rate(group: Group, data: Any = None) -> Any:
    """The growth rate of a group's lanes; NaN where nothing grows, or starts elsewhere than at sigma_init."""
    data = group.data if data is None else data
    grows = value(data, "parametrization") in ("untied", "tied")
    own = any(value(data, key) is not None or key in data.coords for key in ("wK_init", "wQ_init"))
    rate = data["growth_rate"]
    return rate.where((rate > 0) & bool(grows and not own))


def _predicted(group: Group, data: Any = None) -> Any:
    """log(1/sigma_init)/g."""
    data = group.data if data is None else data
    return np.log(1.0 / _along(data, "sigma_init")) / _rate(group, data)


def _along(data: Any, key: str) -> Any:
    """A number that varies along an axis or does not."""
    return data[key] if key in data.coords else float(value(data, key))


def _leading(data: Any) -> np.ndarray | None:
    """(1 + alpha*)^2 L log(1/sigma)/w*^2, half of it for tied; None where it does not hold."""
    kind = value(data, "parametrization")
    own = any(value(data, key) is not None or key in data.coords for key in ("wK_init", "wQ_init"))
    if value(data, "tokens") != "gaussian" or value(data, "d") not in (None, 1) or kind == "merged" or own:
        return None
    alpha, w, length, sigma = (_along(data, key) for key in ("alpha_star", "w_star", "L", "sigma_init"))
    time = (1 + alpha) ** 2 * length * np.log(1.0 / sigma) / w**2
    return np.asarray(time) / (2.0 if kind == "tied" else 1.0)


def _key(figure: Any, dashed: bool) -> None:
    """What the lines are."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="black", linestyle="", marker="o", label="sweep"),
        Line2D([], [], color="black", linewidth=1.0, label="theory: rate $g$, slope $1/g$"),
    ]
    if dashed:
        text = r"leading order $(1+\alpha^*)^2 L \log(1/\sigma)/w^{*2}$"
        handles.append(Line2D([], [], color="black", linestyle=DASHED, linewidth=0.9, label=text))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
