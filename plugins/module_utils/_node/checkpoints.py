# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Complete checkpoints in a run's folder: which there are, and the removal of those beyond ``checkpoints.keep``.

Format ``auto``: those of a known layout (``checkpoint_layouts.py``); where there is none, and with format ``files``, a
file or folder whose name is not that of one that is being written: the program renames it when it is whole. Of those
only what the program reported (``checkpoint_step`` and ``path``) is ever removed, because other files may lie beside
them. Any other format is the name of the one layout that counts.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import threading
import time
import typing as t

from . import checkpoint_copies, checkpoint_layouts, checkpoint_table, checkpoint_trackers, files
from .checkpoint_table import Saved
from .pod_log import Tail

# In the checkpoint folder: the names that the program reported, of attempts on other nodes, too.
_REPORTED = ".muster-saved.json"
# There too: the name of the one from which the program was told to resume.
_RESUMED = ".muster-resumed.json"
# What a program calls its best one: a word of the name.
_BEST = re.compile(r"(?:^|[^a-z])best(?:[^a-z]|$)")
# Programs that report nothing are looked after at this interval.
_EVERY_S = 10.0
# The kind of the event that one of the threads beside a program met an error of its own.
FAILED: t.Final = "checkpoint_care_failed"


def list_saved(folder: pathlib.Path, form: str) -> list[Saved]:
    """Return the checkpoints in ``folder``, the newest first, with what those lack that are not whole."""
    found = [] if form == "files" else checkpoint_layouts.find(folder, "" if form == "auto" else form)
    return found if found or form not in ("auto", "files") else _list_plain(folder, form)


def list_complete(folder: pathlib.Path, form: str, reported: str = "") -> list[Saved]:
    """Return the complete checkpoints in ``folder``, the newest first; none when it cannot be read.

    :param reported: one of which the program said that it is saved: it knows a layout of its own.
    """
    return [saved for saved in list_saved(folder, form) if not saved.problem or saved.name == reported]


def list_counted(folder: pathlib.Path, complete: t.Sequence[Saved]) -> list[Saved]:
    """Return those that ``checkpoints.keep`` counts: of no known layout they must have been reported.

    One that its name calls the best does not count: it is old by nature, and the only one of its kind.
    """
    reported = set(_read_names(folder / _REPORTED))
    known = [saved for saved in complete if saved.layout != "files" or saved.name in reported]
    return [saved for saved in known if not _is_best(saved.name)]


def _is_best(name: str) -> bool:
    return _BEST.search(pathlib.PurePosixPath(name).name.lower()) is not None


def _read_best(folder: pathlib.Path, complete: t.Sequence[Saved]) -> str:
    """Return the checkpoint that transformers' Trainer loads at its end (``load_best_model_at_end``), else nothing.

    Its newest state names it by a path (``transformers/trainer_callback.py``, ``TrainerState``).
    """
    newest = next((saved.name for saved in complete if saved.layout == "transformers"), None)
    state = files.read_json(folder / newest / "trainer_state.json") if newest else None
    named = state.get("best_model_checkpoint") if isinstance(state, dict) else None
    if newest is None or not isinstance(named, str):
        return ""
    return str(pathlib.PurePosixPath(newest).parent / pathlib.PurePosixPath(named).name)


def describe_half_saved(folder: pathlib.Path, form: str) -> str:
    """Return why the newest checkpoint of a folder does not count, empty where it does or there is none."""
    newest = next(iter(list_saved(folder, form)), None)
    return f"{newest.name} {newest.problem}" if newest and newest.problem else ""


def describe_only_half_saved(folder: pathlib.Path, form: str) -> str:
    """Return why the newest checkpoint of a folder does not count, empty where it or an older one does."""
    saved = list_saved(folder, form)
    return f"{saved[0].name} {saved[0].problem}" if saved and all(one.problem for one in saved) else ""


def _list_plain(folder: pathlib.Path, form: str) -> list[Saved]:
    found: list[Saved] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                saved_at = _saved_at(entry)
                if saved_at is not None and not (form == "auto" and _is_beside(entry)):
                    # With ``files`` names alone count, as it was asked for.
                    place = folder / entry.name
                    listed = checkpoint_layouts.list_files(place) if form == "auto" else {}
                    problem = checkpoint_layouts.find_problem(place, listed) if form == "auto" else ""
                    found.append(Saved(entry.name, saved_at, problem=problem))
    if form == "auto":
        found = checkpoint_trackers.follow_trackers(folder, found)
    return sorted(found, key=lambda saved: (saved.is_current, saved.saved_at, saved.name), reverse=True)


