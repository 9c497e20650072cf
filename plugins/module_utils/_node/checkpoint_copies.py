# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoints lie on which node of a gang without a shared folder, and which are copied before ranks begin.

Many programs save on rank 0 alone and load on every rank: what one node saved is copied to the others. A program that
keeps a part per node is recognised by what it left: several nodes wrote files of one kind, or their names have ranks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import typing as t

from . import checkpoint_layouts, checkpoint_table, files

# In the checkpoint folder: what was copied there, which the program did not write.
LEDGER = ".muster-copied.json"
_LOGS = re.compile(r"\.(?:log|jsonl|csv|out|err)$|tfevents")
_SMALL = 64 << 10

_T = t.TypeVar("_T")
Ledger = dict[str, dict[str, t.Any]]


class Entry(t.NamedTuple):
    """A file or a folder in a checkpoint folder. It travels as the list of its fields.

    :ivar files: path in it (empty for a file itself) -> size, and time of the file on the node that saved it.
    :ivar own: the paths that this node wrote itself. :ivar digest: of a small single file.
    :ivar proven: its format shows that it is whole, as the directory at the end of an archive does.
    """

    name: str
    saved_at: int
    whole: bool
    files: dict[str, list[int]]
    own: list[str]
    digest: str = ""
    proven: bool = True

    @property
    def bytes(self) -> int:
        return sum(size for size, _at in self.files.values())

    @property
    def is_written_here(self) -> bool:
        """Return whether this node wrote of it more than every rank does beside a checkpoint of rank 0."""
        return any(not checkpoint_table.OF_EVERY_RANK.search(path) for path in self.own)


class Copy(t.NamedTuple):
    """What a node lacks of a checkpoint, and the nodes that have it."""

    entry: Entry
    sources: tuple[str, ...]
    missing: dict[str, list[int]]


class CopyPlan(t.NamedTuple):
    """``in_parts``: each node keeps its own. ``stale``: former copies that a newer checkpoint has replaced."""

    in_parts: bool
    copies: dict[str, list[Copy]]
    stale: dict[str, list[str]]


def plan_copies(nodes: t.Mapping[str, t.Sequence[Entry]]) -> CopyPlan:
    """Return what each node copies before the ranks begin; what a node wrote itself to its end is never touched."""
    nothing = CopyPlan(False, {}, {})
    families: dict[str, dict[str, list[Entry]]] = {}
    for node, entries in nodes.items():
        for entry in entries:
            families.setdefault(family(entry.name), {}).setdefault(node, []).append(entry)
    candidates = {name: found for name, held in families.items() if (found := _find_candidates(name, held))}
    if not candidates:
        return nothing
    # The largest are the checkpoints; beside them are settings, and files that name the newest one.
    main = max(candidates, key=lambda name: (candidates[name][0].bytes, candidates[name][0].saved_at))
    if len(_list_writers(families[main])) > 1 or any(map(_is_ranked, candidates[main])):
        return nothing._replace(in_parts=True)
    copies: dict[str, list[Copy]] = {}
    stale: dict[str, list[str]] = {}
    for name, wanted in candidates.items():
        if len(_list_writers(families[name])) > 1:
            continue
        kept = {candidate.name for candidate in wanted}
        for node in nodes:
            for candidate in wanted:
                _add_copy(copies.setdefault(node, []), candidate, families[name], node)
            stale.setdefault(node, []).extend(
                entry.name
                for entry in families[name].get(node, [])
                if entry.name not in kept and not entry.is_written_here and len(entry.own) < len(entry.files)
            )
    return CopyPlan(False, _without_empty(copies), _without_empty(stale))


def family(name: str) -> str:
    """Return what the names of a program's checkpoints have in common: all but their numbers, and of which part."""
    name = checkpoint_table.name_whole(name)
    for ending in checkpoint_table.UNFINISHED:
        name = name.removesuffix(ending)
    return re.sub("[0-9]+", "#", name)


def split_rank(name: str) -> tuple[str, str]:
    """Return a name without the number of a rank in it, and that number, empty without one."""
    found = checkpoint_table.RANKED.search(name)
    if found is None:
        return name, ""
    return f"{name[: found.start(1)]}#{name[found.end(1) :]}", str(int(found[1]))


def is_log(name: str) -> bool:
    """Return whether a name is that of something that training appends to."""
    return bool(_LOGS.search(name))


def _find_candidates(name: str, held: t.Mapping[str, t.Sequence[Entry]]) -> list[Entry]:
    """Return the newest whole one of a family: of the node that writes them, while it has any.

    Where its format does not show that it is whole, the one before it comes along: what the program takes on the node
    that wrote them, it finds on the others.
    """
    if is_log(name) or _is_the_same(held):
        return []
    entries = [entry for found in held.values() for entry in found if entry.whole]
    written = [entry for entry in entries if entry.is_written_here] or entries
    by_name = {entry.name: entry for entry in written}
    heads = [entry for entry in by_name.values() if checkpoint_table.name_whole(entry.name) == entry.name]
    newest = sorted(heads, key=lambda entry: (entry.saved_at, entry.name))
    chosen = newest[-1:] if not newest or newest[-1].proven else newest[:-3:-1]
    # Of several files that are one checkpoint the one that says so comes last.
    parts = (entry for entry in by_name.values() if entry not in heads)
    names = {entry.name for entry in chosen}
    return [*(part for part in parts if checkpoint_table.name_whole(part.name) in names), *chosen]


