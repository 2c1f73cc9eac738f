"""The verdicts of the mechanism test: what is expected, what was found, in numbers and in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gflow.training.matrices.mechanism import Mechanism

# d -> matrix -> claim -> verdict, measured with `gflow train matrices --test-mechanism` (docs/high-dimensional.md);
# only what was decided: more seeds may decide the rest
_FOLLOWS = {"association": "supported", "level": "supported", "number": "supported"}
EXPECTED: dict[int, dict[str, dict[str, str]]] = {
    4: {"initial": _FOLLOWS, "formed": _FOLLOWS},
    6: {"initial": {"exactly": "refuted"}, "formed": _FOLLOWS | {"exactly": "refuted"}},
    8: {"initial": {"exactly": "refuted"}, "formed": {"exactly": "refuted", "level": "refuted", "number": "refuted"}},
}


def surprises(found: Mechanism, usual: bool) -> list[str]:
    """One line for every verdict that is not the expected one; only the control's where settings are not `usual`."""
    lines = []
    if not found.control_rejected:
        lines.append("the control was not rejected: the rank of an unrelated sign matrix seems to matter, too")
    expected = EXPECTED.get(found.dimension, {}) if usual else {}
    verdicts = found.verdicts()
    for matrix, claims in expected.items():
        for name, verdict in claims.items():
            if verdicts[matrix][name] != verdict:
                lines.append(f"{matrix} sign matrix, {name}: {verdicts[matrix][name]}, expected {verdict}")
    return lines


def as_dict(found: Mechanism) -> dict[str, Any]:
    """Plain values, fit for JSON."""
    verdicts = found.verdicts()
    expected = EXPECTED.get(found.dimension, {})
    claims = []
    for matrix, about in found.claims.items():
        for claim in about:
            entry = dataclasses.asdict(claim) | {"matrix": matrix}
            if matrix in verdicts:
                entry["verdict"] = verdicts[matrix][claim.name]
                entry["expected_verdict"] = expected.get(matrix, {}).get(claim.name)
            claims.append(entry)
    return {
        "d": found.dimension,
        "seeds": len(found.run.seeds),
        "unfinished": found.unfinished,
        "by_rank": {m: {str(k): v for k, v in found.by_rank(m).items()} for m in found.ranks},
        "plateaus": {str(k): int((found.plateaus == k).sum()) for k in sorted(set(found.plateaus.tolist()))},
        "claims": claims,
        "control": {"name": "rank of sign(W_V1)", "rejected": found.control_rejected},
    }


def report(found: Mechanism, descriptions: dict[str, str]) -> str:
    """The same for people."""
    verdicts = found.verdicts()
    lines = ["", f"d = {found.dimension}, {len(found.run.seeds)} seeds, {len(found.unfinished)} left out (not done)"]
    for matrix, text in descriptions.items():
        lines += ["", text, f"  {'rank':>4} {'seeds':>6} {'with a plateau':>15} {'median level':>13}"]
        for rank, row in found.by_rank(matrix).items():
            level = "-" if row["level"] is None else f"{row['level']:.2f}"
            lines.append(f"  {rank:>4} {row['seeds']:>6} {row['plateau']:>15} {level:>13}")
        for claim in found.claims[matrix]:
            verdict = verdicts.get(matrix, {}).get(claim.name, claim.verdict)
            numbers = ", ".join(f"{key} {_short(value)}" for key, value in claim.measured.items())
            lines.append(f"  {verdict:<10} {claim.name}: {numbers}")
    lines += ["", f"control {'rejected, as it must be' if found.control_rejected else 'NOT rejected'}"]
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, list):
        if all(isinstance(v, int) for v in value):
            return " of ".join(str(v) for v in value)
        return f"[{', '.join(_short(v) for v in value)}]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
