# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the answer of NCCL's RAS to ``verbose status`` (NCCL 2.24 and later): missing, late and failed processes.

The text has a summary, then the sections Errors and Warnings. An entry begins in the first column: INCOMPLETE and DEAD
about processes of the job, ``#0-0 (hash) WORD`` about one communicator, TIMEOUT about RAS itself; what belongs to it is
indented (src/ras/client_support.cc; docs "RAS"). Nodes are addresses there. Pure: any text gives a value.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

RasEntryKind = t.Literal["incomplete", "dead", "error", "mismatch", "timeout"]
_ENTRY = re.compile(r"(?:#\S+ \(([0-9a-f]+)\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\s*$")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? (\S+)")
_RANK = re.compile(r"Rank (\d+)(?: (has .*?|reported .*?))? -- (?:GPU (\S+) managed by process (\d+) on node (\S+))?")
_MANY = re.compile(r"(\d+) ranks (have .*|reported .*)")
_COUNTS = re.compile(r"Communicator ranks have different (\w+ operation counts|status)")
_LAUNCHED = re.compile(r"(?:has|have) launched up to operation (\d+)")
_MAX_ENTRIES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class RasMember:
    """A process or rank that an entry names; ``node`` is an address, ``state`` how it differs from most ranks."""

    node: str | None = None
    pid: int | None = None
    rank: int | None = None
    state: str = ""

    def __str__(self) -> str:
        name = f"rank {self.rank}" if self.rank is not None else f"process {self.pid}"
        return f"{name}{f' on {self.node}' if self.node else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class RasEntry:
    """One entry. ``about`` is its first indented line, ``usual`` what most ranks do, ``members`` those that differ."""

    kind: RasEntryKind
    about: str = ""
    usual: str = ""
    members: tuple[RasMember, ...] = ()
    communicator: str | None = None

    @property
    def behind(self) -> tuple[RasMember, ...]:
        """Return the ranks that have launched fewer operations than most, else all that the entry names."""
        most = _operation_count(self.usual)
        if self.kind != "mismatch" or most is None:
            return self.members
        return tuple(item for item in self.members if (_operation_count(item.state) or 0) < most)


@dataclasses.dataclass(frozen=True, slots=True)
class RasStatus:
    """A parsed answer; ``version`` is NCCL's. ``recognised`` is false for a text that is not an answer of RAS."""

    recognised: bool
    version: str | None = None
    entries: tuple[RasEntry, ...] = ()


def parse_ras(text: str) -> RasStatus:
    """Return the answer of RAS as a value."""
    version = re.search(r"^NCCL version (\S+) compiled with CUDA", text, re.MULTILINE)
    entries: list[RasEntry] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match:
            kind = t.cast(RasEntryKind, match.group(2).lower())
            entries.append(RasEntry(kind, communicator=match.group(1)))
        elif line[:1].isspace() and line.strip() and entries:
            entries[-1] = _add_line(entries[-1], line.strip())
    recognised = version is not None or bool(entries) or "\nCommunicators..." in text
    return RasStatus(recognised, version.group(1) if version else None, tuple(entries[:_MAX_ENTRIES]))


def _add_line(entry: RasEntry, line: str) -> RasEntry:
    """Return an entry with one more of its lines."""
    member = _parse_member(line, entry)
    if member is not None:
        return dataclasses.replace(entry, members=(*entry.members, member)[:_MAX_ENTRIES])
    many = _MANY.match(line)
    if many:
        # The most frequent comes first; what follows in larger numbers belongs to the ranks listed after it.
        if not entry.usual:
            return dataclasses.replace(entry, usual=line)
        return dataclasses.replace(entry, about=f"{entry.about}; {line}" if entry.about else line)
    if not entry.about:
        return dataclasses.replace(entry, about=line)
    if _COUNTS.match(line):
        return dataclasses.replace(entry, about=f"{entry.about}; {line}")
    return entry


def _parse_member(line: str, entry: RasEntry) -> RasMember | None:
    process = _PROCESS.match(line)
    if process:
        return RasMember(process.group(2), int(process.group(1)))
    rank = _RANK.match(line)
    if not rank:
        return None
    pid = int(rank.group(4)) if rank.group(4) else None
    # Ranks in the same state are listed below the line that names it.
    shared = _MANY.match(entry.about.rpartition("; ")[2])
    state = rank.group(2) or (shared.group(2) if shared else "")
    return RasMember(rank.group(5), pid, int(rank.group(1)), state)


def _operation_count(text: str) -> int | None:
    match = _LAUNCHED.search(text)
    if match:
        return int(match.group(1))
    return 0 if "not launched any operations" in text else None
