"""`gflow info`: versions, devices, precision, caches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gflow.cli._options import Common
from gflow.cli._output import Output
from gflow.cli._signals import prompt_exit
from gflow.errors import OutputError


def info(
    *,
    clear_cache: Annotated[
        bool, Parameter(negative="", show_default=False, help="Delete the cached tables and compiled programs.")
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Show versions, devices, precision and caches."""
    output = Output(json=common.json, quiet=common.quiet)
    with output, prompt_exit(lambda: output.warn("interrupted")):
        facts = _facts(clear_cache)
    if common.json:
        output.document(facts)
        return 0
    cache, source = facts["cache"], facts["source"]
    lines = [f"gflow      {facts['gflow']}", f"python     {facts['python']} on {facts['platform']}"]
    lines += [f"{name:<10} {version}" for name, version in facts["versions"].items()]
    lines += [f"device     {device}" for device in facts["devices"]]
    lines += [f"precision  {facts['precision']}", f"cache      {cache['folder']} ({cache['bytes'] / 1e6:.1f} MB)"]
    if clear_cache:
        lines.append(f"cleared    {cache['cleared_bytes'] / 1e6:.1f} MB")
    if source:
        lines.append(f"commit     {source['commit']}{' (with changes)' if source['dirty'] else ''}")
    output.result("\n".join(lines))
    return 0


def _facts(clear: bool) -> dict[str, Any]:
    from gflow.io.cache import cache_dir
    from gflow.io.provenance import provenance

    root = cache_dir()
    size = _size(root)
    if clear:
        try:
            # only what gflow put there: the folder may be one that the user chose
            for table in root.glob("table-*.npz"):
                table.unlink(missing_ok=True)
            if (root / "compiled").exists():
                shutil.rmtree(root / "compiled")
        except OSError as error:
            raise OutputError(f"{root} cannot be cleared: {error.strerror or error}; check its permissions") from None
    import jax

    facts = provenance()
    return {
        "status": "done",
        "gflow": facts["gflow"],
        "python": facts["python"],
        "platform": facts["platform"],
        "versions": facts["versions"],
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "precision": facts["precision"],
        "xla_flags": facts["xla_flags"],
        "cache": {"folder": str(root), "bytes": _size(root), "cleared_bytes": max(size - _size(root), 0)},
        "source": facts["git"],
    }


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # another process may be tidying up
    return total
