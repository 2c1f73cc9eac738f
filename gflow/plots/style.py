"""How figures look: sizes for print, colours that keep their order in greyscale, fonts that travel with the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# Dark to light; apart for the common kinds of colour blindness (after Okabe and Ito), and in luminance.
COLOURS = ("#00202e", "#0a50a1", "#c0392b", "#2a9d8f", "#e09f3e", "#b8b8b8")
# with the line style, curves stay apart even in a bad photocopy
STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)), "-")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHED: Any = (0, (4, 2))
SHADES = {"I": "#ffffff", "II": "#ececec", "III": "#ffffff", "IV": "#ececec"}
WIDTH = 6.5  # inches: the text width of a paper

RC: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "path",  # looks the same where the font is missing
    "mathtext.fontset": "dejavusans",
    "figure.dpi": 100,
    "savefig.dpi": 300,
}


@contextmanager
def paper() -> Iterator[None]:
    """matplotlib's settings for a figure in print, for the time of a `with` block."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def new_figure(height: float, margins: dict[str, float] | None = None, width: float = WIDTH) -> Any:
    """An empty figure (sizes in inches) that no global list keeps; its settings are used when it is saved, too.

    Fixed `margins` (as for `subplots_adjust`) save laying the figure out twice; without them it is fitted.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class PaperFigure(Figure):
        """A figure whose files are written with the settings of print."""

        def savefig(self, fname: Any, **kwargs: Any) -> None:
            """As matplotlib's, at 300 dpi and with embedded fonts."""
            with paper():
                kwargs.setdefault("dpi", 300)
                super().savefig(fname, **kwargs)

    figure = PaperFigure(figsize=(width, height), layout=None if margins else "constrained")
    if margins:
        figure.subplots_adjust(**margins)
    FigureCanvasAgg(figure)
    return figure


def halo() -> list[Any]:
    """Path effects for a name that stands on curves: a white edge around its letters."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.0, foreground="white")]


def luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 (black) to 1: what is left of it in greyscale."""
    from matplotlib.colors import to_rgb

    rgb = np.asarray(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
