"""A sweep file: every mistake in it is one line with the nearest key; values out of range stay, to fail alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gflow.config import FiniteTokens
from gflow.config.sweep import Curves, lane_config, sweep_config
from gflow.errors import InputError


def parse(text: str) -> Any:
    return sweep_config(tomllib.loads(text), "sweep.toml")


def test_everything_at_once() -> None:
    config = parse("""
        [fixed]
        alpha-star = 2
        tokens = {values = [-1, 1], probabilities = [0.5, 0.5]}
        [axes]
        L = [100, 1e3]
        sigma_init = {logspace = [1e-6, 1e-1, 50]}
        parametrization = ["tied", "merged"]
        [zip]
        w_star = {random = {law = "uniform", low = 0.5, high = 1, n = 3, seed = 7}}
        rtol = [1e-6, 1e-7, 1e-8]
        [options]
        chunk = 100
        milestones = ["T_III", "T_I", "T_III"]
        precision = "float32"
        curves = {points = 50, last = 1e5}
        check = 2
    """)
    assert config.fixed == {"alpha_star": 2.0, "tokens": FiniteTokens((-1.0, 1.0), (0.5, 0.5))}
    assert config.shape == (2, 50, 2, 3)
    assert config.lanes == 600
    assert config.axes["L"].values == (100, 1000.0)
    assert (config.zipped["w_star"].law, config.zipped["w_star"].seed) == ("uniform", 7)
    assert (config.chunk, config.milestones, config.precision) == (100, ("T_III", "T_I"), "float32")
    assert (config.curves, config.check) == (Curves(50, 0.1, 1e5), 2)
    # what is told is accepted again, also after a way through JSON
    assert sweep_config(json.loads(json.dumps(config.as_dict()))) == config


def test_a_value_out_of_range_is_left_to_its_lanes() -> None:
    config = parse("[axes]\nsigma_init = [0.1, 0, nan, -inf, 1e400]\nL = [2, 40]\nd = [1, 1.5]")
    assert config.shape == (5, 2, 2)


def test_rtol_is_an_option_or_a_key() -> None:
    assert parse("[axes]\nL = [40]\n[options]\nrtol = 1e-6").fixed == {"rtol": 1e-6}
    with pytest.raises(InputError, match=r"rtol is in \[fixed\] and in \[options\]"):
        parse("[fixed]\nrtol = 1e-6\n[axes]\nL = [40]\n[options]\nrtol = 1e-6")


WRONG = {
    "[fixed]\nL = 40": "has no axis",
    "[axis]\nL = [40]": "unknown table 'axis'; did you mean 'axes'",
    "L = [40]": "unknown table 'L'; put it under [fixed] or [axes]",
    "axes = 3": "axes = 3 is a number, not a table",
    "[axes]\nsigma = [1]": "unknown key 'sigma' in [axes]",
    "[axes]\nsigma_int = [1]": "did you mean 'sigma_init'",
    "[fixed]\nalpha_sta = 1\n[axes]\nL = [40]": "did you mean 'alpha_star'",
    "[axes]\nout = ['a']": "out in [axes] is for gflow integrate",
    "[fixed]\nL = 40\n[axes]\nL = [40]": "L is in [fixed] and in [axes]",
    "[axes]\nL = [40]\n[zip]\nL = [40]": "L is in [axes] and in [zip]",
    "[axes]\nw-star = [1]\nw_star = [1]": "w_star is given twice",
    "[axes]\nL = 40": "L = 40 is a number, not an axis; write [40]",
    "[axes]\nL = []": "L = [] is an axis without values",
    "[axes]\nL = ['40']": "L = '40' is text",
    "[axes]\nL = [40, true]": "L = true is a boolean",
    "[axes]\nL = [[40]]": "is a list, not a number",
    "[axes]\nparametrization = ['tied', 'untid']": "did you mean 'untied'",
    "[axes]\ntokens = [3]": "tokens = 3",
    "[axes]\ntokens = {linspace = [1, 2, 3]}": "tokens has names for values",
    "[axes]\nL = {linspce = [1, 2, 3]}": "did you mean 'linspace'",
    "[axes]\nL = {linspace = [1, 2, 3], logspace = [1, 2, 3]}": "exactly one of",
    "[axes]\nL = {linspace = [1, 2]}": "first value, last value, how many",
    "[axes]\nL = {linspace = [1, 2, 0]}": "n = 0 is an axis without values",
    "[axes]\nL = {linspace = [1, 2, 2.5]}": "L.n = 2.5 is not a whole number",
    "[axes]\nL = {linspace = [1, nan, 2]}": "L.linspace = nan is not a finite number",
    "[axes]\nL = {logspace = [0, 1, 2]}": "a logarithmic axis has positive values",
    "[axes]\nL = {linspace = [1, 2, 3], round = 1}": "round = 1 is not true or false",
    "[axes]\nL = {random = {law = 'unifrom'}}": "did you mean 'uniform'",
    "[axes]\nL = {random = {low = 1}}": "random has no law",
    "[axes]\nL = {random = {law = 'uniform', low = 1, high = 2}}": "random has no n",
    "[axes]\nL = {random = {law = 'normal', low = 1, n = 2}}": "unknown key 'low' of law = 'normal'",
    "[axes]\nL = {random = {law = 'normal', mean = 1, sd = -1, n = 2}}": "L.sd = -1",
    "[axes]\nL = {random = {law = 'uniform', low = 2, high = 1, n = 2}}": "exchange them",
    "[axes]\nL = {random = {law = 'loguniform', low = 0, high = 1, n = 2}}": "a logarithm needs a positive value",
    "[axes]\nL = {random = {law = 'uniform', low = 1, high = 2, n = 2, seed = -1}}": "L.seed = -1",
    "[zip]\nL = [1, 2]\nd = [1]": "need one length, not L 2, d 1",
    "[axes]\nL = {linspace = [40, 50, 100000]}\nd = {linspace = [1, 2, 100000]}": "= 10000000000 lanes; the limit is",
    "[fixed]\nsigma_init = 0\n[axes]\nL = [40]": "sigma_init = 0 is out of range",
    "[axes]\nL = [40]\n[options]\nchunks = 3": "did you mean 'chunk'",
    "[axes]\nL = [40]\n[options]\nchunk = 0": "chunk = 0 is out of range",
    "[axes]\nL = [40]\n[options]\nprecision = 'float16'": "precision = 'float16' is unknown",
    "[axes]\nL = [40]\n[options]\nmilestones = ['T_IV']": "milestones = 'T_IV' is unknown",
    "[axes]\nL = [40]\n[options]\nmilestones = []": "milestones = [] is not a list",
    "[axes]\nL = [40]\n[options]\ncurves = 3": "curves = 3 is a number",
    "[axes]\nL = [40]\n[options]\ncurves = {point = 3}": "did you mean 'points'",
    "[axes]\nL = [40]\n[options]\ncurves = {first = 3}": "curves has no points",
    "[axes]\nL = [40]\n[options]\ncurves = {points = 3, first = 3, last = 2}": "give a later one",
    # only the grid knows these
    "[fixed]\np11_until = 2\n[axes]\nL = [40]": "p11_until = 2 has no meaning with training = 'second-layer'",
    "[fixed]\nd = 2\n[axes]\ntokens = ['uniform', 'rademacher']": "d = 2 needs gaussian tokens",
    "[fixed]\nevaluate = 'sampled'\n[axes]\nL = [40]\n[options]\nprecision = 'float32'": "is for the exact loss",
    "": "is empty",
    "L = ": "is not valid TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text[:40]))
def test_mistakes_are_one_line_and_exit_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gflow.cli.main import run

    (tmp_path / "sweep.toml").write_text(text)
    assert run(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "sweep.zarr")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert WRONG[text] in told.err
    assert not (tmp_path / "sweep.zarr").exists()


def test_mistakes_need_no_jax(tmp_path: Path) -> None:
    code = f"""
import sys
from gflow.cli.main import run
texts = {list(WRONG)!r}
for text in texts:
    with open("sweep.toml", "w") as file:
        file.write(text)
    assert run(["sweep", "sweep.toml", "--out", "x.zarr"]) == 2, text
for words in (["--help"], ["sweep.toml"], ["none.toml", "--out", "x"], ["sweep.toml", "--out", "x", "--executr", "a"]):
    run(["sweep", *words])
assert "jax" not in sys.modules
assert "zarr" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_lane_reads_what_it_needs() -> None:
    """Fixed values that only some lanes give a meaning to are no mistake in the others; an axis is asked for."""
    fixed = {"p11_until": 2.0, "wK_init": 0.1, "L": 40.0}
    assert lane_config(fixed, {"training": "layerwise"}).p11_until == 2.0
    assert lane_config(fixed, {"training": "joint"}).p11_until is None
    assert lane_config(fixed, {"parametrization": "tied"}).wK_init is None
    with pytest.raises(InputError, match=r"wK_init = 0.1 has no meaning with parametrization = 'tied'"):
        lane_config({}, {"parametrization": "tied", "wK_init": 0.1})
