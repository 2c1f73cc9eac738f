"""The population loss of the induction-head model (MATH sections 1-6): target, token laws, exact loss, milestones."""

from gflow.losses.induction.build import Resolution as Resolution, build_table as build_table, make_table as make_table
from gflow.losses.induction.exact import InductionHeadLoss as InductionHeadLoss, PopulationLoss as PopulationLoss
from gflow.losses.induction.finite import FiniteInductionLoss as FiniteInductionLoss, FullLoss as FullLoss
from gflow.losses.induction.finite_fourgram import FiniteFourgramLoss as FiniteFourgramLoss
from gflow.losses.induction.forward import (
    first_layer as first_layer,
    model_output as model_output,
    sequence_losses as sequence_losses,
    target_output as target_output,
)
from gflow.losses.induction.fourgram import FourgramLoss as FourgramLoss
from gflow.losses.induction.joint_build import Building as Building, build_joint_table as build_joint_table
from gflow.losses.induction.joint_table import JointTable as JointTable
from gflow.losses.induction.overlap_finite import cross_overlap as cross_overlap, self_overlap as self_overlap
from gflow.losses.induction.params import (
    MatrixParams as MatrixParams,
    MergedParams as MergedParams,
    TiedParams as TiedParams,
    UntiedParams as UntiedParams,
)
from gflow.losses.induction.problem import InductionProblem as InductionProblem
from gflow.losses.induction.sampled import (
    SampledLoss as SampledLoss,
    SampleSize as SampleSize,
    run_scrambles as run_scrambles,
    sample_loss as sample_loss,
    samples_for as samples_for,
    solve_sampled as solve_sampled,
)
from gflow.losses.induction.table import OverlapTable as OverlapTable
