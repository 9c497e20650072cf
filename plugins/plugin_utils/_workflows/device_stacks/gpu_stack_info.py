# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what a cluster lacks so that pods get its GPUs (``gpu_stack_info``)."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
from collections.abc import Mapping, Sequence

from ....module_utils._model import gpu_stack_plan as rules
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.node import Gpu, Node
from ..._hosts import downloads
from ..._kube.api.client import Client
from ..._kube.api.kinds import KubeObject
from ..._kube.nodes import gpu_claims, gpu_owners
from ..._kube.objects.apply_noop import applied_fields
from ..._kube.placement.node_fit import gpu_count, gpu_requests, has_ended
from ..shared.kube_connection import open_client

MANAGER: t.Final = "muster-gpu"
_PROGRAMS: t.Final = {"dra": "dra-driver-nvidia-gpu"}
_PLUGIN: t.Final = "nvidia-device-plugin"
_KUEUE: t.Final = ("v1/ConfigMap", "kueue-manager-config", "kueue-system")


def run(options: Mapping[str, t.Any], base: pathlib.Path) -> dict[str, object]:
    """Return the result of ``gpu_stack_info``.

    :raises RefusedError: with all refusals, where they count.
    """
    client = open_client(options, base)
    nodes = client.list("v1/Node").items
    daemon_sets = client.list("apps/v1/DaemonSet").items
    facts = read_gpu_facts(options.get("records") or ())
    named = [str(name) for name in options.get("nodes") or ()]
    _require_nodes(named, nodes)
    provider = str(options["provider"])
    owners = gpu_owners.read_owners(client, daemon_sets)
    cluster = rules.GpuCluster(
        tuple(_read_node(node, facts, named) for node in nodes),
        tuple(_add_holders(client, owner, provider, nodes) for owner in owners),
        client.catalog.serves("helm.cattle.io/v1"),
        gpu_owners.has_nfd(daemon_sets),
        client.catalog.serves(rules.CLAIMED_API),
    )
    plan = rules.plan_gpu_stack(provider, cluster)
    refusals = [f"{item.problem}. {item.fix}" for item in plan.refusals]
    if refusals and options.get("refuse"):
        raise RefusedError("; ".join(refusals), "Nothing was changed")
    return {
        "changed": False,
        "action": plan.action,
        "reason": plan.reason,
        "nodes": list(plan.nodes),
        "bound": {title: list(names) for title, names in plan.bound.items()},
        "labels": [_label_object(name, labels) for name, labels in plan.labels.items()],
        "labelled": [_label_object(node.name, {}) for node in cluster.nodes if node.own_labels],
        "refusals": refusals,
        "warnings_of_nodes": [*plan.warnings, *_warn_of_queue(client, provider)],
        "has_nfd": plan.nfd,
        "image": downloads.pinned_image(
            downloads.image_of(_PROGRAMS.get(provider, _PLUGIN)), by_tag=bool(options.get("by_tag"))
        ),
        "expected": {node.name: node.facts.count for node in cluster.nodes if node.facts and node.facts.count},
    }


def read_gpu_facts(records: Sequence[Mapping[str, t.Any]]) -> dict[str, Gpu]:
    """Return the GPUs of node records by the name of the Node, in lower case as Kubernetes has names."""
    parsed = [Node.from_dict(dict(record), f"records[{number}]") for number, record in enumerate(records)]
    return {str(node.name).lower(): node.gpu for node in parsed}


def _require_nodes(named: Sequence[str], nodes: Sequence[KubeObject]) -> None:
    known = {str(node["metadata"]["name"]) for node in nodes}
    for name in named:
        if name not in known:
            raise InputError("nodes", f"{name} is not a Node of the cluster", f"It has {', '.join(sorted(known))}")


def _read_node(node: KubeObject, facts: Mapping[str, Gpu], named: Sequence[str]) -> rules.GpuNode:
    name = str(node["metadata"]["name"])
    owned = t.cast("dict[str, t.Any]", applied_fields(node, MANAGER) or {})
    labels = (owned.get("f:metadata") or {}).get("f:labels") or {}
    return rules.GpuNode(
        name,
        facts.get(name),
        gpu_count(node),
        node["metadata"].get("labels") or {},
        frozenset(key.removeprefix("f:") for key in labels if key != "."),
        name in named,
        str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or ""),
    )


def _add_holders(client: Client, owner: rules.GpuOwner, provider: str, nodes: Sequence[KubeObject]) -> rules.GpuOwner:
    """Return an own program with the pods that hold its GPUs, where another one is to take its place."""
    if not owner.own or not owner.nodes or provider == "bind" or owner.claimed == (provider == "dra"):
        return owner
    pods = gpu_claims.show_held(client, gpu_claims.show_offered(client, nodes), client.list("v1/Pod").items)
    held = tuple(
        f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        for pod in pods
        if gpu_requests(pod) and (pod.get("spec") or {}).get("nodeName") in owner.nodes and not has_ended(pod)
    )
    return dataclasses.replace(owner, held=held)


def _warn_of_queue(client: Client, provider: str) -> list[str]:
    """Return that Kueue does not count claims, which it then refuses, where its configuration can be read."""
    config = client.get(*_KUEUE) if provider == "dra" else None
    if config is None or any(rules.DRIVER in str(text) for text in (config.get("data") or {}).values()):
        return []
    problem = f"Kueue has no deviceClassMappings for {rules.DRIVER}: it admits no job whose pods claim GPUs"
    return [f"{problem}. Set gang_scheduling_device_classes, or add it to its configuration ({_KUEUE[1]})"]


def _label_object(name: str, labels: Mapping[str, str]) -> dict[str, t.Any]:
    meta = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}
