"""What goes to stdout, what to stderr, and that JSON never holds a NaN or an infinity."""

from __future__ import annotations

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from gflow.cli._output import Output, dumps, plain
from gflow.cli._summary import params_dict, table
from gflow.losses.induction.params import TiedParams


def test_plain_values() -> None:
    value = {
        "a": np.float64(1.5),
        "b": np.array([1.0, np.nan, -np.inf]),
        3: (np.int64(2), None, True, "x"),
        "n": math.nan,
    }
    assert plain(value) == {"a": 1.5, "b": [1.0, None, None], "3": [2, None, True, "x"], "n": None}


def test_json_is_strict() -> None:
    def refuse(word: str) -> float:
        raise AssertionError(word)

    text = dumps({"x": [math.inf, math.nan, np.array(np.inf)], "p11": "inf", "w": "w* ≥ 0"})
    assert json.loads(text, parse_constant=refuse) == {"x": [None, None, None], "p11": "inf", "w": "w* ≥ 0"}


def test_infinite_p11_is_a_word() -> None:
    one = jnp.ones(2)
    params = TiedParams(p21=one, v1=2 * one, v2=3 * one, wKQ=4 * one)
    assert params_dict(params, -1) == {"p11": "inf", "p21": 1.0, "v1": 2.0, "v2": 3.0, "wKQ": 4.0}


def test_json_mode_leaves_stdout_to_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(json=True) as output:
        output.remark("remark")
        output.phase("phase")
        output.progress("progress")
        output.result("table")
        output.document({"a": 1})
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"a": 1}
    for word in ("remark", "phase", "table"):
        assert word in printed.err


def test_quiet_keeps_results_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(quiet=True) as output:
        output.remark("remark")
        output.phase("phase")
        output.progress("progress")
        output.result("table")
        output.warn("warning")
    printed = capsys.readouterr()
    assert printed.out == "table\n"
    assert printed.err == "gflow: warning\n"


def test_table_is_aligned() -> None:
    lines = table([("name", "value"), ("a", "1"), ("longer", "22.5")], left=1).splitlines()
    assert lines == ["name    value", "------  -----", "a           1", "longer   22.5"]
