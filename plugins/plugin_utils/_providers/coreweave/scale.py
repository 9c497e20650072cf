# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, scale and delete a CoreWeave node pool: the shapes of the object, and the patch of a change.

Node pools are objects in the cluster (``compute.coreweave.com/v1alpha1``); neither the CKS API nor another one makes
them. Source: CoreWeave's Node Pool reference. Fields that only other places name are left alone.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._http.client import HttpClient
from ....module_utils._http.messages import json_request
from ....module_utils._http.urls import Origin, parse_base_url, route
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._secrets.auth import bearer
from ..base import send_delete
from ..connection import ProviderConnection
from ..parsing import as_mapping, text, whole
from .client import NODE_POOLS, error_detail

API_VERSION = "compute.coreweave.com/v1alpha1"
_MERGE_PATCH = "application/merge-patch+json"


@dataclasses.dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool's wanted state; ``nodes`` is what its status says it has (field name not verified), else None."""

    name: str
    instance_type: str | None
    target_nodes: int | None
    min_nodes: int | None = None
    max_nodes: int | None = None
    nodes: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the pool as plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class DesiredPool:
    """A node pool as it should be; None leaves a value as it is. ``instance_type`` cannot be changed later."""

    name: str
    target_nodes: int
    instance_type: str | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    def spec(self) -> dict[str, object]:
        """Return the fields of the object's ``spec`` to set, without the type of instance."""
        values = {"targetNodes": self.target_nodes, "minNodes": self.min_nodes, "maxNodes": self.max_nodes}
        return {key: value for key, value in values.items() if value is not None}

    def manifest(self) -> dict[str, object]:
        """Return the object that creates the pool. Raises InputError without a type of instance."""
        if self.instance_type is None:
            raise InputError("instance_type", "is required to create a node pool")
        spec = {"computeClass": "default", "instanceType": self.instance_type, **self.spec()}
        if self.labels:
            spec["nodeLabels"] = dict(self.labels)
        return {"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": self.name}, "spec": spec}


def parse_pool(raw: object) -> NodePool:
    """Return a node pool from the object; what it does not say is None."""
    spec, status = as_mapping(as_mapping(raw).get("spec")), as_mapping(as_mapping(raw).get("status"))
    return NodePool(
        name=text(as_mapping(as_mapping(raw).get("metadata")).get("name")) or "",
        instance_type=text(spec.get("instanceType")),
        target_nodes=whole(spec.get("targetNodes")),
        min_nodes=whole(spec.get("minNodes")),
        max_nodes=whole(spec.get("maxNodes")),
        nodes=whole(status.get("currentNodes")),
    )


def build_patch(live: NodePool, desired: DesiredPool) -> dict[str, object]:
    """Return the merge patch that brings ``live`` to ``desired``, empty when there is nothing to do.

    Raises RefusedError for another type of instance, or a target outside the pool's own limits.
    """
    if desired.instance_type is not None and live.instance_type not in (None, desired.instance_type):
        raise RefusedError(
            f"node pool {live.name} has the type {live.instance_type}, which cannot be changed", "Create another pool"
        )
    low = desired.min_nodes if desired.min_nodes is not None else live.min_nodes
    high = desired.max_nodes if desired.max_nodes is not None else live.max_nodes
    if (low is not None and desired.target_nodes < low) or (high is not None and desired.target_nodes > high):
        raise RefusedError(f"{desired.target_nodes} nodes are outside {low} to {high} of node pool {live.name}")
    present = {"targetNodes": live.target_nodes, "minNodes": live.min_nodes, "maxNodes": live.max_nodes}
    return {key: value for key, value in desired.spec().items() if present[key] != value}


class NodePoolApi:
    """Node pools of one cluster, through its API server; the CoreWeave token opens it (managed auth)."""

    def __init__(self, access: ProviderConnection, endpoint: str) -> None:
        url = endpoint if "://" in endpoint else f"https://{endpoint}"
        base = parse_base_url(url, "endpoint", allow_http=not access.validate_certs)
        self._http: HttpClient = access.http(base, bearer(access.token), error_detail=error_detail)
        self.origin: Origin = base.origin

    def get(self, name: str) -> NodePool | None:
        """Return the pool, None when there is none."""
        answer = self._http.call(json_request("GET", self._path(name)), allow=(404,))
        return None if answer.status == 404 else parse_pool(answer.data)

    def create(self, desired: DesiredPool) -> NodePool:
        """Create the pool. The name is unique in the cluster, so a lost answer is resolved by reading the pool."""
        return parse_pool(self._http.call(json_request("POST", NODE_POOLS, body=desired.manifest())).data)

    def scale(self, name: str, change: dict[str, object]) -> NodePool:
        """Apply a merge patch to the pool's spec."""
        request = json_request(
            "PATCH", self._path(name), body={"spec": change}, headers={"Content-Type": _MERGE_PATCH}, idempotent=True
        )
        return parse_pool(self._http.call(request).data)

    def delete(self, name: str) -> bool:
        """Delete the pool; false when there is none."""
        return send_delete(self._http, json_request("DELETE", self._path(name)))

    def _path(self, name: str) -> str:
        return f"{NODE_POOLS}/{route('{name}', name=name)}"
