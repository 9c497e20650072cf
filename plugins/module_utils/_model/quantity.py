# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers with a unit as the Kubernetes API writes and reads them (apimachinery's resource.Quantity).

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import decimal
import re
import typing as t

_FORM: t.Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|([eE][+-]?[0-9]{1,3}))?\Z")
_UNITS: t.Final = {
    **{f"{unit}i": decimal.Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: decimal.Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{unit: decimal.Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
}


def parse_quantity(text: str) -> decimal.Decimal | None:
    """Return the number that a quantity such as ``8Gi`` (8 · 2^30), ``500m`` or ``1e3`` stands for, None for none."""
    found = _FORM.match(text)
    if found is None:
        return None
    number = decimal.Decimal(found.group(1) + (found.group(3) or ""))
    return number * _UNITS[found.group(2)] if found.group(2) else number
