# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoint the nodes of a run continue from, when each may have its own copies and a bucket has others."""

from __future__ import annotations

import dataclasses
import typing as t

from . import checkpoint_copies

Row = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeCheckpoints:
    """What one node could start from: its own complete checkpoints, and those that are stored for it."""

    local: tuple[Row, ...] = ()
    stored: tuple[Row, ...] = ()

    def copies(self) -> dict[tuple[str, int], Row | None]:
        """Return name and time -> the stored copy to fetch, None where the local copy is whole."""
        found: dict[tuple[str, int], Row | None] = {(row["name"], row["saved_at"]): row for row in self.stored}
        return found | {(row["name"], row["saved_at"]): None for row in self.local if row["ok"]}

    def list_damaged(self) -> list[str]:
        """Return the names of local copies that are not whole."""
        return [str(row["name"]) for row in self.local if not row["ok"]]


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """What one node does before it starts: fetch a stored checkpoint (or none), and hide what is newer than it."""

    name: str | None = None
    fetch: Row | None = None
    aside: tuple[str, ...] = ()


def choose_checkpoints(
    nodes: t.Mapping[str, NodeCheckpoints], excluded: t.Collection[tuple[str, int]] = ()
) -> dict[str, CheckpointChoice]:
    """Return what each node does: all continue from the newest checkpoint that every node has that has any.

    A node without any saves none, such as all but the first of a program that saves on rank 0. Checkpoints of several
    nodes belong together by their name, without the number of a rank in it. Where no name is common, each node uses its
    newest.

    :param excluded: name and time of stored copies that turned out to be damaged.
    """
    copies = {
        node: {key: row for key, row in found.copies().items() if row is None or key not in excluded}
        for node, found in nodes.items()
    }
    having = [node for node, found in copies.items() if found]
    common = set.intersection(*({_step_of(name) for name, _at in copies[node]} for node in having)) if having else set()
    shared = (key for node in having[:1] for key in copies[node] if _step_of(key[0]) in common)
    newest = max(shared, key=_saved_at, default=None)
    step = _step_of(newest[0]) if newest else None
    return {node: _choose(copies[node], step, found) for node, found in nodes.items()}


def _step_of(name: str) -> str:
    """Return what the names of all ranks' files of one step have in common."""
    return checkpoint_copies.split_rank(name)[0]


def _choose(
    copies: t.Mapping[tuple[str, int], Row | None], step: str | None, found: NodeCheckpoints
) -> CheckpointChoice:
    fitting = [key for key in copies if step is None or _step_of(key[0]) == step]
    # What is damaged is hidden too, whatever its age: a program may take it for whole.
    if not fitting:
        return CheckpointChoice(aside=tuple(found.list_damaged()))
    chosen = max(fitting, key=_saved_at)
    newer = [row["name"] for row in found.local if row["saved_at"] > chosen[1] and row["name"] != chosen[0]]
    aside = dict.fromkeys([*newer, *(item for item in found.list_damaged() if item != chosen[0])])
    return CheckpointChoice(chosen[0], copies[chosen], tuple(aside))


def _saved_at(key: tuple[str, int]) -> int:
    return key[1]
