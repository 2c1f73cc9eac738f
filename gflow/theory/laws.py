"""Which law do times follow as a scale s falls: log(1/s), a power, a power of the log? By error on unseen data.

Each candidate is fitted to the larger scales and predicts the times at the smaller ones. What decides is the error of
that extrapolation, against the data's own error and against the other laws; and where one law contains another, whether
the data pin the richer one down to the simpler. Rules: `select_law`, docs/exponents.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from gflow.errors import InputError
from gflow.theory._fits import CONFIDENCE, SHAPES, Fit, Shape, fit

LAWS = tuple(SHAPES)
TRAIN = 0.6  # fraction of the data, its larger scales, that laws are fitted to
FEWEST = 6  # points
FACTOR = 3.0  # how much smaller the winner's error must be
RESOLUTION = 1e-4  # relative error below which laws are equally good: none is exact, all miss terms that vanish with s
TOLERANCE = 1e-2  # relative error within which a law counts as a description, however small the data's errors
MISS = 5.0  # a law that misses the unseen data by more than so many of its errors is no description either
EXCLUDED = 0.999  # probability at which a fit to all data counts as excluded by the errors
POWER_IS_LOG = 0.05  # a fitted power below this is a logarithm,
NEAR_ONE = 0.04  # and a power of the log (or of 1/s) this close to 1 is 1
# law -> the laws that contain it
CONTAINED = {
    "constant": ("log", "inverse", "power", "log-power"),
    "log": ("power", "log-power"),
    "inverse": ("power",),
}


@dataclasses.dataclass(frozen=True)
class LawResult:
    """One law's part in a selection.

    - `parameters`, `intervals`: of the fit to all data, with 95% confidence intervals (low, high).
    - `in_sample`, `out_of_sample`: root mean square relative errors of the fit to the larger scales, there and at the
      smaller ones. Infinite where the law cannot be evaluated (log(1/s)^p needs s < 1).
    """

    name: str
    formula: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    in_sample: float
    out_of_sample: float

    def __repr__(self) -> str:
        ends = {name: "[{:.6g}, {:.6g}]".format(*pair) for name, pair in self.intervals.items()}
        numbers = ", ".join(f"{name} = {value:.6g} {ends[name]}" for name, value in self.parameters.items())
        errors = f"unseen {self.out_of_sample:.2g}, seen {self.in_sample:.2g}"
        return f"{self.name}: {self.formula}; {errors}; {numbers or 'not for s >= 1'}"


@dataclasses.dataclass(frozen=True)
class Selection:
    """`winner` (a law's name, or None), `decisive`, `reason`; `laws`: name -> `LawResult`.

    `noise`: root mean square relative error of the unseen data. `decisive` is False where the winner is None because
    several laws do ("undecided"), True where none does ("none").
    """

    winner: str | None
    decisive: bool
    reason: str
    laws: dict[str, LawResult]
    noise: float

    @property
    def verdict(self) -> str:
        """The winner's name, "none" (no law describes the data) or "undecided" (several do)."""
        return self.winner or ("none" if self.decisive else "undecided")

    def __repr__(self) -> str:
        lines = [f"{self.verdict}: {self.reason}", f"  (error of the unseen data: {self.noise:.2g})"]
        return "\n".join([*lines, *(f"  {law!r}" for law in sorted(self.laws.values(), key=lambda x: x.out_of_sample))])


@dataclasses.dataclass(frozen=True)
class _Data:
    s: np.ndarray
    t: np.ndarray
    noise: float


@dataclasses.dataclass(frozen=True)
class Regression:
    """`slope` of a straight line, its 95% confidence interval `low`, `high`, `intercept`, `points`."""

    slope: float
    low: float
    high: float
    intercept: float
    points: int

    @property
    def error(self) -> float:
        """Half the width of the interval."""
        return 0.5 * (self.high - self.low)

    def __repr__(self) -> str:
        return f"slope {self.slope:.6g}, 95% [{self.low:.6g}, {self.high:.6g}], {self.points} points"


def _columns(**given: Any) -> list[np.ndarray]:
    columns = []
    for name, values in given.items():
        try:
            columns.append(np.asarray(values, dtype=float))
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: expected numbers, got {values!r}") from error
        if columns[-1].ndim != 1 or not np.all(np.isfinite(columns[-1])):
            raise InputError(f"{name}: expected a list of finite numbers; leave out milestones that were not reached")
    sizes = {name: column.size for name, column in zip(given, columns, strict=True)}
    if len(set(sizes.values())) > 1:
        raise InputError(f"the columns differ in length: {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    return columns


def regression(log_x: Any, log_T: Any) -> Regression:
    """Ordinary least squares `log_T = intercept + slope log_x`, interval from Student's t (scipy's `linregress`).

    Raises `InputError` for fewer than 3 points, or equal log_x.
    """
    x, y = _columns(log_x=log_x, log_T=log_T)
    if x.size < 3 or np.ptp(x) == 0:
        raise InputError(f"a slope with an interval needs 3 points at different x, got {np.unique(x).size}")
    found: Any = stats.linregress(x, y)
    half = float(stats.t.ppf(0.5 + 0.5 * CONFIDENCE, x.size - 2)) * float(found.stderr)
    slope = float(found.slope)
    return Regression(slope, slope - half, slope + half, float(found.intercept), int(x.size))


def power_exponent(x: Any, T: Any) -> Regression:
    """`k` of `T ~ x^k`: the slope of log T against log x. Raises `InputError` for values that are not positive."""
    a, b = _columns(x=x, T=T)
    if np.any(a <= 0) or np.any(b <= 0):
        raise InputError("power_exponent: x and T must be positive")
    return regression(np.log(a), np.log(b))


def select_law(
    x: Any,
    T: Any,
    error: Any = None,
    laws: Sequence[str] = LAWS,
    *,
    factor: float = FACTOR,
    resolution: float = RESOLUTION,
) -> Selection:
    """The law that times T [N] follow as the scale x [N] falls, by the error of its extrapolation.

    The larger 60% of the scales are fitted, weighted by `sqrt(error^2 + (resolution T)^2)`; the rest are predicted.
    E = the root mean square relative error there, but not less than the data's own error or `resolution`. Then:

    - "none" if even the least E exceeds 1% and five times the data's error, and no law fits all data within its errors;
    - contenders are the laws with E up to `factor` times the least, and those whose fit to all data is not
      significantly worse (chi-squared or F at 99.9%): a law that is the only contender wins;
    - of several, the one that all others contain wins if the fits to all data pin them to it (95% intervals): p < 0.05
      for log in power, |p-1| < 0.04 for log in log-power, growth over the data below 1% for constant in all. A power
      beside 1/s is reported as power, with its p. Otherwise "undecided".

    - `x`: scales s > 0, at least 6; for growth in a large variable give 1/variable.
    - `error`: standard errors of T [N], or one number; None where T is exact, or its error unknown and small.
    - `laws`: of "constant", "log", "inverse", "power", "log-power".

    Raises `InputError` for data that cannot be used.
    """
    s, t = _columns(x=x, T=T)
    scatter = np.zeros_like(t)
    if error is not None:
        (scatter,) = _columns(error=np.full_like(t, error) if np.ndim(error) == 0 else error)
        if scatter.shape != t.shape:
            raise InputError(f"select_law: {scatter.size} errors for {t.size} times")
    if np.any(s <= 0) or np.any(t <= 0) or np.any(scatter < 0):
        raise InputError("select_law: scales and times must be positive, errors not negative")
    if not laws:
        raise InputError("select_law: laws is empty")
    if np.unique(s).size < FEWEST:
        raise InputError(f"select_law: {np.unique(s).size} different scales are too few to select on; give {FEWEST}")
    for name in laws:
        if name not in SHAPES:
            near = difflib.get_close_matches(str(name), LAWS, 1)
            raise InputError(f"law {name!r} is not known; {f'did you mean {near[0]!r}?' if near else ', '.join(LAWS)}")
    order = np.argsort(-s, kind="stable")
    s, t, scatter = s[order], t[order], scatter[order]
    weight = np.hypot(scatter, resolution * t)
    split = math.ceil(TRAIN * s.size)
    results, fits = {}, {}
    for name in laws:
        results[name], fits[name] = _judge(SHAPES[name], s, t, weight, split)
    noise = float(np.sqrt(np.mean((scatter[split:] / t[split:]) ** 2)))
    winner, decisive, reason = _decide(results, fits, _Data(s, t, noise), factor, resolution)
    return Selection(winner, decisive, reason, results, noise)


def _judge(shape: Shape, s: np.ndarray, t: np.ndarray, weight: np.ndarray, split: int) -> tuple[LawResult, Fit | None]:
    if shape.name in ("log", "log-power") and np.any(s >= 1.0):
        return LawResult(shape.name, shape.formula, {}, {}, math.inf, math.inf), None
    seen = fit(shape, s[:split], t[:split], weight[:split])
    misses = seen.predict(s) / t - 1.0
    inside, outside = (float(np.sqrt(np.mean(part**2))) for part in (misses[:split], misses[split:]))
    full = fit(shape, s, t, weight)
    return LawResult(shape.name, shape.formula, full.parameters, full.intervals, inside, outside), full


def _decide(
    results: dict[str, LawResult], fits: dict[str, Fit | None], data: _Data, factor: float, resolution: float
) -> tuple[str | None, bool, str]:
    floor = max(data.noise, resolution)
    errors = {name: max(law.out_of_sample, floor) for name, law in results.items()}
    best = min(errors, key=lambda name: errors[name])
    if errors[best] > max(MISS * data.noise, TOLERANCE) and not _within_errors(fits):
        return None, True, f"even the best law, {best}, misses unseen times by {errors[best]:.2g} of their size"
    comparable = _comparable(fits, data)
    near = [name for name in results if errors[name] <= factor * errors[best] or comparable[name]]
    if "power" in near and "inverse" in near:
        near.remove("inverse")  # the same statement, but for the exponent's being measured
    simplest = min(near, key=lambda name: SHAPES[name].size)
    rivals = [name for name in near if name != simplest]
    for rival in rivals:
        alike = f"the data do not tell {simplest} from {rival} (errors {_pair(errors, simplest, rival)})"
        if rival not in CONTAINED.get(simplest, ()):
            return None, False, alike
        why = _not_pinned(simplest, rival, fits, data)
        if why:
            return None, False, f"{alike}: {why}"
    reason = f"it predicts unseen times to {results[simplest].out_of_sample:.2g}"
    if rivals:
        reason += f"; {', '.join(rivals)}, fitted, would reduce to it"
    others = [name for name in errors if name not in near and name != "inverse"]
    if others:
        runner = min(others, key=lambda name: errors[name])
        reason += f"; the next, {runner}, misses by {errors[runner] / errors[simplest]:.3g} times as much"
    return simplest, True, reason


def _within_errors(fits: dict[str, Fit | None]) -> bool:
    """Whether the errors (or the resolution) leave room for any of the laws, fitted to all data."""
    return any(f is not None and f.misfit <= stats.chi2.ppf(EXCLUDED, f.freedom) for f in fits.values())


def _comparable(fits: dict[str, Fit | None], data: _Data) -> dict[str, bool]:
    """Laws whose fit to all data is not significantly worse than the best one's: the others lose not only by luck."""
    least = min((f for f in fits.values() if f is not None), key=lambda f: f.misfit / f.freedom)
    variance = max(least.misfit / least.freedom, 1.0)

    def limit(freedom: int) -> float:
        if data.noise > 0 or variance == 1.0:
            return variance * float(stats.chi2.ppf(EXCLUDED, freedom))
        # the errors are unknown, and measured by the residuals of the best law
        return variance * freedom * float(stats.f.ppf(EXCLUDED, freedom, least.freedom))

    return {name: found is not None and found.misfit <= limit(found.freedom) for name, found in fits.items()}


def _pair(errors: dict[str, float], one: str, other: str) -> str:
    return f"{errors[one]:.2g}, {errors[other]:.2g}"


def _not_pinned(simple: str, rich: str, fits: dict[str, Fit | None], data: _Data) -> str:
    """Why the richer law, fitted to all data, may differ from the simpler one that it contains; "" if it may not."""
    found = fits[rich]
    assert found is not None
    if simple == "constant":
        # in units in which s < 1, and with the scatter about the mean for an error
        s, t = data.s / (2.0 * data.s.max()), data.t
        spread = max(float(np.std(t)), 1e-15 * float(np.mean(t)))
        slope = fit(SHAPES["log"], s, t, np.full_like(t, spread))
        growth = max(abs(end) for end in slope.intervals["b"]) * math.log(s.max() / s.min()) / float(np.mean(t))
        return "" if growth <= TOLERANCE else f"growth of up to {growth:.2g} over the data is not excluded"
    low, high = found.intervals["p"]
    if simple == "log" and rich == "power":
        return "" if high < POWER_IS_LOG else f"a power up to {high:.3g} is not excluded"
    inside = max(1.0 - low, high - 1.0) < NEAR_ONE
    return "" if inside else f"the exponent is only known to lie in [{low:.3g}, {high:.3g}]"
