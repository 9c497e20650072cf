# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoint of a run is the newest whole one, when each node may hold a part of it or a copy.

Programs that save on one rank leave it on one node, and ``checkpoint_copies.py`` made copies of it on others: the
newest counts. Where several nodes or ranks save files of their own, a step counts once all have saved it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

from . import checkpoint_copies, checkpoint_layouts, checkpoint_trackers, checkpoints

_NUMBER: t.Final = re.compile("[0-9]+")
# How many nodes a problem names.
_SHOWN: t.Final = 4
_NO_STEP: t.Final = "no step has a part of every rank or node that saved any"


class Held(t.NamedTuple):
    """A checkpoint, or a node's part of one, as a node holds it. It travels as a dictionary.

    :ivar saved_at: when it was saved where it was saved (nanoseconds). :ivar bytes: of all its files.
    :ivar own: whether the program wrote it on this node; else it was copied there.
    :ivar unmarked: it lacks nothing but the file that one rank writes last, on its own node.
    :ivar is_current: a tracker of the program names it.
    """

    name: str
    saved_at: int
    bytes: int = 0
    own: bool = True
    whole: bool = True
    unmarked: bool = False
    is_current: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointSet:
    """The newest whole checkpoint: the names of what each node holds of it.

    :ivar problem: there are parts, and no step of which every part is there; ``names`` are then each node's newest.
    :ivar newer: what a later step has, of which not every part is there.
    """

    names: t.Mapping[str, tuple[str, ...]]
    problem: str = ""
    newer: tuple[str, ...] = ()


class _Part(t.NamedTuple):
    """``key``: the name without what tells parts apart; ``label``: that, or the node."""

    node: str
    held: Held
    key: str
    label: str


def list_held(folder: pathlib.Path, form: str, reported: str = "") -> list[Held]:
    """Return what a node holds in a checkpoint folder, whole or not, as ``checkpoints.list_saved`` orders it.

    :param reported: one of which the program said that it is saved.
    """
    entries = {entry.name: entry for entry in checkpoint_copies.list_entries(folder, form)}
    found = []
    for saved in checkpoints.list_saved(folder, form):
        top, _slash, inner = saved.name.partition("/")
        entry = entries.get(top)
        if entry is None:
            continue
        inside = {path: about for path, about in entry.files.items() if not inner or f"{path}/".startswith(f"{inner}/")}
        wrote = entry._replace(own=[path for path in entry.own if path in inside]).is_written_here
        # Of the files, which keep it when they are copied: a folder does not.
        at = max((about[1] for about in inside.values()), default=saved.saved_at)
        parts = checkpoint_layouts.list_parts(folder / saved.name)
        size = sum(about[0] for about in inside.values()) + sum(part.stat().st_size for part in parts)
        whole = not saved.problem or saved.name == reported
        unmarked = checkpoint_trackers.is_unmarked(saved)
        found.append(Held(saved.name, at, size, wrote, whole, unmarked, saved.is_current))
    return found


def choose_set(nodes: t.Mapping[str, t.Sequence[Held]]) -> CheckpointSet:
    """Return the newest whole checkpoint over all nodes; a node without any has no part of it."""
    families: dict[str, list[_Part]] = {}
    for node, listed in nodes.items():
        for held in listed:
            key, label = checkpoint_copies.split_rank(held.name)
            families.setdefault(checkpoint_copies.family(held.name), []).append(_Part(node, held, key, label or node))
    newest = {node: next((held for held in listed if held.whole), None) for node, listed in nodes.items()}
    wanted = dict.fromkeys(checkpoint_copies.family(held.name) for held in newest.values() if held is not None)
    sets = [_choose_in_family(families[name]) for name in wanted]
    # What was copied does not matter where others have saved something else since.
    saved = [item for item, name in zip(sets, wanted, strict=True) if any(part.held.own for part in families[name])]
    names: dict[str, tuple[str, ...]] = {}
    for item in saved or sets:
        for node, own in item.names.items():
            names[node] = (*names.get(node, ()), *own)
    problem = next((item.problem for item in sets if item.problem), "")
    return CheckpointSet(names, problem, tuple(name for item in sets for name in item.newer))


