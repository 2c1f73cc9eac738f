"""The toy in R^d: its loss and gradient by plain numpy, seeds side by side, its records, its failures, its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gflow import load
from gflow.errors import InputError, OutputError
from gflow.training import optimizer
from gflow.training.matrices import MatrixRun, Toy, train_matrices
from gflow.training.matrices._advance import QUANTITIES, Setting, advance, begin
from gflow.training.matrices._model import seed_keys
from gflow.training.matrices._train import EVALUATION_SEED

SMALL: dict[str, Any] = {"d": 3, "L": 8, "batch": 16, "steps": 12, "every": 4, "evaluation": 32}


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def numpy_losses(p: dict[str, np.ndarray], tokens: np.ndarray, alpha: float, w: float) -> tuple[float, float]:
    """(4-gram, induction) of tokens [L, d, b] by loops over sequences and keys, per component: MATH sections 1, 2."""
    L, d, count = tokens.shape
    n, fourgram, induction = L - 2, 0.0, 0.0
    for b in range(count):
        x = tokens[:, :, b]
        query, keys, values = x[-1], x[:n], x[1 : n + 1]
        target = softmax(np.array([w**2 * query @ k for k in keys])) @ values / (1 + alpha)
        logits = np.array([(p["WQ"] @ query) @ (p["WK"] @ k) for k in keys])
        induction += 0.5 * np.sum((target - p["V2"] @ (softmax(logits) @ values)) ** 2) / d
        weights = softmax(np.array([-p["p21"] * (n - k) for k in range(1, n + 1)]))
        fourgram += 0.5 * np.sum((alpha / (1 + alpha) * keys[-1] - p["V1"] @ (weights @ keys)) ** 2) / d
    return fourgram / count, induction / count


def arrays(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(params, name)) for name in ("p21", "V1", "V2", "WK", "WQ")}


def test_loss_is_the_sum_over_sequences() -> None:
    toy = Toy.of(3, 8, alpha_star=0.7, w_star=1.2)
    params = toy.initial_params(jax.random.key(1), 0.8)
    tokens = toy.sequences(jax.random.key(2), 5)
    expected = numpy_losses(arrays(params), np.asarray(tokens), 0.7, 1.2)
    parts = [float(jnp.mean(part)) for part in toy.per_sequence(params, tokens)]
    np.testing.assert_allclose(parts, expected, rtol=1e-12)
    assert float(toy(params, tokens)) == pytest.approx(sum(expected), rel=1e-12)


def test_gradient_by_differences() -> None:
    toy = Toy.of(3, 7)
    params = toy.initial_params(jax.random.key(3), 0.7)
    tokens = toy.sequences(jax.random.key(4), 6)
    gradient, start, h = arrays(jax.grad(toy)(params, tokens)), arrays(params), 1e-5
    for name, value in start.items():
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * h
                ends.append(sum(numpy_losses(start | {name: moved}, np.asarray(tokens), 1.0, 1.0)))
            assert gradient[name][index] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-9), (name, index)


def test_sgd_by_hand() -> None:
    """Records of a run against a loop that knows only the loss and the seed's stream of batches."""
    run = train_matrices([7], optimizer="sgd", lr=0.3, **SMALL)
    toy = Toy.of(3, 8)
    initial, data = seed_keys(7)
    params = toy.initial_params(initial, 0.01)
    sample = np.asarray(toy.sequences(jax.random.key(EVALUATION_SEED), 32))
    gradient = jax.jit(jax.grad(toy))
    for step in range(13):
        if step % 4 == 0:
            k = step // 4
            expected = numpy_losses(arrays(params), sample, 1.0, 1.0)
            assert (run.fourgram[0, k], run.induction[0, k]) == pytest.approx(expected, rel=1e-10)
            KQ = np.asarray(params.WK).T @ np.asarray(params.WQ)
            # squares are the eigenvalues of the Gram matrix
            np.testing.assert_allclose(
                np.sort(run.singular_KQ[0, k] ** 2), np.linalg.eigvalsh(KQ.T @ KQ), rtol=1e-6, atol=1e-20
            )
            assert run.p21[0, k] == pytest.approx(float(params.p21), rel=1e-12)
        slope = gradient(params, toy.sequences(jax.random.fold_in(data, step), 16))
        params = jax.tree.map(lambda p, g: p - 0.3 * g, params, slope)
    assert run.steps.tolist() == [0, 4, 8, 12]
    assert run.status == "reached_steps"


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_seeds_side_by_side_are_the_same_seeds(precision: str) -> None:
    """Also in float32 and with many of them, where XLA has been seen to mix up neighbours."""
    settings = SMALL | {"d": 4, "L": 32, "evaluation": 256, "precision": precision, "steps": 8}
    seeds = [0, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    together = train_matrices(seeds, **settings)
    for i in (1, 5, 9, 11):
        alone = train_matrices([seeds[i]], **settings)
        for field in ("fourgram", "induction", "singular_KQ", "singular_V2", "singular_sign", "p21"):
            # a singular value near zero is only as good as the largest one
            np.testing.assert_allclose(
                getattr(together, field)[i],
                getattr(alone, field)[0],
                rtol=1e-9 if precision == "float64" else 2e-4,
                atol=1e-12 if precision == "float64" else 1e-6,
                err_msg=field,
            )


def test_precisions_see_the_same_seed() -> None:
    settings = SMALL | {"d": 4, "L": 32, "evaluation": 256, "steps": 8}
    seeds = [0, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]  # as above, so that nothing is compiled again
    double, single = (train_matrices(seeds, precision=p, **settings) for p in ("float64", "float32"))
    np.testing.assert_allclose(single.induction, double.induction, rtol=1e-4)
    np.testing.assert_array_equal(single.start_rank, double.start_rank)


def test_steps_need_not_fit_the_records() -> None:
    long = train_matrices([2], **(SMALL | {"steps": 10}))
    assert long.steps.tolist() == [0, 4, 8, 10]
    other = train_matrices([2], **(SMALL | {"steps": 30, "every": 10}))  # its second record is of step 10, too
    np.testing.assert_allclose(long.induction[:, [0, 3]], other.induction[:, :2], rtol=1e-10)


def test_the_standard_error_is_that_of_the_sample() -> None:
    """Standardised deviations of small samples from a large one are of order one."""
    toy = Toy.of(3, 8)
    params = toy.initial_params(seed_keys(0)[0], 0.5)
    large = toy.per_sequence(params, toy.sequences(jax.random.key(77), 50_000))[1]
    small = [toy.per_sequence(params, toy.sequences(jax.random.key(k), 400))[1] for k in range(40)]
    z = [(float(jnp.mean(s)) - float(jnp.mean(large))) / (float(jnp.std(s)) / 20) for s in small]
    assert 0.7 < np.std(z) < 1.4
    run = train_matrices([0], sigma_init=0.5, **(SMALL | {"evaluation": 400, "steps": 1}))
    assert run.induction_error[0, 0] == pytest.approx(float(jnp.std(large)) / 20, rel=0.3)


def test_divergence_names_seed_step_and_quantity() -> None:
    run = train_matrices([4, 5], optimizer="sgd", lr=60.0, **(SMALL | {"steps": 400}))
    assert run.status == "failed"
    assert [f.seed for f in run.failures] == [4, 5]
    for i, failure in enumerate(run.failures):
        assert "training loss" in failure.quantity
        assert f"seed {failure.seed}" in str(failure)
        assert f"at step {failure.step}" in str(failure)
        assert "smaller lr" in str(failure)
        good = run.steps < failure.step
        assert np.all(np.isfinite(run.induction[i, good]))
        assert np.all(np.isnan(run.induction[i, ~good]))
        assert good.sum() >= 1
    assert run.steps[-1] < 400  # nothing is left to train
    assert "2 failed" in repr(run)


def test_one_seed_that_fails_leaves_the_others_alone() -> None:
    toy, rule = Toy.of(3, 8), optimizer("sgd")
    sample = toy.sequences(jax.random.key(0), 32)
    setting = Setting(toy, rule, jnp.asarray(0.3), jnp.asarray(1e4), sample, 16)
    keys = jax.vmap(seed_keys)(jnp.arange(3))
    states, _ = begin(setting, keys, jnp.asarray(0.01))
    broken = eqx.tree_at(lambda s: s.params.V1, states, states.params.V1.at[1, 0, 2].set(jnp.nan))
    ends = [advance(setting, s, jnp.asarray(0), jnp.asarray(6), jnp.asarray(3), 2) for s in (states, broken)]
    (fine, kept), (bad, kept_bad) = ends
    assert bad.stopped_by.tolist() == [-1, 0, -1]
    assert QUANTITIES[0] == "training loss"
    assert bad.step.tolist() == [6, 0, 6]
    assert fine.stopped_by.tolist() == [-1, -1, -1]
    assert np.all(np.isnan(kept_bad.induction[:, 1]))
    np.testing.assert_array_equal(kept_bad.induction[:, [0, 2]], kept.induction[:, [0, 2]])


def test_passage_is_linear_between_records() -> None:
    run = train_matrices([0], **SMALL)
    steps = np.array([0, 4, 8, 12])
    run = dataclasses.replace(run, induction=np.array([[2.0, 1.5, 0.5, 0.4]]), steps=steps)
    assert run.passage(0.5)[0] == pytest.approx(6.0)
    assert run.passage(0.25)[0] == pytest.approx(8.0)
    assert np.isnan(run.passage(0.1)[0])


def test_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    run = train_matrices([1], optimizer=optimizer("adam", eps=1e-6), **SMALL)
    run.provenance["config"] = {"d": 3}
    path = run.save(tmp_path / "run.nc")
    back = load(path)
    for field in dataclasses.fields(MatrixRun):
        one, two = getattr(run, field.name), getattr(back, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, two)
        else:
            assert one == two
    with pytest.raises(OutputError, match="exists"):
        run.save(path)
    (tmp_path / "no.nc").write_text("hello")
    for name in ("no.nc", "none.nc"):
        with pytest.raises(InputError, match=name):
            load(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [-1]}, "out of range"),
        ({"batch": 0}, "batch = 0"),
        ({"L": 3}, "L = 3"),
        ({"precision": "half"}, "precision = 'half'"),
        ({"optimizer": "adma"}, "did you mean 'adam'"),
    ],
)
def test_what_cannot_be_trained_is_refused(change: dict[str, Any], message: str) -> None:
    settings = {"seeds": [0]} | SMALL | change
    with pytest.raises(InputError, match=message):
        train_matrices(settings.pop("seeds"), **settings)
