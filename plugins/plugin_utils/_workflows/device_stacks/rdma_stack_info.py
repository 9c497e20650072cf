# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what a cluster lacks so that pods get its HCAs (``rdma_stack_info``)."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import typing as t
from collections.abc import Mapping

from ....module_utils._model import rdma_stack_plan as rules
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.rdma_resources import (
    FACTS,
    OWN_LABEL,
    HcaFacts,
    HcaMachine,
    list_resources,
    read_annotation,
    read_machine,
)
from ..._hosts import downloads
from ..._kube.api.kinds import KubeObject
from ..._kube.nodes import gpu_owners, rdma_owners
from ..._kube.objects.apply_noop import applied_fields
from ..shared.kube_connection import open_client

MANAGER: t.Final = "muster-rdma"
PLUGIN: t.Final = "k8s-rdma-shared-dev-plugin"
OPERATOR: t.Final = "network-operator"
# By provider the versions of the API that its policies are of.
_POLICIES: t.Final = {
    "network_operator": ("mellanox.com/v1alpha1",),
    "sriov": ("mellanox.com/v1alpha1", "sriovnetwork.openshift.io/v1"),
}
# Of the network operator, the newest version whose release lists the digests of its images; where they are, and by the
# chart's names those that it runs for virtual functions.
_PINNED_VERSION: t.Final = "26.1.1"
_IMAGES: t.Final = "nvcr.io/nvidia/mellanox"
_CHART_IMAGES: t.Final = {
    "operator": "sriov-network-operator",
    "sriovConfigDaemon": "sriov-network-operator-config-daemon",
    "webhook": "sriov-network-operator-webhook",
    "sriovDevicePlugin": "sriov-network-device-plugin",
    "sriovCni": "sriov-cni",
    "ibSriovCni": "ib-sriov-cni",
    "rdmaCni": "rdma-cni",
    "ovsCni": "ovs-cni-plugin",
}
_IMAGE: t.Final = re.compile(r"(?:(?P<repository>.+)/)?(?P<image>[^/:@]+)(?::(?P<tag>[^/:@]+))?(?:@(?P<digest>.+))?")


def run(options: Mapping[str, t.Any], base: pathlib.Path) -> dict[str, object]:
    """Return the result of ``rdma_stack_info``.

    :raises RefusedError: with all refusals, where they count.
    """
    asked = _read_options(options)
    devices = {
        str(name).lower(): read_machine(value, f"devices.{name}")
        for name, value in (options.get("devices") or {}).items()
    }
    client = open_client(options, base)
    nodes = client.list("v1/Node").items
    daemon_sets = client.list("apps/v1/DaemonSet").items
    cluster = rules.RdmaCluster(
        tuple(_read_node(node, devices) for node in nodes),
        rdma_owners.read_owners(client, daemon_sets),
        client.catalog.serves("helm.cattle.io/v1"),
        rdma_owners.list_foreign(client),
    )
    plan = rules.plan_rdma_stack(cluster, asked)
    by_tag = bool(options.get("by_tag"))
    image = str(options.get("image") or downloads.pinned_image(downloads.image_of(PLUGIN), by_tag=by_tag))
    refusals = [f"{item.problem}. {item.fix}" for item in plan.refusals]
    if refusals and options.get("refuse"):
        raise RefusedError("; ".join(refusals), "Nothing was changed")
    return {
        "changed": False,
        "action": plan.action,
        "reason": plan.reason,
        "groups": [_describe_group(group, asked) for group in plan.groups],
        "bound": {title: list(names) for title, names in plan.bound.items()},
        "labels": [_label_object(name, *(marks or ("", None))) for name, marks in plan.labels.items()],
        "labelled": [_label_object(node.name) for node in cluster.nodes if node.is_own],
        "refusals": refusals,
        "warnings_of_nodes": list(plan.warnings),
        "has_nfd": gpu_owners.has_nfd(daemon_sets),
        "has_policies": all(client.catalog.serves(name) for name in _POLICIES.get(asked.provider, ())),
        "policies": rdma_owners.list_policies(client),
        "node_policies": plan.node_policies,
        "cni": dataclasses.asdict(plan.cni),
        "image": image,
        "images": {name: split_image(text) for name, text in {PLUGIN: image, **asked.images}.items()},
        "chart_images": {} if by_tag else _list_pinned(_CHART_IMAGES, asked.operator_version),
    }


def _list_pinned(names: Mapping[str, str], version: str) -> dict[str, str]:
    """Return by key the images of a release of the network operator whose digests are known."""
    found = {key: f"{_IMAGES}/{name}:network-operator-v{version}" for key, name in names.items()}
    return {
        key: downloads.pinned_image(name, by_tag=False) for key, name in found.items() if downloads.image(name).sha256
    }


def split_image(text: str) -> dict[str, str]:
    """Return an image as the network operator's policies name it; its version is the digest where there is one.

    :raises InputError: for what names no image.
    """
    match = _IMAGE.fullmatch(text)
    if match is None or not match["repository"] or not (match["digest"] or match["tag"]):
        raise InputError("images", f"{text} is not REPOSITORY/IMAGE@sha256:DIGEST")
    return {"repository": match["repository"], "image": match["image"], "version": match["digest"] or match["tag"]}


def _read_options(options: Mapping[str, t.Any]) -> rules.RdmaStackOptions:
    names = ("provider", "operator_values", "policy", "images", "ipam", "vfs")
    given = {name: options[name] for name in names if options.get(name) is not None}
    version = str(options.get("operator_version") or downloads.default_version(OPERATOR))
    known = _list_pinned({name: name for name in rules.CNI_IMAGES}, version) if given.get("provider") == "sriov" else {}
    given["images"] = {**known, **given.get("images", {})}
    return rules.RdmaStackOptions(**given, operator_version=version, pinned_version=_PINNED_VERSION)


def _read_node(node: KubeObject, devices: Mapping[str, HcaMachine]) -> rules.RdmaNode:
    """Return a Node: what is not known of a machine this time is as it was written on the Node before."""
    meta, status = node["metadata"], node.get("status") or {}
    name = str(meta["name"])
    owned = t.cast("dict[str, t.Any]", applied_fields(node, MANAGER) or {})
    is_own = f"f:{OWN_LABEL}" in ((owned.get("f:metadata") or {}).get("f:labels") or {})
    before = HcaMachine(read_annotation(meta.get("annotations") or {}) if is_own else None)
    return rules.RdmaNode(
        name,
        devices.get(name, before),
        tuple(list_resources(status.get("allocatable"))),
        is_own,
        str((status.get("nodeInfo") or {}).get("kubeletVersion") or ""),
    )


def _describe_group(group: rules.RdmaGroup, asked: rules.RdmaStackOptions) -> dict[str, t.Any]:
    return {
        "name": group.name,
        "resource": group.resource,
        "resource_name": group.resource.rpartition("/")[2],
        "config": json.dumps({"configList": [dict(group.entry)]}, sort_keys=True),
        "vendor": (group.entry["selectors"].get("vendors") or [""])[0],
        "link": group.link,
        "netdevs": list(group.netdevs),
        "exclusive": group.exclusive,
        "vfs": asked.vfs,
        "nodes": list(group.nodes),
    }


def _label_object(name: str, group: str = "", facts: HcaFacts | None = None) -> dict[str, t.Any]:
    marks = {"labels": {OWN_LABEL: group}, "annotations": {FACTS: facts.to_text()}} if facts else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **marks}}
