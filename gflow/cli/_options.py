"""Flags that every command has."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from cyclopts import Group, Parameter

OUTPUT = Group("Output", sort_key=90)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Common:
    """How a command reports."""

    json: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, group=OUTPUT, help="Print one JSON object on stdout, all else on stderr."
        ),
    ] = False
    quiet: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="No progress and no remarks.")
    ] = False
    debug: Annotated[
        bool, Parameter(negative="", show_default=False, group=OUTPUT, help="Show the traceback of an error.")
    ] = False
