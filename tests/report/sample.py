"""Documents of verdicts as `gflow verify` writes them, made up, with everything that a report has to show."""

from __future__ import annotations

import math
from typing import Any


def row(
    quantity: str, point: dict[str, Any], measured: float | None, error: float | None, **more: Any
) -> dict[str, Any]:
    expected = more.pop("expected", None)
    entry = {"quantity": quantity, "point": point, "measured": measured, "error": error, "expected": expected}
    return entry | {"low": None, "high": None, "verdict": "supported"} | more


def claim(name: str, **more: Any) -> dict[str, Any]:
    verdict = more.get("verdict", "supported")
    entry = {
        "name": name,
        "title": f"The claim {name}",
        "statement": f"What {name} states, in a sentence of ordinary length.",
        "formula": "dT_III / dlog(1/sigma) = 1/g",
        "source": "[WYEW] Theorem on the four phases; MATH.md section 5; derived in docs/theory.md",
        "assumptions": "sigma -> 0 at fixed L; alpha* > 0",
        "rule": "every row within 0.01% of the law",
        "verdict": verdict,
        "expected_verdict": verdict,
        "as_expected": True,
        "measured": 440.232,
        "expected": 440.2318,
        "error": 2e-3,
        "quantity": "dT_III/dlog(1/sigma)",
        "regime": "L = 100, alpha* = 1, w* = 1, sigma from 1e-3 to 1e-12",
        "fails": None,
        "reason": "All rows lie inside what the law allows, with their errors.",
        "control": {"name": "power-law", "statement": "T_III grows like sigma^-0.1", "rejected": True},
        "rows": [],
        "figure": None,
        "reproduce": f"gflow verify {name} --full",
        "seconds": 1.24,
    }
    return entry | more


def verdicts() -> dict[str, Any]:
    """Six claims: supported, refuted as expected and not, undecided, a control not rejected, rows to be folded."""
    claims = [_slope(), _literal(), _exponent(), _rademacher(), _separation(), _conserved()]
    return {
        "status": "done",
        "kind": "gflow verdicts",
        "effort": "full",
        "as_expected": False,
        "claims": claims,
        "onset": _onset(),
        "seconds": 312.6,
        "provenance": {
            "gflow": "0.1.0",
            "python": "3.11.9",
            "platform": "Linux-6.1-x86_64",
            "versions": {"jax": "0.10.0", "diffrax": "0.7.2", "numpy": "2.3.1"},
            "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True},
            "device": "cpu: cpu",
            "device_count": 1,
            "precision": "float64",
            "xla_flags": "",
            "seed": None,
            "config": {},
            "created": "2026-03-01T12:00:00+00:00",
        },
    }


def own_loss() -> dict[str, Any]:
    """A document of `gflow verify --loss`: no figures, no onsets."""
    one = claim("monotone", title="The loss never increases", control=None)
    del one["figure"]
    document = verdicts() | {
        "kind": "gflow own-loss verdicts",
        "claims": [one],
        "as_expected": True,
        "loss": "chain:loss",
    }
    del document["onset"]
    return document


def _slope() -> dict[str, Any]:
    sigmas = [10.0**-k for k in range(3, 13)]
    rows = [
        row("T_III", {"L": 100, "w_star": 1.0, "sigma_init": s}, 60.0 - 440.232 * math.log(s), 7e-5 * k, inside=k > 1)
        | {"expected": 60.01 - 440.2318 * math.log(s), "low": 59 - 440 * math.log(s), "high": 61 - 441 * math.log(s)}
        for k, s in enumerate(sigmas, 1)
    ]
    xs = [1 / s for s in sigmas]
    figure = {
        "title": "T_III against the initial scale",
        "xlabel": "1/sigma_init",
        "ylabel": "T_III",
        "xscale": "log",
        "yscale": "linear",
        "series": [
            {
                "label": "measured",
                "kind": "measured",
                "x": xs,
                "y": [r["measured"] for r in rows],
                "error": [90.0] * 10,
            },
            {"label": "slope 1/g", "kind": "theory", "x": xs, "y": [r["expected"] for r in rows], "error": None},
            {"label": "power 0.1", "kind": "control", "x": xs, "y": [900 * x**0.1 for x in xs], "error": None},
        ],
        "bands": [],
    }
    title = "T_III grows by 1/g per unit of log(1/sigma)"
    return claim("slope", title=title, rows=rows, figure=figure)


