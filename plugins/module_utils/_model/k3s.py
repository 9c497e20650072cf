# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines make a K3s cluster: one server, or an odd number, and any number of agents, in ranges of their own.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import typing as t

from . import cluster_checks, k3s_servers
from .checks import raise_first_failure
from .errors import InputError
from .node_facts import find_mesh_range

Role = t.Literal["server", "agent"]
ROLES: tuple[str, ...] = t.get_args(Role)


@dataclasses.dataclass(frozen=True, slots=True)
class K3sMember:
    """A machine of the cluster: inventory name, role, name of its Node, what was read on it, what it shall have.

    ``authority`` is the digest of a server's own CA, or of the one that an agent has joined. ``machine`` is empty where
    only an installation is decided. ``datastore``: what a server has, ``etcd`` or ``sqlite``, else empty; ``active``:
    whether K3s runs; ``settings``: options of K3s that all servers must have alike; ``was``: the part that it has now.
    """

    host: str
    role: str
    node: str
    machine_id: str = ""
    architecture: str = ""
    addresses: tuple[t.Mapping[str, t.Any], ...] = ()
    foreign: tuple[str, ...] = ()
    ability: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    machine: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    root: bool = True
    installed: bool = False
    authority: str | None = None
    clock_skew_s: float = 0.0
    version: str = ""
    node_ip: str = ""
    flannel_iface: str = ""
    datastore: str = ""
    active: bool = False
    was: str = ""
    site: str = ""
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_answer(cls, host: str, role: str, node: str, answer: t.Mapping[str, t.Any], **asked: t.Any) -> K3sMember:
        """Return a machine with what its agent has answered; ``asked``: further fields."""
        return cls(
            host,
            role,
            node,
            str(answer["machine_id"]),
            str(answer["architecture"]),
            tuple(answer["addresses"]),
            tuple(answer["foreign"]),
            answer["ability"],
            answer.get("machine") or {},
            bool(answer["root"]),
            answer["record"] is not None,
            answer["authority"],
            datastore=answer.get("datastore") or "",
            active=(answer.get("unit") or {}).get("active") == "active",
            was=(answer["record"] or {}).get("role", ""),
            **asked,
        )

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of its own interfaces; of a mesh, of which an interface shows one address, all of it."""
        found = (ipaddress.ip_interface(f"{item['address']}/{item['prefix']}") for item in self.addresses)
        networks = (find_mesh_range(str(item.ip)) or item.network for item in found)
        return tuple(dict.fromkeys(str(item) for item in networks))


def check_roles(roles: t.Mapping[str, str]) -> None:
    """Refuse an inventory that makes no cluster; ``roles``: ``muster_k3s_role`` by host, empty where it is not set.

    :raises InputError: naming the variable, or the host.
    """
    option = "muster_k3s_role"
    for host, role in roles.items():
        if role not in ROLES:
            raise InputError(
                option, f"'{role}' of {host} is not a role" if role else f"{host} has none", "Set server or agent"
            )
    servers = sorted(host for host, role in roles.items() if role == "server")
    if not servers:
        raise InputError(option, "the inventory has no server", "Set server on one machine and agent on the others")
    if len(servers) % 2 == 0:
        names = ", ".join(servers)
        problem = f"{len(servers)} servers ({names}) have no majority when half of them are lost"
        raise InputError(option, problem, "Set server on one machine, or on three or five")


def check_members(members: t.Sequence[K3sMember], pods: str, services: str) -> None:
    """Refuse machines that cannot be one cluster, before anything is changed on any of them.

    :raises MusterError: naming the machines.
    """
    for what, values in (
        ("are all the node", [(item.node, item.host) for item in members]),
        ("have one machine id", [(item.machine_id, item.host) for item in members if item.machine_id]),
    ):
        for value, hosts in _find_duplicates(values).items():
            fix = (
                "Set muster_node.name or rename one"
                if what.startswith("are")
                else "Remove /etc/machine-id on the copies and run systemd-machine-id-setup"
            )
            raise InputError("muster_nodes", f"{', '.join(hosts)} {what} {value}", fix)
    _check_parts(members)
    raise_first_failure([check for item in members for check in cluster_checks.check_machine(item)])
    check_ranges(members, pods, services)
    k3s_servers.check_servers([item for item in members if item.role == "server"])
    _check_authority(members)


def check_ranges(members: t.Sequence[K3sMember], pods: str, services: str) -> None:
    """Refuse ranges of pods and Services that overlap each other or a network of a machine.

    :raises InputError: naming both.
    """
    ranges = {name: _network(text, name) for name, text in (("k3s_cluster_cidr", pods), ("k3s_service_cidr", services))}
    own, other = ranges.values()
    if own.version == other.version and own.overlaps(other):
        raise InputError("k3s_service_cidr", f"{other} overlaps k3s_cluster_cidr {own}", "Choose another range")
    for item in members:
        for text in item.networks:
            network = ipaddress.ip_network(text)
            for name, taken in ranges.items():
                if network.version == taken.version and network.overlaps(taken):
                    raise InputError(
                        name, f"{taken} overlaps the network {network} of {item.host}", "Choose another range"
                    )


def _check_parts(members: t.Sequence[K3sMember]) -> None:
    """Refuse a machine that has the other part in the cluster: K3s does not change it where it is."""
    for item in members:
        if item.was and item.was != item.role:
            fix = f"Let it leave as {item.was} (cluster_absent --limit {item.host}), then run again"
            raise InputError("muster_k3s_role", f"{item.host} is installed as {item.was}, not as {item.role}", fix)


def _check_authority(members: t.Sequence[K3sMember]) -> None:
    """Refuse agents that trust another cluster's CA than the servers': they would try to join for ever."""
    own = {item.authority for item in members if item.role == "server"} - {None}
    for item in members:
        if own and item.role == "agent" and item.authority and item.authority not in own:
            fix = f"Let it leave (cluster_absent --limit {item.host}), then run again"
            raise InputError(item.host, "has joined a cluster with another CA than the server has now", fix)


def _find_duplicates(values: t.Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = collections.defaultdict(list)
    for value, host in values:
        found[value].append(host)
    return {value: sorted(hosts) for value, hosts in found.items() if len(hosts) > 1}


def _network(text: str, option: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as exc:
        raise InputError(
            option, f"'{text}' is not a range of addresses ({exc})", "Write for instance 10.42.0.0/16"
        ) from exc
