# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics out of lines that a program prints, by the job's regular expressions (``job.metrics``).

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import math
import re
import typing as t

Patterns = t.Mapping[str, "re.Pattern[str]"]


def parse_lines(patterns: Patterns, text: str, at: float) -> t.Iterator[dict[str, t.Any]]:
    """Yield a metric for each line that a pattern matches, with the time ``at`` in Unix seconds.

    :param patterns: by the key that the group ``step`` becomes; other groups keep their names.
    """
    for raw in text.splitlines():
        for key, pattern in patterns.items():
            found = pattern.search(raw)
            line = _build_metric(key, found, at) if found else None
            if line is not None:
                yield line


def _build_metric(key: str, found: re.Match[str], at: float) -> dict[str, t.Any] | None:
    numbers = {name: parse_number(value) for name, value in found.groupdict().items()}
    step = numbers.pop("step", None)
    if step is None:
        return None
    figures = {name: number for name, number in numbers.items() if number is not None}
    return {"at": at, **(figures if key == "step" else {}), key: int(step)}


def parse_number(text: str | None) -> float | None:
    """Return a finite number, with or without commas between thousands; None for anything else."""
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
