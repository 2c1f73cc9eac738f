"""Each relative of the flow against its algorithm as the step goes to zero: the error at a fixed time is of order one.

Measured slopes (log error over log step, five step sizes; quadratic, chain): gradient flow 1.003, 1.005; heavy ball
0.986, 1.002; Adam 0.996, 1.011; sign flow 1.003, 1.011. On the quadratic: sign_sgd itself 1.005, Adam's start 0.976.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gflow.flows import AdamFlow, GradientFlow, HeavyBallFlow, SignFlow, solve
from gflow.losses.chain import ChainLoss

MATRIX = jnp.asarray([[2.0, 0.6], [0.6, 0.7]])


def quadratic(p):
    return p @ MATRIX @ p / 2


LOSSES = {"quadratic": (quadratic, jnp.asarray([1.0, -0.4])), "chain": (ChainLoss(2), jnp.asarray(0.05))}
STEPS = np.array([100, 200, 400, 800, 1600])


def run_discrete(optimiser, loss, start, n):
    """All iterates, the start included: [n+1, ...]."""

    def step(carry, _):
        p, state = carry
        update, state = optimiser.update(jax.grad(loss)(p), state, p)
        p = optax.apply_updates(p, update)
        return (p, state), p

    # optax raises a float to an integer power
    with jax.numpy_dtype_promotion("standard"):
        run = jax.jit(lambda p: jax.lax.scan(step, (p, optimiser.init(p)), None, length=n)[1])
        return np.concatenate([np.asarray(start)[None], run(start)])


FRICTION, TAU1, TAU2, SMOOTHING = 0.8, 0.3, 1.0, 0.2
PAIRS = {
    "gradient": (lambda f: GradientFlow(f), lambda h: optax.sgd(h)),
    # t = sqrt(lr) step, so lr = h^2 and mu = 1 - friction h
    "heavy ball": (lambda f: HeavyBallFlow(f, FRICTION), lambda h: optax.sgd(h * h, momentum=1 - FRICTION * h)),
    "adam": (lambda f: AdamFlow(f, TAU1, TAU2), lambda h: optax.adam(h, 1 - h / TAU1, 1 - h / TAU2)),
    "sign": (lambda f: SignFlow(f, SMOOTHING), lambda h: optax.adam(h, 0.0, 0.0, eps=0.0, eps_root=SMOOTHING**2)),
}


def order(errors, steps):
    """Slope of log error over log step size."""
    return np.polyfit(-np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("relative", PAIRS)
def test_first_order_in_the_step(relative, name):
    loss, start = LOSSES[name]
    flow, optimiser = PAIRS[relative]
    end = {"gradient": 3.0, "heavy ball": 4.0}.get(relative, 1.5)
    exact = np.asarray(solve(flow(loss), start, t1=end).final)
    errors = [np.max(np.abs(run_discrete(optimiser(end / n), loss, start, n)[-1] - exact)) for n in STEPS]
    assert errors[-1] < 2e-3
    assert order(errors, STEPS) == pytest.approx(1.0, abs=0.1)


def test_sign_descent_itself():
    """optax.sign_sgd jumps to and fro across g = 0, along which the flow slides: within two steps, at all times."""
    loss, start = LOSSES["quadratic"]
    run = solve(SignFlow(loss, 1e-5), start, t1=1.5)
    errors = []
    for n in STEPS:
        path = run_discrete(optax.sign_sgd(1.5 / n), loss, start, n)
        errors.append(np.max(np.abs(path - run.at(np.linspace(0, 1.5, n + 1)))))
        assert errors[-1] <= 2 * 1.5 / n
    assert order(errors, STEPS) == pytest.approx(1.0, abs=0.1)
    # it does slide: at t = 0.6 the second component of the gradient has vanished, the first has not
    first, second = np.abs(MATRIX @ run.at(0.6))
    assert second < 1e-4 < 0.1 < first


def test_adam_from_its_first_step_with_bias_correction():
    """Over a time far shorter than tau, where m and v would be almost zero without the correction."""
    loss, start = LOSSES["quadratic"]
    end = 0.01
    exact = solve(AdamFlow(loss, TAU1, TAU2), start, t1=end)
    errors = [
        np.max(np.abs(run_discrete(optax.adam(end / n, 1 - end / n / TAU1, 1 - end / n / TAU2), loss, start, n)[-1]
                      - exact.final)) for n in STEPS
    ]  # fmt: skip
    assert errors[-1] < 1e-9
    assert order(errors, STEPS) == pytest.approx(1.0, abs=0.1)
    # both components move by nearly the whole time at first: at unit speed
    np.testing.assert_allclose(np.abs(exact.final - start), end, rtol=1e-2)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_sgd_with_momentum_in_the_time_of_the_other_flows(momentum):
    """At fixed momentum the flow with mass is nearer than the massless one, and both are reached as lr -> 0."""
    loss, start = LOSSES["quadratic"]
    end = 1 - momentum
    errors = {"mass": [], "none": []}
    for n in STEPS[:4]:
        lr = end / n
        last = run_discrete(optax.sgd(lr, momentum=momentum), loss, start, n)[-1]
        for kind, flow in (
            ("mass", HeavyBallFlow.of_sgd(loss, lr, momentum)),
            ("none", GradientFlow(loss, rates=1 / (1 - momentum))),
        ):
            errors[kind].append(np.max(np.abs(last - solve(flow, start, t1=end).final)))
    assert np.all(np.array(errors["mass"]) < 0.7 * np.array(errors["none"]))
    assert order(errors["mass"], STEPS[:4]) == pytest.approx(1.0, abs=0.2)


def test_adam_as_it_is_used():
    """optax.adam(lr) with its defaults, tau1 = 10 lr and tau2 = 1000 lr shrinking with it."""
    loss, start = LOSSES["quadratic"]
    for lr in (0.01, 0.0025):
        n = round(1 / lr)
        path = run_discrete(optax.adam(lr), loss, start, n)
        flow = solve(AdamFlow.of_adam(loss, lr), start, t1=1.0)
        assert np.max(np.abs(path - flow.at(np.linspace(0, 1, n + 1)))) < 0.5 * lr
