"""What an `Examination` says, as claims with verdicts: plain values, in the form of every verdict of gflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gflow.flows import Status
from gflow.theory.own._critical import DEPTH, counts
from gflow.theory.own._examine import Balance, Examination, ScaleRun, Track
from gflow.theory.own._plateaus import CONTRAST, FALL, SHARE
from gflow.theory.own._track_law import LengthLaw, length_law

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
LAW_BROKEN = 1e-3  # of the drop: a balance off by that much is no error of the solution
SOURCE = "derived, docs/landscape.md"


def claims(found: Examination) -> list[dict[str, Any]]:
    """The claims about an own loss, each a dict with the keys of a verdict (without `reproduce` and `seconds`)."""
    listed = [_monotone(found), _rate(found), _converged(found), _critical(found), _plateaus(found)]
    listed += [_law(found, k + 1, track) for k, track in enumerate(found.tracks)]
    return listed


def _claim(found: Examination, name: str, rows: list[dict[str, Any]], verdict: str, reason: str, **words: Any) -> dict:
    """The dict of a claim; the decisive row is the last one that has the claim's verdict."""
    decisive = words.pop("decisive", None) or next((row for row in reversed(rows) if row["verdict"] == verdict), {})
    if not found.runs:
        verdict, reason = UNDECIDED, "no scale was finished"
    must_hold = words.pop("must_hold", False)
    expected = SUPPORTED if must_hold and verdict != UNDECIDED else verdict
    return {
        "name": name,
        **{key: words[key] for key in ("title", "statement", "formula")},
        "source": SOURCE,
        "assumptions": words.get("assumptions", "the loss is differentiable along the flow"),
        "rule": words["rule"],
        "verdict": verdict,
        "expected_verdict": expected,
        "as_expected": verdict == expected,
        **{key: decisive.get(key) for key in ("measured", "expected", "error")},
        "quantity": decisive.get("quantity", ""),
        "regime": _regime(found.runs, found.scalable),
        "fails": words.get("fails"),
        "reason": reason,
        "control": words["control"],
        "rows": rows,
        "figure": words.get("figure"),
    }


def _regime(runs: Sequence[ScaleRun], scalable: bool) -> str:
    if not runs:
        return "nothing was run"
    if not scalable:
        return "theta_0 = 0, which is the same at every scale"
    low, high = runs[-1].scale, runs[0].scale
    return f"initial values times s = {high:.3g}" + (f" .. {low:.3g}, {len(runs)} scales" if len(runs) > 1 else "")


def _row(quantity: str, run: ScaleRun, measured: float | None, verdict: str, **more: Any) -> dict[str, Any]:
    blank = {"error": None, "expected": None, "low": None, "high": None}
    known = None if measured is None or not math.isfinite(measured) else float(measured)
    point = {"scale": run.scale, **more.pop("point", {})}
    return {"quantity": quantity, "point": point, "measured": known, **blank, "verdict": verdict, **more}


def _together(rows: Sequence[dict[str, Any]]) -> str:
    verdicts = {row["verdict"] for row in rows}
    if REFUTED in verdicts:
        return REFUTED
    return SUPPORTED if verdicts == {SUPPORTED} else UNDECIDED


def _judge(run: ScaleRun, balance: Balance | None, broken: float) -> tuple[str, str]:
    """(verdict, why) of a number that should vanish; only a run that ended as it should can refute."""
    if balance is None or not (math.isfinite(balance.value) and math.isfinite(balance.allowed)):
        return UNDECIDED, run.why or "the numbers overflow"
    if broken and balance.allowed > broken:
        return UNDECIDED, f"the errors of the solution, {balance.allowed:.2g}, are too large to tell; {run.why}"
    if balance.value <= balance.allowed:
        return SUPPORTED, ""
    if run.settled and balance.value > 10.0 * balance.allowed + broken:
        return REFUTED, f"at s = {run.scale:.3g} it is {balance.value:.3g}, allowed {balance.allowed:.3g}"
    return UNDECIDED, run.why if not run.settled else "between what the solution's errors allow and ten times that"


