"""`gflow verify --loss module:function --init file.toml`: a user's own loss, from scaled initial values."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from gflow.cli import _own
from gflow.cli._finish import leave
from gflow.cli._output import Output, plain
from gflow.cli._prepare import watched
from gflow.cli._signals import prompt_exit
from gflow.io.compilation import prefer_quick_compilation


def verify_own(
    loss: str, init: str, *, effort: str, scales: Sequence[float] | None, t1: float | None, output: Output
) -> dict[str, Any]:
    """The verdicts about `module:function` from the initial values of a file, as one document.

    - `effort`: "quick" (7 scales down to 1e-3) or "full" (17 down to 1e-4), unless `scales` are given; `t1`: every
      run ends there, rather than at rest. The file's milestones play no part.
    - Keys: those of the verdicts of theory, with `kind` "gflow own-loss verdicts". Ctrl-C keeps the scales done.

    Raises InputError: one line.
    """
    began = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # what a user's loss prints is no part of the result
        with prompt_exit(lambda: leave(output)):
            values, _ = _own.load_init(init)
            output.phase("loading JAX")
            import jax.numpy as jnp

            import gflow
            from gflow.io.provenance import provenance
            from gflow.theory.own import SCALES, examine
            from gflow.theory.own._claims import claims

            gflow.enable_compilation_cache()
            prefer_quick_compilation()
            params = {name: jnp.asarray(value) for name, value in values.items()}
            function = _own.load_function(loss)
            _own.check_loss(function, loss, params)
        chosen = SCALES[effort] if scales is None else tuple(scales)
        output.phase(f"the gradient flow of {loss} from {len(chosen)} scales of {init}")
        seconds: dict[str, float] = {}
        with watched(lambda: leave(output), seconds) as alive:

            def told(text: str) -> None:
                alive()
                output.progress(text)

            found = examine(function, params, scales=chosen, t1=t1, progress=told)
        listed = claims(found)
    spent = time.perf_counter() - began
    command = f"gflow verify --loss {loss} --init {init}{' --full' if effort == 'full' else ''}"
    for claim in listed:
        claim |= {"reproduce": command, "seconds": spent / len(listed)}  # they share the runs
    config = {"loss": loss, "init": init, "effort": effort, "scales": list(chosen), "t1": t1}
    return plain(
        {
            "status": found.status,
            "kind": "gflow own-loss verdicts",
            "effort": effort,
            "as_expected": all(claim["as_expected"] for claim in listed),
            "claims": listed,
            "onset": [],
            "seconds": spent,
            "provenance": provenance(config),
        }
    )
