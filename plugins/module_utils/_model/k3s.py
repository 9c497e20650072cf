# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines make a K3s cluster: one server and any number of agents, told apart, in ranges of their own.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import typing as t

from .errors import InputError

Role = t.Literal["server", "agent"]
ROLES: tuple[str, ...] = t.get_args(Role)
# Of uname -m, and of K3s' releases.
ARCHITECTURES: t.Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclasses.dataclass(frozen=True, slots=True)
class K3sMember:
    """A machine of the cluster: inventory name, role, name of its Node, and what was read on it."""

    host: str
    role: str
    node: str
    machine_id: str = ""
    architecture: str = ""
    networks: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    systemd: bool = True
    root: bool = True

    @classmethod
    def from_answer(cls, host: str, role: str, node: str, answer: t.Mapping[str, t.Any]) -> K3sMember:
        """Return a machine with what its agent has answered."""
        found = (ipaddress.ip_interface(f"{item['address']}/{item['prefix']}") for item in answer["addresses"])
        return cls(
            host,
            role,
            node,
            str(answer["machine_id"]),
            str(answer["architecture"]),
            tuple(dict.fromkeys(str(item.network) for item in found)),
            tuple(answer["foreign"]),
            bool(answer["systemd"]),
            bool(answer["root"]),
        )


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
        raise InputError(
            option, f"{len(servers)} servers ({names}) have no majority when one is lost", "Set server on one machine"
        )
    if len(servers) > 1:
        raise InputError(option, f"{len(servers)} servers are not supported yet", "Set server on one machine")


def check_members(members: t.Sequence[K3sMember], pods: str, services: str) -> None:
    """Refuse machines that cannot be one cluster, before anything is changed on any of them.

    :raises InputError: naming the machines.
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
    for item in members:
        _check_machine(item)
    check_ranges(members, pods, services)


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


def _check_machine(item: K3sMember) -> None:
    if item.foreign:
        raise InputError(
            item.host,
            f"has {', '.join(item.foreign)} that this collection did not install",
            "Use that cluster by its kubeconfig (muster_kubeconfig), or remove it first",
        )
    if item.architecture and item.architecture not in ARCHITECTURES:
        raise InputError(
            item.host, f"is a {item.architecture} machine, for which K3s is not installed", "Use amd64 or arm64"
        )
    if not item.systemd:
        raise InputError(item.host, "does not run systemd", "Train on it over SSH (placement.backend: hosts)")
    if not item.root:
        raise InputError(item.host, "is not managed as root", "Set ansible_become: true")


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
