"""`gflow integrate --loss module:function --init file.toml`."""

from __future__ import annotations

import json
import math
import resource
from pathlib import Path

import pytest

import gflow
from gflow.cli import plot as plotting
from gflow.cli.main import run

MODULE = """
import jax.numpy as jnp

def chain(p):
    return (1 - p["w"] ** 2) ** 2 / 4

def bowl(p):
    return 0.5 * jnp.sum(p["a"] ** 2) + 0.5 * p["b"] ** 2

def vector(p):
    return p["w"] * jnp.ones(3)

def concrete(p):
    return float(p["w"])

def whole(p):
    return jnp.asarray(1)

def endless(p):
    return jnp.log(p["w"] - 5)

value = 3
"""

INIT = """
w = 1e-8
[milestones]
grown = {above = 0.5, of = "w"}
half = {below_fraction = 0.5}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own, with a module whose name no other test uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "init.toml").write_text(INIT)
    return tmp_path


def own(here: Path) -> str:
    return next(here.glob("own_*.py")).stem


def test_case_2_through_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """w / sqrt(1 - w^2) = C e^t: the time at which w = 1/2, from w = 1e-8, in closed form."""
    assert run(["integrate", "--loss", f"{own(here)}:chain", "--init", "init.toml", "--json", "--out", "run.nc"]) == 0
    found = json.loads(capsys.readouterr().out)
    start = 1e-8 / math.sqrt(1 - 1e-16)
    exact = math.log(0.5 / math.sqrt(1 - 0.25) / start)
    assert found["milestones"]["grown"] == pytest.approx(exact, rel=1e-7)
    assert abs(found["milestones"]["grown"] - exact) <= 10 * found["milestone_details"]["grown"]["error"] + 1e-9
    assert found["status"] == "milestones_reached"
    assert found["params"]["initial"] == {"w": 1e-8}
    assert found["config"]["loss"].endswith(":chain")
    assert "L" not in found["config"]
    saved = gflow.load(here / "run.nc")
    assert saved.milestones["grown"].time == found["milestones"]["grown"]
    assert saved.provenance["config"]["init"] == "init.toml"


def test_arrays_and_a_run_to_rest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "init.toml").write_text("a = [[1.0, 2.0], [3.0, -4.0]]\nb = 2\n")
    assert run(["integrate", "--loss", f"{own(here)}:bowl", "--init", "init.toml", "--json", "--t1", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["t1_reached"] == 2.0
    assert found["params"]["final"]["b"] == pytest.approx(2 * math.exp(-2), rel=1e-8)
    assert found["params"]["final"]["a"][1][1] == pytest.approx(-4 * math.exp(-2), rel=1e-8)


def test_case_19_a_full_disk_ends_in_one_line_and_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run survives: its table is printed although its file could not be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert run(["integrate", "--loss", f"{own(here)}:chain", "--init", "init.toml", "--out", "run.nc"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    printed = capsys.readouterr()
    assert "17.8713" in printed.out
    assert "run.nc cannot be written" in printed.err
    assert not list(here.glob("*.nc"))
    assert not list(here.glob(".gflow*"))


def test_case_19_an_existing_file_is_refused_before_computing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run.nc").write_text("precious")
    words = ["integrate", "--loss", f"{own(here)}:chain", "--init", "init.toml", "--out", "run.nc"]
    assert run(words) == 2
    printed = capsys.readouterr()
    assert "exists" in printed.err
    assert "loading" not in printed.err
    assert (here / "run.nc").read_text() == "precious"
    assert run([*words, "--overwrite"]) == 0
    assert gflow.load(here / "run.nc").milestones["half"].time is not None


def test_a_figure_that_fails_does_not_cost_the_data(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(plotting, "draw", broken)
    words = ["integrate", "--loss", f"{own(here)}:chain", "--init", "init.toml", "--out", "run.nc", "--plot", "run.png"]
    assert run(words) == 1
    printed = capsys.readouterr()
    assert "no ink" in printed.err
    assert "wrote run.nc" in printed.err
    assert gflow.load(here / "run.nc").milestones["half"].time is not None


def test_max_steps_keeps_the_part_and_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["integrate", "--loss", f"{own(here)}:chain", "--init", "init.toml", "--max-steps", "5", "--json"]
    assert run([*words, "--out", "run.nc"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "max_steps"
    assert "max_steps" in found["message"]
    assert found["milestones"] == {"grown": None, "half": None}
    assert found["milestone_details"]["half"]["status"] == "solver_stopped"
    assert gflow.load(here / "run.nc").t1_reached == found["t1_reached"]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("nowhere_at_all:f", ["no module nowhere_at_all"]),
        ("OWN:nothing", ["no function nothing", "chain"]),
        ("OWN:value", ["not a function"]),
        ("OWN", ["module:function"]),
        (":f", ["module:function"]),
        ("OWN.py:chain", ["OWN:chain"]),
        ("OWN:bowl", ["'a'", "has w"]),
        ("OWN:vector", ["one scalar", "(3,)"]),
        ("OWN:concrete", ["cannot trace"]),
        ("OWN:whole", ["real number", "int"]),
        ("OWN:endless", ["nan at the initial values"]),
        ("broken:f", ["importing broken failed", "SyntaxError"]),
        ("needy:f", ["needs a_package_that_is_missing"]),
    ],
)
def test_wrong_losses_are_one_clear_line(
    spec: str, parts: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken.py").write_text("def f(:\n")
    (here / "needy.py").write_text("import a_package_that_is_missing\n")
    spec = spec.replace("OWN", own(here))
    assert run(["integrate", "--quiet", "--loss", spec, "--init", "init.toml"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for part in parts:
        assert part.replace("OWN", own(here)) in err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("[milestones]\nhalf = {below = 1}", "no initial values"),
        ("w = 'one'", "not a number"),
        ("w = true", "boolean"),
        ("w = inf", "finite"),
        ("w = [1, [2, 3]]", "rectangular"),
        ("w = []", "empty"),
        ("[w]\nx = 1", "table"),
        ("w = 1\nmilestones = 3", "milestones must be a table"),
        ("w = 1\n[milestones]\nhalf = 3", "half = 3 is not a table"),
        ("w = 1\n[milestones]\nhalf = {under = 3}", "below"),
        ("w = 1\n[milestones]\nhalf = {below = 3, above = 4}", "keys below, above"),
        ("w = 1\n[milestones]\nhalf = {below = 'x'}", "not a number"),
        ("w = 1\n[milestones]\nhalf = {below = 1, of = 'v'}", "'v'"),
        ("w = [1, 2]\n[milestones]\nhalf = {below = 1, of = 'w'}", "shape (2,)"),
    ],
)
def test_wrong_init_files_are_one_clear_line(
    text: str, part: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "init.toml").write_text(text)
    assert run(["integrate", "--quiet", "--loss", f"{own(here)}:chain", "--init", "init.toml"]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1
