# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a K3s cluster looked at all at once, and refused by name before anything is changed on any of them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ...module_utils._model import cluster_checks, k3s
from ...module_utils._model.errors import InputError
from .._hosts import downloads
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node
from .node_info import build_record
from .node_table import build_table

Result = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterMachine:
    """A machine as the inventory has it: its variables, and the peers of a mesh to which the path is wanted."""

    variables: t.Mapping[str, t.Any]
    peers: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """Its role in the cluster, empty where none is set."""
        return str(self.variables.get("muster_k3s_role") or "")

    def find_node_name(self, host: str) -> str:
        """Return the name of its Node."""
        return str((self.variables.get("muster_node") or {}).get("name") or host)


def check_cluster(
    connect: t.Callable[[], t.Sequence[NodeClient]],
    machines: t.Mapping[str, ClusterMachine],
    chosen: t.Collection[str],
    pods: str,
    services: str,
) -> Result:
    """Return who is what; ``machines``: by host. ``chosen``: this play's hosts.

    :raises MusterError: naming what makes no cluster.
    """
    roles = {host: machine.role for host, machine in machines.items()}
    k3s.check_roles(roles)
    server = next(host for host, role in roles.items() if role == "server")
    if server not in chosen:
        raise InputError("--limit", f"leaves out {server}, which is the server", f"Add it: --limit '…,{server}'")
    answers, errors = on_each_node(connect(), lambda remote: _ask(remote, machines[remote.name]))
    if errors:
        raise most_telling_error(errors)
    members = [_make_member(host, machine, answers[host]) for host, machine in machines.items()]
    k3s.check_members(members, pods, services)
    nodes = {item.host: item.node for item in members}
    measured = {host: {name: answers[host][name] for name in ("facts", "clock_skew_s")} for host in machines}
    records = [build_record(host, machine.variables, measured[host]).to_dict() for host, machine in machines.items()]
    return {
        "changed": False,
        "server": server,
        "agents": [host for host, role in roles.items() if role == "agent"],
        "up": answers[server]["unit"]["active"] == "active",
        "table": build_table(records),
        "notes": [line for item in members for line in cluster_checks.describe(item)],
        "objects": [{"apiVersion": "v1", "kind": "Node", "name": nodes[host]} for host in roles],
        "labels": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": nodes[host], "labels": dict(machine.variables["k3s_labels"])},
            }
            for host, machine in machines.items()
            if "k3s_labels" in machine.variables
        ],
        "taints": {
            nodes[host]: [str(item) for item in machine.variables["k3s_taints"]]
            for host, machine in machines.items()
            if "k3s_taints" in machine.variables
        },
        "nodes": [_describe_node(item) for item in members],
        "firewalls": sorted(item.host for item in members if any(_read_firewall(item, "tool", "opened"))),
    }


def _describe_node(member: k3s.K3sMember) -> dict[str, t.Any]:
    return {
        "host": member.host,
        "role": member.role,
        "node": member.node,
        "architecture": member.architecture,
        "addresses": [item["address"] for item in member.addresses],
        "client": _read_firewall(member, "client")[0],
    }


def _read_firewall(member: k3s.K3sMember, *names: str) -> list[t.Any]:
    found = member.machine.get("firewall") or {}
    return [found.get(name) for name in names]


def _ask(remote: NodeClient, machine: ClusterMachine) -> dict[str, t.Any]:
    began = time.time()
    unit = "k3s.service" if machine.role == "server" else "k3s-agent.service"
    answer = remote.call("k3s", step="look", unit=unit, machine=machine.role, facts=True, peers=list(machine.peers))
    return {**answer, "clock_skew_s": round(answer["machine"]["time"] - (began + time.time()) / 2, 3)}


def _make_member(host: str, machine: ClusterMachine, answer: t.Mapping[str, t.Any]) -> k3s.K3sMember:
    own = machine.variables
    return k3s.K3sMember.from_answer(
        host,
        machine.role,
        machine.find_node_name(host),
        answer,
        clock_skew_s=answer["clock_skew_s"],
        version=str(own.get("k3s_version") or downloads.default_version("k3s")),
        node_ip=str(own.get("k3s_node_ip") or ""),
        flannel_iface=str(own.get("k3s_flannel_iface") or ""),
    )
