# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files that name the newest checkpoint beside them: what they say, and what that says of a checkpoint."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import stat
import typing as t

from .checkpoint_table import LAYOUTS, Layout, Saved

# Those of programs without a layout.
_TRACKERS: t.Final = re.compile(r"^(?:latest\w*|last_checkpoint)(?:\.txt)?$")
# A name or a path. It may be a number, too: Python reads none of more than 4300 digits.
_MOST_SAID = 4096
# That of TensorFlow lists all checkpoints that are kept.
_MOST_BYTES = 1 << 20
# What is said of a checkpoint without its mark or tracker.
LAST: t.Final = "which is written last"
UNNAMED: t.Final = "is not whole:"


def is_unmarked(saved: Saved) -> bool:
    """Return whether a checkpoint lacks its mark or tracker: one rank writes it, and nodes of others have none."""
    return saved.problem.endswith((LAST, f"{LAST}, is not there"))


def is_unnamed(saved: Saved) -> bool:
    """Return whether a checkpoint lacks nothing but that a tracker names it."""
    return saved.problem.startswith(UNNAMED)


def follow_tracker(tracker: pathlib.Path, layout: Layout, name: str, step: int | None, at: int) -> tuple[str, bool]:
    """Return why a tracker does not say that a checkpoint is whole, empty where it does, and whether it names this one.

    What is older than the tracker was whole when a later one was named.

    :param name: of the checkpoint beside the tracker. :param at: when it was saved (nanoseconds).
    """
    try:
        said, written_at = read_named(tracker, layout), tracker.stat().st_mtime_ns
    except FileNotFoundError:
        return f"{UNNAMED} {tracker.name}, {LAST}, is not there", False
    except OSError as exc:
        return f"{UNNAMED} {tracker.name}, {LAST}, cannot be read ({exc.strerror})", False
    if os.path.basename(said) in (name, layout.stem(name)) or (said.isdecimal() and int(said) == step):
        return "", True
    number = re.search("[0-9]+", said)
    if at <= written_at or (number and step is not None and step < int(number[0])):
        return "", False
    return f"{UNNAMED} {tracker.name} names {said[:60] or 'nothing'}", False


def read_named(tracker: pathlib.Path, layout: Layout) -> str:
    """Return what a tracker of a layout names, empty where it names nothing.

    :raises OSError: when it cannot be read.
    """
    found = layout.says.search(_read_text(tracker))
    return found[1][:_MOST_SAID] if found else ""


def write_named(tracker: pathlib.Path, layout: Layout, saved: Saved) -> None:
    """Have a tracker name another checkpoint beside it; what else it says stays."""
    text = _read_text(tracker)
    found = layout.says.search(text)
    if found:
        named = _name_as(found[1], tracker, saved)
        tracker.write_text(f"{text[: found.start(1)]}{named}{text[found.end(1) :]}")


def follow_trackers(folder: pathlib.Path, saved: t.Sequence[Saved]) -> list[Saved]:
    """Return checkpoints without a known layout as what names the newest one says: which it is, and what is not whole.

    What was saved after it, and is named like it but for numbers, was not named yet.
    """
    found = list(saved)
    for tracker in list_trackers(folder):
        said, written_at = _read_tracker(tracker)
        named = next((one for one in found if is_named(said, one.name)), None)
        if named is None:
            continue
        kind, problem = _without_numbers(named.name), f"{UNNAMED} {tracker.name} names {said[:60]}"
        for number, one in enumerate(found):
            if one is named:
                found[number] = one._replace(is_current=not one.problem)
            elif not one.problem and one.saved_at > written_at and _without_numbers(one.name) == kind:
                found[number] = one._replace(problem=problem)
    return found


def list_trackers(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return files that name a checkpoint beside them, as far as their names and sizes tell."""
    with contextlib.suppress(OSError):
        return sorted(
            place
            for place in folder.iterdir()
            if _TRACKERS.match(place.name) and not place.is_symlink() and place.is_file()
            if 0 < place.stat().st_size <= _MOST_SAID
        )
    return []


def find_astray(folder: pathlib.Path) -> str:
    """Return that a tracker of no known layout names what is not there, empty where none does.

    What names nothing, such as a loss, or a number where none of the names beside it has one, says nothing.
    """
    names = [place.name for place in folder.iterdir()]
    for tracker in list_trackers(folder):
        said, _written_at = _read_tracker(tracker)
        if said.isdecimal():
            steps = {int(number) for name in names for number in re.findall("[0-9]+", name)}
            is_astray = bool(steps) and int(said) not in steps
        else:
            is_name = re.fullmatch(r"\S*[0-9]\S*", said) and re.search("[A-Za-z]", os.path.basename(said))
            there = any(is_named(said, name) for name in names) or _is_there(folder, said)
            is_astray = bool(is_name) and said.isprintable() and not there
        if is_astray:
            return f"{tracker.name} names {said[:60]}, which is not there"
    return ""


def _is_there(folder: pathlib.Path, said: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return (folder / said).exists()
    return False


def _read_tracker(tracker: pathlib.Path) -> tuple[str, int]:
    """Return what it says, and when that was written (nanoseconds); nothing where it cannot be read."""
    with contextlib.suppress(OSError):
        return _read_text(tracker).strip(), tracker.stat().st_mtime_ns
    return "", 0


def _read_text(tracker: pathlib.Path) -> str:
    """Return what a file says.

    :raises OSError: when it cannot be read, and for a pipe, on which a reader waits, or a long file.
    """
    if not stat.S_ISREG((state := tracker.stat()).st_mode) or state.st_size > _MOST_BYTES:
        raise OSError(errno.EINVAL, "no file that names a checkpoint", str(tracker))
    return tracker.read_text(errors="replace")


def is_named(said: str, name: str) -> bool:
    """Return whether a tracker names an entry: by its name or path, or by the last number in it."""
    if not said.isdecimal():
        return os.path.basename(said) == name
    numbers = re.findall("[0-9]+", name)
    return bool(numbers) and int(numbers[-1]) == int(said)


def _without_numbers(name: str) -> str:
    return re.sub("[0-9]+", "#", name)


def _name_as(said: str, tracker: pathlib.Path, saved: Saved) -> str:
    """Return how a tracker names a checkpoint beside it: by its step, its path or its name, as it did before."""
    name = LAYOUTS[saved.layout].stem(os.path.basename(saved.name))
    if said.isdecimal():
        return str(saved.step)
    return str(tracker.with_name(name)) if os.path.isabs(said) else name
