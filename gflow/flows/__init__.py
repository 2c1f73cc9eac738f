"""Gradient flows of any pure JAX loss: vector fields, charts, clocks, `solve`, `Trajectory`."""

from gflow.flows._adam import AdamFlow as AdamFlow
from gflow.flows._blocks import Block as Block
from gflow.flows._charts import AbstractChart as AbstractChart, LogChart as LogChart, ScaledChart as ScaledChart
from gflow.flows._clocks import (
    AbstractClock as AbstractClock,
    LogClock as LogClock,
    PlainClock as PlainClock,
    ScaledClock as ScaledClock,
)
from gflow.flows._flow import AbstractFlow as AbstractFlow, GradientFlow as GradientFlow
from gflow.flows._heavy_ball import HeavyBallFlow as HeavyBallFlow
from gflow.flows._persist import load as load
from gflow.flows._registry import register_params as register_params
from gflow.flows._sign import SignFlow as SignFlow
from gflow.flows._solve import solve as solve, stationary_point as stationary_point
from gflow.flows._staged import StagedMilestone as StagedMilestone, StagedTrajectory as StagedTrajectory
from gflow.flows._stages import Stage as Stage, solve_stages as solve_stages
from gflow.flows._status import Milestone as Milestone, StationaryPoint as StationaryPoint, Status as Status
from gflow.flows._traced import Endpoint as Endpoint, integrate as integrate
from gflow.flows._trajectory import LogSpaced as LogSpaced, Trajectory as Trajectory
