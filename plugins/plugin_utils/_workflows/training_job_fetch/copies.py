# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a controller knows of copies of a run's files: what ``fetch`` brought, and what ``prune`` removed from nodes.

It is a file beside the run record (``copies.json``), whose time orders runs and so does not change with a fetch.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.timestamps import format_time
from ....module_utils._model.validators import decimal, dictionary, field, list_of, section, text
from ....module_utils._node import files
from ..shared.state_dir import StateHome

_FILE: t.Final = "copies.json"
# An older fetch to one more folder is forgotten; its files are then not known as a copy.
_MOST_FETCHES: t.Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class FetchedFiles:
    """Files that were fetched to the folder ``dest``, at a time in Unix seconds: name in it -> SHA-256."""

    at: float = field(decimal(0))
    dest: str = field(text)
    digests: t.Mapping[str, t.Any] = field(dictionary, {})
    # Name -> the nodes that were asked for it; without it all were. Another node's file of that name was not fetched.
    nodes: t.Mapping[str, t.Any] = field(dictionary, {})
    # Written by earlier versions: names without a digest prove no copy.
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


def note_fetch(
    folder: pathlib.Path, dest: pathlib.Path, digests: t.Mapping[str, str], at: float, nodes: t.Sequence[str] = ()
) -> None:
    """Record that files of a run are in ``dest`` as they are on ``nodes``, or wherever it has any."""
    known = read_copies(folder)
    place = str(dest.absolute())
    before = next((item for item in known.fetched if item.dest == place), FetchedFiles(at, place))
    others = [item for item in known.fetched if item.dest != place]
    asked = {**before.nodes, **dict.fromkeys(digests, list(nodes))} if nodes else before.nodes
    entry = FetchedFiles(at, place, {**before.digests, **digests}, asked)
    _write(folder, dataclasses.replace(known, fetched=(entry, *others)[:_MOST_FETCHES]))


def note_pruned(folder: pathlib.Path, nodes: t.Iterable[str], at: float) -> None:
    """Record that the run's folder was removed from nodes."""
    known = read_copies(folder)
    _write(folder, dataclasses.replace(known, pruned={**known.pruned, **dict.fromkeys(nodes, at)}))


def describe_removal(copies: RunCopies, pruned_at: str | None = None) -> str:
    """Return when ``prune`` removed the run's folder, and from which nodes; empty where it did not.

    :param pruned_at: when it removed what the controller had of the run.
    """
    days = {format_time(at)[:10] for at in copies.pruned.values() if isinstance(at, int | float)}
    days |= {pruned_at[:10]} if pruned_at else set()
    places = [*sorted(copies.pruned), *(["the controller"] if pruned_at else [])]
    return f"removed by prune from {', '.join(places)} on {', '.join(sorted(days))}" if places else ""


def has_copy(
    copies: RunCopies, name: str, saved_at: float, apart_from: pathlib.Path | None, node: str | None = None
) -> bool:
    """Return whether a checkpoint, a file or a folder of this name, was fetched since it was saved and is still there.

    A file of another run may have taken its name there: the content counts.

    :param node: whose part of it this is, None for a copy.
    :param apart_from: a folder of the controller whose files are no copy, because it will be removed.
    """
    for fetch in copies.fetched:
        dest = pathlib.Path(fetch.dest)
        own = {file: sha for file, sha in fetch.digests.items() if f"/{name}/" in f"/{file}/"}
        if apart_from is not None and apart_from.absolute() in (dest, *dest.parents):
            continue
        if node is not None and any(node not in (fetch.nodes.get(file) or (node,)) for file in own):
            continue
        if own and fetch.at >= saved_at and all(_is_same(dest / file, sha) for file, sha in own.items()):
            return True
    return False


def find_foreign(home: StateHome, run_id: str, place: pathlib.Path) -> str | None:
    """Return of which run a file on the controller is that a fetch would replace, or why that is not known.

    None: it is of this run, as it was fetched.
    """
    owners = [folder.name for folder in home.runs() if _is_fetched(read_copies(folder), place)]
    if run_id in owners:
        return None
    return f"is of run {owners[0]}" if owners else "was not fetched by this controller, or has changed since"


def _is_fetched(copies: RunCopies, place: pathlib.Path) -> bool:
    """Return whether a file is as it was fetched."""
    return any(
        pathlib.PurePath(file).name == place.name
        and pathlib.Path(fetch.dest, file).resolve() == place.resolve()
        and _is_same(place, sha)
        for fetch in copies.fetched
        for file, sha in fetch.digests.items()
    )


def list_whole(copies: RunCopies) -> list[str]:
    """Return the folders in which all is still there that was fetched to them."""
    return [
        item.dest
        for item in copies.fetched
        if item.digests and all(_is_same(pathlib.Path(item.dest, file), sha) for file, sha in item.digests.items())
    ]


def _is_same(place: pathlib.Path, sha256: object) -> bool:
    return place.is_file() and files.sha256_of(place) == sha256


def _write(folder: pathlib.Path, copies: RunCopies) -> None:
    values = {"fetched": [dataclasses.asdict(item) for item in copies.fetched], "pruned": dict(copies.pruned)}
    files.write_json(files.private_dir(folder) / _FILE, values)
