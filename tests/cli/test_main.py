"""Exit status and error messages, whatever happens inside a command."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gflow.cli import _run, main
from gflow.cli.main import run
from gflow.errors import InputError, OutputError, SolveError, TableError


def fail_with(error: BaseException) -> Any:
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("L = 2 is bad"), 2),
        (OutputError("run.nc exists"), 2),
        (TableError("no table"), 1),
        (SolveError("no solution"), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("two\nlines"), 1),
        (MemoryError(), 1),
    ],
)
def test_errors_are_one_line_with_their_status(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_run, "run", fail_with(error))
    assert run(["integrate", "--quiet"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert " ".join(str(error).split()) in printed.err
    assert "Traceback" not in printed.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_run, "run", fail_with(ZeroDivisionError("oops")))
    assert run(["integrate", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["integrate", "--json", "--L", "2"], ["integrate", "--json", "--nonsense", "2"]])
def test_json_is_one_object_even_for_an_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "failed"
    assert found["exit_status"] == 2
    assert found["message"]


def test_help_lists_exactly_the_commands_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("integrate", "train", "compare", "sweep", "verify", "plot", "report", "info"):
        assert f" {command} " in text
    assert "reproduce" not in text


def test_help_of_integrate_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["integrate", "--help"]) == 0
    text = capsys.readouterr().out
    flags = (
        "--config --L --alpha-star --w-star --sigma-init --wK-init --wQ-init --tokens --d --parametrization --training "
        "--evaluate --model --solver --rtol --atol --t1 --max-steps --seed --loss --init --out --plot --overwrite "
        "--json --quiet --debug"
    )
    for flag in flags.split(" "):
        assert f"{flag} " in text


def test_main_exits_with_the_status() -> None:
    with pytest.raises(SystemExit) as leaving:
        main.main(["integrate", "--L", "2"])
    assert leaving.value.code == 2


def test_a_closed_pipe_is_not_an_error_message() -> None:
    # the reader is gone before gflow writes its first word
    with subprocess.Popen(
        [sys.executable, "-m", "gflow", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["precision"] == "float64"
    assert facts["devices"]
    assert facts["cache"]["bytes"] >= 0
    assert run(["info"]) == 0
    assert facts["cache"]["folder"] in capsys.readouterr().out
