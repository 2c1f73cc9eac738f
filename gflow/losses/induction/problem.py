"""The flagship problem: a mixed target, a token law, a parametrisation (MATH sections 1, 2, 5)."""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gflow.conditions import Above, Below, Condition
from gflow.errors import InputError
from gflow.losses.induction.build import make_table
from gflow.losses.induction.exact import InductionHeadLoss, PopulationLoss
from gflow.losses.induction.finite import FiniteInductionLoss, FullLoss
from gflow.losses.induction.finite_fourgram import FiniteFourgramLoss
from gflow.losses.induction.fourgram import FourgramLoss
from gflow.losses.induction.growth import LawData
from gflow.losses.induction.joint_build import Progress, build_joint_table
from gflow.losses.induction.params import PARAMETRIZATIONS, InductionParams
from gflow.losses.induction.sampled import SampledLoss, sample_loss, samples_for
from gflow.losses.induction.sampled._size import DEFAULT_SAMPLES, whole_length
from gflow.tokens import TokenLaw, from_name


class ExcessOverPlateau(eqx.Module):
    """`Loss_IH(params) - plateau`: positive until the logit scale has grown (watched by the milestone T_o)."""

    loss: Any  # the induction part of a loss, exact or sampled
    plateau: Float[Array, ""]
    block: ClassVar[str] = "induction"

    def __call__(self, params: Any) -> Float[Array, ""]:
        return self.loss(params) - self.plateau

    def grow(self, params: Any) -> ExcessOverPlateau:
        """The same on a table that holds `params`; the level stays what it is."""
        grow = getattr(self.loss, "grow", None)  # a sampled loss has no table
        return self if grow is None else dataclasses.replace(self, loss=grow(params))


class Leaf(eqx.Module):
    """One parameter, to be watched by a milestone: `Above(Leaf("p11"), 3.0)`."""

    name: str = eqx.field(static=True)
    block: str | None = eqx.field(static=True, default=None)

    def __call__(self, params: Any) -> Float[Array, ""]:
        return jnp.asarray(getattr(params, self.name))


def v_plateau(loss: InductionHeadLoss) -> Float[Array, ""]:
    """`v_p = A_i K1(0)/K2(0)`: the v2 at which Loss_IH waits while w = 0 (MATH section 5)."""
    K = loss.table.pair(jnp.zeros_like(loss.table.lo))
    return loss.amplitude * K[0] / K[1]


def plateau(loss: InductionHeadLoss) -> Float[Array, ""]:
    """`1/2 A_i^2 [K(c,c) - K1(0)^2/K2(0)]`: the level at which Loss_IH waits (MATH section 5)."""
    K = loss.table.pair(jnp.zeros_like(loss.table.lo))
    return 0.5 * loss.amplitude**2 * (loss.table.kcc - K[0] ** 2 / K[1])