def _balanced(found: Examination, name: str, quantity: str, broken: float, **words: Any) -> dict[str, Any]:
    rows, reasons = [], {}
    for run in found.runs:
        balance = run.rise if name == "monotone" else run.rate
        verdict, why = _judge(run, balance, broken)
        reasons.setdefault(verdict, f"s = {run.scale:.3g}: {why}" if verdict == UNDECIDED else why)
        value, allowed = (None, None) if balance is None else (balance.value, balance.allowed)
        finite = allowed if allowed is not None and math.isfinite(allowed) else None
        rows.append(_row(quantity, run, value, verdict, error=finite, expected=0.0, low=0.0, high=finite))
    verdict = _together(rows)
    reason = reasons.get(verdict) or "within the errors of the solution at every scale"
    return _claim(found, name, rows, verdict, reason, must_hold=True, **words)


def _monotone(found: Examination) -> dict[str, Any]:
    fell = [run for run in found.runs if run.rise is not None and math.isfinite(run.initial_loss)]
    drops = [run.initial_loss - run.final_loss > run.rise.allowed for run in fell if run.rise is not None]
    return _balanced(
        found, "monotone", "largest rise of the loss", 0.0,
        title="The loss never increases",
        statement="Along the gradient flow the loss never increases.",
        formula="d theta/dt = -grad Loss  =>  dLoss/dt <= 0",
        rule="the loss on the dense solution never exceeds an earlier value by more than rounding and tolerance allow; "
        "refuted beyond ten times that",
        control={"name": "never-decreases", "statement": "the loss never decreases", "rejected": any(drops)},
    )  # fmt: skip


def _rate(found: Examination) -> dict[str, Any]:
    rates = [run.rate for run in found.runs if run.rate is not None and math.isfinite(run.rate.value)]
    off = [abs(LAW_BROKEN - rate.value) > rate.allowed for rate in rates]
    return _balanced(
        found, "rate", "imbalance of loss and gradient, share of the drop", LAW_BROKEN,
        title="The loss falls at the rate |grad Loss|^2",
        statement="What the loss loses is the integral of the squared gradient: values and gradients belong together.",
        formula="dLoss/dt = -|grad Loss|^2",
        rule="sum over stretches of |Loss(a) - Loss(b) - int_a^b |grad Loss|^2 dt|, as a share of the drop, is within "
        "the errors of quadrature and solution; refuted above 1e-3: the function's gradient is not that of its value",
        control={
            "name": "rate-off-by-a-thousandth",
            "statement": "dLoss/dt = -1.001 |grad Loss|^2",
            "rejected": bool(off) and all(off),
        },
    )  # fmt: skip


_ENDS = {
    "minimum": (SUPPORTED, "a minimum: all eigenvalues of the Hessian are positive"),
    "degenerate": (SUPPORTED, "a minimum with flat directions: no eigenvalue of the Hessian is negative"),
    "saddle": (REFUTED, "a saddle: the Hessian has a negative eigenvalue"),
    "far": (UNDECIDED, "the gradient vanishes only further away; the loss may have its infimum at infinity"),
    "unknown": (UNDECIDED, "the Hessian at the end is not finite"),
}


def _converged(found: Examination) -> dict[str, Any]:
    rows, reasons = [], {}
    for run in found.runs:
        kind = run.end_kind
        verdict, why = _ENDS.get(kind, (REFUTED if run.status is Status.non_finite else UNDECIDED, run.why))
        if kind == "degenerate" and run.status is not Status.converged:
            verdict, why = UNDECIDED, "the gradient is zero where no second derivative decides"
        reasons.setdefault(verdict, f"s = {run.scale:.3g}: {why}" if verdict != SUPPORTED else why)
        point: dict[str, Any] = {"end": kind, "t": run.t_end, "loss": run.final_loss}
        if run.end is not None and kind not in ("moving", "far"):
            index, flat = counts(run.end)
            point |= {"index": index, "flat": flat, "lowest_eigenvalue": float(run.end.eigenvalues[0])}
            point |= {"eigenvalue_noise": run.end.noise, "distance": run.end_distance}
        rows.append(_row("|grad loss| at the end", run, run.end_gradient, verdict, expected=0.0, point=point))
    verdict = _together(rows)
    saddles = [run.end_kind == "saddle" for run in found.runs]
    return _claim(
        found, "converged", rows, verdict, reasons.get(verdict, ""),
        title="The flow comes to rest in a minimum",
        statement="At every scale the flow ends at a critical point whose Hessian has no negative eigenvalue.",
        formula="grad Loss = 0, index(Hess Loss) = 0",
        rule="the end of the run is refined to grad Loss = 0; eigenvalues within the noise count as zero",
        fails=reasons.get(REFUTED),
        control={"name": "saddle", "statement": "the flow ends on a saddle", "rejected": not any(saddles)},
    )  # fmt: skip