def _choose_in_family(parts: t.Sequence[_Part]) -> CheckpointSet:
    own = [part for part in parts if part.held.own and (part.held.whole or part.held.unmarked)]
    is_ranked = any(checkpoint_copies.split_rank(part.held.name)[1] for part in own)
    # Parts are never copied: copies show that one rank at a time saves, which moved where two nodes have saved.
    has_copies = any(not part.held.own and part.held.whole for part in parts)
    if not is_ranked and (has_copies or len({part.node for part in own}) < 2):
        return _choose_single(parts)
    return _choose_common(own if is_ranked else _split_numbers(own))


def _choose_single(parts: t.Sequence[_Part]) -> CheckpointSet:
    whole = (part for part in parts if part.held.whole)
    newest = max(whole, key=lambda part: (part.held.is_current, part.held.saved_at, part.held.own))
    return CheckpointSet({part.node: (part.held.name,) for part in parts if _belongs(part, newest)})


def _belongs(part: _Part, newest: _Part) -> bool:
    """Return whether a node has a part of a checkpoint that one rank at a time saves."""
    if part.held.name != newest.held.name:
        return False
    if not part.held.whole:
        # What every rank writes beside it, such as its random state.
        return not part.held.own
    # Of a name that is used again, a copy may be of what was saved before.
    return part.held.own or part.held.saved_at >= newest.held.saved_at


def _choose_common(parts: t.Sequence[_Part]) -> CheckpointSet:
    labels = {part.label for part in parts}
    keys: dict[str, list[_Part]] = {}
    for part in parts:
        keys.setdefault(part.key, []).append(part)
    whole = {
        key: held
        for key, held in keys.items()
        if {part.label for part in held} == labels and any(part.held.whole for part in held)
    }
    if not whole:
        newest = {part.node: part for part in sorted(parts, key=_saved_at) if part.held.whole}
        said = [f"{node}: {part.held.name}" for node, part in sorted(newest.items())]
        more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        problem = f"{_NO_STEP}; the newest are {', '.join(said[:_SHOWN])}{more}"
        return CheckpointSet({node: (part.held.name,) for node, part in newest.items()}, problem)
    chosen = max(whole, key=lambda key: max(map(_saved_at, whole[key])))
    names: dict[str, tuple[str, ...]] = {}
    for part in whole[chosen]:
        names[part.node] = (*names.get(part.node, ()), part.held.name)
    latest = max(map(_saved_at, whole[chosen]))
    newer = sorted({part.held.name for part in parts if part.key not in whole and _saved_at(part) > latest})
    return CheckpointSet(names, newer=tuple(newer))


def _split_numbers(parts: t.Sequence[_Part]) -> t.Sequence[_Part]:
    """Return parts whose names have the number of a rank without that word, with it as their label; else as they are.

    Such a number is of one node alone, and all of them are 0, 1 and so on: those of steps are not.
    """
    if any(_is_shared(part.key, parts) for part in parts):
        return parts
    for place in reversed(range(min(len(_NUMBER.findall(part.key)) for part in parts))):
        split = [_split_at(part, place) for part in parts]
        owners = {(part.label, part.node) for part in split}
        numbers = sorted(int(label) for label, _node in owners)
        if numbers == list(range(len(numbers))) and any(_is_shared(part.key, split) for part in split):
            return split
    return parts


def _is_shared(key: str, parts: t.Sequence[_Part]) -> bool:
    return len({part.node for part in parts if part.key == key}) > 1


def _split_at(part: _Part, place: int) -> _Part:
    found = list(_NUMBER.finditer(part.key))[place]
    return part._replace(key=f"{part.key[: found.start()]}#{part.key[found.end() :]}", label=found[0])


def _saved_at(part: _Part) -> tuple[bool, int]:
    return part.held.is_current, part.held.saved_at
