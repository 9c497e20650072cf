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

# In the text of a metric that comes from a printed line.
MARK = '"printed":true'
# How programs print what is not a number.
_NOT_A_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
Patterns = t.Mapping[str, "re.Pattern[str]"]


def compile_patterns(given: t.Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a job as they search whole pieces of a log."""
    return {key: re.compile(pattern, re.MULTILINE) for key, pattern in given.items()}


def parse_lines(patterns: Patterns, text: str, at: float) -> list[dict[str, t.Any]]:
    """Return a metric for each line that a pattern matches, in order, with the time ``at`` in Unix seconds.

    :param patterns: by the key that the group ``step`` becomes; other groups keep their names.
    """
    found = [
        (place, line) for key, pattern in patterns.items() for place, line in _find_metrics(key, pattern, text, at)
    ]
    return [line for _place, line in sorted(found, key=lambda item: item[0])]


def _find_metrics(key: str, pattern: re.Pattern[str], text: str, at: float) -> t.Iterator[tuple[int, dict[str, t.Any]]]:
    """Search the piece as a whole: most output has no metric, and line by line takes longer."""
    place = 0
    while match := pattern.search(text, place):
        begin = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        # White space in a pattern matches the end of a line, too.
        found = match if match.end() <= end else pattern.search(text[begin:end].rstrip("\r"))
        line = _build_metric(key, found, at) if found else None
        if line is not None:
            yield begin, line
        place = end + 1


def _build_metric(key: str, found: re.Match[str], at: float) -> dict[str, t.Any] | None:
    numbers = {name: parse_number(value) for name, value in found.groupdict().items()}
    step = numbers.pop("step", None)
    if step is None:
        return None
    figures = {name: number for name, number in numbers.items() if number is not None}
    if _NOT_A_NUMBER.fullmatch((found.groupdict().get("loss") or "").strip()):
        figures["loss"] = math.nan
    return {"at": at, **(figures if key == "step" else {}), key: int(step)}


def parse_number(text: str | None) -> float | None:
    """Return a finite number, with or without commas between thousands; None for anything else."""
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
