"""Heavy ball, Adam and sign flow against closed forms and an independent integration."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from gflow.conditions import Below, Crosses
from gflow.flows import (
    AdamFlow,
    HeavyBallFlow,
    SignFlow,
    Status,
    solve,
)


def bowl(p):
    return p["a"] ** 2 / 2 + jnp.sum(2 * p["b"] ** 2)


START = {"a": 2.0, "b": np.array([1.0, -1.0])}


def oscillator(t, friction, stiffness, mass=1.0):
    """`mass x'' + friction x' + stiffness x = 0` from x = 1, x' = 0: (x, x')."""
    root = np.sqrt(complex(friction**2 - 4 * mass * stiffness))
    if root == 0:
        s = -friction / (2 * mass)
        return (1 - s * t) * np.exp(s * t), -s * s * t * np.exp(s * t)
    s1, s2 = (-friction + root) / (2 * mass), (-friction - root) / (2 * mass)
    x = (s2 * np.exp(s1 * t) - s1 * np.exp(s2 * t)) / (s2 - s1)
    return x.real, (s1 * s2 * (np.exp(s1 * t) - np.exp(s2 * t)) / (s2 - s1)).real


@pytest.mark.parametrize("friction", [0.0, 0.5, 2.0, 50.0], ids=["none", "under", "critical", "over"])
@pytest.mark.parametrize("mass", [1.0, 0.01])
def test_heavy_ball_is_the_damped_oscillator(friction, mass):
    run = solve(HeavyBallFlow(lambda p: p**2 / 2, friction, mass), jnp.asarray(3.0), t1=10.0)
    assert run.status is Status.reached_t1
    x, v = oscillator(run.ts, friction, 1.0, mass)
    np.testing.assert_allclose(run.params, 3 * x, atol=3e-7)
    np.testing.assert_allclose(run.state["velocity"], 3 * v, atol=3e-7 / np.sqrt(mass))
    assert float(run.state_at(2.0)["velocity"]) == pytest.approx(3 * oscillator(2.0, friction, 1.0, mass)[1], abs=3e-6)


def test_heavy_ball_finds_first_crossings():
    """First zero, and first return: neither is monotone."""
    friction, stiffness = 0.5, 4.0
    omega = np.sqrt(stiffness - friction**2 / 4)
    marks = {
        "zero": Crosses(lambda p: p, 0.0),
        "low swing": Below(lambda p: p, -0.6),
        "low": Below(lambda p: 2 * p**2, 0.02),
    }
    run = solve(HeavyBallFlow(lambda p: 2 * p**2, friction), jnp.asarray(1.0), milestones=marks)
    # x = 0 where tan(omega t) = -2 omega/friction
    assert run.milestones["zero"].time == pytest.approx((np.pi - np.arctan(2 * omega / friction)) / omega, rel=1e-8)
    assert oscillator(run.milestones["low swing"].time, friction, stiffness)[0] == pytest.approx(-0.6, rel=1e-7)
    assert run.milestones["low swing"].time < np.pi / omega  # on the first swing, whose depth is 0.67
    assert oscillator(run.milestones["low"].time, friction, stiffness)[0] == pytest.approx(0.1, rel=1e-7)
    assert run.stats["loss_rise"] > 0.1


def adam_by_hand(gradient, start, tau1, tau2, eps, ts):
    """Adam's equation in its own variables m, v, from the first terms of its series at a very small time."""
    t0, n = 1e-7, len(start)
    g0 = gradient(start)
    u0 = g0 / (np.abs(g0) + eps)
    first = np.concatenate([start - t0 * u0, t0 / tau1 * g0, t0 / tau2 * g0**2])

    def field(t, y):
        x, m, v = y[:n], y[n : 2 * n], y[2 * n :]
        g = gradient(x)
        m_hat, v_hat = m / -np.expm1(-t / tau1), v / -np.expm1(-t / tau2)
        return np.concatenate([-m_hat / (np.sqrt(v_hat) + eps), (g - m) / tau1, (g**2 - v) / tau2])

    return solve_ivp(field, (t0, ts[-1]), first, "DOP853", t_eval=ts, rtol=1e-11, atol=1e-14).y[:n].T


def test_adam_against_an_independent_integration():
    matrix = np.array([[2.0, 0.6], [0.6, 0.7]])
    start = np.array([1.0, -0.4])
    ts = np.array([1e-3, 0.03, 0.3, 1.0, 3.0])
    want = adam_by_hand(lambda x: matrix @ x, start, 0.3, 1.0, 1e-8, ts)
    run = solve(AdamFlow(lambda p: p @ jnp.asarray(matrix) @ p / 2, 0.3, 1.0), jnp.asarray(start), t1=3.0)
    np.testing.assert_allclose(run.at(ts), want, atol=1e-7)
    np.testing.assert_allclose(run.final, want[-1], atol=1e-8)
    tight = solve(AdamFlow(lambda p: p @ jnp.asarray(matrix) @ p / 2, 0.3, 1.0), jnp.asarray(start), t1=3.0, rtol=1e-12)
    np.testing.assert_allclose(tight.final, want[-1], atol=1e-10)
    # at the start both averages are the gradient itself
    first = run.state_at(0.0)
    np.testing.assert_allclose(first["step"], np.sign(matrix @ start), rtol=1e-6)
    np.testing.assert_allclose(first["second"], (matrix @ start) ** 2, rtol=1e-12)


def test_adams_energy_never_rises():
    """Barakat and Bianchi's function, from the saved state; the loss alone does rise."""
    run = solve(AdamFlow(bowl, 0.3, 1.0), START, t1=8.0)
    step, second = run.state["step"], run.state["second"]
    mass = {k: 0.3 * -np.expm1(-run.ts / 0.3) for k in ("a",)}["a"]
    kinetic = (
        mass
        / 2
        * (
            step["a"] ** 2 * (np.sqrt(second["a"]) + 1e-8)
            + np.sum(step["b"] ** 2 * (np.sqrt(second["b"]) + 1e-8), axis=1)
        )
    )
    energy = run.losses["total"] + kinetic
    assert np.all(np.diff(energy) <= 1e-12)
    assert run.stats["loss_rise"] > 1e-4


def test_sign_flow_moves_at_unit_speed_then_stays():
    """p^2/2 from 1: at speed 1 to zero, where it stays."""
    quadratic = SignFlow(lambda p: p**2 / 2, 1e-4)
    run = solve(quadratic, jnp.asarray(1.0), milestones={"half": Below(lambda p: p, 0.5)}, t1=1.5)
    # p' = -p/sqrt(p^2 + s^2):  sqrt(p^2+s^2) + s log(p/(sqrt(p^2+s^2)+s)) = const - t
    s = 1e-4
    passed = lambda p: np.hypot(p, s) + s * np.log(p / (np.hypot(p, s) + s))  # noqa: E731
    assert run.milestones["half"].time == pytest.approx(passed(1.0) - passed(0.5), rel=1e-9)
    assert passed(1.0) - passed(float(run.at(1.0))) == pytest.approx(1.0, rel=1e-6)
    assert abs(float(run.final)) < 1e-8
