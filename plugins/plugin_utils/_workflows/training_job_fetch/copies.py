# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a controller knows of copies of a run's files: what ``fetch`` brought, and what ``prune`` removed from nodes.

It is a file beside the run record (``copies.json``), whose time orders runs and so does not change with a fetch.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.timestamps import format_time
from ....module_utils._model.validators import decimal, dictionary, field, list_of, section, text
from ....module_utils._node import files

_FILE: t.Final = "copies.json"
# An older fetch to one more folder is forgotten; its files are then not known as a copy.
_MOST_FETCHES: t.Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class FetchedFiles:
    """Files that were fetched to the folder ``dest``, by their names in it, at a time in Unix seconds."""

    at: float = field(decimal(0))
    dest: str = field(text)
    files: tuple[str, ...] = field(list_of(text), ())


@dataclasses.dataclass(frozen=True, slots=True)
class RunCopies:
    """The fetches of a run, one a destination, and when its folder was removed from each node (Unix seconds)."""

    fetched: tuple[FetchedFiles, ...] = field(list_of(section(FetchedFiles)), ())
    pruned: t.Mapping[str, t.Any] = field(dictionary, {})


def read_copies(folder: pathlib.Path) -> RunCopies:
    """Return what is known of a run's folder; of a damaged file nothing, so that nothing counts as copied."""
    try:
        return section(RunCopies)(files.read_json(folder / _FILE) or {}, _FILE)
    except InputError:
        return RunCopies()


def note_fetch(folder: pathlib.Path, dest: pathlib.Path, names: t.Sequence[str], at: float) -> None:
    """Record that files of a run are in ``dest`` as they are on its nodes."""
    known = read_copies(folder)
    place = str(dest.absolute())
    before = next((item.files for item in known.fetched if item.dest == place), ())
    others = [item for item in known.fetched if item.dest != place]
    entry = FetchedFiles(at, place, tuple(sorted({*before, *names})))
    _write(folder, dataclasses.replace(known, fetched=(entry, *others)[:_MOST_FETCHES]))


def note_pruned(folder: pathlib.Path, nodes: t.Iterable[str], at: float) -> None:
    """Record that the run's folder was removed from nodes."""
    known = read_copies(folder)
    _write(folder, dataclasses.replace(known, pruned={**known.pruned, **dict.fromkeys(nodes, at)}))


def describe_removal(copies: RunCopies) -> str:
    """Return when ``prune`` removed the run's folder, and from which nodes."""
    days = sorted({format_time(at)[:10] for at in copies.pruned.values() if isinstance(at, int | float)})
    return f"removed by prune from {', '.join(sorted(copies.pruned))} on {', '.join(days)}"


def has_copy(copies: RunCopies, name: str, saved_at: float, apart_from: pathlib.Path | None) -> bool:
    """Return whether a checkpoint, a file or a folder of this name, was fetched since it was saved and is still there.

    :param apart_from: a folder of the controller whose files are no copy, because it will be removed.
    """
    for fetch in copies.fetched:
        dest = pathlib.Path(fetch.dest)
        own = [file for file in fetch.files if name in pathlib.PurePosixPath(file).parts]
        if apart_from is not None and apart_from.absolute() in (dest, *dest.parents):
            continue
        if own and fetch.at >= saved_at and all((dest / file).is_file() for file in own):
            return True
    return False


def _write(folder: pathlib.Path, copies: RunCopies) -> None:
    values = {"fetched": [dataclasses.asdict(item) for item in copies.fetched], "pruned": dict(copies.pruned)}
    files.write_json(files.private_dir(folder) / _FILE, values)
