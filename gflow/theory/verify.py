"""`verify`: claims measured and judged, with evidence; and from where the asymptotic ones hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gflow.errors import GflowError
from gflow.io.provenance import provenance
from gflow.theory import _parallel
from gflow.theory.claims import check_names, load
from gflow.theory.claims._claim import Claim
from gflow.theory.claims._lab import FULL, QUICK, Lab
from gflow.theory.claims._outcome import failed, outcome
from gflow.theory.onset import onsets

KIND = "gflow verdicts"
Tell = Callable[[str], None]


def check_claim(claim: Claim, lab: Lab) -> dict[str, Any]:
    """Measure a claim and judge it: its entry in the document. What cannot be measured is undecided."""
    began = time.perf_counter()
    try:
        rows = list(claim.measure(lab))
        lab.go_on()
        law, control = claim.law(lab), claim.control(lab)
        return outcome(claim, rows, law, control, time.perf_counter() - began, lab.effort)
    except Exception as error:
        lab.go_on()  # what an interrupted computation returned is no evidence
        if not isinstance(error, GflowError | ArithmeticError):
            raise
        return failed(claim, " ".join(str(error).split()), time.perf_counter() - began, lab.effort)


def verify(
    names: Sequence[str] = (),
    effort: str = QUICK,
    *,
    workers: int | None = 1,
    tell: Tell | None = None,
    on_claim: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Verdicts on the claims `names` (all of them by default), as one document (docs/claims.md).

    - `effort`: "quick" (a minute or two) or "full" (more points, exact tables at finite p11).
    - `workers`: processes that share the modules of claims; 1: this one; None: one that has all accelerators.
    - `tell(text)` hears what is being computed (by this process), `on_claim(entry)` each verdict.

    An interruption (Ctrl-C) ends it with the verdicts so far and the status "interrupted". Raises `InputError` for an
    unknown name.
    """
    chosen = check_names(names)
    effort = FULL if effort == FULL else QUICK
    began = time.perf_counter()
    entries: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    made: dict[str, Any] = {}

    def add(entry: dict[str, Any]) -> None:
        entries.append(entry)
        if on_claim is not None:
            on_claim(entry)

    status = "done"
    try:
        if workers == 1:
            lab = Lab(effort, tell)
            for claim in load(chosen):
                lab.tell(claim.name)
                add(check_claim(claim, lab))
            found = onsets(lab, chosen)
        else:
            for finished in _parallel.parts(chosen, effort, workers):
                if finished.error is not None:
                    mine = () if finished.task[2] else finished.task[1]
                    _parallel.told(finished.error, mine, effort, add)
                elif finished.result is not None:
                    for entry in finished.result["claims"]:
                        add(entry)
                    found += finished.result["onset"]
                    made = finished.result["provenance"]
    except KeyboardInterrupt:
        status = "interrupted"
    entries.sort(key=lambda entry: chosen.index(entry["name"]))
    return document(entries, found, effort, time.perf_counter() - began, status, made)


def document(
    entries: list[dict[str, Any]],
    found: list[dict[str, Any]],
    effort: str,
    seconds: float,
    status: str = "done",
    made: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `verify` gives, from the entries of claims and onsets; `made`: provenance, by default that of here."""
    return {
        "status": status,
        "kind": KIND,
        "effort": effort,
        "as_expected": bool(entries) and all(entry["as_expected"] for entry in entries),
        "claims": entries,
        "onset": found,
        "seconds": seconds,
        "provenance": made or provenance(),
    }
