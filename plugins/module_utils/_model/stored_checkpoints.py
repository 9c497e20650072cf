# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoints of a run are stored in its object store, and which are not, by the events of its nodes."""

from __future__ import annotations

import re
import typing as t

Line = t.Mapping[str, object]
_NUMBERS = re.compile("[0-9]+")
# What gives a checkpoint its step that has none in its name.
_UNREPORTED_FIX: t.Final = (
    "Set job.metrics.preset or job.metrics.checkpoint_pattern, or write checkpoint_step to MUSTER_METRICS_FILE"
)


class StoredCheckpoint(t.NamedTuple):
    """A checkpoint in the bucket; ``step`` is None where the program did not report it."""

    at: float
    step: int | None
    name: str


class StoreProblem(t.NamedTuple):
    """Why a node stores nothing, since when. ``is_missing``: it found nothing to store."""

    since: float
    step: int | None
    detail: str
    is_missing: bool = False


class LeftFiles:
    """Folds what nodes have in their checkpoint folders at the end: nothing, or a checkpoint that was not reported.

    :ivar pruned_at: when logs and metrics were removed from the controller last, None where they were not.
    """

    def __init__(self) -> None:
        self.pruned_at: float | None = None
        self._empty: dict[str, tuple[float, str]] = {}
        self._unreported: tuple[str, str, object] | None = None
        self._half_saved: tuple[float, str] | None = None

    def take(self, line: Line, at: float) -> None:
        """Take in an event ``no_checkpoint``, ``checkpoint_unreported``, ``checkpoint_half_saved`` or ``pruned``."""
        if line.get("kind") == "pruned":
            self.pruned_at = at
            return
        node, folder = str(line.get("node")), str(line.get("folder"))
        if line.get("kind") == "no_checkpoint":
            self._empty[node] = at, folder
        elif line.get("kind") == "checkpoint_half_saved":
            self._half_saved = at, f"{folder}: checkpoint {line.get('detail')} (on {node})"
        else:
            self._unreported = node, f"{folder}/{line.get('name')}", line.get("step")

    @property
    def empty_nodes(self) -> set[str]:
        """Return the nodes that have said that there is none."""
        return set(self._empty)

    def find_empty(self, nodes: t.Iterable[str], since: float) -> str:
        """Return a folder of these nodes where all have said since a time that theirs are empty, else nothing."""
        found = [self._empty.get(node, (0.0, "")) for node in {*nodes}]
        return found[0][1] if found and all(at >= since for at, _folder in found) else ""

    def describe_left(self, reported: object, reported_at: float | None) -> str:
        """Return which checkpoint there is that is half saved or that no report is of, and what to do; else nothing.

        :param reported: the newest checkpoint of a known step that the run has saved, None without one.
        :param reported_at: when the run reported a checkpoint last.
        """
        if self._half_saved is not None and self._half_saved[0] > (reported_at or 0.0):
            fix = "A program that loads it fails: put a whole one in its place, or delete it to begin anew"
            return f"{self._half_saved[1]}, and no whole one is there. {fix}"
        if self._unreported is None or reported is not None:
            return ""
        node, path, step = self._unreported
        if isinstance(step, int):
            return f"{path} on {node} is the newest checkpoint, of step {step}: this run has saved none"
        unknown = "is a checkpoint of a step that is not known: the program reports none"
        return f"{path} on {node} {unknown}. {_UNREPORTED_FIX}"


class StoredCheckpoints:
    """Folds the events of nodes that store checkpoints."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredCheckpoint] = {}
        # By name, as the nodes know them whose ranks report.
        self._steps: dict[str, int] = {}
        self._problems: dict[str, StoreProblem] = {}

    def take(self, line: Line, at: float) -> None:
        """Take in the event that a checkpoint was stored, or that it was not."""
        rank, value = line.get("rank"), line.get("checkpoint_step")
        # Another pod of the rank may be on another node.
        node = f"rank {rank}" if isinstance(rank, int) else str(line.get("node"))
        step, detail = value if isinstance(value, int) else None, str(line.get("detail") or "")
        if line.get("kind") == "checkpoint_stored":
            self._stored[node] = StoredCheckpoint(at, step, detail)
            if step is not None:
                self._steps[detail] = step
            self._problems.pop(node, None)
            return
        before = self._problems.get(node)
        since = before.since if before else at
        self._problems[node] = StoreProblem(since, step, detail.rstrip("."), line.get("missing") is True)

    def newest(self, nodes: t.Collection[str]) -> StoredCheckpoint | None:
        """Return the newest checkpoint that all of these nodes have stored that store any; else the newest of any."""
        own = [
            item._replace(step=self._step_of(item))
            for node, item in self._stored.items()
            if node in nodes or node.startswith("rank ")
        ]
        if own:
            return min(own, key=lambda item: (item.step is None, item.step or 0))
        return max(self._stored.values(), default=None)

    def _step_of(self, item: StoredCheckpoint) -> int | None:
        """Return the step of a checkpoint, by one of the same name, or of one that has other numbers, if need be."""
        if item.step is not None or item.name in self._steps:
            return self._steps.get(item.name, item.step)
        for name, step in reversed(self._steps.items()):
            pairs = zip(_NUMBERS.findall(name), _NUMBERS.findall(item.name), strict=False)
            found = next((int(own) for number, own in pairs if int(number) == step), None)
            if found is not None and _NUMBERS.sub("#", name) == _NUMBERS.sub("#", item.name):
                return found
        return None

    def problem(self) -> StoreProblem | None:
        """Return the first problem that is not over, None where all is stored that nodes have found."""
        stored = max((item.step or 0 for item in self._stored.values()), default=-1)
        # Each rank may print what the first one saves.
        left = [item for item in self._problems.values() if not (item.is_missing and stored >= (item.step or 0))]
        return min(left, default=None)


def describe_unstored(
    binding: str,
    step: int | None,
    stored: StoredCheckpoint | None,
    problem: StoreProblem | None,
    *,
    estimated: bool = False,
) -> str:
    """Return that the newest checkpoint of a run is not in its store, empty where it is, or where none was saved.

    :param step: of the newest checkpoint that the program reported, None without a report.
    :param estimated: whether the program did not report it, so that it is the one of the newest step then.
    """
    is_behind = step is not None and (stored is None or (stored.step is not None and stored.step < step))
    if not is_behind and problem is None:
        return ""
    have = "none of the run is" if stored is None else f"the newest that is has {_name(stored)}"
    about = "about " if estimated else ""
    what = (
        f"checkpoint {about}{step} is not stored in {binding}"
        if is_behind
        else f"checkpoints are not stored in {binding}"
    )
    return f"{what}, {have}" + (f" ({problem.detail})" if problem else "")


def _name(stored: StoredCheckpoint) -> str:
    return f"step {stored.step}" if stored.step is not None else f"the name {stored.name}"
