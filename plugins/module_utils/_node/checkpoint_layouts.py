# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoints of known layouts a folder has: which are whole, and what those lack that are not.

How each program saves is in ``checkpoint_table.py``. A folder without a known layout is read by names alone
(``checkpoints.py``).
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import functools
import json
import os
import pathlib
import re
import shutil
import typing as t

from . import checkpoint_ends, checkpoint_trackers
from .checkpoint_table import BESIDE, LAYOUTS, MARKS, NUMBERED, STAGED, TEMPORARY, UNFINISHED, ZERO_PART, Layout, Saved

# Lightning's is the deepest: lightning_logs/version_0/checkpoints/NAME.ckpt, in a folder of the program.
_DEPTH = 5
# Checkpoints that were whole: with which layout, and the times of their folder and of what is written last.
_MOST = 4096
_whole: dict[str, tuple[str, int, int | None]] = {}
Sizes = t.Mapping[str, int]


def find(folder: pathlib.Path, only: str = "") -> list[Saved]:
    """Return the checkpoints of known layouts in a folder, whole or not, the newest first.

    The one that a tracker names comes first: from it the program resumes.

    :param only: the name of the one layout that is looked for.
    """
    found = _walk(folder, pathlib.PurePosixPath(), only)
    return sorted(found, key=lambda saved: (saved.is_current, saved.saved_at, saved.name), reverse=True)


def recognise(place: pathlib.Path, only: str = "", beside: t.Collection[str] | None = None) -> str:
    """Return the name of the layout of which a path is a checkpoint, empty for none.

    :param beside: the names in its folder, where they are known.
    """
    inside: t.Collection[str] | None = _list_names(place) if place.is_dir() else None
    for name in (only,) if only else LAYOUTS:
        layout, within = LAYOUTS[name], inside
        if within is None and layout.ending and place.name.endswith(layout.ending):
            beside = _list_names(place.parent) if beside is None else beside
            within = beside
        if within is not None and layout.is_one(place.name, within):
            return name
    return ""


def _list_names(folder: pathlib.Path) -> list[str]:
    """Return the names in a folder, none of one that is not there or may not be read."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def find_reported(folder: pathlib.Path, path: str) -> str:
    """Return the checkpoint of a known layout to which a path below ``folder`` belongs, else the path's first part."""
    parts = pathlib.PurePosixPath(path).parts
    tops = (pathlib.PurePosixPath(*parts[:count]) for count in range(1, min(len(parts), _DEPTH) + 1))
    endings = ("", *(layout.ending for layout in LAYOUTS.values() if layout.parts))
    names = (f"{top}{ending}" for top in tops for ending in endings)
    return next((name for name in names if recognise(folder / name)), parts[0] if parts else "")


def list_parts(place: pathlib.Path) -> list[pathlib.Path]:
    """Return the other files of a checkpoint that is several files beside each other; none of any other."""
    layout = LAYOUTS.get(recognise(place))
    return _list_parts(place, layout) if layout else []


def _list_parts(place: pathlib.Path, layout: Layout) -> list[pathlib.Path]:
    if not layout.parts:
        return []
    stem = layout.stem(place.name)
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(place.parent) if name.startswith(stem))
        return [place.with_name(name) for name in names if layout.parts.fullmatch(name, len(stem))]
    return []


def size_of(place: pathlib.Path) -> int:
    """Return the bytes of a checkpoint: a file, files beside each other, or a folder."""
    if not place.is_dir():
        return sum(path.stat().st_size for path in (place, *list_parts(place)))
    return sum(os.stat(os.path.join(top, name)).st_size for top, _folders, names in os.walk(place) for name in names)


def list_beside(folder: pathlib.Path, saved: Saved) -> list[str]:
    """Return the paths in the folder that come along with a checkpoint: the tracker that names it, tools, its parts."""
    layout = LAYOUTS.get(saved.layout)
    if layout is None:
        return [tracker.name for tracker in checkpoint_trackers.list_trackers(folder)] if saved.is_current else []
    place = pathlib.PurePosixPath(saved.name).parent
    parts = [part.name for part in _list_parts(folder / saved.name, layout)]
    names = [*([layout.tracker] if layout.tracker and saved.is_current else []), *layout.tools, *parts]
    return [str(place / name) for name in names if (folder / place / name).is_file()]


def is_beside(name: str) -> bool:
    """Return whether a name is that of a log, a card, a tool or a setting: no checkpoint."""
    return bool(BESIDE.search(name))


def hide_half_saved(folder: pathlib.Path) -> list[str]:
    """Rename half-saved checkpoints that a program would take for its newest one; return what each of them lacks."""
    told = []
    for saved in find(folder):
        if saved.problem and LAYOUTS[saved.layout].by_name:
            place = folder / saved.name
            with contextlib.suppress(OSError):
                place.rename(place.with_name(f".{place.name}.half-saved"))
                told.append(f"{saved.name} {saved.problem}")
                if copied := replace_taken(place):
                    told[-1] += f", and {copied} was copied to its name"
    return told


