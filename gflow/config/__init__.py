"""Configurations of the commands as frozen dataclasses; every value is checked here, before JAX is loaded."""

from gflow.config._checks import number
from gflow.config._resolve import read_toml, resolve
from gflow.config._rules import Choice, FiniteTokens, Text
from gflow.config.integrate import IntegrateConfig
from gflow.config.train import TrainConfig

__all__ = ["Choice", "FiniteTokens", "IntegrateConfig", "Text", "TrainConfig", "number", "read_toml", "resolve"]
