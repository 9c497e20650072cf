# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fits the resources of the small pods beside a job (network test, log reader, launcher) into LimitRanges."""

from __future__ import annotations

import decimal
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import KubeObject

# Requests and limits, each by resource.
Resources = Mapping[str, Mapping[str, str]]
# Resources of a pod that waits most of the time.
SMALL_POD: t.Final[Resources] = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


def apply_limits(resources: Resources, ranges: Sequence[KubeObject]) -> Resources:
    """Return resources with each request raised, and each limit moved, to what ``ranges`` (LimitRange) require."""
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    for name in requests:
        requests[name] = max([requests[name], *_rule_values(ranges, "min", name)], key=_parse_number)
        if any(_rule_values(ranges, "maxLimitRequestRatio", name)):
            limits[name] = requests[name]
        if name in limits:
            highest = min([limits[name], *_rule_values(ranges, "max", name)], key=_parse_number)
            limits[name] = max([highest, requests[name]], key=_parse_number)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _rule_values(ranges: Sequence[KubeObject], rule: str, name: str) -> Iterator[str]:
    """Yield the values of a rule for containers or pods; such a pod has one container."""
    for item in ranges:
        for entry in (item.get("spec") or {}).get("limits") or []:
            if entry.get("type") in ("Container", "Pod") and name in (entry.get(rule) or {}):
                yield str(entry[rule][name])


def _parse_number(text: str) -> decimal.Decimal:
    return parse_quantity(text) or decimal.Decimal(0)
