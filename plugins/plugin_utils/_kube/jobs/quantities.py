# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats quantities of Kubernetes, always the same way, so that an unchanged job gives unchanged objects."""

from __future__ import annotations

import math

_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def format_bytes(amount: int) -> str:
    """Return bytes as a quantity: in the largest unit that divides them, else as a plain number."""
    for unit, factor in _UNITS:
        if amount >= factor and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return str(amount)


def format_cores(amount: float) -> str:
    """Return processor cores as a quantity, to the thousandth, rounded up."""
    thousandths = math.ceil(round(amount * 1000, 6))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"
