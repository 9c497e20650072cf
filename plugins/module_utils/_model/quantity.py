# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as programs and people write them: finite numbers, and the quantities of the Kubernetes API (``8Gi``)."""

from __future__ import annotations

import decimal
import math
import re
import typing as t

_FORM: t.Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|([eE][+-]?[0-9]{1,3}))?\Z")
_UNITS: t.Final = {
    **{f"{unit}i": decimal.Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: decimal.Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{unit: decimal.Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
}


def parse_finite(value: object, *, minimum: float | None = None, below: float = math.inf) -> float | None:
    """Return a finite number of at least ``minimum`` and less than ``below``, also from ``"1.5"``.

    None for anything else: a program may write anything into its output. A boolean is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < below and (minimum is None or number >= minimum) else None


def parse_quantity(text: str) -> decimal.Decimal | None:
    """Return the number that a quantity such as ``8Gi`` (8 · 2^30), ``500m`` or ``1e3`` stands for, else None."""
    match = _FORM.match(text)
    if match is None:
        return None
    number = decimal.Decimal(match.group(1) + (match.group(3) or ""))
    return number * _UNITS[match.group(2)] if match.group(2) else number
