# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program reports of its checkpoints, and which files in the checkpoint folder these are.

A report in the file of metrics names a path. A printed one has a step alone: it is the new one of that name, else the
largest.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
import typing as t

from . import checkpoint_store, checkpoints
from .pod_log import Tail

# Beside the metrics of a pod: the printed lines that report a checkpoint.
PRINTED: t.Final = "printed.jsonl"
# A program may print before it has saved.
_LATE_S = 30.0
# So long a complete checkpoint may lie in the folder before it counts as one that is not reported.
_UNREPORTED_S = 60.0
_FIX = (
    "Save below MUSTER_CHECKPOINT_DIR, and write checkpoint_step and path to MUSTER_METRICS_FILE, or print a line that "
    "job.metrics.checkpoint_pattern matches"
)
_Version = tuple[str, int]


class _Open(t.NamedTuple):
    """The newest report whose file was not found: its step, when it was read, and the path that it names."""

    step: int
    read_at: float
    path: str = ""
    is_old: bool = False


class CheckpointReports:
    """Reads reports from ``places``; ``steps`` are the steps of checkpoints by name, ``newest`` the one of all."""

    def __init__(self, folder: pathlib.Path, form: str, *places: pathlib.Path) -> None:
        self.folder, self.form = folder, form
        self.steps: dict[str, int] = {}
        self.newest: int | None = None
        self._tails = [Tail(place) for place in places]
        self._began = time.time()
        # When the checkpoint was saved that a printed report was of, by name.
        self._printed: dict[str, int] = {}
        self._known: set[_Version] = set(self._read_folder())
        # What was there when it was looked last: what is being written changes.
        self._last_seen: dict[_Version, int] = {}
        self._open: _Open | None = None

    def take(self, last: bool = False) -> None:
        """Take in what was reported since the last call. ``last``: the program has ended."""
        for line in (line for tail in self._tails for line in tail.lines()):
            step, path = line.get("checkpoint_step"), line.get("path")
            if not isinstance(step, int):
                continue
            self.newest, name = step, checkpoints.reported_name(self.folder, line)
            if name:
                self.steps[name], self._open = step, None
            else:
                is_old = isinstance(line.get("at"), (int, float)) and line["at"] < self._began
                self._open = _Open(step, time.monotonic(), path if isinstance(path, str) else "", is_old)
        if self._open and not self._open.path:
            self._find_printed(self._open, last)

    def list_complete(self) -> list[tuple[pathlib.Path, int]]:
        """Return the complete checkpoints that were reported, and all of format ``dcp``; the newest first."""
        listed = checkpoint_store.list_local(self.folder, self.form, self.steps)
        if self.form == "dcp":
            return listed
        # What was written over since is another checkpoint, whose report is still to come.
        return [(path, at) for path, at in listed if self._printed.get(path.name, at) == at]

    def find_problem(self, last: bool = False) -> str:
        """Return why a checkpoint of the program cannot be stored, empty where each was found or may still come."""
        wanted = self._open
        if wanted is None:
            return self._find_unreported(last) if self.newest is None and self.form != "dcp" else ""
        if wanted.path:
            return f"checkpoint {wanted.step}: {wanted.path} is not in {self.folder}. {_FIX}"
        if wanted.is_old or not (last or time.monotonic() - wanted.read_at > _LATE_S):
            return ""
        return f"checkpoint {wanted.step} was reported, and nothing new is in {self.folder}. {_FIX}"

    def _find_printed(self, wanted: _Open, last: bool) -> None:
        found = self._read_folder()
        numbered = re.compile(rf"(?<![0-9])0*{wanted.step}(?![0-9])")
        own = {version: size for version, size in found.items() if numbered.search(version[0])}
        new = {version: size for version, size in found.items() if version not in self._known}
        fitting = own if wanted.is_old else {version: new[version] for version in own if version in new} or new
        steady = {version: size for version, size in fitting.items() if last or self._last_seen.get(version) == size}
        self._last_seen = found
        if not steady:
            return
        name, saved_at = max(steady, key=lambda version: (steady[version], version[1]))
        self.steps[name], self._printed[name], self._open = wanted.step, saved_at, None
        self._known = set(found)

    def _read_folder(self) -> dict[_Version, int]:
        """Return the sizes of the complete checkpoints, and of other files, that are in the folder."""
        found: dict[_Version, int] = {}
        for path in checkpoints.list_complete(self.folder, self.form):
            with contextlib.suppress(OSError):
                mark = path / ".metadata" if self.form == "dcp" else path
                found[path.name, mark.stat().st_mtime_ns] = _size_of(path)
        return found

    def _find_unreported(self, last: bool) -> str:
        before = time.time_ns() - (0 if last else int(_UNREPORTED_S * 1e9))
        names = [name for name, at in self._read_folder() if at < before and (name, at) not in self._known]
        return f"{names[0]} is in {self.folder}, and the program reports no checkpoint. {_FIX}" if names else ""


def _size_of(path: pathlib.Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(os.stat(os.path.join(top, name)).st_size for top, _folders, names in os.walk(path) for name in names)
