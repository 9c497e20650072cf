# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules on how the ranks of a running job are connected: their sockets, interfaces and ways between nodes."""

from __future__ import annotations

import typing as t

from ....module_utils._model.verdict import Cause
from .live import NodeObservation, RunObservation, StepProgress
from .live_causes import build_live_cause
from .log_patterns import is_virtual_interface

_MIB = 1 << 20
# Three times the same data without an answer: 1.4 s and more of silence (RFC 6298 doubles 200 ms each time).
_RETRANSMITS = 3


def find_connection_faults(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield connections that are not established, or whose data is not acknowledged."""
    owners = _connection_owners(run)
    for node, rank in run.live_ranks:
        for end in _sockets(rank):
            peer = owners.get((end["peer"], end["peer_port"]), "")
            target = f"{end['peer']}:{end['peer_port']}{f' ({peer})' if peer else ''}"
            if end["state"] == "syn_sent" and end["retransmits"] >= 1:
                text = f"rank {rank['rank']} connects to {target} and gets no answer"
                yield build_live_cause("socket_connect_timeout", text, node.name)
            elif end["state"] == "established" and end["retransmits"] >= _RETRANSMITS and end["unsent_bytes"]:
                own = _interface_mtu(node, end["local"])
                other = next((_interface_mtu(one, end["peer"]) for one in run.nodes if one.name == peer), None)
                if own and other and own != other:
                    text = f"the MTU is {own} on this node and {other} on {peer}"
                    yield build_live_cause("mtu_black_hole", text, node.name)
                text = f"{target} did not acknowledge {end['unsent_bytes']} bytes that rank {rank['rank']} sent "
                yield build_live_cause("path_lost", f"{text}{end['retransmits']} times", node.name)


def find_missing_interfaces(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield variables that name an interface which does not exist."""
    for node, rank in run.live_ranks:
        existing = {interface.name for interface in node.node.interfaces} if node.node else set()
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            value = _network_variables(rank).get(name, "")
            exact = value.lstrip("=").split(",")[0].split(":")[0]
            is_exact = name.startswith("GLOO") or value.startswith("=")
            if existing and is_exact and exact not in ("", "lo", *existing):
                text = f"rank {rank['rank']}: {name} is {value}, and this node has no such interface"
                yield build_live_cause("wrong_interface", text, node.name)


def find_virtual_interfaces(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield ranks with a connection over the interface of a container or of the mesh, which no variable names."""
    for node, rank in run.live_ranks:
        named = _network_variables(rank).values()
        for end in _sockets(rank):
            via = node.interface_of(end["local"]) if end["state"] == "established" else None
            if via and via != "lo" and is_virtual_interface(via) and not any(via in value for value in named):
                text = f"rank {rank['rank']} is connected to {end['peer']} over {via}"
                yield build_live_cause("wrong_interface", text, node.name)
                break


def find_silent_tcp(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield nodes whose NCCL traffic moves over interfaces although they have RDMA ports."""
    for node in run.nodes:
        answer = node.answer or {}
        counters = answer.get("counters") or {}
        rdma, netdev = counters.get("rdma") or {}, counters.get("netdev") or {}
        by_rdma = sum(port["tx_bytes"] for port in rdma.values())
        by_tcp = sum(device["tx_bytes"] for name, device in netdev.items() if name != "lo")
        if rdma and any(rank.get("nccl") for rank in node.live_ranks) and by_tcp > 8 * _MIB and by_rdma < _MIB:
            text = f"interfaces sent {by_tcp} bytes, RDMA ports {by_rdma}, in {answer.get('window_s')} s"
            yield build_live_cause("silent_tcp", text, node.name)


def find_relayed_paths(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield nodes whose ranks use a mesh that reaches a peer only through a relay."""
    for node in run.nodes:
        if node.node is not None and node.node.mesh_path == "relayed" and _uses_mesh(node):
            yield build_live_cause("relayed_path", "tailscale reaches a peer only through a relay", node.name)


def count_unread_bytes(rank: t.Mapping[str, t.Any]) -> int:
    """Return the bytes that others sent to a rank and that it did not read yet."""
    return sum(end["unread_bytes"] for end in _sockets(rank) if end["state"] == "established")


def _network_variables(rank: t.Mapping[str, t.Any]) -> t.Mapping[str, str]:
    """Return the variables of NCCL and gloo that a rank has."""
    return (rank.get("environment") or {}).get("network") or {}


def _uses_mesh(node: NodeObservation) -> bool:
    mesh = {item.address for item in node.node.addresses.mesh} if node.node else set()
    return any(end["local"] in mesh for rank in node.live_ranks for end in _sockets(rank))


def _sockets(rank: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the connections of a rank."""
    return rank.get("sockets") or []


def _connection_owners(run: RunObservation) -> dict[tuple[str, int], str]:
    """Return (address, port) -> node: by the ends that the ranks' own sockets show, else by the nodes' addresses."""
    owners: dict[tuple[str, int], str] = {}
    peers: set[tuple[str, int]] = set()
    for node, rank in run.live_ranks:
        for end in _sockets(rank):
            owners[(end["local"], end["local_port"])] = node.name
            peers.add((end["peer"], end["peer_port"]))
    addresses: dict[str, str] = {}
    for node in run.nodes:
        items = (*node.node.addresses.lan, *node.node.addresses.mesh) if node.node else ()
        addresses.update({item.address: node.name for item in items if not item.address.startswith("127.")})
    return {**{peer: addresses[peer[0]] for peer in peers if peer[0] in addresses}, **owners}


def _interface_mtu(node: NodeObservation, address: str) -> int | None:
    name = node.interface_of(address)
    interface = node.node.interface(name) if node.node and name else None
    return interface.mtu if interface else None
