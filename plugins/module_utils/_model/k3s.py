# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines make a K3s cluster: one server, or an odd number, and any number of agents, in ranges of their own."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import re
import typing as t

from . import cluster_checks, k3s_servers
from .checks import raise_first_failure
from .errors import InputError, RefusedError
from .node_facts import find_mesh_range

Role = t.Literal["server", "agent"]
ROLES: tuple[str, ...] = t.get_args(Role)
# A name that Kubernetes takes for a Node, and that K3s takes for its certificate.
NODE_NAME: t.Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?\Z")
_VERSION: t.Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc(\d+))?(?:\+k3s(\d+))?")
# Kubernetes' version skew policy: a kubelet may be three minor versions older than the API server.
_OLDEST_AGENT: t.Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class K3sMember:
    """A machine of the cluster: inventory name, role, name of its Node, what was read on it, what it shall have.

    ``authority`` is the digest of a server's own CA, or of the one that an agent has joined. ``machine`` is empty where
    only an installation is decided. ``datastore``: what a server has, ``etcd`` or ``sqlite``, else empty; ``active``:
    whether K3s runs; ``settings``: options of K3s that all servers must have alike; ``was``: the part that it has now;
    ``version`` is what it shall have and ``current`` what it has, empty where that is not known.
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
    current: str = ""
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
            current=answer.get("version") or "",
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
    for item in members:
        if not NODE_NAME.match(item.node):
            fix = f"Set muster_node.name, such as {{name: {item.node.lower().replace('_', '-')}}}, or rename the host"
            what = (
                f"{item.host}: '{item.node}' is not a name that Kubernetes takes for a Node (small letters, digits, -)"
            )
            raise InputError("muster_nodes", what, fix)
    _check_parts(members)
    raise_first_failure([check for item in members for check in cluster_checks.check_machine(item)])
    check_ranges(members, pods, services)
    k3s_servers.check_servers([item for item in members if item.role == "server"])
    _check_authority(members)


def check_clusters(clusters: t.Mapping[str, str]) -> None:
    """Refuse hosts of several clusters; ``clusters``: ``muster_cluster`` by host, empty where it is not set.

    :raises InputError: naming the hosts of each.
    """
    hosts: dict[str, list[str]] = collections.defaultdict(list)
    for host, cluster in clusters.items():
        if cluster:
            hosts[cluster].append(host)
    if len(hosts) > 1:
        named = "; ".join(f"{', '.join(sorted(names))} of {cluster}" for cluster, names in sorted(hosts.items()))
        fix = "Name the hosts of one of them: -e muster_node_hosts=GROUP"
        raise InputError("muster_cluster", f"the hosts are of several clusters ({named})", fix)


def check_versions(
    members: t.Sequence[K3sMember], chosen: t.Collection[str], *, may_go_back: bool, rolling: bool = True
) -> None:
    """Refuse versions that Kubernetes does not take: set back, a minor version left out, or too far from each other.

    :param chosen: the hosts that get the version that was asked for; others keep what they have.
    :param rolling: whether machines are closed, drained and changed one after another, as another version needs it.
    :raises RefusedError: naming the machine and both versions.
    """
    for item in members:
        if item.current and item.host in chosen:
            _check_change(item, may_go_back)
    if not rolling:
        _check_unchanged(members, chosen)
    after = {item.host: item.version if item.host in chosen or not item.current else item.current for item in members}
    servers = sorted((item.host for item in members if item.role == "server"), key=lambda host: _version(after[host]))
    for item in members if servers else ():
        oldest, newest = servers[0], servers[-1]
        minor = _version(after[item.host])[1]
        what = f"{item.host} would have K3s {after[item.host]}"
        if minor > _version(after[oldest])[1] + (item.role == "server"):
            fix = f"Upgrade {oldest} first, and then the others"
            raise RefusedError(f"{what}, which is newer than its server {oldest} may serve ({after[oldest]})", fix)
        if is_too_old(after[item.host], after[newest]):
            fix = f"Upgrade {item.host} first, or keep {newest} at an older version (k3s_version)"
            raise RefusedError(f"{what}, which is too old for its server {newest} ({after[newest]})", fix)


def is_older(version: str, other: str) -> bool:
    """Return whether a version of K3s is older than another one."""
    return _version(version) < _version(other)


def is_too_old(agent: str, server: str) -> bool:
    """Return whether a server of one version does not take a kubelet of another."""
    return _version(agent)[:2] < (_version(server)[0], _version(server)[1] - _OLDEST_AGENT)


def _check_unchanged(members: t.Sequence[K3sMember], chosen: t.Collection[str]) -> None:
    """Refuse another version on machines where K3s runs: all of them would start it again with pods on them."""
    other = [item for item in members if item.host in chosen and item.active and item.current not in ("", item.version)]
    if other:
        named = ", ".join(f"{item.host} has K3s {item.current}" for item in other)
        raise RefusedError(
            f"{named}, and k3s_version is {other[0].version}: another version is not installed on machines with pods",
            "Run muster.training.upgrade, which changes them in waves (--check shows it), or set k3s_version: "
            f"{other[0].current}",
        )


def _check_change(member: K3sMember, may_go_back: bool) -> None:
    was, asked = _version(member.current), _version(member.version)
    what = f"{member.host} has K3s {member.current}, and k3s_version is {member.version}"
    if asked < was and not may_go_back:
        fix = f"Set k3s_version: {member.current} in the inventory; k3s_allow_downgrade: true goes back all the same"
        raise RefusedError(f"{what}: K3s is not set back without a word, its data may be too new for it", fix)
    if asked[:1] == was[:1] and asked[1] > was[1] + 1 and member.role == "server":
        fix = f"Upgrade to a version of v{was[0]}.{was[1] + 1} first"
        raise RefusedError(f"{what}: a server is upgraded by one minor version at a time", fix)


def _version(text: str) -> tuple[int, ...]:
    """Return what orders versions of K3s, such as ``v1.36.4-rc1+k3s1``; a release comes after its candidates."""
    found = _VERSION.match(text)
    if found is None:
        return (0, 0, 0, 0, 0)
    major, minor, patch, candidate, revision = found.groups()
    return (int(major), int(minor), int(patch), int(candidate) if candidate else 1 << 16, int(revision or 0))


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
