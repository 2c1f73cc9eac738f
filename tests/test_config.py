"""Every setting is checked in one place, and every refusal is one line with the value, the limit and the way out."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from gflow.cli.main import run
from gflow.config import FiniteTokens, IntegrateConfig, read_toml, resolve
from gflow.errors import InputError


def test_defaults_are_the_example_of_the_documentation() -> None:
    config = resolve(None, {})
    assert (config.L, config.alpha_star, config.w_star, config.sigma_init) == (40.0, 1.0, 0.49, 0.01)
    assert (config.tokens, config.d, config.parametrization) == ("gaussian", 1, "untied")
    assert config == IntegrateConfig()


def test_flags_override_the_file_and_the_file_overrides_the_defaults() -> None:
    config = resolve({"L": 100, "w-star": 1}, {"L": 64.5, "alpha_star": None})
    assert (config.L, config.w_star, config.alpha_star) == (64.5, 1.0, 1.0)


def test_numbers_take_the_type_of_their_key() -> None:
    config = resolve({"L": 100, "max_steps": 1e5, "seed": 2**62 + 1}, {})
    assert isinstance(config.L, float)
    assert isinstance(config.max_steps, int)
    assert config.seed == 2**62 + 1  # not through a float


def test_configuration_is_frozen_and_plain() -> None:
    config = resolve({"tokens": {"values": [-1, 2], "probabilities": [0.5, 0.5]}}, {})
    assert config.tokens == FiniteTokens((-1.0, 2.0), (0.5, 0.5))
    assert config.as_dict()["tokens"] == {"values": (-1.0, 2.0), "probabilities": (0.5, 0.5)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.L = 3.0  # pyright: ignore[reportAttributeAccessIssue]


# case 20: contents of a TOML file -> what the one line must contain
CASE_20 = {
    "": ["empty", "L = 100"],
    "# only a comment\n": ["empty"],
    "alpha_sta = 1": ["alpha_sta", "did you mean 'alpha_star'"],
    "parametrisation = 'tied'": ["did you mean 'parametrization'"],
    "zebra = 1": ["'zebra'", "alpha_star"],
    "l = 40": ["did you mean 'L'"],
    "[integrate]\nL = 40": ["integrate", "known are"],
    "w-star = 1\nw_star = 1": ["twice"],
    "L = 40\nL = 50": ["not valid TOML"],
    "L = ": ["not valid TOML", "Invalid value"],
    "L = 2": ["L = 2", ">= 4"],
    "L = 3.999": ["L = 3.999", ">= 4"],
    "L = -7": ["L = -7", ">= 4"],
    "L = '40'": ["L = '40'", "text", "without quotes"],
    "L = true": ["L = true", "boolean"],
    "L = [40, 50]": ["list", "number"],
    "L = 1979-05-27": ["L = ", "number"],
    "L = 1e400": ["L = inf", "finite"],
    "L = inf": ["finite"],
    "L = nan": ["finite"],
    f"L = {10**400}": ["finite"],
    f"seed = {'9' * 5000}": ["not valid TOML"],
    "w_star = 0": ["w_star = 0", "> 0"],
    "w_star = -0.5": ["w_star = -0.5", "> 0"],
    "alpha_star = -1": ["alpha_star = -1", "> 0"],
    "sigma_init = 0": ["sigma_init = 0", "1e-100"],
    "sigma_init = -1e-3": ["sigma_init = -0.001"],
    "d = 2.5": ["d = 2.5", "whole"],
    "d = 0": ["d = 0", ">= 1"],
    "max_steps = 0": ["max_steps = 0", ">= 1"],
    "rtol = 0": ["rtol = 0", "1e-14"],
    "rtol = 1": ["rtol = 1", "0.1"],
    "t1 = -1": ["t1 = -1", ">= 0"],
    "seed = -1": ["seed = -1"],
    "overwrite = 1": ["overwrite = 1", "true or false"],
    "out = 3": ["out = 3", "run.nc"],
    "out = ''": ["out = ''", "run.nc"],
    "out = 'run.txt'": ["run.txt", ".nc"],
    "plot = 'run.jpg'": [".png or .pdf or .svg"],
    "tokens = 'gausian'": ["did you mean 'gaussian'"],
    "tokens = 3": ["tokens = 3", "values", "probabilities"],
    "tokens = {values = [1, 2]}": ["probabilities must be a list"],
    "tokens = {values = [1, 2], probabilities = [1]}": ["2 values and 1 probabilities"],
    "tokens = {values = [1, true], probabilities = [0.5, 0.5]}": ["tokens.values", "boolean"],
    "tokens = {value = [1], probabilities = [1]}": ["did you mean 'values'"],
    "tokens = 'uniform'\nd = 2": ["d = 2", "gaussian"],
    "training = 'joint'": ["training = 'joint'", "not available yet", "second-layer"],
    "training = 'layerwise'": ["not available yet", "second-layer"],
    "evaluate = 'sampled'": ["not available yet", "exact"],
    "model = 'markov'": ["not available yet", "induction"],
    "solver = 'rk4'": ["solver = 'rk4'", "tsit5"],
    "loss = 'a:b'": ["init"],
    "init = 'a.toml'": ["loss"],
    "loss = 'a:b'\ninit = 'c.toml'\nL = 40": ["L has no meaning"],
    "x = " + "[" * 2000 + "]" * 2000: ["not valid TOML"],
}


@pytest.mark.parametrize("text", CASE_20, ids=lambda text: repr(text[:24]))
def test_case_20_bad_toml_is_one_clear_line_and_exit_2(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    assert run(["integrate", "--config", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("gflow: ")
    assert "Traceback" not in printed.err
    for part in CASE_20[text]:
        assert part in printed.err


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (bytes(range(256)), "not a text file"),
        (b"\x00" * 100, "not valid TOML"),
        (b"\xff\xfeL\x00=\x00", "not a text file"),
        (b"#" * (1 << 21), "larger than"),
    ],
)
def test_case_20_binary_file(data: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(data)
    with pytest.raises(InputError, match=part):
        read_toml(str(path))


def test_case_20_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_toml(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="is a folder"):
        read_toml(str(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        read_toml("bad\0name")


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"\xef\xbb\xbfL = 50\r\n")
    assert resolve(read_toml(str(path)), {}).L == 50.0


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--L", "2"], "L = 2"),
        (["--L", "abc"], "abc"),
        (["--L", "1e400"], "finite"),
        (["--w-star", "0"], "w_star = 0"),
        (["--alpha-star", "-1"], "alpha_star = -1"),
        (["--d", "2.5"], "whole"),
        (["--alpha-sta", "1"], "--alpha-star"),
        (["--training", "joint"], "not available yet"),
        (["--L"], "--L"),
        (["stray"], "stray"),
    ],
)
def test_case_20_the_same_for_flags(flags: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["integrate", *flags]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


def test_limits_are_inclusive_where_they_say_so() -> None:
    assert resolve({"L": 4, "t1": 0, "sigma_init": 1e-8}, {}).L == 4.0
    assert math.isclose(resolve({"w_star": 1.5}, {}).w_star, 1.5)


def test_solver_names_are_those_of_solve() -> None:
    from gflow.flows._method import EXPLICIT, IMPLICIT

    for name in ("auto", *EXPLICIT, *IMPLICIT):
        assert resolve({"solver": name}, {}).solver == name
    with pytest.raises(InputError) as refused:
        resolve({"solver": "qqq"}, {})
    assert str(refused.value).endswith(f"known are {', '.join(('auto', *EXPLICIT, *IMPLICIT))}")
