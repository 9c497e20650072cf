# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of a job's hosts, once each host has named the addresses of its interfaces. No side effects."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from .....module_utils._model.errors import RefusedError
from .....module_utils._model.job import Job
from .....module_utils._model.node import Node
from .....module_utils._model.node_address import choose_address, find_shared_addresses
from .....module_utils._model.node_facts import merge_addresses, prefer_interface
from .....module_utils._model.node_report import NodeReport
from .plan import TrainingHost


def settle_addresses(
    hosts: t.Sequence[TrainingHost], reports: t.Mapping[str, NodeReport], job: Job
) -> list[TrainingHost]:
    """Return the hosts with the address of each at which the others reach it.

    It is an address of the node itself, by the rule of ``node_address``: a provider's public address is often NAT, on
    which no program of the node can listen. An address that several of the hosts have (containers with a network of
    their own) is left out.

    :param reports: of the hosts, with the ``addresses`` of their interfaces.
    :raises RefusedError: a host without an address of the asked types, or hosts that cannot be told apart.
    """
    nodes = {host.name: _merge_own(host, reports[host.name]) for host in hosts}
    shared = find_shared_addresses(nodes.values())
    settled = [_settle(host, nodes[host.name], job, shared) for host in hosts]
    _require_distinct(settled)
    return settled


def _merge_own(host: TrainingHost, report: NodeReport) -> Node:
    own = Node.from_dict({"name": host.name, "addresses": dict(report.addresses)}, f"{host.name}.facts").addresses
    # Of Debian: a machine's own name is its loopback there, and its LAN address for others.
    interface = None if report.interface == "lo" else report.interface
    named = merge_addresses(host.record.addresses, own)
    return dataclasses.replace(host.record, addresses=prefer_interface(named, interface))


def _settle(host: TrainingHost, node: Node, job: Job, shared: t.Container[str]) -> TrainingHost:
    if host.is_declared:
        return host
    wanted = job.placement.required_network_types
    chosen = choose_address(node, wanted, shared) or choose_address(node, wanted)
    if chosen is not None:
        return dataclasses.replace(host, address=chosen.address)
    if wanted:
        raise RefusedError(
            f"{host.name}: has no {' or '.join(wanted)} address", "See job.placement.required_network_types"
        )
    return host


def _require_distinct(hosts: t.Sequence[TrainingHost]) -> None:
    for address, count in collections.Counter(host.address for host in hosts).items():
        if count > 1:
            twins = ", ".join(host.name for host in hosts if host.address == address)
            raise RefusedError(
                f"{twins} have the same address {address}",
                "Give each host its own ansible_host or muster_address, or a network that tells them apart",
            )
