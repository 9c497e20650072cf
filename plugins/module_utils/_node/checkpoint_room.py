# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warns of a disk that soon has no room for another checkpoint, by the size of the newest one, while the program runs.

A full disk often ends a run in the middle of a save; what was free and what a checkpoint takes is not to be seen then.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t

from . import checkpoint_copies, checkpoints, files, host_blobs
from .checkpoint_layouts import size_of

if t.TYPE_CHECKING:
    from .checkpoint_table import Saved

KIND: t.Final = "checkpoint_room"
_IN_PLACE: t.Final = "checkpoint_in_place"
_UNREMOVABLE: t.Final = "checkpoint_unremovable"
_UNREPORTED: t.Final = "the program does not report their paths (MUSTER_METRICS_FILE)"
# Where none is removed, so many that still fit are worth a warning.
_FEW = 3


class RoomWatch:
    """Looks at each new checkpoint once. ``rules``: those of :func:`.job_checkpoints.node_rules`."""

    def __init__(self, folder: pathlib.Path, rules: t.Mapping[str, t.Any], run: pathlib.Path, node: str) -> None:
        self._folder, self._keep = folder, rules.get("keep")
        self._events, self._node = run / "events.jsonl", node
        self._seen: tuple[str, int] | None = None
        # How many fitted when that was told last.
        self._told = _FEW
        self._is_unremovable_told = False

    def step(self, list_complete: t.Callable[[], list[Saved]]) -> None:
        """Note it in the run's events when fewer of the folder's complete ones fit than were told of before."""
        complete = list_complete()
        if not complete or (complete[0].name, complete[0].saved_at) == self._seen:
            return
        newest, count = _newest_of(complete)
        # Files that no line reported with their path are not removed, whatever is to be kept.
        keep = self._keep if {*newest} <= {*checkpoints.list_counted(self._folder, complete)} else None
        if self._keep and not keep and count > int(self._keep) and not self._is_unremovable_told:
            self._is_unremovable_told = True
            line = {"at": time.time(), "kind": _UNREMOVABLE, "node": self._node, "folder": str(self._folder)}
            with contextlib.suppress(OSError):
                files.append_json(self._events, {**line, "keep": self._keep, "count": count})
        if keep and count > int(keep):
            # Old ones are removed first.
            return
        self._seen = complete[0].name, complete[0].saved_at
        size, free = sum(size_of(self._folder / saved.name) for saved in newest), host_blobs.free_bytes(self._folder)
        fits = free // size if size else _FEW
        if fits < min(self._told, 1 if keep else _FEW):
            self._told = fits
            line = {"at": time.time(), "kind": KIND, "node": self._node, "folder": str(self._folder), "fits": fits}
            sizes = {"free_bytes": free, "checkpoint_bytes": size, "keep": self._keep}
            sizes |= {"unremovable": True} if self._keep and not keep else {}
            with contextlib.suppress(OSError):
                files.append_json(self._events, {**line, **sizes})


class InPlaceWatch:
    """Tells once of a program whose only checkpoint is a file that it overwrites: it has none while it saves."""

    def __init__(self, folder: pathlib.Path, run: pathlib.Path, node: str) -> None:
        self._folder, self._events, self._node = folder, run / "events.jsonl", node
        self._seen: tuple[str, int, int] | None = None
        self._is_told = False

    def step(self, list_complete: t.Callable[[], list[Saved]]) -> None:
        """Compare the file with what it was at the last look: one that was renamed into place is another file."""
        complete = [] if self._is_told else list_complete()
        place = self._folder / complete[0].name if len(complete) == 1 else None
        if place is None or not place.is_file():
            return
        before, self._seen = self._seen, (complete[0].name, place.stat().st_ino, complete[0].saved_at)
        if before is not None and before[:2] == self._seen[:2] and before[2] != self._seen[2]:
            self._is_told = True
            line = {"at": time.time(), "kind": _IN_PLACE, "node": self._node, "detail": str(place)}
            with contextlib.suppress(OSError):
                files.append_json(self._events, line)


def describe(line: t.Mapping[str, t.Any]) -> str:
    """Return an event of these as a warning, empty for any other event."""
    if line.get("kind") == _IN_PLACE:
        return (
            f"warning: {line['node']}: each save overwrites {line['detail']}, the only checkpoint: a kill while it "
            "saves leaves none. Save under another name and rename it (os.replace), or keep two"
        )
    if line.get("kind") == _UNREMOVABLE:
        said = f"warning: {line['node']}: {line['folder']} has {line['count']} checkpoints, and checkpoints.keep: "
        return f"{said}{line['keep']} removes none of them, as {_UNREPORTED}"
    if line.get("kind") == checkpoints.FAILED:
        return f"warning: {line['node']}: {line['detail']}"
    if line.get("kind") != KIND:
        return ""
    fits = "the next checkpoint does not fit" if not line["fits"] else f"room for {line['fits']} more"
    fix = "set job.checkpoints.keep" if not line.get("keep") else "lower job.checkpoints.keep"
    fix = f"Free space there, or {fix} at the next start"
    if line.get("unremovable"):
        fix = f"Delete old ones there: job.checkpoints.keep: {line['keep']} does not, as {_UNREPORTED}"
    return f"warning: {line['node']}: {fits}: {describe_sizes(line)}. {fix}"


def describe_found(line: t.Mapping[str, t.Any]) -> str:
    """Return of a pod that begins which checkpoint its folder has, as a warning for a run that is new; else nothing."""
    if line.get("kind") != "pod_ready" or not line.get("detail"):
        return ""
    found = f"{line.get('folder')} has {line['detail']} from before this run"
    return f"warning: {found}: a program that resumes continues from it. Name another run_id to begin anew"


def describe_sizes(line: t.Mapping[str, t.Any]) -> str:
    """Return the sizes of an event of :class:`RoomWatch`."""
    return f"{describe_free(line)}, a checkpoint takes {format_size(line['checkpoint_bytes'])}"


def describe_free(room: t.Mapping[str, t.Any]) -> str:
    """Return what the disk of a folder has free for its writers."""
    return f"{room['folder']} has {format_size(room['free_bytes'])} free"


def format_size(size: float) -> str:
    """Return bytes as megabytes, small ones with two decimals."""
    return f"{size / 1e6:.{1 if size >= 1e6 else 2}f} MB"


def _newest_of(complete: t.Sequence[Saved]) -> tuple[list[Saved], int]:
    """Return the files of the newest checkpoint, one of each rank, and how many checkpoints there are."""
    steps = [checkpoint_copies.split_rank(saved.name)[0] for saved in complete]
    return [saved for saved, step in zip(complete, steps, strict=True) if step == steps[0]], len(set(steps))