def _literal() -> dict[str, Any]:
    points = [(0.3, 0.008), (0.49, 0.059), (0.7, 0.281), (1.0, 0.685), (1.4, None)]
    rows = [
        row(
            "plateau / start",
            {"w_star": w, "L": 40},
            p,
            1e-9 if p else None,
            low=0.99,
            verdict="refuted" if p else "undecided",
        )
        for w, p in points
    ]
    figure = {
        "title": "Where the plateau lies",
        "xlabel": "w_star",
        "ylabel": "plateau / start of the induction loss",
        "xscale": "linear",
        "yscale": "log",
        "series": [
            {
                "label": "L = 40",
                "kind": "measured",
                "x": [w for w, _ in points],
                "y": [p for _, p in points],
                "error": None,
            },
            {
                "label": "L = 1000",
                "kind": "measured",
                "x": [0.3, 0.49, 0.7, 1.0],
                "y": [0.01, 0.07, 0.3, 0.7],
                "error": None,
            },
            {
                "label": "L = 1e6",
                "kind": "other",
                "x": [0.3, 0.49, 0.7, 1.0],
                "y": [0.011, 0.08, 0.33, 0.73],
                "error": None,
            },
        ],
        "bands": [{"label": "99% and more", "low": 0.99, "high": None}],
    }
    return claim(
        "ninety-nine-percent",
        title="The induction loss stays at 99% of its start until T_II",
        verdict="refuted",
        quantity="plateau / start",
        measured=0.008,
        error=1e-9,
        expected=None,
        fails="for every w* tested: fitting v2 alone removes 31% of the loss at w* = 1 and 99% at w* = 0.3",
        reason="The plateau lies below 99% of the start at every w*.",
        rows=rows,
        figure=figure,
    )


def _exponent() -> dict[str, Any]:
    rows = [
        row("dlogT_III/dlogL", {"L": L}, 1 + 2 / L, 1e-5, expected=1.0, low=0.99, high=1.01) for L in (100, 1000, 10000)
    ]
    rows[0]["verdict"] = "refuted"
    figure = {
        "title": "Local exponent in L",
        "xlabel": "L",
        "ylabel": "d log T_III / d log L",
        "xscale": "log",
        "yscale": "linear",
        "series": [
            {
                "label": "measured",
                "kind": "measured",
                "x": [100, 1000, 10000],
                "y": [1.02, 1.002, 1.0002],
                "error": None,
            }
        ],
        "bands": [{"label": "within 1%", "low": 0.99, "high": 1.01}],
    }
    return claim(
        "exponent-L",
        title="T_III is proportional to L",
        verdict="refuted",
        expected_verdict="supported",
        as_expected=False,
        quantity="dlogT_III/dlogL",
        measured=1.02,
        error=1e-5,
        expected=1.0,
        fails="at L = 100",
        reason="At L = 100 the exponent is 1.02, outside 0.99 to 1.01.",
        rows=rows,
        figure=figure,
    )


def _rademacher() -> dict[str, Any]:
    rows = [row("T_III", {"tokens": "rademacher"}, None, None, expected=1653.11, verdict="undecided")]
    more = {"verdict": "undecided", "measured": None, "error": None, "expected": None, "quantity": None}
    reason = "Not decided at this accuracy: the run ended before T_III."
    return claim("rademacher", rows=rows, fails="not known", reason=reason, seconds=None, **more)


def _separation() -> dict[str, Any]:
    control = {"name": "untied", "statement": "The same with untied weights.", "rejected": False}
    return claim("merged-has-no-plateau", as_expected=False, control=control, reason="The control came out alike.")


def _conserved() -> dict[str, Any]:
    """More rows than are shown unfolded, and a column for each of many coordinates."""
    rows = [
        row("wK^2 - wQ^2", {"L": 40, "alpha_star": 0.5 * k, "w_star": 0.49, "sigma_init": 10.0**-k}, 1e-17 * k, 1e-14)
        | {"expected": 0.0, "low": -1e-12, "high": 1e-12}
        for k in range(1, 31)
    ]
    return claim("conserved", title="wK^2 - wQ^2 is conserved", measured=3e-16, error=1e-14, expected=0.0, rows=rows)


def _onset() -> list[dict[str, Any]]:
    Ls = [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 1e4, 1e5, 1e6]
    entries = []
    for w in (0.5, 1.0):
        ratios = [1 + 12 * w / L**0.7 for L in Ls]
        for tolerance in (0.05, 0.01):
            first = next(k for k, ratio in enumerate(ratios) if abs(ratio - 1) <= tolerance)
            entries.append(
                {"claim": "exponent-L", "quantity": "T_III ratio to its limit", "axis": "L", "others": {"w_star": w}}
                | {"limit": 1.0, "tolerance": tolerance, "from": Ls[first], "previous": Ls[first - 1], "tested_to": 1e6}
                | {"values": Ls, "ratios": ratios}
            )
    never = {"claim": "slope", "quantity": "slope times g", "axis": "alpha_star", "others": {}, "limit": 1.0}
    never |= {"tolerance": 0.01, "from": None, "previous": 8.0, "tested_to": 8.0}
    return [*entries, never | {"values": [1.0, 2.0, 4.0, 8.0], "ratios": [1.5, None, 1.2, 1.1]}]
