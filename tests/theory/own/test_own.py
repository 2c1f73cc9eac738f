"""A loss of one's own: chains whose plateaus are known in closed form, and losses that break a tool of this kind."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import gflow
from gflow.errors import InputError
from gflow.flows import Status
from gflow.losses.chain import ChainLoss
from gflow.theory.own import Track, examine
from gflow.theory.own._claims import claims
from gflow.theory.own._plateaus import FALL, plateaus, sample
from gflow.theory.own._track_law import length_law

FEW = (0.1, 0.01)
KEYS = {
    "name", "title", "statement", "formula", "source", "assumptions", "rule", "verdict", "expected_verdict",
    "as_expected", "measured", "expected", "error", "quantity", "regime", "fails", "reason", "control", "rows",
    "figure",
}  # fmt: skip


def verdicts(found: Any) -> dict[str, dict[str, Any]]:
    listed = claims(found)
    for claim in listed:
        assert set(claim) == KEYS
        assert claim["reason"]
        assert "\n" not in claim["reason"]
        for row in claim["rows"]:
            assert {"quantity", "point", "measured", "error", "expected", "low", "high", "verdict"} == set(row)
    return {claim["name"]: claim for claim in listed}


def wait(depth: int, start: float) -> float:
    """How long C(N) takes from `start` until its loss has lost FALL of the whole drop, in closed form."""
    chain = ChainLoss(depth)
    level = (1 - FALL) * float(chain(jnp.asarray(start)))
    end = brentq(lambda w: float(chain(jnp.asarray(w))) - level, start, 1.0, xtol=1e-15, rtol=1e-14)
    return float(chain.time(jnp.asarray(end), jnp.asarray(start)))


@pytest.mark.parametrize("depth", [2, 3])
def test_the_chains_have_a_log_law_and_a_power_law(depth: int) -> None:
    found = examine(ChainLoss(depth), jnp.asarray(0.1))
    (track,) = found.tracks
    exact = np.array([wait(depth, 0.1 * s) for s in track.scales])
    # to the error of the end of the flow, whose loss the drop is measured by
    np.testing.assert_allclose(track.lengths, exact, rtol=1e-7)
    assert np.all(np.abs(track.lengths - exact) <= 3 * track.errors + 1e-7 * exact)
    law = length_law(track)
    assert law.winner == {2: "log", 3: "power"}[depth]
    assert law.value == pytest.approx(1.0, abs={2: 1e-4, 3: 2e-3}[depth])
    said = verdicts(found)
    assert said["plateau-1-law"]["verdict"] == {2: "supported", 3: "refuted"}[depth]
    assert said["plateau-1-law"]["control"]["rejected"]
    assert said["plateau-1-law"]["measured"] == law.value
    assert len(said["plateau-1-law"]["figure"]["series"]) == 3
    for name in ("monotone", "rate", "converged", "critical-points", "plateaus"):
        assert said[name]["verdict"] == "supported", name
        assert said[name]["control"]["rejected"], name
    # the critical point met is w = 0, from which the run starts at the distance 0.1 s
    for run in found.runs:
        (point,) = run.critical
        assert point.kind == {2: "saddle", 3: "degenerate"}[depth]
        assert point.distance == pytest.approx(0.1 * run.scale, rel=1e-6)
        assert point.point.loss == pytest.approx(1 / (2 * depth), rel=1e-12)
        assert run.end_kind == "minimum"
        assert run.end.eigenvalues == pytest.approx([depth], rel=1e-6)
    assert "plateaus 0 .." in repr(found)


def test_matrices_two_saddles_and_two_plateaus() -> None:
    """Singular values 3 and 1 of a linear network are learned after log(1/s)/3 and log(1/s)/1 (Saxe et al.)."""
    target = jnp.diag(jnp.asarray([3.0, 1.0]))

    def loss(p: Any) -> Any:
        return 0.5 * jnp.sum((target - p["A"] @ p["B"]) ** 2)

    start = {"A": np.array([[0.1, 0.03], [-0.02, 0.07]]), "B": np.array([[0.1, -0.02], [0.05, 0.12]])}
    found = examine(loss, start, scales=[1e-1, 1e-2, 1e-3, 1e-4])
    first, second = found.tracks
    assert first.slopes[-1] == pytest.approx(1 / 3, rel=1e-3)
    assert second.slopes[-1] == pytest.approx(1 - 1 / 3, rel=1e-2)
    assert second.depth == pytest.approx(0.9, abs=0.01)  # 9 of 9 + 1
    last = found.runs[-1].critical
    assert [p.kind for p in last] == ["saddle", "saddle"]
    assert [p.point.index for p in last] == [4, 1]
    assert [p.point.loss for p in last] == pytest.approx([5.0, 0.5], abs=1e-9)
    assert last[1].point.eigenvalues[0] == pytest.approx(-1.0, abs=1e-6)
    said = verdicts(found)
    assert said["plateau-1-law"]["verdict"] == said["plateau-2-law"]["verdict"] == "supported"
    assert said["converged"]["verdict"] == "supported"
    assert "flat" in said["converged"]["reason"]


def test_the_ends_of_a_plateau_do_not_depend_on_the_steps() -> None:
    lengths = []
    for solver in ("dopri8", "tsit5"):
        traj = gflow.solve(ChainLoss(2), jnp.asarray(1e-4), t1=30.0, solver=solver)
        (found,) = plateaus(sample(traj, ChainLoss(2)))
        lengths.append(found.length)
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-6)
    assert lengths[0] == pytest.approx(wait(2, 1e-4), rel=1e-6)


def test_a_convex_quadratic_has_neither_plateau_nor_saddle() -> None:
    curvature = jnp.asarray([1.0, 1e-3])
    found = examine(lambda p: 0.5 * jnp.sum(curvature * p["a"] ** 2), {"a": np.array([2, 3])}, scales=FEW)
    assert all(not run.plateaus and not run.critical and run.end_kind == "minimum" for run in found.runs)
    said = verdicts(found)
    assert said["plateaus"]["verdict"] == said["critical-points"]["verdict"] == "refuted"
    assert "none" in said["critical-points"]["reason"]
    assert said["converged"]["verdict"] == "supported"
    assert not found.tracks
    assert all(claim["as_expected"] for claim in said.values())


def test_a_gradient_that_is_not_that_of_the_value_is_refuted() -> None:
    def half(p: Any) -> Any:
        return (1 - p["w"]) ** 2 * jax.lax.stop_gradient(1 + 5 * p["w"] ** 2)

    said = verdicts(examine(half, {"w": 0.1}, scales=FEW))
    assert said["rate"]["verdict"] == "refuted"
    assert not said["rate"]["as_expected"]

    @jax.custom_jvp
    def upside_down(w: Any) -> Any:
        return w**2 / 2

    upside_down.defjvp(lambda x, t: (upside_down(x[0]), -x[0] * t[0]))
    found = examine(lambda p: upside_down(p["w"]), {"w": 0.1}, scales=[1.0], t1=2.0)
    said = verdicts(found)
    assert said["monotone"]["verdict"] == "refuted"
    assert found.runs[0].rise.value == pytest.approx(0.005 * (math.exp(4) - 1), rel=1e-6)


def test_an_error_of_the_gradient_of_one_percent_is_refuted() -> None:
    @jax.custom_jvp
    def f(w: Any) -> Any:
        return (1 - w**2) ** 2 / 4

    f.defjvp(lambda x, t: (f(x[0]), -1.01 * (1 - x[0] ** 2) * x[0] * t[0]))
    found = examine(lambda p: f(p["w"]), {"w": 0.1}, scales=[1.0])
    assert found.runs[0].rate.value == pytest.approx(0.01, rel=0.02)
    assert verdicts(found)["rate"]["verdict"] == "refuted"


def test_a_kink_is_undecided() -> None:
    found = examine(lambda p: jnp.abs(p["w"]), {"w": 0.7}, scales=[1.0], max_steps=2000)
    (run,) = found.runs
    assert run.status is Status.max_steps
    said = verdicts(found)
    assert {said[name]["verdict"] for name in ("monotone", "converged", "plateaus")} == {"undecided"}
    assert "max_steps" in said["converged"]["reason"]


def test_a_ripple_is_survived() -> None:
    found = examine(lambda p: p["w"] ** 2 + 1e-3 * jnp.sin(1e3 * p["w"]), {"w": 0.7}, scales=[1.0])
    said = verdicts(found)
    assert said["monotone"]["verdict"] == said["converged"]["verdict"] == "supported"
    assert len(found.runs[0].critical) <= 8


@pytest.mark.parametrize("power", [2, 4])
def test_a_loss_without_a_minimum(power: int) -> None:
    found = examine(lambda p: -(p["w"] ** power), {"w": 0.1}, scales=FEW)
    assert {run.status for run in found.runs} == {{2: Status.non_finite, 4: Status.stagnated}[power]}
    said = verdicts(found)
    assert said["monotone"]["verdict"] == "supported"
    assert said["converged"]["verdict"] == {2: "refuted", 4: "undecided"}[power]
    assert said["plateaus"]["verdict"] == "undecided"
    assert said["rate"]["verdict"] != "refuted"
    assert all(claim["as_expected"] for claim in said.values())


def test_an_infimum_at_infinity_is_no_minimum() -> None:
    said = verdicts(examine(lambda p: jnp.log1p(jnp.exp(-p["w"])), {"w": 0.1}, scales=FEW))
    assert said["converged"]["verdict"] == "undecided"
    assert "infinity" in said["converged"]["reason"]


def test_single_precision_is_kept_and_judged_by_its_own_roundings() -> None:
    found = examine(ChainLoss(2), jnp.asarray(0.1, jnp.float32), scales=[1.0, 0.1, 0.01])
    said = verdicts(found)
    assert said["monotone"]["verdict"] == said["plateaus"]["verdict"] == "supported"
    assert said["rate"]["verdict"] != "refuted"
    assert found.tracks[0].slopes[-1] == pytest.approx(1.0, abs=0.01)


def test_theta_0_equal_to_0_has_no_scales() -> None:
    found = examine(ChainLoss(2), jnp.asarray(0.0))
    (run,) = found.runs
    assert not found.scalable
    assert run.end_kind == "saddle"
    said = verdicts(found)
    assert said["converged"]["verdict"] == "refuted"
    assert "theta_0 = 0" in said["converged"]["regime"]


def test_a_loss_that_is_constant_or_not_finite_at_some_scales() -> None:
    said = verdicts(examine(lambda p: 0.0 * p["w"] + 1.0, {"w": 0.3}, scales=FEW))
    assert said["plateaus"]["verdict"] == "refuted"
    found = examine(lambda p: jnp.log(p["w"] - 0.05) ** 2, {"w": 0.3}, scales=[1.0, 0.1])
    assert found.runs[0].end_kind == "minimum"
    said = verdicts(found)
    assert said["converged"]["verdict"] != "supported"
    assert said["monotone"]["verdict"] == "undecided"


def test_two_scales_are_too_few_for_a_law() -> None:
    said = verdicts(examine(ChainLoss(2), jnp.asarray(0.1), scales=FEW))
    assert said["plateau-1-law"]["verdict"] == "undecided"
    assert "needs 3" in said["plateau-1-law"]["reason"]
    assert not said["plateau-1-law"]["control"]["rejected"]


def test_laws_from_lengths_alone() -> None:
    scales = 10.0 ** -np.arange(0, 4, 0.5)
    x = np.log(1 / scales)

    def law(lengths: np.ndarray) -> str | None:
        return length_law(Track(scales, lengths, 1e-9 * lengths, 0.0)).winner

    assert law(3.0 + 2.0 * x) == "log"
    assert law(5.0 * np.exp(0.5 * x)) == "power"
    assert law(7.0 * np.exp(0.1 * x)) == "power"  # the slow power that a weak test would take for a logarithm
    assert law(np.exp(x**2 / 8)) is None  # neither


def test_an_interruption_keeps_the_scales_that_are_done() -> None:
    seen: list[str] = []

    def stop(text: str) -> None:
        seen.append(text)
        if text == "scale 0.01":
            raise KeyboardInterrupt

    found = examine(ChainLoss(2), jnp.asarray(0.1), scales=[0.1, 0.01, 0.001], progress=stop)
    assert found.status == "interrupted"
    assert [run.scale for run in found.runs] == [0.1]
    assert verdicts(found)["converged"]["verdict"] == "supported"
    none = examine(ChainLoss(2), jnp.asarray(0.1), scales=[0.01], progress=stop)
    assert none.runs == ()
    assert {claim["verdict"] for claim in verdicts(none).values()} == {"undecided"}


@pytest.mark.parametrize(
    ("options", "part"),
    [({"scales": [0.1, -1.0]}, "-1"), ({"scales": []}, "none given"), ({"t1": 0.0}, "t1=0"), ({"t1": math.nan}, "nan")],
)
def test_what_cannot_be_used_is_one_line(options: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        examine(ChainLoss(2), jnp.asarray(0.1), **options)


def test_initial_values_that_cannot_be_used() -> None:
    with pytest.raises(InputError, match="finite"):
        examine(ChainLoss(2), jnp.asarray(math.inf))
    with pytest.raises(InputError, match="real"):
        examine(lambda w: jnp.abs(w), jnp.asarray(1j))
