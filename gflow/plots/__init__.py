"""Figures: one public function each, returning a matplotlib Figure that belongs to no global state."""

from gflow.plots.flagship import flagship as flagship
from gflow.plots.overlay import overlay as overlay
from gflow.plots.side_by_side import side_by_side as side_by_side
from gflow.plots.trajectory import trajectory as trajectory
