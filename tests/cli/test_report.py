"""`gflow report`: what it writes and prints, what it refuses, and that refusing changes nothing."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gflow.cli.main import run
from gflow.report import render

SAMPLE = Path(__file__).parents[1] / "report" / "sample.py"


@pytest.fixture
def document() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("report_sample", SAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.verdicts()


@pytest.fixture
def verdicts(document: dict[str, Any], tmp_path: Path) -> str:
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".html", "html"), (".md", "markdown"), (".json", "json"), (".HTML", "html")]
)
def test_the_suffix_chooses_the_format(
    document: dict[str, Any], verdicts: str, tmp_path: Path, capsys: Any, suffix: str, kind: str
) -> None:
    out = tmp_path / f"report{suffix}"
    assert run(["report", verdicts, "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == render(document, kind)
    said = capsys.readouterr()
    assert said.out == f"report: {out}\n"
    assert said.err == f"writing the report of {verdicts}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["verdicts.json", out.name])


def test_the_json_report_is_a_document_of_verdicts_again(verdicts: str, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.json", tmp_path / "twice.json"
    assert run(["report", verdicts, "--out", str(once), "--quiet"]) == 0
    assert run(["report", str(once), "--out", str(twice), "--quiet"]) == 0
    assert once.read_bytes() == twice.read_bytes()


def test_without_out_markdown_goes_to_stdout(document: dict[str, Any], verdicts: str, capsys: Any) -> None:
    assert run(["report", verdicts, "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == render(document, "markdown")
    assert said.err == ""


def test_json_on_stdout(document: dict[str, Any], verdicts: str, tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "report.html")
    assert run(["report", verdicts, "--out", out, "--json", "--quiet"]) == 0
    odd = ["exponent-L", "merged-has-no-plateau"]
    said = {"status": "done", "verdicts": verdicts, "report": out, "claims": 6, "unexpected": odd, "markdown": None}
    assert json.loads(capsys.readouterr().out) == said
    assert run(["report", verdicts, "--json", "--quiet"]) == 0
    said |= {"report": None, "markdown": render(document, "markdown")}
    assert json.loads(capsys.readouterr().out) == said


def test_an_existing_report_is_kept_unless_asked(verdicts: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "report.md"
    out.write_text("mine")
    assert run(["report", verdicts, "--out", str(out)]) == 2
    assert "exists; give another name, or --overwrite to replace it" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert run(["report", verdicts, "--out", str(out), "--overwrite"]) == 0
    assert out.read_text().startswith("# Theorems")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"status": "done", "milestones": {}}', '{"kind": "gflow verdicts"}']
)
def test_bad_verdicts_never_replace_a_report(tmp_path: Path, capsys: Any, content: str) -> None:
    bad, out = tmp_path / "bad.json", tmp_path / "report.html"
    bad.write_text(content)
    out.write_text("mine")
    assert run(["report", str(bad), "--out", str(out), "--overwrite"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"gflow: {bad}")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert out.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("out", ["report.pdf", "report", "report.htm", ".html", "html"])
def test_a_wrong_suffix_is_refused_before_anything_is_read(out: str, capsys: Any) -> None:
    assert run(["report", "nothing.json", "--out", out]) == 2
    assert capsys.readouterr().err == (
        f"gflow: out = {out!r} must end in .html or .md or .json; for example 'report.html'\n"
    )


def test_other_wrong_usage(verdicts: str, tmp_path: Path, capsys: Any) -> None:
    assert run(["report"]) == 2
    assert run(["report", verdicts, "--out", verdicts, "--overwrite"]) == 2
    assert "is the file of the verdicts itself" in capsys.readouterr().err
    link = tmp_path / "link.json"
    link.symlink_to(verdicts)
    assert run(["report", verdicts, "--out", str(link), "--overwrite"]) == 2
    assert run(["report", verdicts, "--overwrite"]) == 2
    assert "there is no --out" in capsys.readouterr().err
    assert run(["report", verdicts, "--out", str(tmp_path / "no" / "report.md")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "none.json"), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["error"], said["exit_status"]) == ("failed", "InputError", 2)


def test_no_jax_is_loaded(verdicts: str, tmp_path: Path) -> None:
    code = (
        "import sys; from gflow.cli.main import run; status = run(sys.argv[1:]);"
        "assert status == 0; print(sorted({'jax', 'diffrax', 'scipy', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code, "report", verdicts, "--out", str(tmp_path / "r.html"), "--quiet"]
    done = subprocess.run(words, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_python_of_the_page_runs(verdicts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(Path(verdicts).parent)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["page"].startswith("<!DOCTYPE html>")


def test_every_flag_and_json_key_is_documented() -> None:
    from gflow.cli._app import app

    root = Path(__file__).parents[2]
    page = (root / "docs" / "cli.md").read_text()
    text = page[page.index("## gflow report") : page.index("## gflow info")]
    for argument in app["report"].assemble_argument_collection():
        if argument.name not in ("--json", "--quiet", "--debug", "*"):
            assert f"`{argument.name}`" in text, argument.name
    source = (root / "gflow" / "cli" / "report.py").read_text()
    for key in re.findall(r'^        "(\w+)":', source[source.index("def _document") :], re.MULTILINE):
        assert f"`{key}`" in text, key
