# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NCCL and gloo variables that one node of an island needs, and the text of its /etc/nccl.conf.

NCCL reads /etc/nccl.conf without overwriting the process's environment: one NAME=VALUE a line, nothing trimmed, a
``#`` only in the first column (NCCL src/misc/param.cc).
"""

from __future__ import annotations

import ipaddress
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.harmful_variables import FORBIDDEN
from ....module_utils._model.island import Island
from ....module_utils._model.node import Address, Node
from ....module_utils._model.node_address import choose_address, find_shared_addresses
from ....module_utils._model.node_environment import PINNED_NETWORK, TOPOLOGY_FILE, bind_to_interface
from ....module_utils._model.verdict import Verdict
from ..rails import find_rails


def _reaches(own: Address, peer: Node, network: str) -> bool:
    if own.prefix is None:
        return False
    try:
        net = ipaddress.ip_network((own.address, own.prefix), strict=False)
        return any(ipaddress.ip_address(item.address) in net for item in getattr(peer.addresses, network))
    except ValueError:
        return False


def find_collective_interface(
    node: Node, island: Island, peers: t.Iterable[Node] = (), address: str | None = None
) -> str | None:
    """Return the interface that sockets of a collective bind to on this node.

    Of the interfaces with an address in a network that all peers share, the fastest; the first where none states
    its speed. Without an address in the island's network it is the one of the address at which jobs reach the node (see
    ``node_address``). None when no address names its interface, and between processes of one machine. An address that
    several nodes have, such as that of Docker's bridge, is not counted.

    :param address: the address that the user declared for the node: the interface that owns it is used, and none where
        the node's facts do not know it.
    """
    if island.link == "loopback":
        return None
    if address is not None:
        return _find_owner(node, address)
    others = [peer for peer in peers if peer.name != node.name and peer.name in island.nodes]
    repeated = find_shared_addresses([node, *others])
    shared = _list_shared(node, others, "mesh" if island.link == "mesh" else "lan", repeated)
    best = max(shared, key=lambda item: _speed(node, item), default=None) or choose_address(node, excluded=repeated)
    return best.interface if best else None


def _find_owner(node: Node, address: str) -> str | None:
    """Return the interface of a node that has an address."""
    addresses = (*node.addresses.lan, *node.addresses.mesh, *node.addresses.public)
    return next((item.interface for item in addresses if item.interface and item.address == address), None)


def _list_shared(node: Node, peers: t.Sequence[Node], network: str, repeated: t.Collection[str]) -> list[Address]:
    """Return a node's addresses in networks that all peers share, all of its own where there is no such network."""
    own = [item for item in getattr(node.addresses, network) if item.interface and item.address not in repeated]
    return [item for item in own if all(_reaches(item, peer, network) for peer in peers)] or own


def _speed(node: Node, address: Address) -> float:
    """Return Gbit/s of the interface that has an address, 0 where that is not known."""
    interface = node.interface(address.interface)
    return (interface.speed_gbps or 0) if interface else 0


def find_proven_network(verdict: Verdict) -> str | None:
    """Return NCCL's name of the RDMA network that all pairs of a passed test used; None where no line names one."""
    transport = verdict.transport
    if verdict.outcome not in ("pass", "warn") or transport.verdict not in ("rdma_gdr", "rdma_no_gdr"):
        return None
    # Counters of NICs prove RDMA, and do not say which plugin used it.
    names = {pair.via for pair in transport.pairs} if transport.evidence_kind == "nccl_log" else set()
    return names.pop() if len(names) == 1 else None


def build_nccl_environment(
    node: Node,
    island: Island,
    *,
    peers: t.Iterable[Node] = (),
    interface: str | None = None,
    address: str | None = None,
    proven: str | None = None,
) -> dict[str, str]:
    """Return the variables for one node of an island; values differ between nodes of one island.

    :param peers: the island's nodes, to choose the interface that they share.
    :param interface: the interface towards the peers, when it is already known.
    :param address: the address that the user declared for the node.
    :param proven: NCCL's name of the RDMA network that the island's pairs used in the test (IB, or a plugin's name): it
        is pinned, so that its loss is an error instead of slow TCP.
    """
    if len(island.nodes) < 2:
        return {}
    name = interface or find_collective_interface(node, island, peers, address)
    values = bind_to_interface(name) if name and name != "lo" else {}
    if node.topology_file:
        values[TOPOLOGY_FILE] = node.topology_file
    rails = find_rails(node)
    if island.rdma and rails is not None:
        chosen = [nic.name for nic in rails.nics]
        excluded = {nic.name for nic in node.nics if nic.rdma and nic.active} - set(chosen)
        if excluded or node.platform == "dgx_spark":
            values["NCCL_IB_HCA"] = f"={','.join(chosen)}"
        if node.platform == "dgx_spark":
            values["NCCL_IB_SUBNET_AWARE_ROUTING"] = "1"
        if proven:
            values[PINNED_NETWORK] = proven
    return values


def format_nccl_conf(values: t.Mapping[str, str]) -> str:
    """Return the text of /etc/nccl.conf for ``values``; only NCCL's own variables are written.

    :raises InputError: for a variable that must not be set for every job, or a value of several lines.
    """
    lines = []
    for name, value in sorted(values.items()):
        if name in FORBIDDEN:
            raise InputError(name, "must not be set for every job", "Set it in the one job that needs it")
        if not name.startswith("NCCL_"):
            continue
        if not value or value != value.strip() or not value.isprintable():
            raise InputError(name, "must have a value of one line without surrounding spaces")
        lines.append(f"{name}={value}\n")
    return "".join(lines)
