"""Entry point of the command `gflow`.

Exit status: 0 done; 1 the computation failed; 2 wrong usage or input; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `arguments` (default: this process's) and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a terminal that lacks a character must not end a run
    try:
        from gflow.cli._signals import listen

        listen()
        warnings.showwarning = _one_line_warning
        status = run(words)
    except KeyboardInterrupt:  # while the command line itself was loading
        print("gflow: interrupted; nothing was saved", file=sys.stderr)
        status = 130
    if arguments is None:
        _leave(status)
    sys.exit(status)


def _one_line_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning without the place in the code that gave it."""
    print(f"gflow: note: {' '.join(str(message).split())}", file=sys.stderr)


def _leave(status: int) -> NoReturn:
    """End this process now: every file is closed, and taking JAX apart would cost the user another second."""
    for stream in (sys.stdout, sys.stderr):
        # a reader that has gone (`| head`) is not the run's failure
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit status and prints any error as one line (with --debug, its traceback)."""
    # not at the top: a Ctrl-C while these load is answered by `main` too
    from gflow.cli import _app

    return _app.run(words)


if __name__ == "__main__":
    main()