def _critical(found: Examination) -> dict[str, Any]:
    rows, missed = [], 0
    for run in found.runs:
        for one in run.critical:
            point: dict[str, Any] = {"t": one.time, "kind": one.kind, "|grad loss|": one.gradient_norm}
            if one.point is None:
                missed += 1
                rows.append(_row("loss at a slow place", run, one.loss, UNDECIDED, point=point | {"why": one.reason}))
                continue
            index, flat = counts(one.point, one.scale)
            point |= {"index": index, "flat": flat, "distance": one.distance}
            point |= {"lowest_eigenvalue": float(one.point.eigenvalues[0]), "eigenvalue_noise": one.point.noise}
            rows.append(_row("loss at the critical point met", run, one.point.loss, SUPPORTED, point=point))
    met = len(rows) - missed
    if met:
        verdict = SUPPORTED
        kinds = [str(row["point"]["kind"]) for row in rows if row["verdict"] == SUPPORTED]
        reason = "; ".join(f"{kinds.count(kind)} times a {kind} point" for kind in sorted(set(kinds)))
    elif missed:
        verdict, reason = UNDECIDED, f"{missed} slow places, and no critical point was found near them"
    elif all(run.settled for run in found.runs):
        verdict, reason = REFUTED, "none: |grad loss| has no minimum between two faster phases"
    else:
        verdict, reason = UNDECIDED, "none so far; " + next(run.why for run in found.runs if not run.settled)
    return _claim(
        found, "critical-points", rows, verdict, reason,
        title="The flow passes critical points on its way",
        statement="Before it ends the flow passes near points where the gradient vanishes.",
        formula="|grad Loss| has a minimum in t, near a point with grad Loss = 0",
        rule=f"|grad Loss| has a minimum with phases {DEPTH:g} times as fast before (or the start) and after, and a "
        "search for grad Loss = 0 from there ends nearby",
        control={"name": "slow-place", "statement": "|grad Loss| has a minimum on the way", "rejected": True}
        if verdict == REFUTED
        else {"name": "no-slow-place", "statement": "|grad Loss| has no minimum on the way", "rejected": bool(rows)},
    )  # fmt: skip


def _plateaus(found: Examination) -> dict[str, Any]:
    rows = []
    for run in found.runs:
        for k, waited in enumerate(run.plateaus):
            p = waited.plateau
            point = {"plateau": k + 1, "start": p.start, "end": p.end, "level": p.level, "share_of_time": p.share}
            rows.append(_row("length of a plateau", run, p.length, SUPPORTED, error=waited.error, point=point))
        if not run.settled:
            rows.append(_row("length of a plateau", run, None, UNDECIDED, point={"why": run.why}))
    if any(row["verdict"] == SUPPORTED for row in rows):
        verdict, reason = SUPPORTED, f"{len(found.tracks)} at the smallest scale"
    elif rows:
        verdict, reason = UNDECIDED, str(rows[0]["point"]["why"])
    else:
        verdict, reason = REFUTED, "none at any scale"
    return _claim(
        found, "plateaus", rows, verdict, reason,
        title="The loss waits on plateaus",
        statement="There are stretches of time on which the loss hardly falls, and after which it falls again.",
        formula=f"d(t): Loss(t) - Loss(t + d) = {FALL:g} (Loss(0) - Loss(end)); a plateau is a local maximum of d",
        rule=f"d is at least {SHARE:.0%} of the time to 99% of the drop, and followed by phases {CONTRAST:g} times as "
        "fast; start and end are solved for on the dense solution",
        control={"name": "pause", "statement": "the loss falls ten times more slowly for a while", "rejected": True}
        if verdict == REFUTED
        else {"name": "even-pace", "statement": "the loss falls at its mean pace", "rejected": verdict == SUPPORTED},
    )  # fmt: skip


