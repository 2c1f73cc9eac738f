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
    config = resolve({"L": 100, "max_steps": 1e5, "seed": 2**63 - 1}, {})
    assert isinstance(config.L, float)
    assert isinstance(config.max_steps, int)
    assert config.seed == 2**63 - 1  # not through a float


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
    "wK_init = 0": ["wK_init = 0", "1e-100"],
    "wQ_init = 1\nparametrization = 'tied'": ["wQ_init = 1", "add parametrization = 'untied'"],
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
    "training = 'joined'": ["did you mean 'joint'"],
    "training = 3": ["training = 3", "layerwise"],
    "training = 'joint'\nL = 40.5": ["L = 40.5", "training = 'joint'", "whole", "give L = 40"],
    "training = 'layerwise'\nL = 99.7": ["L = 99.7", "training = 'layerwise'", "give L = 100"],
    "evaluate = 'sampled'\nL = 8.5": ["L = 8.5", "evaluate = 'sampled'"],
    "evaluate = 'sample'": ["did you mean 'sampled'"],
    "p11_until = 3": ["p11_until = 3", "add training = 'layerwise'", "leave p11_until out"],
    "training = 'joint'\nstage1_t1 = 10": ["stage1_t1 = 10", "training = 'joint'", "add training = 'layerwise'"],
    "p11_after = 'infinite'": ["p11_after = 'infinite'", "add training = 'layerwise'"],
    "training = 'layerwise'\np11_after = 'infinit'": ["did you mean 'infinite'"],
    "training = 'layerwise'\np11_until = 0": ["p11_until = 0", "> 0"],
    "training = 'layerwise'\np11_until = inf": ["p11_until = inf", "finite"],
    "training = 'layerwise'\nstage1_t1 = 0": ["stage1_t1 = 0", "> 0"],
    "samples = 4096": ["samples = 4096", "add evaluate = 'sampled'"],
    "scrambles = 8": ["scrambles = 8", "add evaluate = 'sampled'"],
    "accuracy = 0.01": ["accuracy = 0.01", "add evaluate = 'sampled'"],
    "evaluate = 'sampled'\nsamples = 63": ["samples = 63", ">= 64", "67108864"],
    "evaluate = 'sampled'\nsamples = 67108865": ["samples = 67108865", "<= 67108864"],
    "evaluate = 'sampled'\nsamples = 100.5": ["samples = 100.5", "whole"],
    "evaluate = 'sampled'\nscrambles = 1": ["scrambles = 1", ">= 2"],
    "evaluate = 'sampled'\nscrambles = 65": ["scrambles = 65", "<= 64"],
    "evaluate = 'sampled'\naccuracy = 0": ["accuracy = 0", "> 0"],
    "evaluate = 'sampled'\naccuracy = 1": ["accuracy = 1", "< 1"],
    "evaluate = 'sampled'\naccuracy = 0.1\nsamples = 128": ["samples = 128", "accuracy = 0.1", "keep one"],
    "loss = 'a:b'\ninit = 'c.toml'\nsamples = 128": ["samples has no meaning"],
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
        (["--model", "markov"], "not available yet"),
        (["--L"], "--L"),
        (["stray"], "stray"),
    ],
)
def test_case_20_the_same_for_flags(flags: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["integrate", *flags]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


def test_stages_and_samples() -> None:
    config = resolve({"training": "layerwise", "p11_until": 3, "p11-after": "reached"}, {"stage1_t1": 1e6})
    assert (config.p11_until, config.stage1_t1, config.p11_after) == (3.0, 1e6, "reached")
    config = resolve({"evaluate": "sampled", "samples": 2**26, "training": "joint"}, {"scrambles": 2})
    assert (config.samples, config.scrambles, config.accuracy) == (67108864, 2, None)
    assert IntegrateConfig().p11_after == "infinite"
    with pytest.raises(InputError, match="scrambles = 4 has no meaning"):
        IntegrateConfig(scrambles=4)


def test_only_keys_that_mean_something_are_told() -> None:
    told = IntegrateConfig().as_dict()
    assert not {"loss", "init", "p11_until", "stage1_t1", "p11_after", "samples", "scrambles", "accuracy"} & set(told)
    told = IntegrateConfig(training="layerwise", evaluate="sampled", accuracy=0.01).as_dict()
    assert {"p11_until", "p11_after", "scrambles", "accuracy"} <= set(told)
    # what is told is accepted again
    assert resolve({k: v for k, v in told.items() if v is not None}, {}).as_dict() == told


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
