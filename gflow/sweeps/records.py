"""What a store keeps beside its arrays: the design it was made for, and a record of each chunk that is complete.

They lie in the folder of the array `status`, where nothing that reads Zarr looks for more arrays.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gflow.config.sweep import SECTIONS
from gflow.errors import InputError
from gflow.io.atomic import atomic_path

FORMAT = 1
DESIGN = "design.json"
PRIVATE = os.path.join("status", ".gflow")


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a finished chunk: `failures` [(lane number in the chunk, reason)], seconds, statistics."""

    index: int
    lanes: int
    failures: list[tuple[int, str]]
    seconds: dict[str, float]
    statistics: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As it is kept: every reason once, with its lanes."""
        by_reason: dict[str, list[int]] = {}
        for lane, reason in self.failures:
            by_reason.setdefault(reason, []).append(lane)
        return dataclasses.asdict(self) | {"failures": by_reason}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Record:
        """What `as_dict` gave."""
        failures = [(int(lane), reason) for reason, lanes in content["failures"].items() for lane in lanes]
        values = {key: value for key, value in content.items() if key != "failures"}
        return cls(failures=sorted(failures), **values)


def is_store(path: str | Path) -> bool:
    """A folder that `Store.create` made."""
    return (Path(path) / PRIVATE / DESIGN).is_file()


def stored_design(path: str | Path) -> dict[str, Any]:
    """What a store was made for. Raises InputError if gflow did not make it."""
    try:
        design = json.loads((Path(path) / PRIVATE / DESIGN).read_text())
    except (OSError, ValueError):
        raise InputError(f"{path} is not the store of a sweep that gflow wrote; check the path") from None
    if design.get("format") != FORMAT:
        raise InputError(
            f"{path} was written by another version of gflow (format {design.get('format')}, not {FORMAT})"
        )
    return design


def stored_settings(path: str | Path) -> dict[str, Any]:
    """The sweep file that a store was made from. Raises InputError if gflow did not make it."""
    design = stored_design(path)
    return {section: _numbers(design[section]) for section in SECTIONS}


def records(path: str | Path) -> dict[int, Record]:
    """The complete chunks of a store, by number."""
    found = {}
    for file in sorted((Path(path) / PRIVATE).glob("[0-9]*.json")):
        try:
            content = json.loads(file.read_text())
        except ValueError:  # damaged by something else than a crash: computed again
            continue
        record = Record.from_dict(content)
        found[record.index] = record
    return found


def open_dataset(path: str | Path) -> Any:
    """The store as an `xarray.Dataset`, read from disk where it is used. Raises InputError for anything else."""
    import xarray as xr

    if not is_store(path):
        raise InputError(f"{path} is not the store of a sweep that gflow wrote; check the path")
    return xr.open_dataset(path, engine="zarr", chunks=None, consolidated=True)


def same_design(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise InputError, with the first key that differs, unless both are the same."""
    wanted = json.loads(dumps(wanted))
    for section in [key for key in (*wanted, *stored) if key != "format"]:
        was, now = stored.get(section), wanted.get(section)
        if was == now:
            continue
        keys = [section]
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [key for key in (*now, *was) if was.get(key) != now.get(key)]
            was, now = (None if x.get(keys[0]) is None else x[keys[0]] for x in (was, now)) if keys else (was, now)
        told = ["nothing" if x is None else _short(x) for x in (was, now)]
        name = keys[0] if keys else f"the order of [{section}]"
        raise InputError(
            f"{path} is a sweep of another design: {name} is {told[0]} there and {told[1]} here; "
            "use the file it was made from, another --out, or --overwrite"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def dumps(value: Any) -> str:
    """JSON; numbers that it does not have are text."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _numbers(value: Any) -> Any:
    """Numbers that JSON does not have, as numbers again."""
    if isinstance(value, dict):
        return {key: _numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) and not np.isfinite(value) else value


def write_json(path: Path, content: Any) -> None:
    """Write atomically and durably."""
    with atomic_path(path, overwrite=True) as temporary:
        temporary.write_text(dumps(content), encoding="utf-8")
