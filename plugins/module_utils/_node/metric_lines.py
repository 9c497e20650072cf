# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics out of lines that a program prints, by the job's regular expressions (``job.metrics``).

Without any, the lines are read as those of a program that is known by what it prints (metric_presets.py).
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
# What launchers put before the lines of a rank: ``rank.py`` and torchrun, torch's own hook, mpirun.
_RANK = re.compile(r"\[(?:default|rank)([0-9]+)\]:|\[[^\[\]\s,]+,([0-9]+)\]<std(?:out|err)>:")
# What changes the colour of a terminal or moves its cursor.
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Before a program is known, so many characters of what it printed are kept, and read once it is.
_TAIL = 1 << 16
Patterns = t.Mapping[str, "re.Pattern[str]"]
Forms = t.Mapping[str, t.Mapping[str, str]]
# Lines with figures alone: those of the step before, and those of the step that the bar shows next.
_FIGURES = {"figures": "of_last", "figures_next": "of_next"}
# Above it a number of Python's is not the one that was printed.
_MOST_STEP: t.Final = 2**53
# The key of the pattern by which a program is known, beside those of its metrics.
SIGN = "sign"


def compile_patterns(given: t.Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Return the patterns of a job as they search whole pieces of a log."""
    return {key: re.compile(pattern, re.MULTILINE) for key, pattern in given.items()}


@dataclasses.dataclass
class LineState:
    """What lines before say of the next: the last step, the length of the bar that steps are taken of, the epoch."""

    step: int | None = None
    total: int | None = None
    epoch: float | None = None


States = dict["int | None", LineState]


class LineReader:
    """Reads what the processes of one node print, piece by piece.

    :param forms: patterns by the name of the preset that they are of. Those of the empty name are read as they are; of
        others, those are chosen whose sign is seen first, and each metric names them.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = {name: compile_patterns(patterns) for name, patterns in forms.items() if patterns}
        self._chosen = "" if "" in self._forms else None
        self._patterns: Patterns = self._forms.get("", {})
        self._states: States = {}
        self._tail: list[tuple[float, str]] = []

    def __bool__(self) -> bool:
        return bool(self._forms)

    @property
    def is_guessed(self) -> bool:
        """Return whether no patterns were given."""
        return bool(self._forms) and "" not in self._forms

    def stop(self) -> None:
        """Read no more."""
        self._forms, self._patterns, self._tail = {}, {}, []

    def read(self, text: str, at: float) -> list[dict[str, t.Any]]:
        """Return the metrics of whole lines that were printed at a time; a carriage return ends one, too."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if "\x1b" in text:
            text = _CONTROL.sub("", text)
        is_known = self._chosen is not None
        lines = parse_lines(self._patterns, text, at, self._states) if is_known else self._choose(text, at)
        return [{**line, "preset": self._chosen} for line in lines] if self._chosen else lines

    def _choose(self, text: str, at: float) -> list[dict[str, t.Any]]:
        """Find out which program prints; return the metrics of all that it printed so far, each with its own time."""
        searched = ((name, form[SIGN].search(text)) for name, form in self._forms.items())
        known = next(((name, sign) for name, sign in searched if sign), None)
        if known is None:
            self._tail.append((at, text))
            size = sum(len(piece) for _at, piece in self._tail)
            while self._tail and size > _TAIL:
                size -= len(self._tail.pop(0)[1])
            return []
        self._chosen, sign = known
        self._patterns = {key: form for key, form in self._forms[self._chosen].items() if key != SIGN}
        before, self._tail = self._tail, []
        # Bars of something else may have been drawn before: the one that goes with the sign counts.
        for piece in (*(piece for _at, piece in before), text[: sign.end()]):
            for place, match in _find_matches("step", self._patterns["step"], piece):
                total = parse_number(match.groupdict().get("total"))
                self._states[_read_rank(piece, place, match)] = LineState(total=None if total is None else int(total))
        pieces = [*before, (at, text)]
        return [line for when, piece in pieces for line in parse_lines(self._patterns, piece, when, self._states)]


def parse_lines(patterns: Patterns, text: str, at: float, states: States | None = None) -> list[dict[str, t.Any]]:
    """Return a metric for each line that a pattern matches, in order, with the time ``at`` in Unix seconds.

    A line with ``of_last`` has figures of a step that was printed before, with ``of_next`` those of the next one.
    ``rank`` is there where the line says it, and ``drawn`` where it is of a bar.

    :param patterns: by the key that the group ``step`` becomes; other groups keep theirs. That of ``epoch`` has
        the epoch alone, on a line of its own.
    :param states: of the lines before these, by rank, changed in place.
    """
    states = {} if states is None else states
    found = [(*place, key) for key, pattern in patterns.items() for place in _find_matches(key, pattern, text)]
    found.sort(key=lambda item: item[0])
    lines = []
    for place, match, key in found:
        rank = _read_rank(text, place, match)
        line = _build_metric(key, match, at, states.setdefault(rank, LineState()))
        if line is not None:
            lines.append(line if rank is None else {**line, "rank": rank})
    return lines


def _read_rank(text: str, place: int, match: re.Match[str]) -> int | None:
    """Return the rank that a line is of: by the group ``rank`` of its pattern, else by what its launcher wrote."""
    named = parse_number(match.groupdict().get("rank"))
    if named is not None:
        return int(named)
    prefix = _RANK.match(text, place)
    return int(prefix[1] or prefix[2]) if prefix else None


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
    groups = found.groupdict()
    is_drawn = groups.pop("bar", None) is not None
    numbers = {name: parse_number(value) for name, value in groups.items()}
    step, total, epoch, epoch1 = (numbers.pop(name, None) for name in ("step", "total", "epoch", "epoch1"))
    step = None if step is not None and step >= _MOST_STEP else step
    epoch = epoch if epoch1 is None else epoch1 - 1
    if key == "epoch":
        state.epoch = epoch
        return None
    numbers.pop("rank", None)
    figures = {name: number for name, number in numbers.items() if number is not None}
    if _NOT_A_NUMBER.fullmatch((groups.get("loss") or "").strip()):
        figures["loss"] = math.nan
    if key == "step":
        count = _count_step(step, total, epoch, state)
        line = None if count is None else {"at": at, **figures, "step": count}
        return {**line, "drawn": True} if line and is_drawn else line
    if "step" not in found.re.groupindex:
        step = state.step
    if step is None:
        return None
    if key in _FIGURES:
        return {"at": at, **figures, "step": int(step), _FIGURES[key]: True} if figures else None
    return {"at": at, key: int(step)}


def _count_step(step: float | None, total: float | None, epoch: float | None, state: LineState) -> int | None:
    """Return the step of the run, None where the line does not say it or its bar is of something else."""
    if step is None:
        return None
    if epoch is not None and total is not None:
        step += epoch * total
    elif total is not None:
        state.total = int(total) if state.total is None else state.total
        if int(total) != state.total:
            return None
        step += (state.epoch or 0.0) * total
    state.step = int(step)
    return state.step


def parse_number(text: str | None) -> float | None:
    """Return a finite number, with commas between thousands or a unit (``80.7k``, ``1.2M``); None for anything else."""
    plain = (text or "").strip().replace(",", "")
    unit = _UNITS.get(plain[-1:], 0.0)
    try:
        number = float(plain[:-1]) * unit if unit else float(plain)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
