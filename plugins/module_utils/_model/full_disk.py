# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run ends because a disk stays full. Pure rules on what its programs print and how its attempts end.

A restart frees nothing: where two attempts in a row end for want of space and the later one came no further, the next
one ends so, too. A program that removes what is old when it begins comes further, and continues.
"""

from __future__ import annotations

import re
import typing as t

from .run_attempt import Attempt

KIND: t.Final = "no_space"
# ENOSPC and EDQUOT as Python, the C library and shells name them in an error.
_SAID: t.Final = re.compile(r"No space left on device|Disk quota exceeded|\b(?:ENOSPC|EDQUOT)\b")
_ERROR: t.Final = re.compile(r"[Ee]rror|Exception|cannot |failed")
_PLACE: t.Final = re.compile(r"""['"](/[^'"]{1,300})['"]""")


class NoSpace(t.NamedTuple):
    """What a node printed of a disk without space; ``place`` is the path, empty where it names none."""

    node: str
    place: str

    def describe(self) -> str:
        """Return ``no space left on gpu-1 for /data/c-7.pt``."""
        return f"no space left on {self.node}{f' for {self.place}' if self.place else ''}"


def find_no_space(node: str, text: str) -> NoSpace | None:
    """Return what a text of a node's log says of a disk without space, None where it says nothing of one."""
    for line in text.splitlines() if _SAID.search(text) else ():
        if _SAID.search(line) and _ERROR.search(line):
            place = _PLACE.search(line)
            return NoSpace(node, place[1] if place else "")
    return None


class FullDisks:
    """By attempt the first disk that had no space, by the events of a run."""

    def __init__(self) -> None:
        self._seen: dict[int, NoSpace] = {}

    def event(self, line: t.Mapping[str, t.Any]) -> None:
        """Take in one line of events.jsonl."""
        if line.get("kind") == KIND and isinstance(number := line.get("attempt"), int):
            self._seen.setdefault(number, NoSpace(str(line.get("node")), str(line.get("detail") or "")))

    def knows(self, number: int) -> bool:
        """Return whether a full disk of this attempt is known."""
        return number in self._seen

    def find_end(self, attempts: t.Sequence[Attempt]) -> tuple[NoSpace, str] | None:
        """Return the disk that ends the run, and why in words; None where it may go on."""
        for before, last in zip(attempts, attempts[1:], strict=False):
            first, again = self._seen.get(before.n), self._seen.get(last.n)
            crashed = before.cause == last.cause == "crash" and not before.continued
            if first is None or again is None or not crashed or _is_further(before, last):
                continue
            where = "before its first step" if last.last_step is None else f"at step {last.last_step}"
            return again, (
                f"{again.describe()}, in attempt {last.n} {where} as in attempt {before.n} before it: "
                "no restart frees any"
            )
        return None


def _is_further(before: Attempt, last: Attempt) -> bool:
    """Return whether an attempt made a step or saved a checkpoint that the one before it did not."""
    steps = [-1 if item.last_step is None else item.last_step for item in (before, last)]
    saved = [-1 if item.saved_steps is None else item.saved_steps[1] for item in (before, last)]
    return steps[1] > steps[0] or saved[1] > saved[0]
