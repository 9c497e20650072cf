# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run ends because a disk stays full. Pure rules on what its programs print and how its attempts end.

The controller that follows a run judges by them what all nodes say, and a node by itself what it has
(``host_full_disk.py``), as a run that is not followed would use up its restarts.

A restart frees nothing: where two attempts in a row end for want of space and the later one came no further, the next
one ends so, too. A program that removes what is old when it begins comes further, and continues.
"""

from __future__ import annotations

import re
import typing as t

KIND: t.Final = "no_space"
# ENOSPC and EDQUOT as Python, the C library and shells name them in an error.
_SAID: t.Final = re.compile(r"No space left on device|Disk quota exceeded|\b(?:ENOSPC|EDQUOT)\b")
# What torch says of a checkpoint that it could not write: not why.
_UNWRITTEN: t.Final = re.compile(r"PytorchStreamWriter failed|inline_container\.cc[^\n]{1,40}(?:unexpected pos|write)")
# Of a node's own event that its next checkpoint does not fit (``_node/checkpoint_room.py``).
_ROOM: t.Final = "checkpoint_room"
_ERROR: t.Final = re.compile(r"[Ee]rror|Exception|cannot |failed")
_PLACE: t.Final = re.compile(r"""['"](/[^'"]{1,300})['"]""")


class Failure(t.Protocol):
    """How a rank ended that failed."""

    @property
    def exit_code(self) -> int: ...


class Ended(t.Protocol):
    """What is known of an attempt (``_model/run_attempt.py``)."""

    @property
    def n(self) -> int: ...
    @property
    def first_step(self) -> int | None: ...
    @property
    def last_step(self) -> int | None: ...
    @property
    def saved_steps(self) -> tuple[int, int] | None: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def first_failure(self) -> Failure | None: ...


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


class FoundFull(t.NamedTuple):
    """That a rank of an attempt found no space."""

    attempt: int
    found: NoSpace

    def to_event(self) -> dict[str, t.Any]:
        """Return the event that keeps it."""
        return {"kind": KIND, "attempt": self.attempt, "node": self.found.node, "detail": self.found.place}

    def warn(self) -> str:
        """Return the warning of it."""
        return f"warning: attempt {self.attempt}: {self.found.describe()}. Free space there while the run continues"


class FullEnd(t.NamedTuple):
    """The end of a run by a disk that stayed full."""

    node: str
    exit_code: int
    detail: str


class FullDisks:
    """By attempt the first disk that had no space, by the events of a run."""

    def __init__(self) -> None:
        self._seen: dict[int, NoSpace] = {}
        # By node the folder in which the next checkpoint does not fit.
        self._unfit: dict[str, str] = {}

    def event(self, line: t.Mapping[str, t.Any]) -> None:
        """Take in one line of events.jsonl."""
        if line.get("kind") == _ROOM:
            node, folder = str(line.get("node")), str(line.get("folder") or "")
            self._unfit = {name: place for name, place in self._unfit.items() if name != node}
            self._unfit |= {} if line.get("fits") else {node: folder}
        if line.get("kind") == KIND and isinstance(number := line.get("attempt"), int):
            self._seen.setdefault(number, NoSpace(str(line.get("node")), str(line.get("detail") or "")))

    def take_text(self, node: str, text: str, attempts: t.Sequence[Ended]) -> FoundFull | None:
        """Take in text of a node's log; return what it says first of a full disk in an attempt, else None.

        The last lines of an attempt are read together with the start of the next one, which has made no step then.
        """
        found = (find_no_space(node, text) or self._find_unwritten(node, text)) if attempts else None
        ended = [item for item in attempts[-2:-1] if item.cause == "crash" and item.n not in self._seen]
        about = ended[0] if ended and attempts[-1].first_step is None else attempts[-1] if attempts else None
        if found is None or about is None or about.n in self._seen:
            return None
        self._seen[about.n] = found
        return FoundFull(about.n, found)

    def _find_unwritten(self, node: str, text: str) -> NoSpace | None:
        """Return that torch could not write a checkpoint on a node on which none fits any more."""
        is_full = node in self._unfit and _UNWRITTEN.search(text) is not None
        return NoSpace(node, self._unfit[node]) if is_full else None

    def find_end(self, attempts: t.Sequence[Ended]) -> FullEnd | None:
        """Return the end of the run by its disk, None where it may continue.

        :param attempts: of this start: a person who starts a run again after its end may have freed space.
        """
        for before, last in zip(attempts, attempts[1:], strict=False):
            first, again = self._seen.get(before.n), self._seen.get(last.n)
            crashed = before.cause == last.cause == "crash"
            if first is None or again is None or not crashed or _is_further(before, last):
                continue
            code = last.first_failure.exit_code if last.first_failure else 1
            # Without one it may be that none was made, or that none could be read.
            where = "" if last.last_step is None else f" at step {last.last_step}"
            what = f"{again.describe()}, in attempt {last.n}{where} as in attempt {before.n} before it"
            return FullEnd(again.node, code, f"{what}: no restart frees any")
        return None


def _is_further(before: Ended, last: Ended) -> bool:
    """Return whether an attempt made a step or saved a checkpoint that the one before it did not."""
    steps = [-1 if item.last_step is None else item.last_step for item in (before, last)]
    saved = [-1 if item.saved_steps is None else item.saved_steps[1] for item in (before, last)]
    return steps[1] > steps[0] or saved[1] > saved[0]
