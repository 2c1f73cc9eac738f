"""`gflow verify`: what it prints and saves, its exit status, what it refuses, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gflow.cli._app import run
from gflow.theory import plateau
from gflow.theory.claims import NAMES

CHEAP = ["initial-rate-v2", "initial-rate-wK-literal"]


def test_verdicts_as_json_and_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "verdicts.json"
    assert run(["verify", *CHEAP, "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == json.loads(out.read_text())
    assert (document["status"], document["effort"], document["as_expected"]) == ("done", "quick", True)
    first, second = document["claims"]
    assert (first["verdict"], first["expected_verdict"]) == ("supported", "supported")
    assert (second["verdict"], second["expected_verdict"]) == ("refuted", "refuted")
    assert second["measured"] == pytest.approx(1.0, abs=1e-3)  # the exponent of sigma: dwK/dt ~ sigma^2
    assert first["control"]["rejected"]
    assert second["control"]["rejected"]
    for entry in document["claims"]:
        assert set(entry["rows"][0]) >= {"quantity", "point", "measured", "error", "low", "high", "verdict", "inside"}
        assert entry["reproduce"] == f"gflow verify {entry['name']} --quick"
    assert f"wrote {out}" in printed.err


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "initial-rate-wK-literal", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "refuted, as expected:" in printed.out
    assert "1 of 1 verdicts as expected of 42 known" in printed.out
    assert printed.err == ""


def test_a_verdict_that_is_not_expected_is_exit_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = plateau.initial_rates
    monkeypatch.setattr(plateau, "initial_rates", lambda *a: {k: 1.05 * v for k, v in real(*a).items()})
    assert run(["verify", "initial-rate-v2"]) == 1
    printed = capsys.readouterr()
    assert "NOT as expected:" in printed.out
    assert "NOT AS EXPECTED" in printed.err
    assert "0 of 1 verdicts as expected" in printed.out


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)
    assert run(["verify", "slope", "--list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["claims"]
    assert entry["name"] == "slope"
    assert "1/g" in entry["formula"]


CASES: list[tuple[list[str], str]] = [
    (["slop"], "did you mean 'slope'?"),
    (["--quick", "--full"], "exclude each other"),
    (["--out", "verdicts.txt"], "must end in .json"),
    (["--out", "nowhere/verdicts.json"], "nowhere"),
    (["--out", "there.json"], "there.json exists"),
    (["--overwrite"], "no --out"),
    (["--list", "--out", "a.json"], "--list writes nothing"),
    (["--init", "a.toml"], "give --loss"),
    (["--scales", "1,0.1"], "give --loss"),
    (["--t1", "3"], "give --loss"),
    (["--workers", "0"], "workers = 0"),
    (["--workers", "2", "--loss", "a:b", "--init", "a.toml"], "leave it out beside --loss"),
    (["--loss", "a:b"], "needs --init"),
    (["slope", "--loss", "a:b", "--init", "a.toml"], "leave it out beside --loss"),
    (["--loss", "a:b", "--init", "a.toml", "--scales", "1,x"], "'x' is not a number"),
    (["--loss", "a:b", "--init", "a.toml", "--scales", "1,0"], "scales = 0"),
    (["--loss", "a:b", "--init", "a.toml", "--scales", "nan"], "scales = nan"),
    (["--loss", "a:b", "--init", "missing.toml"], "missing.toml"),
]


def test_bad_input_is_one_line_before_jax_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    code = f"""
import sys
from gflow.cli.main import run
for words, part in {CASES!r}:
    assert run(["verify", *words]) == 2, words
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line, (_, part) in zip(done.stderr.splitlines(), CASES, strict=True):
        assert part in line
        assert line.startswith("gflow: ")
    assert (tmp_path / "there.json").read_text() == "mine"


@pytest.mark.parametrize("after", [0, 1])
def test_an_interruption_keeps_the_verdicts_there_are(after: int, tmp_path: Path) -> None:
    """Ctrl-C as soon as `after` verdicts are told: it ends within seconds, and they are in the file."""
    out = tmp_path / "verdicts.json"
    words = ["verify", "initial-rate-v2", "fourgram-late", "plateau-level", "escape-times", "joint-late"]
    process: Any = subprocess.Popen(
        [sys.executable, "-m", "gflow", *words, "--out", str(out)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"GFLOW_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    wanted = "verifying" if after == 0 else f"[ {after}/"
    for line in process.stderr:
        if wanted in line:
            break
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - sent < 20  # seconds on a quiet machine
    assert process.returncode == 130
    document = json.loads(out.read_text())
    assert document["status"] == "interrupted"
    assert after <= len(document["claims"]) < 5
    assert all(entry["verdict"] == "supported" for entry in document["claims"])
