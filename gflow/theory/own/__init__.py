"""A user's own loss under the gradient flow: what it passes, where it waits, and how that depends on its start."""

from gflow.theory.own._examine import (
    SCALES as SCALES,
    Examination as Examination,
    ScaleRun as ScaleRun,
    Track as Track,
    examine as examine,
)
