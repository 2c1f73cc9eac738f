"""The population loss on a fixed sample of sequences, for whatever has no exact form (MATH section 6)."""

from gflow.losses.induction.sampled._draw import sample_loss as sample_loss
from gflow.losses.induction.sampled._loss import SampledLoss as SampledLoss
from gflow.losses.induction.sampled._parts import (
    ExactFourgramLoss as ExactFourgramLoss,
    SampledFourgramLoss as SampledFourgramLoss,
    SampledInductionLoss as SampledInductionLoss,
)
from gflow.losses.induction.sampled._size import SampleSize as SampleSize, samples_for as samples_for
from gflow.losses.induction.sampled._solve import run_scrambles as run_scrambles, solve_sampled as solve_sampled
