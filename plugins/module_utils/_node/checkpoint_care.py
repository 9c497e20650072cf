# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit does with the checkpoints of its program: new ones are stored elsewhere, old ones removed."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import time
import typing as t

from . import (
    checkpoint_found,
    checkpoint_layouts,
    checkpoint_reports,
    checkpoint_room,
    checkpoint_trackers,
    checkpoints,
    files,
)
from .checkpoint_table import LAYOUTS

if t.TYPE_CHECKING:
    from . import checkpoint_sync

_LEFT_FIX: t.Final = "it does not count, and a program that loads it fails. Delete it, or have the program load another"


def pass_over(folder: pathlib.Path, rules: t.Mapping[str, t.Any], *, first: bool) -> list[str]:
    """Hide half-saved checkpoints that the program would take for its newest; return what is to be said of each.

    What names the newest one, as ``latest`` does, may name one that is not there.

    Other nodes may have parts of their own, without the file that is written last.
    """
    if not first or rules.get("format") == "files" or rules.get("resume") == "never":
        return []
    half = [*checkpoint_layouts.hide_half_saved(folder), *_hide_torn_files(folder)]
    hidden = [f"checkpoint {told}; it is passed over" for told in half]
    hidden += [f"warning: checkpoint {told}: {_LEFT_FIX}" for told in _list_half_folders(folder)]
    problem = checkpoint_layouts.find_tracker_problem(folder) if folder.is_dir() else ""
    fix = "the program may refuse that or begin anew. Write the name of a whole checkpoint into it, or delete it"
    return [*hidden, *([f"warning: {problem}: {fix}"] if problem else [])]


def _list_half_folders(folder: pathlib.Path) -> list[str]:
    """Return what half-saved folders lack that are newer than the newest whole one, and without a tracker.

    They stay: not every program takes the newest of its folders by its name.
    """
    newer = itertools.takewhile(lambda one: one.problem, checkpoints.list_saved(folder, "auto"))
    halves = [one for one in newer if (folder / one.name).is_dir() and not checkpoint_trackers.is_unnamed(one)]
    return [f"{one.name} {one.problem}" for one in halves if not getattr(LAYOUTS.get(one.layout), "tracker", "")]


def _hide_torn_files(folder: pathlib.Path) -> list[str]:
    """Rename files of no known layout that lack their end, where an older whole one of their kind is beside them.

    A program takes the newest one by its name, and would fail at it again and again. Where there is no other, it would
    begin anew: that is for its user to decide. One that a tracker does not name yet is left: the
    program takes the other.
    """
    told = []
    saved = checkpoints.list_saved(folder, "auto")
    for number, one in enumerate(saved):
        place = folder / one.name
        older = [other for other in saved[number + 1 :] if not other.problem]
        torn = one.problem and not checkpoint_trackers.is_unnamed(one)
        if torn and place.is_file() and any(place.suffix == pathlib.Path(other.name).suffix for other in older):
            with contextlib.suppress(OSError):
                place.rename(place.with_name(f".{place.name}.half-saved"))
                told.append(f"{one.name} {one.problem}")
    return told


class CheckpointCare:
    """The threads beside a program, as the job's rules ask for them; they start with its first process."""

    def __init__(self, rules: t.Mapping[str, t.Any], run: pathlib.Path, node: str) -> None:
        self._rules, self._run, self._node = rules, run, node
        self._sync: checkpoint_sync.CheckpointSync | None = None
        self._pruning: checkpoints.PruningThread | None = None
        self._looking: checkpoint_found.LookingThread | None = None

    def start(self) -> None:
        """Begin, unless this has begun before."""
        if not self._rules:
            return
        if self._looking is None:
            self._looking = self._start_looking()
        if self._sync is None and self._rules.get("store"):
            # Only now: every supervisor would wait for the client of object stores.
            from . import checkpoint_sync

            self._sync = checkpoint_sync.start_sync(self._rules, self._run, self._node)
        if self._pruning is None:
            folder, first = self._rules["folder"], self._rules["first"]
            self._pruning = checkpoints.start_pruning(
                folder, self._rules, self._run, self._node, first=first, held=self._name_in_transfer
            )

    def _start_looking(self) -> checkpoint_found.LookingThread | None:
        """Start to look every few seconds at what is there. Of nodes that share a folder the first one does."""
        watchers: list[checkpoint_found.Look] = []
        form, first = self._rules.get("format"), self._rules.get("first")
        folder = pathlib.Path(self._rules["folder"]).expanduser()
        if first and form not in (None, "files"):
            watchers.append(checkpoint_found.FoundCheckpoints(folder, form, self._run).step)
        if form and (first or not self._rules.get("shared")):
            watchers.append(checkpoint_room.RoomWatch(folder, self._rules, self._run, self._node).step)
            if not self._rules.get("apart") and not self._rules.get("store"):
                # Elsewhere there are copies on other nodes, or in a bucket.
                watchers.append(checkpoint_room.InPlaceWatch(folder, self._run, self._node).step)
            watchers.append(checkpoint_reports.MissingWatch(folder, str(form), self._run, self._node).step)
        told: set[str] = set()
        events, effect = self._run / "events.jsonl", f"checkpoints in {folder} are not fully looked at"

        def note(exc: Exception) -> None:
            checkpoints.note_failure(events, self._node, effect, exc, told)

        return checkpoint_found.LookingThread(folder, str(form), watchers, note) if watchers else None

    def close(self, within_s: float | None, beat: t.Callable[[], None]) -> None:
        """Store the last checkpoint, then remove old ones a last time.

        :param within_s: how long storing may take, None for as long as the store takes bytes.
        :param beat: called every second meanwhile.
        """
        if self._looking is not None:
            # What it finds is stored and counted below.
            self._looking.close()
        end = None if within_s is None else time.monotonic() + within_s
        while self._sync is not None and not self._sync.close(1.0):
            beat()
            if end is not None and time.monotonic() > end:
                break
        if self._pruning is not None:
            self._pruning.close()
        if "format" in self._rules:
            self._note_missing()

    def _note_missing(self) -> None:
        """Tell of a reported checkpoint that is not there, that nothing is, of a half-saved or a not reported one.

        A pod does not see what is printed.
        """
        folder, form = pathlib.Path(self._rules["folder"]).expanduser(), self._rules["format"]
        told: dict[str, t.Any] | None = checkpoint_reports.find_missing(self._run / "metrics.jsonl", folder, form)
        if told:
            told = {"kind": "checkpoint_missing", **told}
        elif not any(folder.glob("[!.]*")):
            told = {"kind": "no_checkpoint", "folder": str(folder)}
        elif self._rules.get("first") and (half := checkpoints.describe_only_half_saved(folder, form)):
            # Other nodes may have parts of their own, without the file that is written last.
            told = {"kind": "checkpoint_half_saved", "folder": str(folder), "detail": half}
        elif saved := checkpoint_reports.find_unreported(self._run / "metrics.jsonl", folder, form):
            told = {"kind": "checkpoint_unreported", "folder": str(folder), "name": saved.name, "step": saved.step}
        if told:
            with contextlib.suppress(OSError):
                files.append_json(self._run / "events.jsonl", {"at": time.time(), "node": self._node, **told})

    def _name_in_transfer(self) -> str | None:
        return self._sync.holds if self._sync else None
