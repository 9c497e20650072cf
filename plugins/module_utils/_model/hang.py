# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of a gang is waited for: the rule that names a hang, by what the nodes saw of ranks that stand. Pure.

A rank that stands outside of a collective while the others wait in one is waited for. Where all wait, those in another
operation than most are. While any rank works, such as one that saves or evaluates, there is no hang.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import stall
from .quantity import parse_finite

Line = t.Mapping[str, object]
_MOST_NAMED, _LONGEST = 4, 300
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INNERMOST = 4
_LIBRARIES = (
    ("waits for a process that it started", "/subprocess.py"),
    ("waits for a queue", "/queue.py"),
    ("waits for a thread or a lock", "/threading.py"),
)
# The states of /proc/PID/stat in which a process is stopped: by a signal, by a debugger.
STOPPED = ("T", "t")
# What the kernel function says in which a thread waits, and what the user calls that.
_WAITS = (
    (re.compile(r"futex"), "waits for a lock"),
    (re.compile(r"nanosleep"), "sleeps"),
    (re.compile(r"pipe|fifo|wait_for_partner"), "reads from a pipe"),
    (re.compile(r"do_wait|wait4|waitid"), "waits for a process that it started"),
    (re.compile(r"nfs|rpc_|fuse|folio|page|io_schedule"), "waits for a file system"),
    (re.compile(r"sk_wait|inet_|tcp_|poll|select"), "waits for the network"),
    (re.compile(r"tty"), "reads from a terminal"),
)


class Place(t.NamedTuple):
    """A line of a program; ``path`` as its interpreter knows it."""

    name: str
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path.rpartition('/')[2]}:{self.line} ({self.name})"

    @property
    def on_any_node(self) -> tuple[str, str, int]:
        """Return what tells it from other lines on all nodes: each may have the program in a folder of its own."""
        return self.name, self.path.rpartition("/")[2], self.line


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A rank that stands. ``since``: Unix seconds of its node; the other fields as of ``_node/rank_watch.py``."""

    rank: int
    node: str
    since: float
    operation: str | None = None
    place: Place | None = None
    state: str = "S"
    waits_in: str | None = None
    child: Place | None = None
    frames: tuple[Place, ...] = ()
    problem: str = ""

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for the others, as far as is seen."""
        return self.operation is not None and self.state not in (*STOPPED, "D")


@dataclasses.dataclass(frozen=True, slots=True)
class Hang:
    """Who is waited for, none where that is not seen, and in words what all ranks do. ``since``: Unix seconds.

    ``is_certain``: ranks wait in a collective for one that does not come to it. Else it may be a pause of all of them.
    """

    culprits: tuple[Standing, ...]
    since: float
    text: str
    is_certain: bool

    def describe(self, now: float) -> str:
        """Return ``hangs for 12 s: rank 5 on gpu-2 …; ranks 0-4, 6-7 wait in …``."""
        return f"hangs for {stall.format_span(max(0.0, now - self.since))}: {self.text}"

    def to_event(self) -> dict[str, t.Any]:
        """Return the fields of the event ``hang``: who is waited for, and where each of them stands."""
        ranks = [
            {"rank": item.rank, "node": item.node, **({"place": item.place._asdict()} if item.place else {})}
            for item in self.culprits
        ]
        return {"ranks": ranks, "since": self.since, "detail": self.text}


def read_standing(line: Line) -> Standing | None:
    """Return what an event ``rank_stands`` says, None where it does not hold together."""
    rank, since = line.get("rank"), parse_finite(line.get("since"))
    if not isinstance(rank, int) or since is None:
        return None
    frames = line.get("frames")
    places = [_read_place(item) for item in frames] if isinstance(frames, list) else []
    return Standing(
        rank,
        _plain(line.get("node")),
        since,
        _text(line.get("operation")),
        _read_place(line.get("place")),
        _plain(line.get("state") or "S"),
        _text(line.get("waits_in")),
        _read_place(line.get("child")),
        tuple(place for place in places if place is not None),
        _plain(line.get("problem") or ""),
    )


def _text(value: object) -> str | None:
    return _plain(value) if value else None


def _plain(value: object) -> str:
    """Return a name that a program chose, fit for one line."""
    return _CONTROLS.sub("?", str(value)[:_LONGEST])


def _read_place(value: object) -> Place | None:
    given = [value.get(name) for name in Place._fields] if isinstance(value, dict) else value
    if not isinstance(given, list) or len(given) != len(Place._fields) or not isinstance(given[2], int):
        return None
    return Place(_plain(given[0]), _plain(given[1]), given[2])


