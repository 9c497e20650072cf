# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that did not answer: to which island they belong, and what that does to its verdict. Pure rules.

An island is judged by the nodes that answered, and then it cannot pass: absent nodes are a warning when at least two
others were tested together, and leave the network unproven when only one node is left.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.island import Island, IslandOverride
from ....module_utils._model.node import Node
from ....module_utils._model.verdict import Cause
from ....module_utils._model.wording import name_some
from .links import Paths

CODE = "host_unreachable"
_MAX_NAMES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class AbsentNode:
    """A node that gave no facts: its inventory record, why it did not answer, and what to do."""

    node: Node
    problem: str
    fix: str

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.name

    @property
    def cause(self) -> Cause:
        """Return the cause for a verdict."""
        return Cause(CODE, self.problem, self.fix, self.name)

    def to_dict(self) -> dict[str, str]:
        """Return the entry of ``absent`` in fabric.json."""
        return {"node": self.name, "problem": self.problem, "fix": self.fix}


def without_absent_nodes(overrides: t.Iterable[IslandOverride], absent: t.Iterable[AbsentNode]) -> list[IslandOverride]:
    """Return the declared islands without the nodes that did not answer; islands without any node left are dropped.

    A declaration that names no node at all is kept: it is an error that is reported later.
    """
    names = {node.name for node in absent}
    result = []
    for override in overrides:
        nodes = tuple(name for name in override.nodes if name not in names)
        if nodes or not override.nodes:
            result.append(dataclasses.replace(override, nodes=nodes))
    return result


def assign_absent_nodes(
    absent: t.Iterable[AbsentNode],
    islands: t.Sequence[Island],
    overrides: t.Iterable[IslandOverride],
    former: t.Sequence[t.Sequence[str]],
    nodes: t.Iterable[Node],
) -> dict[str, list[AbsentNode]]:
    """Return island name -> the absent nodes that belong to it; a node that nothing assigns is in no island.

    A node belongs to the island that the user declared, else to that of the last verdict, else to the island with all
    of whose nodes the inventory's addresses put it into one LAN.

    :param former: the nodes of each island in the last fabric.json.
    :param nodes: the facts of the nodes that answered.
    """
    declared = [override.nodes for override in overrides]
    by_name = {node.name: node for node in nodes}
    result: dict[str, list[AbsentNode]] = {}
    for node in absent:
        island = (
            _island_sharing_most(node.name, declared, islands)
            or _island_sharing_most(node.name, former, islands)
            or _island_of_lan(node, islands, by_name)
        )
        if island is not None:
            result.setdefault(island, []).append(node)
    return result


def judge_attendance(absent: t.Sequence[AbsentNode], tested: int) -> tuple[t.Literal["pass", "warn", "unproven"], str]:
    """Return the attendance of an island with absent nodes, and why; ``tested`` is how many nodes were tested."""
    if not absent:
        return "pass", ""
    text = f"no answer from {name_some([node.name for node in absent], _MAX_NAMES)}"
    return ("warn", text) if tested > 1 else ("unproven", f"{text}, and one node alone cannot test the network")


def _island_sharing_most(name: str, groups: t.Iterable[t.Sequence[str]], islands: t.Sequence[Island]) -> str | None:
    """Return the island that shares most nodes with the group that holds ``name``."""
    for group in groups:
        if name not in group:
            continue
        shared = {island.name: len(set(group) & set(island.nodes)) for island in islands}
        best = max(shared, key=lambda key: shared[key], default=None)
        return best if best is not None and shared[best] else None
    return None


def _island_of_lan(absent: AbsentNode, islands: t.Sequence[Island], nodes: t.Mapping[str, Node]) -> str | None:
    if not absent.node.addresses.lan and not absent.node.fabric_hint:
        return None
    paths = Paths({**nodes, absent.name: absent.node}, ())
    for island in islands:
        if all(paths.path(absent.name, name) == "lan" for name in island.nodes):
            return island.name
    return None
