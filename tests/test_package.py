"""The package as a stranger meets it: what importing costs, what it offers, what the repository says about itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gflow

ROOT = Path(__file__).resolve().parent.parent
NAMES = [
    "InductionProblem",
    "PopulationLoss",
    "UntiedParams",
    "TiedParams",
    "MergedParams",
    "GradientFlow",
    "Block",
    "solve",
    "load",
    "Trajectory",
    "descend",
    "Descent",
    "Status",
    "Below",
    "Above",
    "Crosses",
    "tokens",
    "theory",
    "plots",
    "errors",
    "GflowError",
    "InputError",
    "OutputError",
    "__version__",
]


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    inherited = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=inherited | environment,
        cwd=ROOT,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_public_names(name: str) -> None:
    assert name in dir(gflow)
    assert getattr(gflow, name) is getattr(gflow, name)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        gflow.solv  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]


def test_every_listed_name_can_be_imported() -> None:
    for name in dir(gflow):
        assert getattr(gflow, name) is not None


WITHOUT_JAX = {
    "import": "import gflow; gflow.errors, gflow.InputError",
    "help": "from gflow.cli.main import run; assert run(['--help']) == 0",
    "help of a command": "from gflow.cli.main import run; assert run(['integrate', '--help']) == 0",
    "version": "from gflow.cli.main import run; assert run(['--version']) == 0",
    "wrong flag": "from gflow.cli.main import run; assert run(['integrate', '--L', '2']) == 2",
    "wrong command": "from gflow.cli.main import run; assert run(['integrat']) == 2",
    "cache": "import gflow; gflow.enable_compilation_cache()",
}


@pytest.mark.parametrize("what", WITHOUT_JAX)
def test_no_jax_before_it_is_needed(what: str) -> None:
    heavy = ["jax", "jaxlib", "equinox", "diffrax", "xarray", "matplotlib", "scipy"]
    check = f"import sys; loaded = [m for m in {heavy} if m in sys.modules]; assert not loaded, loaded"
    done = python(f"{WITHOUT_JAX[what]}\n{check}")
    assert done.returncode == 0, done.stderr


def test_arrays_are_float64_whichever_is_imported_first() -> None:
    for first in ("import gflow; import jax.numpy as jnp", "import jax.numpy as jnp; import gflow"):
        done = python(f"{first}; print(jnp.ones(()).dtype)")
        assert done.stdout.strip() == "float64", done.stderr


def test_an_explicit_choice_of_precision_is_respected() -> None:
    done = python("import gflow; import jax.numpy as jnp; print(jnp.ones(()).dtype)", JAX_ENABLE_X64="0")
    assert done.stdout.strip() == "float32", done.stderr


@pytest.mark.parametrize("script", ["scripts/run", "scripts/test", "scripts/environment.sh", ".ci/run"])
def test_scripts_are_valid_shell(script: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert script.endswith(".sh") or (ROOT / script).stat().st_mode & 0o111


def test_constraints_are_exact_and_cover_what_is_declared() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line) for line in lines)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0].lower()) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", entry)[0].lower()) for entry in declared} - {"gflow"}
    assert names <= pinned


def test_version_is_the_declared_one() -> None:
    import importlib.metadata

    assert importlib.metadata.version("gflow") == gflow.__version__


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_machine_paths_and_no_registry_addresses() -> None:
    # spelt in pieces, so that this file passes its own test
    forbidden = [f"/{'root'}/", f"/{'home'}/", f"/{'work'}/", f"py{'pi.org'}", f"python{'hosted'}", f"--{'index-url'}"]
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore") if path.is_file() else ""
        assert not [word for word in forbidden if word in text], path


def test_files_stay_readable_in_size() -> None:
    for path in tracked_files():
        if path.suffix == ".py" and path.is_file() and "gflow" in path.parts:
            assert len(path.read_text().splitlines()) <= 330, path