def replace_taken(place: pathlib.Path) -> str:
    """Copy the newest whole checkpoint to the name that its program takes, where that was hidden; return its name.

    Empty where there is no other, or no room for a copy.
    """
    for name, layout in LAYOUTS.items():
        found = find(place.parent, name) if layout.taken(place.name) == place.name else []
        for saved in found:
            if not saved.problem and layout.taken(saved.name) == place.name:
                staged = place.with_name(f".{place.name}.copying")
                try:
                    # No link: the program writes over it.
                    shutil.copy2(place.with_name(saved.name), staged)
                    staged.replace(place)
                except OSError:
                    staged.unlink(missing_ok=True)
                    return ""
                return saved.name
    return ""


def _walk(folder: pathlib.Path, below: pathlib.PurePosixPath, only: str) -> t.Iterator[Saved]:
    with contextlib.suppress(OSError), os.scandir(folder / below) as entries:
        listed = sorted(entries, key=lambda item: item.name)
        names = [entry.name for entry in listed]
        for entry in listed:
            path = below / entry.name
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            name = recognise(folder / path, only, names)
            if name:
                with contextlib.suppress(OSError):
                    yield _judge(folder, str(path), name)
            elif entry.is_dir() and len(path.parts) < _DEPTH:
                yield from _walk(folder, path, only)


def _judge(folder: pathlib.Path, path: str, name: str) -> Saved:
    layout, place = LAYOUTS[name], folder / path
    number = layout.step.search(place.name)
    step = int(number[1]) if number else None
    changed_at = place.stat().st_mtime_ns
    marked_at = _read_time(place / layout.mark) if layout.mark else None
    if _whole.get(str(place)) == (name, changed_at, marked_at):
        # Looked at every few seconds, on file systems whose every answer takes a while.
        return Saved(path, t.cast(int, marked_at), name, step)
    listed = list_files(place)
    at = marked_at or max((place.joinpath(item).stat().st_mtime_ns for item in listed), default=changed_at)
    problem, is_current = find_problem(place, listed, name), False
    if marked_at and not problem:
        if len(_whole) > _MOST:
            _whole.clear()
        _whole[str(place)] = name, changed_at, marked_at
    if layout.taken(place.name) == place.name:
        is_current = True
    elif layout.tracker:
        tracker = place.with_name(layout.tracker)
        missing, is_current = checkpoint_trackers.follow_tracker(tracker, layout, place.name, step, at)
        # What shows its own end is whole before it is named.
        problem = problem or (missing if not layout.end else "")
    return Saved(path, at, name, step, problem, is_current and not problem)


def _read_time(place: pathlib.Path) -> int | None:
    with contextlib.suppress(OSError):
        return place.stat().st_mtime_ns
    return None


def find_tracker_problem(folder: pathlib.Path) -> str:
    """Return that a tracker names a checkpoint that is not there, empty where each names one."""
    for place, name, _whole_ones in _list_astray(folder):
        said = checkpoint_trackers.read_named(place, LAYOUTS[name])[:60]
        if re.search("[0-9]", said):
            return f"{place.relative_to(folder)} names {said}, which is not there or not whole"
    return checkpoint_trackers.find_astray(folder)


def mend_trackers(folder: pathlib.Path) -> None:
    """Have trackers that name a checkpoint which is not there name the newest whole one instead."""
    for tracker, name, whole in _list_astray(folder):
        if whole:
            newest = max(whole, key=lambda saved: saved.step or 0)
            checkpoint_trackers.write_named(tracker, LAYOUTS[name], newest)


def _list_astray(folder: pathlib.Path) -> t.Iterator[tuple[pathlib.Path, str, list[Saved]]]:
    """Yield trackers that name no whole checkpoint, also below, with their layout and the whole ones beside them."""
    for name, layout in LAYOUTS.items():
        found = find(folder, name) if layout.tracker else []
        for place in dict.fromkeys((folder, *((folder / saved.name).parent for saved in found))):
            tracker = place / layout.tracker
            beside = [saved for saved in found if (folder / saved.name).parent == place]
            if not layout.tracker or not tracker.is_file() or any(saved.is_current for saved in beside):
                continue
            with contextlib.suppress(OSError):
                if not _names_another(tracker, checkpoint_trackers.read_named(tracker, layout), name):
                    yield tracker, name, [saved for saved in beside if not saved.problem]


def _names_another(tracker: pathlib.Path, said: str, layout: str) -> bool:
    """Return whether a tracker names an entry beside it that is not of a layout: others have trackers of that name."""
    with contextlib.suppress(OSError):
        return any(
            place != tracker and checkpoint_trackers.is_named(said, place.name) and recognise(place) != layout
            for place in tracker.parent.iterdir()
            if not place.name.startswith(".")
        )
    return False


