"""`gflow verify --loss module:function --init file.toml`: the document, and what is refused in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gflow.cli._output import Output, dumps
from gflow.cli._verify_own import verify_own
from gflow.errors import InputError

MODULE = """
import jax.numpy as jnp

def chain(p):
    print("said by the loss")
    return (1 - p["w"] ** 2) ** 2 / 4

def down(p):
    return -p["w"] ** 2

def vector(p):
    return p["w"] * jnp.ones(3)

def net(p):
    return 0.5 * jnp.sum((jnp.diag(jnp.asarray([3.0, 1.0])) - p["A"] @ p["B"]) ** 2)
"""

CLAIM = {
    *("name", "title", "statement", "formula", "source", "assumptions", "rule", "verdict", "expected_verdict"),
    *("as_expected", "measured", "expected", "error", "quantity", "regime", "fails", "reason", "control", "rows"),
    *("figure", "reproduce", "seconds"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of the user's own; the name of its module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "init.toml").write_text("w = 0.1\n[milestones]\nhalf = {below_fraction = 0.5}\n")
    return name


def verdicts(name: str, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"effort": "quick", "scales": None, "t1": None, "output": Output(quiet=True)} | options
    return verify_own(name, "init.toml", **given)


def test_the_document_of_a_chain(here: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = verdicts(f"{here}:chain")
    assert capsys.readouterr().out == ""  # what the loss prints is no part of the result
    assert {key: found[key] for key in ("status", "kind", "effort", "as_expected", "onset")} == {
        "status": "done",
        "kind": "gflow own-loss verdicts",
        "effort": "quick",
        "as_expected": True,
        "onset": [],
    }
    assert [claim["name"] for claim in found["claims"]] == [
        *("monotone", "rate", "converged", "critical-points", "plateaus", "plateau-1-law")
    ]
    for claim in found["claims"]:
        assert set(claim) == CLAIM
        assert claim["verdict"] == "supported"
        assert claim["reproduce"] == f"gflow verify --loss {here}:chain --init init.toml"
    law = found["claims"][-1]
    assert law["measured"] == pytest.approx(1.0, abs=1e-4)
    assert law["control"]["rejected"]
    assert found["provenance"]["config"]["scales"][-1] == pytest.approx(1e-3)
    assert found["seconds"] > 0
    assert json.loads(dumps(found)) == found


def test_matrices_scales_and_an_end(here: str) -> None:
    Path("init.toml").write_text("A = [[1, 0.3], [-0.2, 0.7]]\nB = [[1, -0.2], [0.5, 1.2]]\n")
    found = verdicts(f"{here}:net", scales=[0.01, 0.1], t1=3.0)
    ends = found["claims"][2]["rows"]
    assert [row["point"]["scale"] for row in ends] == [0.1, 0.01]
    assert {row["point"]["t"] for row in ends} == {3.0}
    assert found["claims"][2]["verdict"] == "undecided"  # still moving at t1


def test_a_loss_without_a_lower_bound(here: str) -> None:
    found = verdicts(f"{here}:down", scales=[1.0])
    assert found["as_expected"]
    converged = found["claims"][2]
    assert converged["verdict"] == "refuted"
    assert "finite" in converged["fails"]


@pytest.mark.parametrize(
    ("spec", "init", "part"),
    [
        ("OWN:nothing", "w = 0.1", "no function nothing"),
        ("OWN", "w = 0.1", "module:function"),
        ("OWN:vector", "w = 0.1", "one scalar"),
        ("OWN:chain", "v = 0.1", "the init file has v"),
        ("OWN:chain", "", "is empty"),
        ("OWN:chain", "w = 'one'", "not a number"),
    ],
)
def test_what_is_refused_is_one_line(spec: str, init: str, part: str, here: str) -> None:
    Path("init.toml").write_text(init)
    with pytest.raises(InputError) as raised:
        verdicts(spec.replace("OWN", here))
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("options", "part"), [({"scales": [-1.0]}, "-1"), ({"t1": -2.0}, "t1=-2")])
def test_scales_and_times_that_cannot_be_used(options: dict[str, Any], part: str, here: str) -> None:
    with pytest.raises(InputError, match=part):
        verdicts(f"{here}:chain", **options)


SCRIPT = """
import sys
from gflow.cli import _signals
from gflow.cli._output import Output
from gflow.cli._verify_own import verify_own
_signals.listen()

class Loud(Output):
    def progress(self, text):
        print(text, file=sys.__stdout__, flush=True)

output = Loud(quiet=True)
scales = [10.0 ** -(k / 20) for k in range(200)]
found = verify_own(sys.argv[1], "init.toml", effort="quick", scales=scales, t1=None, output=output)
print("END", found["status"], len(found["claims"][2]["rows"]), flush=True)
"""


def test_ctrl_c_keeps_the_scales_that_are_done(here: str) -> None:
    """Of 200 scales a few are done when the signal comes."""
    command = [sys.executable, "-c", SCRIPT, f"{here}:chain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        solved = 0
        for line in process.stdout:
            solved += "solved in" in line
            if solved == 80:
                process.send_signal(signal.SIGINT)
                solved += 1
            if line.startswith("END"):
                break
        else:
            line = ""
        assert process.wait(timeout=60) == 0, process.stderr.read()
    _, status, rows = line.split()
    assert status == "interrupted"
    assert 70 <= int(rows) < 200
    assert os.path.exists("init.toml")