def _real(name: str, value: Any, least: float, strict: bool, advice: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}={value!r} is not a number; {advice}") from error
    if not math.isfinite(number):
        raise InputError(f"{name}={number} is not finite; {advice}")
    if number < least or (strict and number == least):
        relation = "greater than" if strict else "at least"
        raise InputError(f"{name}={number:g} must be {relation} {least:g}; {advice}")
    return number


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class InductionProblem:
    """Target `f*(X) = (A_g x_{L-2}, A_i sum_s x_s softmax_s(w*^2 x_L x_{s-1}))` and the model that learns it.

    Arguments:
    - `L`: sequence length, real, at least 4. `alpha_star` > 0: `A_g = alpha*/(1+alpha*)`, `A_i = 1/(1+alpha*)`.
    - `w_star` > 0: the target's logit scale is `c = w_star^2`.
    - `tokens`: "gaussian", "rademacher", "uniform", or a `TokenLaw`.
    - `d`: token dimension (Gaussian only, if above 1).
    - `parametrization`: "untied" (w = wK wQ), "tied" (w = wKQ^2) or "merged" (w).

    Raises `InputError` (one line: value, limit, way out). Source: MATH sections 1, 2; arXiv 2410.11474.
    """

    L: float
    alpha_star: float
    w_star: float
    tokens: TokenLaw  # a name given becomes its law
    d: int
    parametrization: str
    _losses: dict[str, Any] = dataclasses.field(init=False, repr=False)

    # what a user gives is checked here, value by value, so any type may come in
    def __init__(
        self,
        L: Any,
        alpha_star: Any,
        w_star: Any,
        tokens: Any = "gaussian",
        d: Any = 1,
        parametrization: Any = "untied",
    ) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("_losses", {})
        put("L", _real("L", L, 4.0, False, "the shortest sequence with two keys has L = 4"))
        put("alpha_star", _real("alpha_star", alpha_star, 0.0, True, "for example alpha_star=1"))
        put("w_star", _real("w_star", w_star, 0.0, True, "for example w_star=1"))
        put("tokens", tokens if isinstance(tokens, TokenLaw) else from_name(tokens))
        whole = _real("d", d, 1.0, False, "the number of token components is a whole number")
        if whole != int(whole):
            raise InputError(f"d={whole:g} must be a whole number, at least 1; the nearest is d={round(whole)}")
        put("d", int(whole))
        put("parametrization", str(parametrization))
        if self.d > 1 and self.tokens.name != "gaussian":
            raise InputError(f"d={self.d} needs gaussian tokens, not {self.tokens.name}; use d=1 or tokens='gaussian'")
        if self.parametrization not in PARAMETRIZATIONS:
            near = difflib.get_close_matches(str(self.parametrization), PARAMETRIZATIONS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(PARAMETRIZATIONS)}"
            raise InputError(f"parametrization={self.parametrization!r} is unknown; {hint}")

    def population_loss(self, cache: bool = True) -> PopulationLoss:
        """The exact loss on its overlap tables: built (or read from the disk cache) once per problem.

        Raises `TableError` if w_star is too large for the tables' accuracy.
        """
        if "exact" not in self._losses:
            table = make_table(self.tokens, self.L, self.w_star, self.d, cache=cache)
            L, alpha, d = (jnp.asarray(v, dtype=float) for v in (self.L, self.alpha_star, self.d))  # strongly typed
            fourgram = FourgramLoss(L, alpha, d, self.tokens.mean, self.tokens.variance)
            self._losses["exact"] = PopulationLoss(fourgram, InductionHeadLoss(alpha, table, LawData.of(self.tokens)))
        return self._losses["exact"]

    def sampled_loss(
        self,
        samples: int | None = None,
        *,
        scrambles: int = 8,
        seed: int = 0,
        accuracy: float | None = None,
        **options: Any,
    ) -> SampledLoss:
        """The loss on `samples` quasi-random sequences in `scrambles` independent scrambles (MATH section 6).

        For what has no exact form, and for quick looks: any p11, any law, also `MatrixParams`. By default 2^14
        sequences, or with `accuracy` as many as `samples_for` finds. `options`: those of `sample_loss`.
        Raises `InputError`.
        """
        if samples is not None and accuracy is not None:
            raise InputError(f"samples={samples} and accuracy={accuracy:g} exclude each other; keep one")
        if accuracy is not None:
            size = samples_for(self, accuracy, scrambles=scrambles, seed=seed, **options)
            samples = size.samples
        count = DEFAULT_SAMPLES if samples is None else samples
        options = {"samples": count, "scrambles": scrambles, "seed": seed} | options
        return sample_loss(self.tokens, whole_length(self.L), self.alpha_star, self.w_star, self.d, **options)

    def full_loss(self, cache: bool = True, progress: Progress | None = None) -> FullLoss:
        """The exact loss of all six parameters at any p11 (MATH sections 3, 8), for Gaussian tokens and whole L.

        Its tables take minutes to build, once: `progress(Building(done, total))` is called along the way, and an
        interrupted build goes on where it stopped. Raises `InputError` for what has no exact form at finite p11,
        `TableError` if w_star is too large.
        """
        if self.tokens.name != "gaussian":
            raise InputError(
                f"tokens={self.tokens.name}: at finite p11 only gaussian tokens have an exact loss; "
                "use the sampled loss, evaluate='sampled'"
            )
        if "full" not in self._losses:
            table = build_joint_table(self.L, self.w_star, self.d, cache=cache, progress=progress)
            alpha, d = (jnp.asarray(v, dtype=float) for v in (self.alpha_star, self.d))
            fourgram = FiniteFourgramLoss(int(self.L) - 2, alpha, d, self.tokens.mean, self.tokens.variance)
            self._losses["full"] = FullLoss(fourgram, FiniteInductionLoss(alpha, table))
        return self._losses["full"]

    def initial_params(self, sigma_init: Any, p11: Any = None, *, wK: Any = None, wQ: Any = None) -> InductionParams:
        """Every parameter at `sigma_init` > 0; `p11`: its initial value, or None, infinite and not part of the state.

        Joint training starts with `p11=sigma_init`. `wK`, `wQ` > 0: where these two start instead (untied only).
        """
        sigma = jnp.asarray(_real("sigma_init", sigma_init, 0.0, True, "for example sigma_init=0.01"), dtype=float)
        cls = PARAMETRIZATIONS[self.parametrization]
        count = len(dataclasses.fields(cls)) - 1
        own = {name: value for name, value in (("wK", wK), ("wQ", wQ)) if value is not None}
        if own and self.parametrization != "untied":
            name = next(iter(own))
            raise InputError(f"{name}={own[name]!r} has no meaning for parametrization={self.parametrization!r}")
        starts = {
            name: jnp.asarray(_real(name, value, 0.0, True, f"for example {name}=0.01"), dtype=float)
            for name, value in own.items()
        }
        if p11 is not None:
            p11 = jnp.asarray(_real("p11", p11, 0.0, False, "p11 = 0 attends to all tokens alike"), dtype=float)
        return dataclasses.replace(cls(*[sigma] * count, p11=p11), **starts)

    def plateau(self) -> Float[Array, ""]:
        """The level at which Loss_IH waits."""
        return plateau(self.population_loss().induction)

    def v_plateau(self) -> Float[Array, ""]:
        """The value of v2 on the plateau."""
        return v_plateau(self.population_loss().induction)

    def milestones(self, loss: Any = None) -> dict[str, Condition]:
        """The milestones of MATH section 5, each a first crossing, of `loss` (by default the exact one at p11 = inf).

        T_I: Loss_G4 = 1% of its start. T_o: Loss_IH = plateau + 1% (start - plateau). T_II, T_III: Loss_IH = 99%, 1% of
        the plateau. T_II_of_initial, T_III_of_initial: Loss_IH = 99%, 1% of its start. At w = 0 the first layer does
        not matter, so the plateau is the same at every p11.
        """
        loss = self.population_loss() if loss is None else loss
        level = self.plateau()
        return {
            "T_I": Below(loss.fourgram, fraction=0.01, of="initial"),
            "T_o": Below(ExcessOverPlateau(loss.induction, level), fraction=0.01, of="initial"),
            "T_II": Below(loss.induction, 0.99 * level),
            "T_III": Below(loss.induction, 0.01 * level),
            "T_II_of_initial": Below(loss.induction, fraction=0.99, of="initial"),
            "T_III_of_initial": Below(loss.induction, fraction=0.01, of="initial"),
        }

    def emergence(self, loss: Any) -> dict[str, Condition]:
        """More milestones, for when both layers are trained (MATH sections 7, 8): when is what learned?

        T_fourgram_half, T_induction_half: the part's loss is half of what it is without output (v1 = 0, v2 = 0).
        T_v2: v2 = 90% of A_i. T_induction_half_of_initial, T_induction_tenth_of_initial: Loss_IH = 50%, 10% of its
        start.
        """
        exact = self.population_loss().induction
        without = 0.5 * exact.amplitude**2 * exact.table.kcc
        A_g = self.alpha_star / (1.0 + self.alpha_star)
        power = self.tokens.variance + self.tokens.mean**2
        return {
            "T_v2": Above(Leaf("v2", "induction"), 0.9 * exact.amplitude),
            "T_fourgram_half": Below(loss.fourgram, 0.25 * self.d * A_g**2 * power),
            "T_induction_half": Below(loss.induction, 0.5 * without),
            "T_induction_half_of_initial": Below(loss.induction, fraction=0.5, of="initial"),
            "T_induction_tenth_of_initial": Below(loss.induction, fraction=0.1, of="initial"),
        }
