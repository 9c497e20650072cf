# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA resources of Nodes as jobs and tests see them: which names are some, what network their pods need,
which HCAs.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from .device_host import Refusal
from .errors import InputError
from .validators import boolean

OWN_LABEL: t.Final = "muster.training/rdma"
# An annotation of Nodes whose HCAs the role rdma_stack offers: the facts that jobs and later runs of it need.
FACTS: t.Final = "muster.training/rdma-facts"
# By it a pod is attached to networks beside the cluster's own, and by the other a network takes a device (Multus).
NETWORKS: t.Final = "k8s.v1.cni.cncf.io/networks"
NETWORK_RESOURCE: t.Final = "k8s.v1.cni.cncf.io/resourceName"
_NAME: t.Final = re.compile(r"(?:^|[/_.-])rdma(?:[/_.-]|$)")
# Before the names of k8s-rdma-shared-dev-plugin's resources.
SHARED: t.Final = "rdma/"
IB, _SHARED_ROCE = f"{SHARED}ib", f"{SHARED}roce"


@dataclasses.dataclass(frozen=True, slots=True)
class HcaFacts:
    """The HCAs of a machine that jobs get.

    ``entry``: of the device plugin's configuration, None where jobs get none; ``netdevs``: interfaces of the ports that
    jobs get, ``mtu`` the lowest of theirs; ``nccl_ib_hca``: the value of that variable where jobs get a part of the
    HCAs; ``exclusive``: RDMA devices belong to one network namespace each.
    """

    kind: str
    entry: t.Mapping[str, t.Any] | None = None
    hcas: tuple[str, ...] = ()
    netdevs: tuple[str, ...] = ()
    nccl_ib_hca: str = ""
    mtu: int | None = None
    exclusive: bool = False

    def to_text(self) -> str:
        """Return the annotation's value; the same facts give the same text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))


@dataclasses.dataclass(frozen=True, slots=True)
class HcaMachine:
    """A machine as it was read. ``missing``: modules that it lacks; ``refusals``: why its RDMA is not set up."""

    facts: HcaFacts | None = None
    missing: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def read_machine(value: object, path: str) -> HcaMachine:
    """Return what ``node_device_info`` says of a machine.

    :raises InputError: for what is none.
    """
    plan = value.get("rdma") if isinstance(value, dict) else None
    facts = value.get("facts") if isinstance(value, dict) else None
    if not isinstance(plan, dict) or not isinstance(facts, dict) or "hcas" not in plan:
        raise InputError(path, "must have facts and rdma, as node_device_info returns nodes")
    used = [item for item in plan["hcas"] or () if item.get("used")]
    netdevs = tuple(sorted(item["netdev"] for item in used if item.get("netdev")))
    rdma = facts.get("rdma") or {}
    sizes = [port.get("mtu") for port in rdma.get("ports") or () if port.get("netdev") in netdevs]
    found = HcaFacts(
        str(plan.get("kind")),
        plan.get("plugin_entry"),
        tuple(sorted({str(item["name"]) for item in used})),
        netdevs,
        str(plan.get("nccl_ib_hca") or ""),
        min((int(size) for size in sizes if size), default=None),
        bool(rdma.get("netns_exclusive")),
    )
    loaded = set(rdma.get("modules") or ())
    missing = tuple(name for name in plan.get("modules") or () if name not in loaded)
    refusals = tuple(Refusal(str(item["problem"]), str(item["fix"])) for item in plan.get("refusals") or ())
    return HcaMachine(found, missing, refusals)


def read_annotation(annotations: t.Mapping[str, str]) -> HcaFacts | None:
    """Return the facts that the role has written on a Node, None where there are none, or others' text."""
    try:
        value = json.loads(annotations.get(FACTS) or "null")
        if not isinstance(value, dict) or not isinstance(value.get("entry"), dict):
            return None
        known: dict[str, t.Any] = {
            field.name: value[field.name] for field in dataclasses.fields(HcaFacts) if field.name in value
        }
        known = {key: tuple(item) if isinstance(item, list) else item for key, item in known.items()}
        return HcaFacts(**known)
    except (ValueError, TypeError):
        return None


def parse_request(value: t.Any, path: str) -> bool | str:
    """Return whether a job gets RDMA devices, or the name of the resource of which it gets one."""
    if isinstance(value, str) and "/" in value:
        if re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", value):
            return value
        raise InputError(
            path, f"{value} is not the name of a resource", "Write it as nodes offer it, such as rdma/roce"
        )
    return boolean(value, path)


def is_rdma_resource(name: str) -> bool:
    """Whether an extended resource stands for RDMA devices, by its name: ``rdma/ib``, ``nvidia.com/rdma_roce``."""
    return _NAME.search(name) is not None


def list_resources(allocatable: t.Mapping[str, t.Any] | None) -> list[str]:
    """Return the RDMA resources that a Node offers."""
    return sorted(name for name, count in (allocatable or {}).items() if is_rdma_resource(name) and str(count) != "0")


def needs_node_network(resource: str, networks: t.Collection[str] = ()) -> bool:
    """Whether pods with a resource need the network of their node, since its devices stay there.

    Devices of a network (SR-IOV) are moved into the pod. InfiniBand needs no address of an interface.
    """
    return not networks and ("shared" in resource or resource == _SHARED_ROCE)