def list_files(place: pathlib.Path) -> dict[str, int]:
    """Return the sizes of the files of a checkpoint by path in it, empty for a file itself; links are none."""
    if not place.is_dir():
        return {"": place.stat().st_size}
    found = {}
    for top, _folders, names in os.walk(place):
        for path in (pathlib.Path(top, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                # A reader of a pipe waits.
                if path.is_file() and not path.is_symlink():
                    found[path.relative_to(place).as_posix()] = path.stat().st_size
    return found


def find_problem(place: pathlib.Path, listed: Sizes, layout: str = "") -> str:
    """Return why a checkpoint was not written to its end, as far as its layout tells; empty where it was."""
    names = [path or place.name for path in listed]
    open_name = next((name for name in (place.name, *names) if name.endswith(UNFINISHED) or TEMPORARY in name), "")
    if not open_name and not layout and STAGED.search(place.name) and not recognise(place):
        open_name = place.name
    if open_name:
        return f"is being written ({open_name})"
    if not any(listed.values()):
        return "is empty"
    torn = next((path for path in listed if checkpoint_ends.is_torn(place / path)), None)
    if torn is not None:
        return f"is half saved: {torn or place.name} lacks its end"
    missing = _find_missing_part(place) if "" in listed else _find_missing_shard(place, listed)
    return missing or _find_missing_mark(listed, layout)


def _find_missing_part(place: pathlib.Path) -> str:
    """Return what is not there of a checkpoint that is several files beside each other, or lacks its end."""
    layout = LAYOUTS.get(recognise(place))
    if layout is None:
        return ""
    if layout.end and not checkpoint_ends.ends_with(place, layout.end):
        return f"is half saved: {place.name} lacks its end"
    parts = _list_parts(place, layout)
    counts = [int(found["count"]) for part in parts if layout.parts and (found := layout.parts.search(part.name))]
    if counts and len(parts) < max(counts):
        return f"is half saved: it has {len(parts)} of {max(counts)} parts ({parts[0].name})"
    return ""


def _find_missing_mark(listed: Sizes, layout: str) -> str:
    """Return what is not there of that which is written last; on a node of other ranks that may be no problem."""
    own = LAYOUTS.get(layout)
    if own and own.each and not any(size and fnmatch.fnmatch(path, own.each) for path, size in listed.items()):
        return f"is half saved: it has no {own.each}, which each rank writes last"
    if own and own.rest and listed.get(own.mark) and all(map(own.rest.search, filter(None, listed))):
        return "is half saved: it has no weights"
    marks = [own.mark] if own and own.mark else []
    missing = next((mark for mark in (*marks, *_list_marks(listed)) if not listed.get(mark)), "")
    return f"is half saved: it has no {missing}, {checkpoint_trackers.LAST}" if missing else ""


def _list_marks(listed: Sizes) -> list[str]:
    """Return the paths of the files that are written after those which are there."""
    found = (
        str(path.with_name(mark))
        for path in map(pathlib.PurePosixPath, filter(None, listed))
        for ending, mark in MARKS
        if ending.search(path.name)
    )
    return list(dict.fromkeys(found))


def count_ranks(place: pathlib.Path) -> int | None:
    """Return how many ranks saved a part of DeepSpeed's ZeRO each, which as many have to load; None for others.

    DeepSpeed refuses another number (deepspeed/runtime/engine.py, ``_get_all_zero_checkpoint_names``); what
    ``ds_to_universal.py`` made has no such files.
    """
    try:
        names = [path.name for path in place.iterdir()]
    except OSError:
        return None
    return len(list(filter(ZERO_PART.fullmatch, names))) or None


def _find_missing_shard(place: pathlib.Path, listed: Sizes) -> str:
    for index in (path for path in listed if path.endswith(".index.json")):
        shards = {str(item) for item in _read_index(str(place / index), place.joinpath(index).stat().st_mtime_ns)}
        lacking = sorted(
            shard for shard in shards if not listed.get(os.path.normpath(pathlib.PurePosixPath(index).parent / shard))
        )
        if lacking:
            return f"is half saved: {lacking[0]}, which {index} names, is not there"
    numbered = collections.Counter(
        found.group("all", "ending", "count")
        for path, size in listed.items()
        if size and (found := NUMBERED.fullmatch(path))
    )
    lacks = next(((kind, there) for kind, there in numbered.items() if there < int(kind[2])), None)
    return f"is half saved: it has {lacks[1]} of {int(lacks[0][2])} parts ({lacks[0][0]})" if lacks else ""


@functools.lru_cache(maxsize=64)
def _read_index(place: str, _at: int) -> tuple[str, ...]:
    try:
        return tuple(json.loads(pathlib.Path(place).read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def is_proven(place: pathlib.Path, listed: Sizes) -> bool:
    """Return whether the end of a checkpoint can be told: by its layout, or by the format of its largest file."""
    if recognise(place) or _list_marks(listed):
        return True
    largest = max(listed, key=lambda path: listed[path])
    ends = (largest or place.name).endswith((".safetensors", ".json"))
    return ends or checkpoint_ends.is_archive(place.joinpath(largest))
