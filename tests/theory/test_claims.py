"""Claims: how rows are judged, what the list covers, and that the theory cannot be falsified unnoticed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from gflow.errors import InputError, TableError
from gflow.theory import limits, manifold, plateau
from gflow.theory.claims import MODULES, NAMES, check_names, load
from gflow.theory.claims._claim import (
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Claim,
    Expected,
    Law,
    Row,
    about,
    between,
    decisive,
    judge,
)
from gflow.theory.claims._lab import Lab, point
from gflow.theory.claims._outcome import outcome
from gflow.theory.onset import starts_at
from gflow.theory.verify import check_claim, verify


def row(measured: float | None, error: float = 0.1, inside: bool = True, quantity: str = "x") -> Row:
    return Row(quantity, {"L": 10.0}, measured, error, inside)


def law(low: float, high: float, quantity: str = "x") -> Law:
    return Law("law", "x lies between", {quantity: lambda p: between(low, high)})


@pytest.mark.parametrize(
    ("measured", "error", "verdict"),
    [
        (1.5, 0.4, SUPPORTED),
        (1.5, 0.6, UNDECIDED),  # the error bar reaches beyond both bounds
        (2.1, 0.2, UNDECIDED),
        (2.1, 0.05, REFUTED),
        (0.5, 0.1, REFUTED),
        (None, 0.0, UNDECIDED),
        (math.nan, 0.0, UNDECIDED),
        (1.5, math.inf, UNDECIDED),
    ],
)
def test_the_whole_error_bar_decides(measured: float | None, error: float, verdict: str) -> None:
    assert judge([row(measured, error)], law(1.0, 2.0))[0] == verdict


def test_one_row_refutes_and_all_must_support() -> None:
    good, bad, open_ = row(1.5), row(5.0), row(1.95)
    assert judge([good, good], law(1.0, 2.0))[0] == SUPPORTED
    assert judge([good, open_], law(1.0, 2.0))[0] == UNDECIDED
    assert judge([good, open_, bad], law(1.0, 2.0))[0] == REFUTED
    assert judge([good, row(5.0, inside=False)], law(1.0, 2.0))[0] == SUPPORTED
    assert judge([good, row(5.0, quantity="y")], law(1.0, 2.0))[0] == SUPPORTED  # the law is silent about y
    assert judge([row(5.0, quantity="y")], law(1.0, 2.0))[0] == UNDECIDED
    assert judge([], law(1.0, 2.0))[0] == UNDECIDED


def test_the_worst_row_is_told() -> None:
    rows = [row(1.5), row(1.6), row(1.89)]
    expected = Law("about", "1.5", {"x": lambda p: about(1.5, 0.0, 0.5)})
    worst = decisive(judge(rows, expected)[1])
    assert worst is not None
    assert worst.row.measured == 1.89
    assert worst.strain == pytest.approx(0.78)
    found = decisive(judge([*rows, row(2.5), row(3.5)], expected)[1])
    assert found is not None
    assert (found.row.measured, found.verdict) == (3.5, REFUTED)


def test_an_allowance_is_symmetric() -> None:
    assert about(-2.0, 0.1, 0.3) == Expected(-2.0, -2.5, -1.5)


@pytest.mark.parametrize(
    ("ratios", "tolerance", "found"),
    [
        ([1.2, 1.04, 1.01], 0.05, (2.0, 1.0)),
        ([1.04, 1.2, 1.01], 0.05, (3.0, 2.0)),  # from where on, not where first
        ([1.0, 1.0, 1.0], 0.05, (1.0, None)),
        ([1.2, 1.2, 1.2], 0.05, (None, 3.0)),
        ([1.0, math.nan, 1.0], 0.05, (3.0, 2.0)),
        ([0.9, 0.96, 0.995], 0.01, (3.0, 2.0)),
    ],
)
def test_where_a_limit_starts_to_hold(
    ratios: list[float], tolerance: float, found: tuple[float | None, float | None]
) -> None:
    assert starts_at([1.0, 2.0, 3.0], ratios, tolerance) == found


def test_the_list() -> None:
    claims = load()
    assert tuple(claim.name for claim in claims) == NAMES
    assert len(set(NAMES)) == len(NAMES) >= 14
    assert sum(claim.expected_verdict == REFUTED for claim in claims) >= 3
    for claim in claims:
        for text in ("title", "statement", "formula", "source", "assumptions", "rule"):
            assert len(getattr(claim, text)) > 3, (claim.name, text)
    assert check_names(()) == NAMES
    assert check_names(("slope", "initial-rate-v2")) == ("initial-rate-v2", "slope")
    with pytest.raises(InputError, match="did you mean 'slope'"):
        check_names(("slop",))
    with pytest.raises(InputError, match="--list"):
        check_names(("zzzz",))


# of the modules whose claims need no tables at finite p11, which take minutes
QUICK_ENOUGH = [name for module, names in MODULES.items() if module not in ("joint", "sampled") for name in names]


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab("full")


@pytest.fixture(scope="module")
def evidence(lab: Lab) -> dict[str, tuple[Claim, list[Row]]]:
    """What `--full` measures, once; every law is judged by it."""
    return {claim.name: (claim, list(claim.measure(lab))) for claim in load(QUICK_ENOUGH)}


def test_every_verdict_of_the_thorough_run_is_the_expected_one(
    lab: Lab, evidence: dict[str, tuple[Claim, list[Row]]]
) -> None:
    for claim, rows in evidence.values():
        entry = outcome(claim, rows, claim.law(lab), claim.control(lab), 0.0, "full")
        assert entry["verdict"] == claim.expected_verdict, entry["reason"]
        assert entry["control"]["rejected"], claim.name
        assert entry["as_expected"]


def scaled(factor: float) -> Callable[[Any], Any]:
    """A function of the theory that is off by a factor."""
    return lambda function: lambda *args, **kwargs: factor * function(*args, **kwargs)


def replaced(other: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda function: other


def _wrong_exponent(alpha: float = 2.0, w: float = 2.0, n: float = 1.0) -> Callable[..., float]:
    def rate(tokens: Any, L: float, alpha_star: float, w_star: float, d: int = 1) -> float:
        return d * d * w_star**w / (1.0 + alpha_star) ** alpha / (L - 2.0) ** n

    return rate


def _time(first: float, wait: Callable[[float, float], float]) -> Callable[..., float]:
    def time(alpha_star: float, L: float, sigma: float, d: int = 1, variance: float = 1.0, mean: float = 0.0) -> float:
        A = alpha_star / (1.0 + alpha_star)
        return first / (d * A**2) + wait(L, sigma) / (d * A)

    return time


def _log(L: float, sigma: float) -> float:
    return min(math.log(L), -math.log(sigma))


def _slow_manifold(function: Any) -> Any:
    return lambda induction, kind, sigma, levels, curve="x": function(induction, kind, sigma, levels, "slow_manifold")


MUTANTS: list[tuple[str, Any, str, Callable[[Any], Any], str]] = [
    # what is sabotaged, how, and the claim that must notice
    ("constant of n g", limits, "growth_rate_large_L", scaled(1.05), "growth-rate-large-L"),
    ("constant of T_III", limits, "growth_rate_large_L", scaled(1.05), "leading-constant"),
    ("w*^2.05", limits, "growth_rate_large_L", replaced(_wrong_exponent(w=2.05)), "exponent-w"),
    ("(1+alpha*)^1.95", limits, "growth_rate_large_L", replaced(_wrong_exponent(alpha=1.95)), "exponent-alpha"),
    ("n^1.05", limits, "growth_rate_large_L", replaced(_wrong_exponent(n=1.05)), "exponent-L"),
    ("Gaussian kappa for all", limits, "cumulant_slope", replaced(lambda law, b: b), "growth-rate-large-L"),
    ("log to sigma^-0.1", limits, "escape_leading", replaced(lambda x, g: math.exp(0.1 * x) / g), "leading-constant"),
    ("log to log^1.05", limits, "escape_leading", replaced(lambda x, g: x**1.05 / g), "leading-constant"),
    ("ratio", limits, "separation_ratio", scaled(1.05), "leading-constant"),
    ("slope", plateau, "slope", scaled(1.05), "slope"),
    ("slope of the law", plateau, "slope", scaled(0.95), "law-selection"),
    ("rate on the plateau", plateau, "growth_rate", scaled(1.05), "plateau-growth"),
    ("sign of the unstable eigenvalue", plateau, "growth_rate", scaled(-1.0), "plateau-saddle"),
    ("sign of the lost growth", manifold, "lost_growth", scaled(-1.0), "escape-times"),
    ("slow manifold", manifold, "escape_times", _slow_manifold, "escape-times"),
    ("49.5 to 52", limits, "time_fourgram", replaced(_time(52.0, _log)), "fourgram-time"),
    ("49.5 to 50", limits, "time_fourgram", replaced(_time(50.0, _log)), "fourgram-time"),
    ("1.05 log", limits, "time_fourgram", replaced(_time(49.5, lambda L, s: 1.05 * _log(L, s))), "fourgram-time"),
    ("-log", limits, "time_fourgram", replaced(_time(49.5, lambda L, s: -_log(L, s))), "fourgram-time"),
    ("max for min", limits, "time_fourgram", replaced(_time(49.5, lambda L, s: max(math.log(L), -math.log(s)))),
     "phase-I-order-one"),
    ("log to a power", limits, "time_fourgram", replaced(_time(49.5, lambda L, s: min(L, 1 / s) ** 0.1)),
     "fourgram-time"),
    ("T_II / T_I", limits, "time_fourgram", scaled(1.05), "separation-alpha"),
    ("1/(4t)", limits, "fourgram_late", scaled(1.05), "fourgram-late"),
    ("t^-1.05", limits, "fourgram_late", replaced(lambda t: 0.25 / t**1.05), "fourgram-late"),
    ("p21", limits, "p21_late", scaled(1.05), "fourgram-late"),
    ("v_p", plateau, "v_plateau", scaled(1.05), "plateau-level"),
    ("plateau", plateau, "plateau_level", scaled(0.95), "plateau-level"),
    ("T_o", plateau, "time_to_plateau", scaled(1.05), "plateau-reached"),
    ("plateau fraction", plateau, "plateau_fraction", scaled(1.05), "plateau-fraction"),
    ("n K exponent", limits, "overlap_large_L", replaced(lambda w, v, L: (1 - 2 * w * v) ** -0.55 / (L - 2)),
     "plateau-fraction"),
    ("late decay", plateau, "final_decay_rate", scaled(1.05), "induction-late"),
    ("start", plateau, "initial_rates", replaced(lambda *a: {"v2": 0.525, "logit_weight": 1e-7}), "initial-rate-v2"),
    ("start of wK", plateau, "initial_rates", replaced(lambda *a: {"v2": 0.5, "logit_weight": 1e-7}),
     "initial-rate-wK"),
    ("stage I", limits, "first_layer_rate", scaled(1.05), "stage-I-log"),
    ("conserved", limits, "conserved", replaced(lambda p: p.wK**2 + p.wQ**2), "balance-conserved"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "module", "name", "change", "claim"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_sabotaged_theory_is_noticed(
    what: str,
    module: Any,
    name: str,
    change: Callable[[Any], Any],
    claim: str,
    lab: Lab,
    evidence: dict[str, tuple[Claim, list[Row]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked, rows = evidence[claim]
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    if what == "conserved":  # is part of the measurement, not of the law
        rows = list(checked.measure(Lab("quick")))
    verdict, judged = judge(rows, checked.law(lab))
    assert verdict == REFUTED, [one for one in judged if one.verdict != SUPPORTED]


def _moved(law: Law, quantity: str, change: Callable[[Expected], Expected]) -> Law:
    expect = law.expect[quantity]
    return dataclasses.replace(law, expect={**law.expect, quantity: lambda p: change(expect(p))})


def _shift(by: float) -> Callable[[Expected], Expected]:
    return lambda e: Expected(None if e.value is None else e.value + by, e.low + by, e.high + by)


def _scale(by: float) -> Callable[[Expected], Expected]:
    return lambda e: _shift((by - 1.0) * (e.value or 0.0))(e)


# quantities whose law is a statement about orders, not about a constant; and those that are 0, or counts
LOOSE = {
    "movement of v2 per step over lr",
    "distance to the flow at half the rate, over that at the whole",
    "T_I",
    "the logarithm is selected (1) or another law (0)",
    "number of negative eigenvalues",
}


def test_every_constant_and_exponent_is_pinned_down(lab: Lab, evidence: dict[str, tuple[Claim, list[Row]]]) -> None:
    """5% on each constant, 0.05 on each exponent, either way: no supported law may survive."""
    tried, survivors = 0, []
    for claim, rows in evidence.values():
        if claim.expected_verdict != SUPPORTED:
            continue
        good = claim.law(lab)
        for quantity in good.expect:
            mine = [row for row in rows if row.quantity == quantity and row.inside]
            values = [good.expect[quantity](row.point).value for row in mine]
            if quantity in LOOSE or not any(values):
                continue
            exponent = "exponent" in quantity or quantity.startswith("d log")
            for change in (_shift(0.05), _shift(-0.05)) if exponent else (_scale(1.05), _scale(0.95)):
                tried += 1
                if judge(mine, _moved(good, quantity, change))[0] != REFUTED:
                    survivors.append((claim.name, quantity))
    assert tried >= 60
    assert survivors == []


def test_what_cannot_be_measured_is_undecided_and_no_crash() -> None:
    def measure(lab: Lab) -> list[Row]:
        raise TableError("no table at w_star=9; use a smaller one")

    claim = dataclasses.replace(load(("slope",))[0], measure=measure)
    entry = check_claim(claim, Lab("quick"))
    assert (entry["verdict"], entry["as_expected"]) == (UNDECIDED, False)
    assert "no table at w_star=9" in entry["reason"]


def test_an_error_of_the_program_is_not_a_verdict() -> None:
    def measure(lab: Lab) -> list[Row]:
        raise ZeroDivisionError if lab is None else KeyError("a mistake in the claim")

    with pytest.raises(KeyError, match="a mistake"):
        check_claim(dataclasses.replace(load(("slope",))[0], measure=measure), Lab("quick"))


def test_an_interruption_keeps_the_verdicts_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from gflow.theory import verify as module

    claims = load(("initial-rate-v2", "initial-rate-wK", "initial-rate-wK-literal"))

    def stopped(lab: Lab) -> list[Row]:
        raise KeyboardInterrupt

    claims[1] = dataclasses.replace(claims[1], measure=stopped)
    monkeypatch.setattr(module, "load", lambda names: claims)
    found = verify(("initial-rate-v2", "initial-rate-wK", "initial-rate-wK-literal"))
    assert found["status"] == "interrupted"
    assert [entry["name"] for entry in found["claims"]] == ["initial-rate-v2"]


def test_a_run_that_was_cut_short_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """`solve` answers Ctrl-C by returning what it has; a claim must not judge that."""
    from gflow.flows import _interrupt

    lab = Lab("quick")

    def measure(lab: Lab) -> list[Row]:
        monkeypatch.setattr(_interrupt, "_heard", _interrupt.heard() + 1)
        return [row(1.0)]

    with pytest.raises(KeyboardInterrupt):
        check_claim(dataclasses.replace(load(("slope",))[0], measure=measure), lab)


def test_numbers_of_the_theory_page(lab: Lab) -> None:
    """MATH 5: the ratio of T_III to its leading order within 2% at L = 1e4 .. 1e6, 1.011 at L = 1e4; slope to 1e-4."""
    found = lab.times([point(L=L, sigma_init=1e-8, w_star=0.5) for L in (1e4, 1e5, 1e6)], ("T_III",)).time["T_III"]
    for L, time in zip((1e4, 1e5, 1e6), found, strict=True):
        assert time * 0.25 / (4 * (L - 2) * math.log(1e8)) == pytest.approx(1.011, abs=2e-3)