def _law(found: Examination, number: int, track: Track) -> dict[str, Any]:
    law = length_law(track)
    runs, rows = {run.scale: run for run in found.runs}, []
    for i, scale in enumerate(track.scales[1:]):
        high, low = float(track.scales[i]), float(scale)
        gap = math.log(high / low)
        noise = float(track.errors[i] + track.errors[i + 1])
        for quantity, values, error in (
            ("dT/dlog(1/s)", track.slopes, noise / gap),
            ("dlog T/dlog(1/s)", track.exponents, noise / (gap * float(track.lengths[i + 1]))),
        ):
            chosen = {"dT/dlog(1/s)": "log", "dlog T/dlog(1/s)": "power"}[quantity] == law.winner
            verdict = SUPPORTED if chosen else UNDECIDED
            rows.append(_row(quantity, runs[low], float(values[i]), verdict, error=error, point={"next_scale": high}))
    verdict = {"log": SUPPORTED, "power": REFUTED}.get(law.winner or "", UNDECIDED)
    quantity = {"log": "dT/dlog(1/s)", "power": "dlog T/dlog(1/s)"}.get(law.winner or "", "")
    reason = law.reason + ("" if law.selection is None else f"; out of sample: {law.selection}")
    return _claim(
        found, f"plateau-{number}-law", rows, verdict, reason,
        title=f"Plateau {number} grows like log(1/s)" if law.winner != "power"
        else f"Plateau {number} grows like a power of 1/s",
        statement=f"The length of plateau {number} (begins after {track.depth:.0%} of the drop) grows like log(1/s).",
        formula="dT/dlog(1/s) -> constant",
        assumptions="s -> 0",
        rule="between neighbouring scales dT/dlog(1/s) is constant and dlog T/dlog(1/s) is not; refuted when it is the "
        "other way round (a power law)",
        decisive={"measured": law.value, "error": law.error, "expected": None, "quantity": quantity},
        fails="a power of 1/s" if law.winner == "power" else None,
        control={
            "name": "power-law" if law.winner != "power" else "log-law",
            "statement": "T is a power of 1/s" if law.winner != "power" else "T grows like log(1/s)",
            "rejected": law.winner is not None,
        },
        figure=_figure(number, track, law),
    )  # fmt: skip


def _figure(number: int, track: Track, law: LengthLaw) -> dict[str, Any]:
    """Lengths against 1/s, and both laws through the last two of them."""
    x = 1.0 / track.scales
    series = [
        {"label": "measured", "kind": "measured", "x": x.tolist(), "y": track.lengths.tolist(),
         "error": track.errors.tolist()}
    ]  # fmt: skip
    if len(x) > 1:
        last = np.log(x / x[-1])
        through = track.lengths[-1] + track.slopes[-1] * last
        lines = {"log": np.where(through > 0, through, np.nan), "power": track.lengths[-1] * np.exp(
            track.exponents[-1] * last)}  # fmt: skip
        for name, label in (("log", "log(1/s)"), ("power", "a power of 1/s")):
            kind = "theory" if law.winner == name else "control"
            y = [float(v) if math.isfinite(v) else None for v in lines[name]]
            series.append({"label": label, "kind": kind, "x": x.tolist(), "y": y, "error": None})
    return {
        "title": f"Length of plateau {number}", "xlabel": "1/s", "ylabel": "T",
        "xscale": "log", "yscale": "log" if law.winner == "power" else "linear", "series": series, "bands": [],
    }  # fmt: skip