def _saved_at(entry: os.DirEntry[str]) -> int | None:
    """Return when a checkpoint became complete (nanoseconds), None for anything else; a link is none."""
    if entry.is_symlink() or entry.name.startswith(".") or entry.name.endswith(checkpoint_table.UNFINISHED):
        return None
    state = entry.stat()
    empty = not os.listdir(entry.path) if entry.is_dir() else state.st_size == 0
    return None if empty else state.st_mtime_ns


def _is_beside(entry: os.DirEntry[str]) -> bool:
    """Return whether a file, or all files of a folder, are logs, cards or tools."""
    if not entry.is_dir():
        return checkpoint_layouts.is_beside(entry.name)
    return all(checkpoint_layouts.is_beside(name) for _top, _folders, names in os.walk(entry.path) for name in names)


def reported_name(folder: pathlib.Path, line: t.Mapping[str, t.Any]) -> str:
    """Return what lies in ``folder`` of the checkpoint that a line of the metrics reports, empty for one elsewhere."""
    if not isinstance(line.get("checkpoint_step"), int) or not isinstance(line.get("path"), str):
        return ""
    own = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(own, line["path"]))
    inside = path.startswith(own + os.sep)
    return checkpoint_layouts.find_reported(folder, os.path.relpath(path, own)) if inside else ""


def call(saved: Saved) -> str:
    """Return what a program calls a checkpoint: its path in the folder, or what its files have in common."""
    layout = checkpoint_table.LAYOUTS.get(saved.layout)
    return layout.stem(saved.name) if layout else saved.name


def note_resumed(folder: pathlib.Path, name: str) -> None:
    """Note from which checkpoint a program gets word to resume: it may read there as long as it runs.

    torchtune copies the model's settings from it into each checkpoint that it saves.
    """
    with contextlib.suppress(OSError):
        files.write_json(folder / _RESUMED, [name], 0o644)


class Pruner:
    """Removes complete checkpoints beyond the newest ``keep``. The newest one is never removed.

    :ivar held: returns the name of a checkpoint that is being stored elsewhere and stays until that is done.
    :ivar leads: whether this node also looks after checkpoints of known layouts that were not reported; of nodes that
        share a folder the first one does.
    :ivar apart: whether other nodes of the run have folders of their own, and so may have parts of a checkpoint.
    """

    def __init__(
        self, folder: pathlib.Path, form: str, keep: int, *, leads: bool, metrics: pathlib.Path, apart: bool = False
    ) -> None:
        self.folder, self.form, self.keep, self.leads = folder, form, max(1, keep), leads
        self.apart = apart
        self.held: t.Callable[[], str | None] = lambda: None
        self._tail = Tail(metrics)
        self._due_at = 0.0

    def step(self, *, last: bool = False) -> list[str]:
        """Take in what the program reported since the last call; return the names of what was removed.

        :param last: the program has ended: what it saved since the last look counts too.
        """
        # What was found without a layout is none of the program's reports.
        lines = [line for line in self._tail.lines() if line.get("layout") != "files"]
        reported = [name for line in lines if (name := reported_name(self.folder, line))]
        if reported:
            self._record(reported)
        timed = self.form != "files" and self.leads and (last or time.monotonic() >= self._due_at)
        if not reported and not timed:
            return []
        self._due_at = time.monotonic() + _EVERY_S
        return self.prune(last=last)

    def prune(self, *, last: bool = False) -> list[str]:
        """Remove what is beyond ``keep``; return the names. What the program resumed from stays until the last time.

        Files of several ranks are one checkpoint. Of parts two stay at least: another node may lack its part of the
        newest one still.
        """
        complete, known = self._list_complete(), set(self._read_reported())
        counted, best = list_counted(self.folder, complete), _read_best(self.folder, complete)
        split = {saved.name: checkpoint_copies.split_rank(saved.name) for saved in counted}
        least = 2 if self.apart or any(rank for _step, rank in split.values()) else 1
        kept = list(dict.fromkeys(step for step, _rank in split.values()))[: max(self.keep, least)]
        old = [saved for saved in counted if split[saved.name][0] not in kept and saved.name != best]
        used = set() if last else set(_read_names(self.folder / _RESUMED))
        beyond = [saved for saved in old if saved != complete[0] and saved.name not in {self.held(), *used}]
        removed = [saved.name for saved in beyond if _remove(self.folder / saved.name)]
        if removed and not known.isdisjoint(removed):
            self._write_reported([name for name in self._read_reported() if name not in removed])
        return removed

    def _list_complete(self) -> list[Saved]:
        """Return complete checkpoints, else parts whose file that is written last is on another node."""
        saved = list_saved(self.folder, self.form)
        complete = [one for one in saved if not one.problem]
        return complete or [one for one in saved if self.apart and checkpoint_trackers.is_unmarked(one)]

    def _record(self, names: t.Sequence[str]) -> None:
        known = self._read_reported()
        self._write_reported([*(name for name in known if name not in names), *dict.fromkeys(names)])

    def _read_reported(self) -> list[str]:
        return _read_names(self.folder / _REPORTED)

    def _write_reported(self, names: t.Sequence[str]) -> None:
        with contextlib.suppress(OSError):
            files.write_json(self.folder / _REPORTED, list(names), 0o644)