def _is_the_same(held: t.Mapping[str, t.Sequence[Entry]]) -> bool:
    """Return whether several nodes wrote one small file with the same content, such as their settings."""
    written = [entry for found in held.values() for entry in found if entry.is_written_here]
    return len(written) > 1 and len({(entry.name, entry.digest) for entry in written}) == 1 and bool(written[0].digest)


def _list_writers(held: t.Mapping[str, t.Sequence[Entry]]) -> list[str]:
    return [node for node, found in held.items() if any(entry.is_written_here for entry in found)]


def _is_ranked(entry: Entry) -> bool:
    return any(
        checkpoint_table.RANKED.search(f"{entry.name}/{path}")
        for path in entry.files
        if not checkpoint_table.OF_EVERY_RANK.search(path)
    )


def _add_copy(copies: list[Copy], candidate: Entry, held: t.Mapping[str, t.Sequence[Entry]], node: str) -> None:
    """Add what a node lacks of a candidate, if anything."""
    here = next((entry for entry in held.get(node, []) if entry.name == candidate.name), None)
    # A file that its program was killed over is of no use to it: it would fail at it in each attempt.
    is_torn = here is not None and not here.whole and list(here.files) == [""]
    missing = {
        path: about
        for path, about in candidate.files.items()
        if here is None or (here.files.get(path) != about and (is_torn or path not in here.own))
    }
    sources = [
        other
        for other, found in held.items()
        if other != node and any(entry.whole and _has_all(entry, candidate) for entry in found)
    ]
    if missing and sources:
        # Of several sources each node takes another one.
        first = sum(map(ord, node)) % len(sources)
        copies.append(Copy(candidate, (*sources[first:], *sources[:first]), missing))


def _has_all(entry: Entry, candidate: Entry) -> bool:
    return entry.name == candidate.name and candidate.files.items() <= entry.files.items()


def _without_empty(found: dict[str, list[_T]]) -> dict[str, list[_T]]:
    return {node: items for node, items in found.items() if items}


def list_entries(folder: pathlib.Path, form: str) -> list[Entry]:
    """Return what lies in a checkpoint folder, the newest first; none when it cannot be read."""
    ledger = read_ledger(folder)
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if not name.startswith("."):
                with contextlib.suppress(OSError):
                    entry = _describe(folder, name, form, ledger.get(name, {}))
                    found += [entry] if entry else []
    return sorted(found, key=lambda entry: (-entry.saved_at, entry.name))


def read_ledger(folder: pathlib.Path) -> Ledger:
    """Return name -> ``{whole, files {path: [size, time at its origin, time here]}}`` of what was copied here."""
    found = files.read_json(folder / LEDGER)
    return {name: about for name, about in found.items() if isinstance(about, dict)} if isinstance(found, dict) else {}


def _describe(folder: pathlib.Path, name: str, form: str, copied: t.Mapping[str, t.Any]) -> Entry | None:
    place, listed = folder / name, {}
    own: list[str] = []
    for path in _list_files(place):
        state = (place / path).stat() if path else place.stat()
        known = copied.get("files", {}).get(path)
        if known and [state.st_size, state.st_mtime_ns] == [known[0], known[2]]:
            listed[path] = [known[0], known[1]]
        else:
            listed[path] = [state.st_size, state.st_mtime_ns]
            own.append(path)
    if not listed:
        return None
    whole = is_whole(place, form, listed) if own or not copied else bool(copied.get("whole"))
    mark = listed.get(".metadata") or max(listed.values(), key=lambda about: about[1])
    small = list(listed) == [""] and listed[""][0] <= _SMALL
    digest = hashlib.sha256(place.read_bytes()).hexdigest() if small else ""
    return Entry(name, mark[1], whole, listed, own, digest, _is_proven(place, form, listed))


def _list_files(place: pathlib.Path) -> list[str]:
    """Return the paths of the files of an entry, empty for a file itself; links are none."""
    if place.is_symlink():
        return []
    if not place.is_dir():
        # A reader of a pipe waits.
        return [""] if place.is_file() else []
    found = []
    for top, _folders, names in os.walk(place):
        paths = (pathlib.Path(top, name) for name in names)
        found += [path.relative_to(place).as_posix() for path in paths if path.is_file() and not path.is_symlink()]
    return sorted(found)


def is_whole(place: pathlib.Path, form: str, listed: t.Mapping[str, t.Sequence[int]]) -> bool:
    """Return whether an entry is a checkpoint that was written to its end, as far as its layout tells."""
    sizes = {path: size for path, (size, _at) in listed.items()}
    return not checkpoint_layouts.find_problem(place, sizes, "dcp" if form == "dcp" else "")


def _is_proven(place: pathlib.Path, form: str, listed: t.Mapping[str, t.Sequence[int]]) -> bool:
    """Return whether the end of an entry can be told."""
    return form == "dcp" or checkpoint_layouts.is_proven(place, {path: size for path, (size, _at) in listed.items()})
