"""Gradient flows of any pure JAX loss: vector fields, charts, clocks, `solve`, `Trajectory`."""

from gflow.flows._blocks import Block as Block
from gflow.flows._charts import AbstractChart as AbstractChart, LogChart as LogChart, ScaledChart as ScaledChart
from gflow.flows._clocks import (
    AbstractClock as AbstractClock,
    LogClock as LogClock,
    PlainClock as PlainClock,
    ScaledClock as ScaledClock,
)
from gflow.flows._registry import register_params as register_params
