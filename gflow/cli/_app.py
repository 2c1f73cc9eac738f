"""The commands put together: dispatch, error messages, exit status."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence

import cyclopts

import gflow
from gflow.cli import compare, info, integrate, matrices, plot, report, sweep, train, verify
from gflow.cli._output import Output
from gflow.cli._signals import INTERRUPTED
from gflow.errors import GflowError

USAGE = 2

app = cyclopts.App(
    name="gflow",
    version=gflow.__version__,
    version_flags=["--version"],
    help="Gradient-flow trajectories of small neural networks: losses, milestones, theory, figures.",
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `run` says what an interruption means
)
app.command(integrate.integrate, name="integrate")
app.command(train.app, name="train")
train.app.command(matrices.matrices, name="matrices")
app.command(compare.compare, name="compare")
app.command(sweep.sweep, name="sweep")
app.command(verify.verify, name="verify")
app.command(plot.plot, name="plot")
app.command(report.report, name="report")
app.command(info.info, name="info")


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit status and prints any error as one line (with --debug, its traceback)."""
    try:
        status = app(list(words), exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except cyclopts.CycloptsError as error:
        return _failed(words, error, f"{_one_line(error).rstrip('.?')}; see gflow --help", USAGE)
    except GflowError as error:
        return _failed(words, error, _one_line(error), error.exit_status)
    except KeyboardInterrupt as error:
        return _failed(words, error, "interrupted; nothing was saved", INTERRUPTED)
    except BrokenPipeError:
        # the reader of our output has gone, and wants no more; Python must not try again at exit
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # an error that gflow did not foresee must still be one readable line
        text = f"unexpected {type(error).__name__}: {_one_line(error)}; --debug shows where"
        return _failed(words, error, text, 1)


def _failed(words: Sequence[str], error: BaseException, text: str, status: int) -> int:
    if "--debug" in words:
        traceback.print_exception(error)
    output = Output()
    output.warn(text)
    if "--json" in words:
        name = "interrupted" if status == INTERRUPTED else "failed"
        output.document({"status": name, "message": text, "error": type(error).__name__, "exit_status": status})
    return status


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
