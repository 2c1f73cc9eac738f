"""What a command prints: results on stdout, everything else on stderr; JSON without NaN or infinity."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

_INTERVAL = 2.0  # seconds between progress lines where there is no terminal


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays as lists, numpy numbers as numbers, NaN and infinity as null."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # numpy and JAX, arrays and scalars
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def dumps(value: Any) -> str:
    """One JSON object, two spaces deep."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)


class Output:
    """Where a command's words go. A context manager: leaving it clears the progress line of a terminal."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self._status: Any = None
        self._bar: Any = None
        self._last = -math.inf
        self._phase = self._said = ""

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def result(self, text: str) -> None:
        """Words that are the result: stdout, or stderr when stdout carries JSON."""
        self.clear()
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def document(self, value: Any) -> None:
        """The one JSON object."""
        self.clear()
        print(dumps(value), flush=True)

    def remark(self, text: str) -> None:
        """A line on stderr, not with --quiet."""
        if not self.quiet:
            self.clear()
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """A line on stderr that --quiet does not silence."""
        self.clear()
        print(f"gflow: {text}", file=sys.stderr, flush=True)

    def phase(self, text: str) -> None:
        """What is being done now; the steps inside it are told with `progress`."""
        self._phase = text
        self._show(text, force=True)

    def progress(self, text: str) -> None:
        """How far the present phase is: a line that is rewritten on a terminal, now and then a line elsewhere."""
        self._show(f"{self._phase}: {text}" if self._phase else text, force=False)

    def bar(self, done: int, total: int, what: str, text: str) -> None:
        """How much of a countable work is done: a bar on a terminal, now and then a line elsewhere."""
        if self.quiet:
            return
        if not sys.stderr.isatty():
            self._show(f"{done} of {total} {what}, {text}", force=False)
            return
        if self._bar is None:
            self.clear()
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn(what), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=total, text="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, text=_escaped(text))

    def clear(self) -> None:
        """Take the progress line off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, text: str, *, force: bool) -> None:
        if self.quiet:
            return
        if sys.stderr.isatty():
            if self._status is None:
                from rich.console import Console

                self._status = Console(stderr=True).status(_escaped(text))
                self._status.start()
            else:
                self._status.update(_escaped(text))
        elif force or (time.monotonic() - self._last > _INTERVAL and text != self._said):
            print(text, file=sys.stderr, flush=True)
            self._last, self._said = time.monotonic(), text


def _escaped(text: str) -> str:
    """`text` with nothing in it that rich takes for markup."""
    return text.replace("[", "\\[")
