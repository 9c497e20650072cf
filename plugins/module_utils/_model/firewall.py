# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packets a firewall must let through so that machines are one K3s cluster, and no more than these.

Every rule has a source: nothing is opened to the world.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import typing as t

from .errors import InputError
from .k3s import ROLES

# docs.k3s.io, Requirements, Networking: the API, kubelets, VXLAN, etcd between servers, the embedded registry.
API_PORT, KUBELET_PORT, VXLAN_PORT, REGISTRY_PORT = 6443, 10250, 8472, 5001
_ETCD_PORTS = "2379-2380"
# Jobs on the machines' own network: rendezvous and collectives take any free port, RoCE version 2 has one.
JOB_PORTS: t.Final = ("1024-65535/tcp", "4791/udp")
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?/(tcp|udp)\Z")
# A wider range than one site's is not the cluster's own.
_WIDEST: t.Final = {4: 8, 6: 32}


@dataclasses.dataclass(frozen=True, slots=True)
class FirewallNode:
    """A machine of the cluster: inventory name, role, its own addresses, and the one from which it is managed."""

    host: str
    role: str
    addresses: tuple[str, ...]
    client: str | None = None

    @classmethod
    def from_dict(cls, value: t.Mapping[str, t.Any], path: str) -> FirewallNode:
        """Return a machine of an option.

        :raises InputError: naming the key.
        """
        if not value.get("host") or value.get("role") not in ROLES:
            raise InputError(
                path, "has no host or no role", "Write {host: NAME, role: server or agent, addresses: […]}"
            )
        addresses = tuple(str(read_source(str(item), f"{path}.addresses")) for item in value.get("addresses") or [])
        if not addresses:
            raise InputError(f"{path}.addresses", f"{value['host']} has none", "List its addresses in the cluster")
        client = str(read_source(str(value["client"]), f"{path}.client")) if value.get("client") else None
        return cls(str(value["host"]), str(value["role"]), addresses, client)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class FirewallRule:
    """One kind of packets that is let through. ``ports`` such as ``6443`` or ``2379-2380``; empty means all of them.

    ``hook``: ``input`` for packets to the machine, ``forward`` for those that it passes on.
    """

    hook: t.Literal["input", "forward"]
    sources: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    protocol: str = ""
    ports: tuple[str, ...] = ()


def plan_rules(
    host: str, nodes: t.Sequence[FirewallNode], pods: str, api_from: t.Sequence[str], job_ports: t.Sequence[str]
) -> list[FirewallRule]:
    """Return the rules of the machine ``host``: K3s', pods' and jobs' ports from the cluster's own addresses.

    :param api_from: ranges from which the API is reached besides.
    :raises InputError: for a range of the whole world, or a port that cannot be read.
    """
    own = next(item for item in nodes if item.host == host)
    others = [item for item in nodes if item.host != host]
    jobs = {kind: [text for text, one in map(_parse_port, job_ports) if one == kind] for kind in ("tcp", "udp")}
    range_of_pods = str(read_source(pods, "cluster_cidr"))
    rules = [
        FirewallRule("input", (range_of_pods,)),
        FirewallRule("forward", (range_of_pods,)),
        FirewallRule("forward", (), (range_of_pods,)),
    ]
    peers = _order_addresses(address for item in others for address in item.addresses)
    if peers:
        api = [str(API_PORT)] if own.role == "server" else []
        tcp = _join_ports([*api, str(KUBELET_PORT), str(REGISTRY_PORT), *jobs["tcp"]])
        rules.append(FirewallRule("input", peers, (), "tcp", tcp))
        rules.append(FirewallRule("input", peers, (), "udp", _join_ports([str(VXLAN_PORT), *jobs["udp"]])))
    if own.role == "server":
        rules += _plan_server_rules(own, others, peers, api_from)
    return sorted(rules)


def _plan_server_rules(
    own: FirewallNode, others: t.Sequence[FirewallNode], peers: t.Sequence[str], api_from: t.Sequence[str]
) -> list[FirewallRule]:
    """Return what a server lets in besides: etcd from the other servers, the API from this client and ``api_from``."""
    servers = _order_addresses(address for item in others if item.role == "server" for address in item.addresses)
    clients = [own.client] if own.client and own.client not in peers else []
    users = _order_addresses([*clients, *(str(read_source(text, "api_from")) for text in api_from)])
    wanted = ((servers, _ETCD_PORTS), (users, str(API_PORT)))
    return [FirewallRule("input", sources, (), "tcp", (ports,)) for sources, ports in wanted if sources]


def read_source(text: str, option: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | str:
    """Return an address or a range.

    :raises InputError: when it is none, or so wide that it is the world.
    """
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as exc:
        raise InputError(option, f"'{text}' is not an address or a range", "Write for instance 192.0.2.0/24") from exc
    if network.prefixlen < _WIDEST[network.version]:
        raise InputError(
            option, f"{text} would open ports of the cluster to the world", "Name the addresses that need it"
        )
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else network


def _parse_port(text: str) -> tuple[str, str]:
    match = _PORT.match(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not match or not 0 < first <= last <= 65535:
        raise InputError("job_ports", f"'{text}' is not a port", "Write for instance 4791/udp or 20000-30000/tcp")
    return (f"{first}-{last}" if last > first else str(first)), match[3]


def _join_ports(ports: t.Iterable[str]) -> tuple[str, ...]:
    """Return the ports in their order, those that overlap as one range: a set of ports may not say one twice."""
    spans = sorted((int(text.partition("-")[0]), int(text.rpartition("-")[2])) for text in ports)
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(f"{first}-{last}" if last > first else str(first) for first, last in joined)


def _order_addresses(addresses: t.Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(addresses), key=_address_order))


def _address_order(text: str) -> tuple[int, int, int]:
    network = ipaddress.ip_network(text)
    return network.version, int(network.network_address), network.prefixlen
