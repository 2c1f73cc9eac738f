"""The documentation holds: its python blocks run, its shell lines parse, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def _blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(line of the page, text) of each fenced block of that language."""
    text = (DOCS / page).read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: block.start(1)].count("\n"), block[1]) for block in found]


def _commands(page: str) -> list[list[str]]:
    """The words of every `gflow ...` line in the shell blocks of a page; lines that end in a backslash go on."""
    lines = "\n".join(text for _, text in _blocks(page, "sh")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == ["gflow"]]


def _anchors(path: Path) -> set[str]:
    """Explicit anchors of a page, and those that its headings get."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def test_there_are_pages_and_blocks_to_test() -> None:
    assert len(PAGES) >= 7
    assert len(_blocks("tutorial.md", "python")) > 8
    assert len(_blocks("exact-loss.md", "python")) > 4


@pytest.mark.parametrize(
    "page",
    [
        "tutorial.md",
        "exact-loss.md",
        "training.md",
        "solver.md",
        "high-dimensional.md",
        "sweeps.md",
        "claims.md",
        "exponents.md",
    ],
)
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for line, text in _blocks(page, "python"):
        # padded, so that a failure names the line of the page
        exec(compile("\n" * line + text, str(DOCS / page), "exec"), names)
    if page == "tutorial.md":
        assert (tmp_path / "run.png").stat().st_size > 10_000


@pytest.mark.parametrize("page", PAGES)
def test_shell_lines_parse(page: str) -> None:
    from gflow.cli._app import app

    for words in _commands(page):
        if not {"--help", "--version"} & set(words):
            command, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
            assert callable(command)


def test_settings_files_are_accepted(tmp_path: Path) -> None:
    from gflow.cli._own import load_init
    from gflow.config import read_toml, resolve

    (_, settings), (_, init) = _blocks("cli.md", "toml")
    (tmp_path / "run.toml").write_text(settings)
    assert resolve(read_toml(str(tmp_path / "run.toml")), {}).parametrization == "tied"
    (tmp_path / "init.toml").write_text(init)
    values, milestones = load_init(str(tmp_path / "init.toml"))
    assert float(values["w"]) == 1e-8
    assert set(milestones) == {"half", "grown"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        where = (DOCS / path).resolve() if path else DOCS / page
        assert where.exists(), f"{page}: {target}"
        if anchor and where.suffix == ".md":
            assert anchor in _anchors(where), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_the_package_exists(page: str) -> None:
    import importlib

    text = (DOCS / page).read_text()
    for dotted in set(re.findall(r"`(gflow(?:\.\w+)+)", text)):
        module, _, name = dotted.rpartition(".")
        try:
            importlib.import_module(dotted)
        except ModuleNotFoundError:
            parts = module.split(".")
            assert hasattr(importlib.import_module(".".join(parts)), name), f"{page}: {dotted}"


@pytest.mark.parametrize(("config", "command"), [("IntegrateConfig", "integrate"), ("TrainConfig", "train")])
def test_every_flag_and_json_key_is_documented(config: str, command: str) -> None:
    import dataclasses

    from gflow import config as configs

    page = (DOCS / "cli.md").read_text()
    text = page[page.index(f"## gflow {command}") :]
    for field in dataclasses.fields(getattr(configs, config)):
        assert f"`--{field.name.replace('_', '-')}`" in text, field.name
    source = (ROOT / "gflow" / "cli" / f"{command}.py").read_text()
    document = source[source.index("def _document") :]
    for key in re.findall(r'^        "(\w+)":', document, re.MULTILINE):
        assert f"`{key}`" in text, key


def test_every_flag_and_json_key_of_compare_is_documented() -> None:
    from gflow.cli._app import app

    page = (DOCS / "cli.md").read_text()
    text = page[page.index("## gflow compare") : page.index("## gflow plot")]
    for argument in app["compare"].assemble_argument_collection():
        groups: Any = argument.parameter.group
        if groups[0].name == "Output" and argument.name not in ("--json", "--quiet", "--debug"):
            for name in argument.names:
                assert f"`{name}`" in text, name
    source = (ROOT / "gflow" / "cli" / "compare.py").read_text()
    for key in re.findall(r'^        "(\w+)":', source[source.index("def _document") :], re.MULTILINE):
        assert f"`{key}`" in text, key


def test_the_sweep_file_of_the_page_is_accepted() -> None:
    import tomllib

    from gflow.config.sweep import sweep_config
    from gflow.sweeps.columns import columns_of
    from gflow.sweeps.driver import prepare

    ((_, text),) = _blocks("sweeps.md", "toml")
    plan = prepare(sweep_config(tomllib.loads(text)), "sweep.zarr")
    assert plan.grid.shape == (3, 50, 2, 3)
    page = (DOCS / "sweeps.md").read_text()
    kinds, trainings = ("untied", "tied", "merged"), ("second-layer", "layerwise", "joint")
    for column in columns_of(kinds, trainings, plan.config.milestones, curves=True):
        assert f"`{column.name}`" in page, column.name


def test_every_flag_and_json_key_of_sweep_is_documented() -> None:
    from gflow.cli._app import app

    page = (DOCS / "cli.md").read_text()
    text = page[page.index("## gflow sweep") : page.index("## gflow plot")]
    for argument in app["sweep"].assemble_argument_collection():
        if argument.name not in ("--json", "--quiet", "--debug", "*"):
            for name in argument.names:
                assert f"`{name}`" in text, name
    source = (ROOT / "gflow" / "cli" / "sweep.py").read_text()
    for key in re.findall(r'^        "(\w+)":', source[source.index("def _document") :], re.MULTILINE):
        assert f"`{key}`" in text, key


def test_every_claim_and_key_of_a_verdict_is_documented() -> None:
    from gflow.cli._app import app
    from gflow.theory.claims import NAMES

    claims, page = (DOCS / "claims.md").read_text(), (DOCS / "cli.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \|.*\| (supported|refuted)", claims, re.MULTILINE)
    assert tuple(name for name, _ in listed) == NAMES
    text = page[page.index("## gflow verify") : page.index("## gflow report")]
    for argument in app["verify"].assemble_argument_collection():
        if argument.name not in ("--json", "--quiet", "--debug", "*"):
            for name in argument.names:
                assert f"`{name}`" in text or name == "CLAIMS", name
    source = (ROOT / "gflow" / "theory" / "verify.py").read_text()
    for key in re.findall(r'^        "(\w+)":', source[source.index("def document") :], re.MULTILINE):
        assert f"`{key}`" in claims, key
    for module, start in (("claims/_outcome.py", "def outcome"), ("onset.py", "def onsets")):
        source = (ROOT / "gflow" / "theory" / module).read_text()
        for key in re.findall(r'^ +"(\w+)":', source[source.index(start) :].split("\ndef ")[0], re.MULTILINE):
            assert f"`{key}`" in claims, key
