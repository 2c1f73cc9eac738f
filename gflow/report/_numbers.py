"""Numbers as a reader wants them: as many digits as their error allows, a dash for those that there are not."""

from __future__ import annotations

import math
from typing import Any

DASH = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | int | None, digits: int = 6) -> str:
    """`value` to so many digits."""
    if value is None:
        return DASH
    if isinstance(value, int) and abs(value) < 10**9:
        return str(value)
    return _tidy(f"{float(value):.{digits}g}")


def with_error(value: float | int | None, error: float | int | None) -> str:
    """`value ± error`, the value to the place of the error's first digit."""
    if value is None or error is None or error == 0:
        return number(value)
    size = abs(float(error))
    if value == 0:
        return f"0 ± {_tidy(f'{size:.1g}')}"
    digits = math.floor(math.log10(abs(float(value)))) - math.floor(math.log10(size)) + 1
    digits = min(max(digits, 2), 12)
    return f"{_tidy(f'{float(value):#.{digits}g}')} ± {_tidy(f'{size:.1g}')}"


def interval(low: float | int | None, high: float | int | None) -> str:
    """From `low` to `high`; None is no bound."""
    if low is None and high is None:
        return DASH
    if low is None:
        return f"≤ {number(high, 8)}"
    if high is None:
        return f"≥ {number(low, 8)}"
    return f"{number(low, 8)} to {number(high, 8)}"


def anything(value: Any) -> str:
    """Any JSON value in a line."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {anything(entry)}" for key, entry in value.items()) or DASH
    if isinstance(value, list):
        return ", ".join(anything(entry) for entry in value) or DASH
    return str(value)


def seconds(value: float | int | None) -> str:
    """How long something took."""
    if value is None:
        return DASH
    if value < 120:
        return f"{_tidy(f'{float(value):.2g}') if value < 10 else f'{value:.0f}'} s"
    return f"{value / 60:.1f} min"


def power(value: float) -> str:
    """A positive number as a power of ten, or a multiple of one."""
    exponent = math.floor(math.log10(value) + 1e-9)
    mantissa = f"{value / 10.0**exponent:.3g}"
    return f"{'' if mantissa == '1' else mantissa + '×'}10{str(exponent).translate(_SUPERSCRIPT)}"


def scientific(text: str) -> str:
    """A number as printed by `%g`, its exponent as a power of ten and its sign a minus."""
    mantissa, e, exponent = text.replace("-", "−", 1 if text.startswith("-") else 0).partition("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPT)}" if e else mantissa


def _tidy(text: str) -> str:
    """`1e-06` as `1e-6`, `200.` as `200`."""
    mantissa, e, exponent = text.partition("e")
    mantissa = mantissa.removesuffix(".")
    return f"{mantissa}e{int(exponent)}" if e else mantissa
