"""The lanes of a sweep as a flat table, a row each: values of the axes, results, status, reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gflow.io.atomic import atomic_path
from gflow.sweeps.columns import STATUS
from gflow.sweeps.records import open_dataset, records


def frame(sweep: Any) -> Any:
    """A `pandas.DataFrame` with the lanes in the order of the grid; curves are left out."""
    import pandas as pd

    grid = sweep.grid
    columns: dict[str, Any] = {}
    for i, dim in enumerate(grid.dims):
        along = np.arange(dim.size).reshape([-1 if j == i else 1 for j in range(len(grid.dims))])
        at = np.broadcast_to(along, grid.shape).ravel()
        for key, values in dim.keys.items():
            if values.numbers is not None:
                columns[key] = values.numbers[at]
            else:
                columns[key] = pd.Categorical.from_codes(values.codes[at], list(map(str, values.names())))
    with open_dataset(sweep.path) as dataset:
        for column in sweep.columns:
            if not column.curve and column.name != "status":
                columns[column.name] = dataset[column.name].values.ravel()
        status = dataset["status"].values.ravel()
    columns["status"] = pd.Categorical.from_codes(status, list(STATUS))
    columns["reason"] = _reasons(sweep)
    return pd.DataFrame(columns)


def write(sweep: Any, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write the table as .parquet or .csv, complete or not at all. Raises `OutputError`."""
    table = frame(sweep)
    with atomic_path(path, overwrite) as temporary:
        if Path(path).suffix.lower() == ".csv":
            table.to_csv(temporary, index=False)
        else:
            table.to_parquet(temporary, index=False)
    return Path(path)


def _reasons(sweep: Any) -> Any:
    """Why a lane failed; nothing for one that did not."""
    import pandas as pd

    codes = np.full(sweep.grid.shape, -1, dtype=np.int64)
    reasons: dict[str, int] = {}
    for record in records(sweep.path).values():
        if record.failures:
            part = codes[sweep.grid.chunks.region(record.index)]
            lanes = np.array([lane for lane, _ in record.failures])
            found = [reasons.setdefault(reason, len(reasons)) for _, reason in record.failures]
            part[np.unravel_index(lanes, part.shape)] = found
    return pd.Categorical.from_codes(codes.ravel(), list(reasons)) if reasons else pd.array([None] * codes.size, "str")
