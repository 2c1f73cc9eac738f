"""Milestone times against closed forms, in every situation that makes other tools miss one."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from gflow.conditions import Above, Below, Crosses
from gflow.errors import InputError
from gflow.flows import GradientFlow, LogChart, LogSpaced, Status, solve
from gflow.losses.chain import ChainLoss
from gflow.losses.deep_linear import DeepLinearLoss

LEVELS = (0.01, 0.5, 0.9, 0.999)


def weight(w):
    return w


def levels():
    return {str(x): Above(weight, x) for x in LEVELS}


def exact(chain, start):
    return np.array([float(chain.time(jnp.asarray(x), jnp.asarray(start))) for x in LEVELS])


@pytest.mark.parametrize(("depth", "start"), [(2, 1e-8), (2, 1e-3), (3, 1e-3), (1, 1e-3)])
def test_chain_flow_times_to_1e_7_with_the_defaults(depth, start):
    """CASES 2: 17.871 at depth 2 from 1e-8, to far better than 1e-5."""
    chain = ChainLoss(depth)
    trajectory = solve(chain, jnp.asarray(start), milestones=levels(), estimate_error=True)
    times = np.array([m.time for m in trajectory.milestones.values()])
    assert trajectory.status is Status.milestones_reached
    np.testing.assert_allclose(times, exact(chain, start), rtol=1e-7)
    errors = np.array([m.error for m in trajectory.milestones.values()])
    assert np.all(np.abs(times - exact(chain, start)) <= errors + 1e-12 * times)


def test_case_2_the_printed_number():
    trajectory = solve(ChainLoss(2), jnp.asarray(1e-8), milestones={"half": Above(weight, 0.5)})
    assert trajectory.milestones["half"].time == pytest.approx(17.871, abs=5e-4)


@pytest.mark.parametrize("solver", ["tsit5", "dopri5", "kvaerno5", "kvaerno3", diffrax.Tsit5(scan_kind="lax")])
def test_every_solver_finds_the_same_times(solver):
    """The implicit solvers' dense output is only cubic: landing on the milestone keeps their times accurate."""
    chain = ChainLoss(2)
    rtol = 1e-6 if solver == "kvaerno3" else 1e-8
    trajectory = solve(chain, jnp.asarray(1e-3), milestones=levels(), solver=solver, rtol=rtol)
    times = [m.time for m in trajectory.milestones.values()]
    np.testing.assert_allclose(times, exact(chain, 1e-3), rtol=20 * rtol)


def test_deep_linear_modes_to_1e_7():
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    right, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    strengths = np.array([2.0, 1.0, 0.5])
    loss = DeepLinearLoss(jnp.asarray(left @ np.diag(strengths) @ right[:3]))

    def mode(i):
        # reads the mode by projection, not by an SVD of its own
        return lambda p: jnp.asarray(left[:, i]) @ p.W2 @ p.W1 @ jnp.asarray(right[i])

    conditions = {f"mode{i}": Above(mode(i), 0.5 * s) for i, s in enumerate(strengths)}
    trajectory = solve(loss, loss.balanced_start(1e-4), milestones=conditions)
    times = [trajectory.milestones[f"mode{i}"].time for i in range(3)]
    closed = [float(loss.mode_time(i, 0.5 * s, 1e-4)) for i, s in enumerate(strengths)]
    np.testing.assert_allclose(times, closed, rtol=1e-7)
    assert times == sorted(times)


def quadratic(p):
    return p**2 / 2


def test_case_7_many_milestones_inside_one_step():
    """From 1 at rate 1 the first step crosses several of these; all are found, whatever the order they are named in."""
    marks = [0.9995, 0.5, 0.9999, 0.99, 0.9990001, 0.999]
    conditions = {str(x): Below(weight, x) for x in marks}
    trajectory = solve(quadratic, jnp.asarray(1.0), milestones=conditions, t1=1.0, rtol=1e-6)
    times = np.array([trajectory.milestones[str(x)].time for x in marks])
    np.testing.assert_allclose(times, -np.log(marks), rtol=1e-5)
    order = [name for _, name in sorted((m.time, name) for name, m in trajectory.milestones.items())]
    assert order == [str(x) for x in sorted(marks, reverse=True)]


def test_case_8_already_true_is_reported_at_the_start():
    conditions = {"now": Below(weight, 2.0), "equal": Below(weight, 1.0), "later": Below(weight, 0.5)}
    trajectory = solve(quadratic, jnp.asarray(1.0), milestones=conditions, t0=3.0)
    assert trajectory.milestones["now"].time == 3.0
    assert trajectory.milestones["equal"].time == 3.0
    assert trajectory.milestones["now"].error == 0.0
    assert trajectory.milestones["later"].time == pytest.approx(3.0 + np.log(2), rel=1e-8)


def test_case_9_any_argument_name():
    conditions = {
        "t": Below(lambda t: t, 0.5),
        "y": Below(lambda y: y, 0.5),
        "args": Below(lambda args: args, 0.5),
        "whatever": Below(lambda whatever, /: whatever, 0.5),
    }
    trajectory = solve(quadratic, jnp.asarray(1.0), milestones=conditions)
    for milestone in trajectory.milestones.values():
        assert milestone.time == pytest.approx(np.log(2), rel=1e-8)