class PruningThread:
    """Prunes beside the program, because removing may take long; what was removed is appended to the events."""

    def __init__(self, pruner: Pruner, events: pathlib.Path, node: str) -> None:
        self._pruner, self._events, self._node = pruner, events, node
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prune", daemon=True)
        self._thread.start()

    def close(self, within_s: float = 30.0) -> None:
        """Prune a last time and stop."""
        self._ended.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        failed: set[str] = set()
        while True:
            last = self._ended.wait(1.0)
            removed: list[str] = []
            try:
                removed = self._pruner.step(last=last)
            # Whatever it is, it is noted, and the next look is due.
            except Exception as exc:  # pylint: disable=broad-exception-caught
                note_failure(self._events, self._node, "old checkpoints are not removed", exc, failed)
            for name in removed:
                line = {"at": time.time(), "kind": "checkpoint_removed", "node": self._node, "detail": name}
                with contextlib.suppress(OSError):
                    files.append_json(self._events, line)
            if last:
                return


def note_failure(events: pathlib.Path, node: str, effect: str, exc: Exception, told: set[str]) -> None:
    """Note an error of a thread beside a program in the run's events, once a text: ``told`` has those before."""
    detail = f"{effect} ({type(exc).__name__}: {exc})"
    if detail not in told:
        told.add(detail)
        with contextlib.suppress(OSError):
            files.append_json(events, {"at": time.time(), "kind": FAILED, "node": node, "detail": detail})


def start_pruning(
    folder: str,
    rules: t.Mapping[str, t.Any],
    run_dir: pathlib.Path,
    node: str,
    *,
    first: bool,
    held: t.Callable[[], str | None] = lambda: None,
) -> PruningThread | None:
    """Start to prune as the job's rules ``{format, keep, shared, apart}`` say, None where all checkpoints are kept.

    :param first: whether this is the first node, which leads where the folder is shared.
    """
    if not rules.get("keep"):
        return None
    place, leads = pathlib.Path(folder).expanduser(), first or not rules.get("shared")
    apart, metrics = bool(rules.get("apart")), run_dir / "metrics.jsonl"
    pruner = Pruner(place, rules["format"], int(rules["keep"]), leads=leads, metrics=metrics, apart=apart)
    pruner.held = held
    return PruningThread(pruner, run_dir / "events.jsonl", node)


def _read_names(place: pathlib.Path) -> list[str]:
    names = files.read_json(place)
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _remove(path: pathlib.Path) -> bool:
    """Remove a checkpoint; what is removed in part does not count as complete."""
    try:
        if not path.is_dir():
            parts = checkpoint_layouts.list_parts(path)
            path.unlink()
            for part in parts:
                part.unlink(missing_ok=True)
            return True
        path = path.rename(path.with_name(f".{path.name}.incomplete"))
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False
    return True