def name_hang(
    standing: t.Mapping[int, Standing],
    running: t.Collection[int],
    ended: t.Mapping[int, int] | None = None,
    missing: t.Sequence[int] = (),
) -> Hang | None:
    """Return who is waited for, None while any rank works that is not known to be stopped.

    :param standing: by rank. :param running: the ranks of the newest attempt that run. :param ended: exit codes of
        those of it that have ended. :param missing: those of it that have not started.
    """
    stand = {rank: item for rank, item in standing.items() if rank in running}
    waiting = [item for item in stand.values() if item.is_waiting]
    suspects = [item for item in stand.values() if not item.is_waiting]
    stopped = [item for item in suspects if item.state in STOPPED]
    if not stand or (set(running) - set(stand) and not stopped):
        return None
    if suspects:
        culprits = stopped or suspects
        others = [item for item in suspects if item not in culprits]
        return _build(culprits, [describe_rank(item) for item in culprits], [*waiting, *others])
    gone = [f"rank {rank} has ended with exit code {code}" for rank, code in sorted((ended or {}).items())]
    gone += [f"rank {rank} has not started" for rank in missing]
    return _build([], gone, waiting) if gone else _name_odd_operation(waiting)


def _name_odd_operation(waiting: t.Sequence[Standing]) -> Hang:
    groups = _group(waiting)
    largest = max(len(group) for group in groups)
    odd = [item for group in groups if len(group) < largest for item in group]
    if odd:
        return _build(odd, [f"{describe_rank(item)}, unlike the others" for item in odd], _without(waiting, odd))
    if len(groups) > 1:
        return dataclasses.replace(_build([], ["ranks wait in different operations"], waiting), is_certain=True)
    return _build([], ["no rank is seen that the others wait for"], waiting)


def _without(items: t.Sequence[Standing], other: t.Sequence[Standing]) -> list[Standing]:
    return [item for item in items if item not in other]


def _build(culprits: t.Sequence[Standing], said: t.Sequence[str], others: t.Sequence[Standing]) -> Hang:
    first, more = list(said[:_MOST_NAMED]), len(said) - _MOST_NAMED
    first += [f"{more} more ranks likewise"] if more > 0 else []
    since = max(item.since for item in (*culprits, *others))
    text = "; ".join([*first, *map(_describe_group, _group(others))])
    is_certain = any(item.state in STOPPED for item in culprits) or any(item.is_waiting for item in others)
    return Hang(tuple(culprits), since, text, bool(culprits) and is_certain)


def _group(items: t.Iterable[Standing]) -> list[list[Standing]]:
    """Return ranks that stand at the same place in groups, the largest first."""
    groups: dict[tuple[object, ...], list[Standing]] = {}
    for item in sorted(items, key=lambda one: one.rank):
        # Ranks that wait in a collective of one name by two lines of a program do not meet.
        groups.setdefault((item.operation, item.place and item.place.on_any_node), []).append(item)
    return sorted(groups.values(), key=len, reverse=True)


def describe_rank(item: Standing) -> str:
    """Return what a rank does and where: ``rank 5 on gpu-2 waits for its data loader at train.py:212 (main)``."""
    parts = [f"rank {item.rank} on {item.node} {_describe_wait(item)}"]
    if item.place is not None:
        parts.append(f"at {item.place}")
    elif item.problem:
        parts.append(f"(its stack cannot be read: {item.problem})")
    if item.child is not None:
        parts.append(f"and a process of it at {item.child}")
    return " ".join(parts)


def _describe_wait(item: Standing) -> str:
    """Return what a rank does, by its state, its frames and the kernel function that it waits in."""
    if item.state in STOPPED:
        return "is stopped by a signal" if item.state == "T" else "is stopped by a debugger"
    if item.operation is not None:
        return f"waits in {item.operation}"
    paths = [frame.path for frame in item.frames]
    if any("/torch/utils/data/" in path for path in paths):
        return "waits for its data loader"
    # In the standard library, the outermost of its frames says what the innermost is for.
    for words, file in _LIBRARIES:
        if any(path.endswith(file) for path in paths[:_INNERMOST]):
            return words
    if item.state == "R":
        return "computes and goes round in circles" if item.frames else "computes"
    found = next((words for pattern, words in _WAITS if pattern.search(item.waits_in or "")), None)
    if found is None and item.state == "D":
        return "waits for a disk or file system"
    return found or "stands"


def _describe_group(group: t.Sequence[Standing]) -> str:
    ranks = [item.rank for item in group]
    name = describe_ranks(ranks)
    first = group[0]
    does = _describe_wait(first)
    verb = does if len(ranks) == 1 else re.sub(r"^(wait|read|sleep|compute|stand)s\b", r"\1", does)
    return f"{name} {verb}{f' at {first.place}' if first.place else ''}"


def describe_ranks(ranks: t.Sequence[int]) -> str:
    """Return ``rank 3`` or ``ranks 0, 2-7``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_format_ranks(ranks)}"


def _format_ranks(ranks: t.Sequence[int]) -> str:
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
