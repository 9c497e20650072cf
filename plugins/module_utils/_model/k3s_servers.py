# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several servers of one K3s cluster: which one others join, what they must have in common, and which may go.

Embedded etcd keeps what most of its members have. A server that is down still counts as a member.
"""

from __future__ import annotations

import ipaddress
import typing as t

from .errors import InputError, RefusedError
from .node_facts import find_mesh_range

if t.TYPE_CHECKING:
    from .k3s import K3sMember

# docs.k3s.io, k3s server, "critical configuration values": K3s refuses a server that has another one.
ALIKE: t.Final = (
    "agent-token",
    "cluster-cidr",
    "cluster-dns",
    "cluster-domain",
    "disable-cloud-controller",
    "disable-helm-controller",
    "disable-network-policy",
    "disable",
    "egress-selector-mode",
    "embedded-registry",
    "flannel-backend",
    "flannel-external-ip",
    "flannel-ipv6-masq",
    "secrets-encryption",
    "secrets-encryption-provider",
    "service-cidr",
)
_ONE_NETWORK = (
    "Make servers of machines in one network, and agents of the others. Where networks are one site, set the same "
    "muster_node.site"
)


def choose_lead(servers: t.Sequence[K3sMember], chosen: t.Collection[str]) -> K3sMember:
    """Return the server that begins the cluster, or that others join: one that runs, of ``chosen`` if possible."""

    def order(member: K3sMember) -> tuple[bool, bool]:
        established = member.datastore != ""
        return (not (established and member.active), not established)

    best = min(order(item) for item in servers)
    found = [item for item in servers if order(item) == best]
    return next((item for item in found if item.host in chosen), found[0])


def find_standing(servers: t.Sequence[K3sMember]) -> list[str]:
    """Return the servers of a cluster that stand still and have to be started together, for a majority."""
    members = [item for item in servers if item.datastore == "etcd"]
    standing = [item.host for item in members if not item.active]
    return standing if len(standing) > 1 and not has_majority(len(members), len(members) - len(standing)) else []


def has_majority(members: int, alive: int) -> bool:
    """Return whether that many of the members of etcd are more than half of them."""
    return alive > members // 2


def check_servers(servers: t.Sequence[K3sMember]) -> None:
    """Refuse servers that cannot keep one etcd.

    :raises MusterError: naming them.
    """
    if len(servers) < 2:
        return
    _check_networks(servers)
    _check_alike(servers)
    authorities = {item.authority for item in servers if item.authority}
    if len(authorities) > 1:
        names = ", ".join(item.host for item in servers if item.authority)
        raise InputError("muster_k3s_role", f"{names} are servers of different clusters", "Let all but one leave")
    single = [item.host for item in servers if item.datastore == "sqlite"]
    if len(single) > 1:
        names = ", ".join(single)
        raise InputError("muster_k3s_role", f"{names} are each the only server of a cluster", "Let all but one leave")


def check_removal(members: t.Mapping[str, bool], leaving: t.Collection[str]) -> None:
    """Refuse to let servers go when those that stay would have no majority; ``members``: by name whether it answers.

    One after another leaves, those that do not answer first: each removal needs a majority, and must leave one.

    :raises RefusedError: naming the servers that do not answer.
    """
    left = dict(members)
    for name in sorted((item for item in leaving if item in members), key=lambda item: (members[item], item)):
        alive = sum(left.values())
        rest = {other: answers for other, answers in left.items() if other != name}
        if has_majority(len(left), alive) and has_majority(len(rest), sum(rest.values())):
            left = rest
            continue
        down = ", ".join(sorted(other for other, answers in left.items() if not answers))
        if not rest:
            raise RefusedError(f"{name} is the last server", "Remove the whole cluster (playbook cluster_absent)")
        raise RefusedError(
            f"{name}: of {len(left)} servers {down} {'do' if ',' in down else 'does'} not answer; without {name} the "
            "rest of etcd has no majority",
            f"Bring {down} back first, or remove what does not answer while a majority does",
        )


def _check_networks(servers: t.Sequence[K3sMember]) -> None:
    """Refuse servers on different networks: etcd needs short ways. A network of one address tells nothing."""
    if all(item.site for item in servers):
        places = {item.host: frozenset({item.site}) for item in servers}
        what = "sites"
    else:
        places = {item.host: frozenset(_find_networks(item)) for item in servers}
        what = "networks"
    known = {host: found for host, found in places.items() if found}
    if known and not frozenset.intersection(*known.values()):
        named = "; ".join(f"{host} on {', '.join(sorted(found))}" for host, found in sorted(known.items()))
        raise InputError("muster_k3s_role", f"the servers are on different {what}: {named}", _ONE_NETWORK)


def _find_networks(member: K3sMember) -> list[str]:
    found = [ipaddress.ip_interface(f"{item['address']}/{item['prefix']}") for item in member.addresses]
    return [
        str(item.network)
        for item in found
        if item.network.prefixlen < item.network.max_prefixlen and not find_mesh_range(str(item.ip))
    ]


def _check_alike(servers: t.Sequence[K3sMember]) -> None:
    first, *others = servers
    for name in ALIKE:
        for other in others:
            if first.settings.get(name) != other.settings.get(name):
                raise InputError(
                    name, f"differs between the servers {first.host} and {other.host}", "Set it for all servers at once"
                )
