# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources of the small pods beside a job (probe, reader, launcher), within what the namespace's LimitRanges allow.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import decimal
import typing as t
from collections.abc import Iterator, Sequence

from ....module_utils._model.quantity import parse_quantity
from .spec import Object

# Of a pod that only looks: it waits most of the time.
LOOKER: t.Final[Object] = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


def fit(resources: Object, ranges: Sequence[Object]) -> Object:
    """Return resources with each amount raised, and each limit moved, to what ``ranges`` (LimitRange) insist on."""
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    for name in requests:
        requests[name] = max([requests[name], *_told(ranges, "min", name)], key=_number)
        if any(_told(ranges, "maxLimitRequestRatio", name)):
            limits[name] = requests[name]
        if name in limits:
            highest = min([limits[name], *_told(ranges, "max", name)], key=_number)
            limits[name] = max([highest, requests[name]], key=_number)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _told(ranges: Sequence[Object], rule: str, name: str) -> Iterator[str]:
    """Yield what each rule for containers or pods says of a resource; such a pod has one container."""
    for item in ranges:
        for entry in (item.get("spec") or {}).get("limits") or []:
            if entry.get("type") in ("Container", "Pod") and name in (entry.get(rule) or {}):
                yield str(entry[rule][name])


def _number(text: str) -> decimal.Decimal:
    return parse_quantity(text) or decimal.Decimal(0)