def test_fraction_of_the_initial_value_and_crosses():
    conditions = {
        "tenth": Below(quadratic, fraction=0.1, of="initial"),
        "down": Crosses(weight, 0.3),
        "up": Crosses(lambda p: -p, -0.3),
    }
    trajectory = solve(quadratic, jnp.asarray(2.0), milestones=conditions)
    assert trajectory.milestones["tenth"].time == pytest.approx(np.log(10) / 2, rel=1e-8)
    assert trajectory.milestones["down"].time == pytest.approx(np.log(2 / 0.3), rel=1e-8)
    assert trajectory.milestones["up"].time == pytest.approx(np.log(2 / 0.3), rel=1e-8)


def test_a_passing_maximum_is_caught():
    """x(t) = e^-t - e^-3t rises above 0.3 for about a second and falls again; both sides are found."""

    def loss(p):
        return p["a"] ** 2 / 2 + 3 * p["b"] ** 2 / 2

    def bump(p):
        return p["a"] - p["b"]

    conditions = {"up": Above(bump, 0.3), "peak": Above(bump, 0.384), "never": Above(bump, 0.386)}
    trajectory = solve(loss, {"a": 1.0, "b": 1.0}, milestones=conditions, t1=20.0, rtol=1e-8)

    def curve(t):
        return np.exp(-t) - np.exp(-3 * t)

    for name, level in (("up", 0.3), ("peak", 0.384)):
        root = scipy.optimize.brentq(lambda t, level=level: curve(t) - level, 0, np.log(3) / 2)
        assert trajectory.milestones[name].time == pytest.approx(root, rel=1e-7)
    never = trajectory.milestones["never"]
    assert never.time is None
    assert never.status == "not_reached_by_t1"
    assert "0.386" in never.reason


def test_never_crossed_says_so_with_the_reason():
    trajectory = solve(quadratic, jnp.asarray(1.0), milestones={"no": Below(weight, -1.0), "yes": Below(weight, 0.5)})
    assert trajectory.status is Status.converged
    assert trajectory.milestones["no"].time is None
    assert trajectory.milestones["no"].status == "solver_stopped"
    assert "rest in a minimum" in trajectory.milestones["no"].reason
    assert trajectory.milestones["yes"].status == "reached"
    with pytest.raises(InputError, match="not reached"):
        trajectory.at("no")


def test_state_at_a_milestone_and_save_times():
    trajectory = solve(ChainLoss(2), jnp.asarray(1e-3), milestones=levels(), save=LogSpaced(50))
    for x in LEVELS:
        assert float(trajectory.at(str(x))) == pytest.approx(x, rel=1e-7)
    assert len(trajectory.ts) == len(trajectory.params) == 50
    assert trajectory.ts[0] == 0.0
    assert trajectory.ts[-1] == trajectory.t1_reached
    times = np.array([float(ChainLoss(2).time(jnp.asarray(w), jnp.asarray(1e-3))) for w in trajectory.params[1:]])
    np.testing.assert_allclose(times, trajectory.ts[1:], rtol=1e-7, atol=1e-9)


def test_log_chart_gives_the_same_times():
    flow = GradientFlow(ChainLoss(2), chart=LogChart(lambda w: w))
    trajectory = solve(flow, jnp.asarray(1e-8), milestones=levels())
    np.testing.assert_allclose([m.time for m in trajectory.milestones.values()], exact(ChainLoss(2), 1e-8), rtol=1e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Below(weight), "either a level"),
        (lambda: Below(weight, 1.0, fraction=0.5), "either a level"),
        (lambda: Below(weight, float("nan")), "finite"),
        (lambda: Above(weight, "high"), "number"),
        (lambda: Above(weight, np.ones(2)), "scalar"),
        (lambda: Crosses(3.0, 1.0), "function"),
        (lambda: Below(weight, fraction=0.5, of="final"), "initial"),
    ],
)
def test_conditions_that_make_no_sense(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_float32_milestones():
    """CASES 14: float32 stays float32, and finds its milestones to float32's accuracy."""
    start = jnp.asarray(1e-4, jnp.float32)
    trajectory = solve(ChainLoss(2), start, milestones={"half": Above(weight, 0.5)})
    closed = float(ChainLoss(2).time(jnp.asarray(0.5), jnp.asarray(1e-4)))
    assert trajectory.params.dtype == np.float32
    assert trajectory.stats["dtype"] == "float32"
    assert trajectory.milestones["half"].time == pytest.approx(closed, rel=1e-4)
    assert jax.config.jax_enable_x64


@pytest.mark.parametrize("hole", [np.nan, -1.0], ids=["nan", "jump"])
def test_a_level_first_seen_beyond_a_hole_in_the_watched_function(hole):
    """The function is undefined, or elsewhere, where it would cross: the first time it is seen beyond counts."""
    chain = ChainLoss(2)
    f = lambda w: jnp.where((w > 0.3) & (w < 0.7), hole, w)  # noqa: E731
    run = solve(chain, jnp.asarray(0.01), milestones={"m": Above(f, 0.5)}, max_steps=500)
    assert run.status is Status.milestones_reached
    seen, found = float(chain.time(jnp.asarray(0.7), jnp.asarray(0.01))), run.milestones["m"]
    assert found.time == pytest.approx(seen, rel=1e-4)
    assert abs(found.time - seen) <= found.error
    assert run.stats["accepted"] + run.stats["rejected"] < 100
