"""`gflow train`: what it finds, what it prints, and what it does when a run diverges or is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gflow
from gflow.cli._output import Output
from gflow.cli._prepare import make_loss
from gflow.cli.main import run
from gflow.config import TrainConfig, resolve
from gflow.errors import InputError

# the flow's own times at L = 40, alpha* = 1, w* = .49, sigma = .01 (independent implementation)
FLOW = {"T_I": 205.459, "T_o": 87.3923, "T_II": 878.466, "T_III": 3181.31, "T_III_of_initial": 2667.72}


def no_constant(word: str) -> float:
    raise AssertionError(f"{word} in JSON")


def train(words: list[str], capsys: pytest.CaptureFixture[str], expected: int = 0) -> dict[str, Any]:
    status = run(["train", "--json", *words])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return json.loads(printed.out, parse_constant=no_constant)


def test_gradient_descent_at_half_follows_the_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figure = tmp_path / "run.nc", tmp_path / "run.png"
    found = train(["--lr", "0.5", "--out", str(out), "--plot", str(figure)], capsys)
    assert found["status"] == "milestones_reached"
    for name, time in FLOW.items():
        # one step is .5: early times are off by about that, late ones by far less than a thousandth
        assert found["milestones"][name]["time"] == pytest.approx(time, abs=0.6, rel=5e-4), name
        assert found["milestones"][name]["step"] == pytest.approx(2 * found["milestones"][name]["time"])
        assert found["milestone_details"][name]["first"] == np.ceil(found["milestones"][name]["step"])
    assert set(found["milestones"]) == {*FLOW, "T_II_of_initial"}
    assert found["params"]["initial"] == {"p11": "inf", "p21": 0.01, "v1": 0.01, "v2": 0.01, "wK": 0.01, "wQ": 0.01}
    assert found["params"]["final"]["wK"] == pytest.approx(0.49, rel=1e-3)
    assert found["optimizer"] == {"name": "sgd", "lr": 0.5}
    assert found["steps"] == found["t1_reached"] / 0.5 > 1.4 * found["milestones"]["T_III"]["step"]
    assert set(found["losses"]) == {"fourgram", "induction", "total"}
    assert set(found["seconds"]) == {"load", "table", "compile", "solve"}
    assert found["problems"] == []
    assert figure.read_bytes().startswith(b"\x89PNG")
    saved = gflow.load(out)
    assert isinstance(saved, gflow.Descent)
    assert saved.milestones["T_III"].step == found["milestones"]["T_III"]["step"]
    assert saved.provenance["config"]["lr"] == 0.5
    # the plateau: between T_o and T_II the induction loss stands at its level
    waiting = (saved.ts > 1.2 * FLOW["T_o"]) & (saved.ts < FLOW["T_II"])
    plateau = saved.provenance["predictions"]["plateau"]
    np.testing.assert_allclose(saved.losses["induction"][waiting], plateau, rtol=0.08)
    assert np.sum(waiting) > 30
    assert run(["plot", str(out), "--out", str(tmp_path / "again.svg")]) == 0


def test_adam_shows_no_plateau(capsys: pytest.CaptureFixture[str]) -> None:
    """Between reaching the plateau's level and leaving it the flow spends nine times the time it took to get there."""
    found = train(["--optimizer", "adam", "--lr", "1e-3", "--steps", "1200"], capsys)
    steps = {name: m["step"] for name, m in found["milestones"].items()}
    assert steps["T_II"] < 1.1 * steps["T_o"]
    assert FLOW["T_II"] > 10 * FLOW["T_o"]
    # every parameter moves by about lr per step: wK has gone .48 when the loss has gone too
    assert 0.3 / 1e-3 < steps["T_III"] < 2 * 0.5 / 1e-3
    assert found["status"] == "reached_steps"
    assert found["steps"] == 1200
    assert found["milestones"]["T_I"] == {"step": None, "time": None}


def test_fresh_batches_follow_the_flow_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--w-star", "1", "--batch", "32", "--steps", "2200", "--quiet"]
    found = train([*words, "--seed", "1"], capsys)
    assert found["gradient"] == "fresh batches of 32 sequences"
    assert found["measured_on"].startswith("PopulationLoss(L=40")
    # the flow: T_II = 454.513, T_III = 906.244 (gflow integrate); the noise of a batch averages out along the way
    assert found["milestones"]["T_II"]["time"] == pytest.approx(454.5, rel=0.05)
    assert found["milestones"]["T_III"]["time"] == pytest.approx(906.2, rel=0.05)
    again = train([*words, "--seed", "1"], capsys)
    assert again["milestones"] == found["milestones"]
    assert train([*words, "--seed", "2"], capsys)["milestones"] != found["milestones"]


