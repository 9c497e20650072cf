# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that did not answer: to which island they belong, and what that does to its verdict. Pure rules.

An island is judged by the nodes that are there. It does not pass then: what was expected and did not come is a warning
when others were tested together, and leaves the network unproven when nobody was left to test it with.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.island import Island, IslandOverride
from ....module_utils._model.node import Node
from ....module_utils._model.verdict import Cause
from .links import Paths

CODE = "host_unreachable"
VerdictEntry = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class AbsentNode:
    """A node that gave no facts: what the inventory says of it, why it did not answer, and what to do."""

    node: Node
    problem: str
    fix: str

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.name

    @property
    def cause(self) -> Cause:
        """Return the cause that stands in a verdict."""
        return Cause(CODE, self.problem, self.fix, self.name)

    def to_dict(self) -> dict[str, str]:
        """Return the entry of ``absent`` in fabric.json."""
        return {"node": self.name, "problem": self.problem, "fix": self.fix}


def without_absent_nodes(overrides: t.Iterable[IslandOverride], absent: t.Iterable[AbsentNode]) -> list[IslandOverride]:
    """Return the declared islands without the nodes that did not answer; one that is empty then is left out."""
    gone = {item.name for item in absent}
    left = [
        dataclasses.replace(item, nodes=kept) if item.nodes else item
        for item in overrides
        if (kept := tuple(name for name in item.nodes if name not in gone)) or not item.nodes
    ]
    return left


def assign_absent_nodes(
    absent: t.Iterable[AbsentNode],
    islands: t.Sequence[Island],
    overrides: t.Iterable[IslandOverride],
    before: t.Iterable[VerdictEntry],
    nodes: t.Iterable[Node],
) -> dict[str, list[AbsentNode]]:
    """Return island name -> the absent nodes that belong to it; one that nothing places is in no island.

    A node belongs where the user declared it, else where the last verdict had it, else where the inventory's addresses
    put it into one LAN with all nodes of an island.

    :param before: the islands of the last fabric.json, each with ``nodes``.
    :param nodes: the facts of the nodes that answered.
    """
    declared = [item.nodes for item in overrides]
    stored = [tuple(str(name) for name in item["nodes"]) for item in before]
    known = {node.name: node for node in nodes}
    found: dict[str, list[AbsentNode]] = {}
    for item in absent:
        home = (
            _island_sharing_most(item.name, declared, islands)
            or _island_sharing_most(item.name, stored, islands)
            or _island_of_lan(item, islands, known)
        )
        if home is not None:
            found.setdefault(home, []).append(item)
    return found


def judge_attendance(absent: t.Sequence[AbsentNode], tested: int) -> tuple[t.Literal["pass", "warn", "unproven"], str]:
    """Return what absent nodes make of an island's attendance, and why; ``tested`` is how many nodes were tested."""
    if not absent:
        return "pass", ""
    names = ", ".join(item.name for item in absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
    text = f"judged without {names}: no answer"
    return ("warn", text) if tested > 1 else ("unproven", f"{text}, and nobody is left to test the network with")


def _island_sharing_most(name: str, groups: t.Iterable[t.Sequence[str]], islands: t.Sequence[Island]) -> str | None:
    """Return the island that shares most nodes with the group that holds ``name``."""
    for group in groups:
        if name not in group:
            continue
        shared = {island.name: len(set(group) & set(island.nodes)) for island in islands}
        best = max(shared, key=lambda key: shared[key], default=None)
        return best if best is not None and shared[best] else None
    return None


def _island_of_lan(item: AbsentNode, islands: t.Sequence[Island], known: t.Mapping[str, Node]) -> str | None:
    if not item.node.addresses.lan and not item.node.fabric_hint:
        return None
    paths = Paths({**known, item.name: item.node}, ())
    for island in islands:
        if all(paths.path(item.name, name) == "lan" for name in island.nodes):
            return island.name
    return None
