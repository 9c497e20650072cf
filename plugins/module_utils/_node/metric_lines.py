# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics out of lines that a program prints, by the job's regular expressions (``job.metrics``).

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

# In the text of a metric that comes from a printed line.
MARK = '"printed":true'
# How programs print what is not a number.
_NOT_A_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_UNITS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
# A bar of tqdm before its first step: it is drawn at 0 also where a program resumes later.
_EMPTY_BAR = re.compile(r"<\?, *\?")
Patterns = t.Mapping[str, "re.Pattern[str]"]


def compile_patterns(given: t.Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a job as they search whole pieces of a log."""
    return {key: re.compile(pattern, re.MULTILINE) for key, pattern in given.items()}


@dataclasses.dataclass
class LineState:
    """What lines before say of the next: the last step, and the length of the bar that steps are taken of."""

    step: int | None = None
    total: int | None = None


def parse_lines(patterns: Patterns, text: str, at: float, state: LineState | None = None) -> list[dict[str, t.Any]]:
    """Return a metric for each line that a pattern matches, in order, with the time ``at`` in Unix seconds.

    A line with ``of_last`` has figures of a step that was printed before.

    :param patterns: by the key that the group ``step`` becomes; other groups keep their names.
    :param state: of the lines before these, changed in place.
    """
    state = LineState() if state is None else state
    found = [(*place, key) for key, pattern in patterns.items() for place in _find_matches(key, pattern, text)]
    found.sort(key=lambda item: item[0])
    lines = [_build_metric(key, match, at, state) for _place, match, key in found]
    return [line for line in lines if line is not None]


def _find_matches(key: str, pattern: re.Pattern[str], text: str) -> t.Iterator[tuple[int, re.Match[str]]]:
    """Search the piece as a whole: most output has no metric, and line by line takes longer."""
    place = 0
    while match := pattern.search(text, place):
        begin = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        # White space in a pattern matches the end of a line, too.
        found = match if match.end() <= end else pattern.search(text[begin:end].rstrip("\r"))
        if found and not (key == "step" and _EMPTY_BAR.search(text, begin, end)):
            yield begin, found
        place = end + 1


def _build_metric(key: str, found: re.Match[str], at: float, state: LineState) -> dict[str, t.Any] | None:
    numbers = {name: parse_number(value) for name, value in found.groupdict().items()}
    step, total, epoch = (numbers.pop(name, None) for name in ("step", "total", "epoch"))
    figures = {name: number for name, number in numbers.items() if number is not None}
    if _NOT_A_NUMBER.fullmatch((found.groupdict().get("loss") or "").strip()):
        figures["loss"] = math.nan
    if key == "step":
        return _build_step(step, total, epoch, at, figures, state)
    if "step" not in found.re.groupindex:
        step = state.step
    if step is None:
        return None
    if key == "figures":
        return {"at": at, **figures, "step": int(step), "of_last": True} if figures else None
    return {"at": at, key: int(step)}


def _build_step(
    step: float | None,
    total: float | None,
    epoch: float | None,
    at: float,
    figures: t.Mapping[str, float],
    state: LineState,
) -> dict[str, t.Any] | None:
    if step is None:
        return None
    if epoch is not None and total is not None:
        step += epoch * total
    elif total is not None:
        state.total = int(total) if state.total is None else state.total
        if int(total) != state.total:
            return None
    state.step = int(step)
    return {"at": at, **figures, "step": state.step}


def parse_number(text: str | None) -> float | None:
    """Return a finite number, with commas between thousands or a unit (``80.7k``, ``1.2M``); None for anything else."""
    plain = (text or "").strip().replace(",", "")
    unit = _UNITS.get(plain[-1:], 0.0)
    try:
        number = float(plain[:-1]) * unit if unit else float(plain)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