@pytest.mark.slow
def test_joint_training_on_a_sample_follows_its_flow(capsys: pytest.CaptureFixture[str]) -> None:
    """Six parameters, the same fixed sequences, a small step: the times of `solve` on that very loss."""
    words = "--training joint --evaluate sampled --samples 512 --scrambles 4 --seed 7"
    words += " --L 10 --w-star 1 --sigma-init 0.1 --tokens rademacher --lr 0.05 --steps 2500"
    found = train(words.split(), capsys)
    assert found["params"]["initial"]["p11"] == 0.1
    assert found["measured_on"] == found["gradient"]
    assert "512 sequences in 4 scrambles" in found["gradient"]
    problem = gflow.InductionProblem(L=10, alpha_star=1.0, w_star=1.0, tokens="rademacher")
    loss = problem.sampled_loss(512, scrambles=4, seed=7)
    flow = gflow.solve(
        loss, problem.initial_params(0.1, p11=0.1), t1=125.0, milestones=problem.emergence(loss), rtol=1e-6
    )
    reached = {name: m.time for name, m in flow.milestones.items() if m.time is not None}
    assert len(reached) >= 3
    for name, time in reached.items():
        assert found["milestones"][name]["time"] == pytest.approx(time, rel=5e-3), name


@pytest.mark.parametrize(
    ("settings", "called"),
    [
        ({}, ("population_loss",)),
        ({"training": "joint"}, ("full_loss",)),
        ({"evaluate": "sampled", "samples": 128, "seed": 3}, ("sampled_loss", 128, 8, 3, None)),
        ({"evaluate": "sampled", "training": "joint", "accuracy": 0.1}, ("sampled_loss", None, 8, 0, 0.1)),
    ],
)
def test_which_loss_a_configuration_asks_for(settings: dict[str, Any], called: tuple[Any, ...]) -> None:
    class Problem:
        def population_loss(self) -> Any:
            return ("population_loss",)

        def full_loss(self, progress: Any) -> Any:
            progress(type("Building", (), {"done": 1, "total": 2})())
            return ("full_loss",)

        def sampled_loss(self, samples: Any, *, scrambles: int, seed: int, accuracy: Any) -> Any:
            return ("sampled_loss", samples, scrambles, seed, accuracy)

    assert make_loss(Problem(), TrainConfig(**settings), Output(quiet=True)) == called


def test_a_rate_too_large_is_one_line_with_a_smaller_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.nc"
    status = run(["train", "--lr", "50", "--quiet", "--out", str(out)])
    printed = capsys.readouterr()
    assert status == 1
    assert printed.err.count("\n") == 1
    for part in ("gflow: the loss is", "at step", "times its start", "stable below lr = "):
        assert part in printed.err
    stable = float(printed.err.split("below lr = ")[1])
    saved = gflow.load(out)
    assert saved.status.value == "diverged"
    assert len(saved.steps) == saved.steps[-1] + 1 > 1
    assert np.all(np.isfinite(saved.losses["total"]))
    # what it advises works
    assert 0.5 < stable < 5
    assert train(["--lr", str(0.8 * stable)], capsys)["status"] == "milestones_reached"


# an endless run: six parameters, a billion steps
COMMAND = [*(sys.executable, "-m", "gflow", "train", "--steps", "1e9", "--lr", "1e-3", "--json", "--out", "run.nc")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_case_16_an_interrupted_run_is_saved(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        # one report in two seconds: after four the run is long enough to be worth keeping, however busy the machine
        reports = 0
        for line in process.stderr:
            reports += "training: step" in line
            if reports == 4:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "run.nc" in err
    assert "Traceback" not in err
    found = json.loads(out)
    saved = gflow.load(tmp_path / "run.nc")
    assert found["status"] == saved.status.value == "interrupted"
    assert 0 < saved.steps[-1] == found["steps"] < 1e9


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--optimizer", "adm"], "did you mean 'adam'"),
        (["--optimizer", "adam", "--momentum", "0.5"], "momentum = 0.5 has no meaning"),
        (["--b1", "0.5"], "use optimizer = 'adam' or 'adamw'"),
        (["--optimizer", "adam", "--weight-decay", "0.1"], "use optimizer = 'adamw'"),
        (["--optimizer", "momentum", "--momentum", "1"], "momentum = 1 is out of range"),
        (["--optimizer", "gd", "--batch", "8"], "use 'sgd'"),
        (["--batch", "0"], "batch = 0"),
        (["--batch", "8", "--L", "40.5"], "L = 40.5"),
        (["--batch", "1e7", "--L", "1e6"], "do not fit into memory"),
        (["--training", "joint", "--L", "40.5"], "L = 40.5"),
        (["--training", "layerwise"], "known are second-layer, joint"),
        (["--lr", "0"], "lr = 0"),
        (["--lr", "inf"], "not a finite number"),
        (["--steps", "2.5"], "whole number"),
        (["--samples", "128"], "add evaluate = 'sampled'"),
        (["--rtol", "1e-3"], "--rtol"),
    ],
)
def test_case_20_wrong_settings(flags: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--quiet", *flags]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


def test_settings_of_a_run() -> None:
    config = resolve({"optimizer": "adamw", "b1": 0.8, "weight-decay": 0}, {"lr": 0.1}, cls=TrainConfig)
    assert config.numbers == {"b1": 0.8, "weight_decay": 0.0}
    told = config.as_dict()
    assert "momentum" not in told
    assert told["b2"] is None
    with pytest.raises(InputError, match="unknown key 't1'"):
        resolve({"t1": 3}, {}, cls=TrainConfig)


def test_help_needs_no_jax() -> None:
    code = "import sys; from gflow.cli.main import run; run(['train', '--help']); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for field in ("--optimizer", "--weight-decay", "--samples", "--overwrite", "--json"):
        assert field in done.stdout
