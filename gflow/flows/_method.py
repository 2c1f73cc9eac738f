"""Solvers by name, and tolerances that the precision in hand can meet."""

from __future__ import annotations

import difflib
from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np

from gflow.errors import InputError
from gflow.flows._rodas import Rodas5P
from gflow.flows._segment import Method

EXPLICIT = {"tsit5": diffrax.Tsit5, "dopri5": diffrax.Dopri5, "dopri8": diffrax.Dopri8}
IMPLICIT = {
    "rodas5p": Rodas5P,
    "kvaerno3": diffrax.Kvaerno3,
    "kvaerno5": diffrax.Kvaerno5,
}
DEFAULT_RTOL = {"float64": 3e-9, "float32": 1e-5}


def resolve_rtol(rtol: float | None, dtype: Any) -> float:
    """The relative tolerance to use at this precision; raises `InputError` when it is out of reach."""
    name = np.dtype(dtype).name
    if rtol is None:
        return DEFAULT_RTOL.get(name, 1e-3)
    floor = 50 * float(jnp.finfo(dtype).eps)
    if not np.isfinite(rtol) or not floor <= rtol <= 0.1:
        raise InputError(f"rtol={rtol:g} is outside [{floor:.1e}, 0.1], what {name} can resolve; the default is fine")
    return float(rtol)


def make_method(solver: str | diffrax.AbstractSolver, rtol: Any, s_end: Any, quiet: Any, stop: Any) -> Method:
    """The stepping method of that name ("auto" starts explicit) or around a diffrax solver instance."""
    s_end = jnp.asarray(s_end)
    tolerance = jnp.asarray(rtol, s_end.dtype)
    # PI control: plain error control makes an explicit solver at its stability limit reject every other step
    controller = diffrax.PIDController(rtol=tolerance, atol=tolerance, pcoeff=0.2, icoeff=0.5)
    return Method(_solver(solver, tolerance), controller, s_end, jnp.asarray(quiet, s_end.dtype), jnp.asarray(stop))


def _solver(solver: str | diffrax.AbstractSolver, tolerance: Any) -> diffrax.AbstractSolver:
    if isinstance(solver, diffrax.AbstractSolver):
        if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
            raise InputError(f"solver={type(solver).__name__}: it has no error estimate; use an adaptive solver")
        return solver
    name = "dopri8" if solver == "auto" else solver
    if name in EXPLICIT:
        return EXPLICIT[name](scan_kind="lax")
    if name == "rodas5p":
        return Rodas5P()
    if name in IMPLICIT:
        newton = diffrax.VeryChord(rtol=tolerance, atol=tolerance)
        return IMPLICIT[name](scan_kind="lax", root_finder=newton)
    known = ["auto", *EXPLICIT, *IMPLICIT]
    near = difflib.get_close_matches(str(solver), known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"solver={solver!r} is not known; {hint}choose from {', '.join(known)}")


def is_explicit(solver: diffrax.AbstractSolver) -> bool:
    """Whether the solver is an explicit Runge-Kutta method, and so can be limited by stability."""
    return isinstance(solver, diffrax.AbstractERK)


def stability_limit(solver: diffrax.AbstractSolver) -> float:
    """h * |eigenvalue| from which steps of an explicit solver are taken to be limited by stability.

    Three quarters of the length of its stability region on the negative real axis: about 3.3 for the fifth order
    methods, about 6 for Dopri8.
    """
    return 4.5 if isinstance(solver, diffrax.Dopri8) else 2.5
