# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of NCCL and gloo that the nodes of an island need, by class: nodes of one class need the same.

They are computed once, from the nodes' facts and the verdict on their network, and written into ``fabric.json``; the
fabric test and jobs, on hosts and in pods, take them from there.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import typing as t

from .wording import name_some

Environment = t.Mapping[str, str]
_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_SOCKETS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
PINNED_NETWORK = "NCCL_NET"
TOPOLOGY_FILE = "NCCL_TOPO_FILE"
_MAX_NAMES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that need the same variables."""

    nodes: tuple[str, ...]
    variables: Environment

    @classmethod
    def from_dict(cls, value: object) -> NodeClass | None:
        """Return the class that a JSON value holds, None when it is not one."""
        if not isinstance(value, dict):
            return None
        nodes, variables = value.get("nodes"), value.get("variables")
        if not isinstance(nodes, list) or not isinstance(variables, dict):
            return None
        known = {
            name: text
            for name, text in variables.items()
            if isinstance(name, str) and _NAME.match(name) and isinstance(text, str) and text.isprintable()
        }
        return cls(tuple(str(name) for name in nodes), known)

    def to_dict(self) -> dict[str, object]:
        """Return the class as JSON types."""
        return {"nodes": list(self.nodes), "variables": dict(self.variables)}

    def describe(self) -> str:
        """Return such as ``gpu-1, gpu-2: NCCL_IB_HCA==mlx5_0``."""
        values = " ".join(f"{name}={value}" for name, value in sorted(self.variables.items()))
        return f"{name_some(self.nodes, _MAX_NAMES)}: {values}"


def bind_to_interface(interface: str) -> dict[str, str]:
    """Return the variables that bind NCCL and gloo to an interface; the second ``=`` has NCCL compare whole names."""
    return {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}


def group_nodes(by_node: t.Mapping[str, Environment]) -> tuple[NodeClass, ...]:
    """Return the classes of nodes; those without variables are in none."""
    classes: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node, variables in by_node.items():
        if variables:
            classes.setdefault(tuple(sorted(variables.items())), []).append(node)
    return tuple(NodeClass(tuple(nodes), dict(key)) for key, nodes in classes.items())


def read_environment(verdict: t.Mapping[str, t.Any]) -> dict[str, dict[str, str]]:
    """Return the variables of each node of an entry of ``fabric.json``; empty where it has none, as of older versions.

    :param verdict: the entry of an island.
    """
    listed = verdict.get("environment")
    classes = [NodeClass.from_dict(item) for item in (listed if isinstance(listed, list) else [])]
    return {node: dict(item.variables) for item in classes if item is not None for node in item.nodes}


def select_variables(
    by_node: t.Mapping[str, Environment],
    env: Environment,
    *,
    own_network: bool,
    rdma: bool,
    one_island: bool = True,
    find_file: t.Callable[[str], str | None] = str,
) -> dict[str, dict[str, str]]:
    """Return the variables of each node that fit where a job's processes run; what the job sets itself is left out.

    :param env: the job's own variables.
    :param own_network: processes use the node's own interfaces; a pod with a network of its own does not.
    :param rdma: processes have the node's RDMA devices.
    :param one_island: all processes are on one island: between islands RDMA is not proven and is not pinned.
    :param find_file: returns where processes find a file of their node, None where they do not.
    """

    def fits(name: str) -> bool:
        if name in env or (name in _SOCKETS and not own_network) or (name == PINNED_NETWORK and not one_island):
            return False
        return rdma or not (name == PINNED_NETWORK or name.startswith("NCCL_IB_"))

    def place(name: str, text: str) -> str | None:
        return find_file(text) if name == TOPOLOGY_FILE else text

    return {
        node: {name: found for name, text in values.items() if fits(name) and (found := place(name, text)) is not None}
        for node, values in by_node.items()
    }


def list_missing_files(
    by_node: t.Mapping[str, Environment], env: Environment, find_file: t.Callable[[str], str | None]
) -> tuple[str, ...]:
    """Return a line for each topology file of the nodes that a job's pods do not have; NCCL then guesses distances."""
    nodes: dict[str, list[str]] = {}
    for node, values in by_node.items():
        path = values.get(TOPOLOGY_FILE)
        if path and TOPOLOGY_FILE not in env and find_file(path) is None:
            nodes.setdefault(path, []).append(node)
    return tuple(
        f"pods on {', '.join(names[:_MAX_NAMES])} do not have {path}, the topology file of NCCL: mount its folder "
        f"(job.mounts: {{name: topology, path: {folder}, host_path: {folder}, read_only: true}})"
        for path, names in nodes.items()
        for folder in [posixpath.dirname(path)]
    )


def list_overridden(by_node: t.Mapping[str, Environment], env: Environment) -> tuple[str, ...]:
    """Return a line for each variable that the job sets to another value than the network's verdict."""
    lines = []
    for name in sorted(env):
        values = {str(item[name]) for item in by_node.values() if name in item} - {str(env[name])}
        if values:
            lines.append(
                f"job.env sets {name}={env[name]}, and the verdict on the network {', '.join(sorted(values)[:2])}: "
                "the job's value is used"
            )
    return tuple(lines)
