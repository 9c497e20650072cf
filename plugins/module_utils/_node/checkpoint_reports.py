# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program reports of its checkpoints, and which files in the checkpoint folder these are.

A report in the file of metrics names a path. A printed one has a step alone: it is the new one of that name, else the
largest. Where rank 0 alone reports, other nodes may save parts of their own: what is new there is a checkpoint, too.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
import typing as t

from . import checkpoint_copies, checkpoint_layouts, checkpoint_store, checkpoints, files
from .checkpoint_table import Saved
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
    """Reads reports from ``places``; ``steps`` are the steps of checkpoints by name, ``newest`` the one of all.

    :param adopts: what this node saves is a checkpoint without a report; its step is None.
    """

    def __init__(self, folder: pathlib.Path, form: str, *places: pathlib.Path, adopts: bool = False) -> None:
        self.folder, self.form, self._adopts = folder, form, adopts
        self.steps: dict[str, int | None] = {}
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
        if self._adopts and self.newest is None and self.form != "dcp":
            self._find_parts(last)

    def list_complete(self) -> list[Saved]:
        """Return the complete checkpoints that were reported, and all of layout ``dcp``; the newest first."""
        listed = checkpoint_store.list_local(self.folder, self.form, self.steps)
        if self.form == "dcp":
            return listed
        # What was written over since is another checkpoint, whose report is still to come.
        return [saved for saved in listed if self._printed.get(saved.name, saved.saved_at) == saved.saved_at]

    def find_problem(self, last: bool = False) -> str:
        """Return why a checkpoint of the program cannot be stored, empty where each was found or may still come."""
        wanted = self._open
        if wanted is None:
            is_silent = self.newest is None and not self.steps and self.form != "dcp"
            return self._find_unreported(last) if is_silent else ""
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

    def _find_parts(self, last: bool) -> None:
        """Take what this node wrote itself, and is written no more, for its part of the checkpoints."""
        found = self._read_folder()
        steady = {
            name
            for (name, at), size in found.items()
            if (name, at) not in self._known and (last or self._last_seen.get((name, at)) == size)
        }
        self._last_seen = found
        if not steady - set(self.steps):
            return
        entries = [entry for entry in checkpoint_copies.list_entries(self.folder, self.form) if entry.name in steady]
        parts = [entry for entry in entries if entry.whole and entry.own and not checkpoint_copies.is_log(entry.name)]
        # Beside the checkpoints lie settings, and files that name the newest one.
        main = checkpoint_copies.family(max(parts, key=lambda entry: entry.bytes).name) if parts else ""
        self.steps = {entry.name: None for entry in parts if checkpoint_copies.family(entry.name) == main}

    def _read_folder(self) -> dict[_Version, int]:
        """Return the sizes of the complete checkpoints, and of other files, that are in the folder."""
        found: dict[_Version, int] = {}
        for saved in checkpoints.list_complete(self.folder, self.form):
            with contextlib.suppress(OSError):
                found[saved.name, saved.saved_at] = checkpoint_layouts.size_of(self.folder / saved.name)
        return found

    def _find_unreported(self, last: bool) -> str:
        before = time.time_ns() - (0 if last else int(_UNREPORTED_S * 1e9))
        names = [name for name, at in self._read_folder() if at < before and (name, at) not in self._known]
        return f"{names[0]} is in {self.folder}, and the program reports no checkpoint. {_FIX}" if names else ""


def find_missing(metrics: pathlib.Path, folder: pathlib.Path, form: str) -> dict[str, t.Any] | None:
    """Return ``{checkpoint_step, path, there}`` where the checkpoint that was reported last is not there.

    ``there``: ``{step, path}`` of the newest reported one that is, else None. A path that is not absolute may be below
    any folder, and nothing is said of it.
    """
    reported: dict[int, str] = {}
    with contextlib.suppress(OSError), metrics.open(encoding="utf-8", errors="replace") as handle:
        for text in handle:
            _take_report(reported, next(files.parse_json_lines(text), {}) if '"checkpoint_step"' in text else {})
    return _judge_reported(reported, folder, form, checkpoints.list_complete(folder, form))


def find_unreported(metrics: pathlib.Path, folder: pathlib.Path, form: str) -> Saved | None:
    """Return the newest checkpoint in a folder of a run that has reported none, None where it has, or there is none.

    Such is a file that a program writes over each time, under a name without a step, or one from before the run.
    """
    with contextlib.suppress(OSError), metrics.open(encoding="utf-8", errors="replace") as handle:
        if any('"checkpoint_step"' in text for text in handle):
            return None
    return next(iter(checkpoints.list_complete(folder, form)), None)


def _take_report(reported: dict[int, str], line: t.Mapping[str, t.Any]) -> None:
    step, path = line.get("checkpoint_step"), line.get("path")
    if isinstance(step, int) and isinstance(path, str):
        reported.pop(step, None)
        reported[step] = path


def _judge_reported(
    reported: t.Mapping[int, str], folder: pathlib.Path, form: str, complete: t.Iterable[Saved]
) -> dict[str, t.Any] | None:
    marked = {saved.name for saved in complete}

    def exists(path: str) -> bool:
        name = checkpoints.reported_name(folder, {"checkpoint_step": 0, "path": path})
        # A program may name what several files have in common.
        is_there = os.path.exists(path) or (name and (folder / name).exists())
        return bool(is_there) and (form != "dcp" or not name or name in marked)

    newest, *others = [*reversed(list(reported.items()))] or [(0, "")]
    if not os.path.isabs(newest[1]) or exists(newest[1]):
        return None
    found = next(({"step": step, "path": path} for step, path in others if exists(path)), None)
    return {"checkpoint_step": newest[0], "path": newest[1], "there": found}


class MissingWatch:
    """Looks while the program runs whether the checkpoint that it reported last is there; notes each change once."""

    def __init__(self, folder: pathlib.Path, form: str, run: pathlib.Path, node: str) -> None:
        self._folder, self._form, self._node = folder, form, node
        self._tail, self._events = Tail(run / "metrics.jsonl"), run / "events.jsonl"
        self._reported: dict[int, str] = {}
        # What was not there at the last look, and what was noted of that.
        self._lacked: dict[str, t.Any] | None = None
        self._noted: dict[str, t.Any] | None = None

    def step(self, list_complete: t.Callable[[], list[Saved]]) -> None:
        """Note in the run's events what is missing at a second look, and that it is there again."""
        for line in self._tail.lines():
            _take_report(self._reported, line)
        if not self._reported:
            return
        found = _judge_reported(
            self._reported, self._folder, self._form, list_complete() if self._form == "dcp" else ()
        )
        before, self._lacked = self._lacked, found
        if found == self._noted or (found is not None and found != before):
            return
        self._noted = found
        step, path = list(self._reported.items())[-1]
        told = {"kind": "checkpoint_there", "checkpoint_step": step, "path": path}
        told = {"kind": "checkpoint_missing", **found} if found else told
        with contextlib.suppress(OSError):
            files.append_json(self._events, {"at": time.time(), "node": self._node, **told})
