# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and addresses of a cluster of the lab: pure rules, so that a node can be added without telling the others."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

from ..nodes import Node

CONTROL = "control"
# A label of every machine, "control" or "node"; simulated nodes have none.
ROLE = "muster.training/lab"
# The ranges that K3s uses by default.
PODS = ipaddress.IPv4Network("10.42.0.0/16")
SERVICES = ipaddress.IPv4Network("10.43.0.0/16")
API_SERVICE = str(SERVICES[1])
DNS_SERVICE = str(SERVICES[10])
DOMAIN = "cluster.local"
API_PORT = 6443
# Every node has routes to this many nodes from its first boot; which of them exist does not matter.
SIZE_MAX = 32
_FIRST_ADDRESS = 10
LAB, BIN = "/etc/lab", "/opt/lab/bin"
TORCH, LAUNCHERS, PROGRAMS = "/opt/lab/torch", "/opt/lab/launchers", "/opt/lab/programs"
# A folder of this machine that all nodes share: what a claim with ReadWriteMany is elsewhere.
SHARED = "/opt/lab/shared"
IMAGES = "/opt/lab/images"
# Registries on each node that speak plain HTTP (kube_registry.py): with a folder of hosts, containerd has to be told.
PLAIN_REGISTRIES = ("localhost:5005", "localhost:5006", "localhost:5007")
KWOK_STAGES = f"{BIN}/kwok-stages.yaml"


@dataclasses.dataclass(frozen=True, slots=True)
class Machine(Node):
    """One machine of a cluster; ``index`` is its place in the plan, 0 the control plane's."""

    index: int

    @property
    def pods(self) -> str:
        """The range of its pods."""
        return str(pod_range(self.index))

    @property
    def is_control(self) -> bool:
        """Whether the control plane runs on it."""
        return self.index == 0


def machine(lab_id: str, subnet: str, name: str, index: int) -> Machine:
    """Return the machine at a place of the plan."""
    address = ipaddress.IPv4Network(subnet)[_FIRST_ADDRESS + index]
    return Machine(name, f"{lab_id}-{name}", str(address), index)


def pod_range(index: int) -> ipaddress.IPv4Network:
    """Return the range of the pods of the machine at a place: the index is its third byte."""
    return ipaddress.IPv4Network((int(PODS.network_address) + (index << 8), 24))


def routes(subnet: str, own_index: int) -> list[tuple[str, str]]:
    """Return (range of pods, address of the machine that has them) for all other places."""
    network = ipaddress.IPv4Network(subnet)
    others = (index for index in range(SIZE_MAX + 1) if index != own_index)
    return [(str(pod_range(index)), str(network[_FIRST_ADDRESS + index])) for index in others]


def free_index(taken: t.Iterable[int]) -> int:
    """Return the first place of a worker that is free.

    :raises ValueError: when there is none.
    """
    used = set(taken)
    for index in range(1, SIZE_MAX + 1):
        if index not in used:
            return index
    raise ValueError(f"a lab has at most {SIZE_MAX} nodes")
