# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of CoreWeave's Kubernetes service (CKS API v1beta1) and the node pools inside them."""

from __future__ import annotations

import concurrent.futures
import re

from ....module_utils._http.urls import BaseUrl, Origin
from ....module_utils._model.errors import TransportError
from ....module_utils._secrets.auth import bearer
from ..connection import ProviderConnection
from ..parsing import JsonObject, as_mapping, join_texts, pick, read_items, text, unexpected_answer, unique_items

API_URL = "https://api.coreweave.com/v1beta1"
NAME = "CoreWeave"
NODE_POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"

FIELDS = ("id", "name", "zone", "vpcId", "public", "version", "network", "apiServerEndpoint", "status")
POOL_FIELDS = ("instanceType", "computeClass", "targetNodes", "minNodes", "maxNodes", "autoscaling")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_HTTPS = 443
_PARALLEL = 4


def error_detail(body: object) -> str:
    """Return the message of an error answer."""
    return join_texts(as_mapping(body).get("message"))


class CoreweaveClient:
    """One CoreWeave organisation; the same token opens the API servers of its clusters (managed auth)."""

    def __init__(self, access: ProviderConnection) -> None:
        self._access = access
        self.http = access.http(access.base(API_URL), bearer(access.token), error_detail=error_detail)
        self.account = access.account

    def clusters(self) -> list[JsonObject]:
        """Return every cluster, whitelisted."""
        listed = unique_items(read_items(self.http.get("/cks/clusters"), "items", NAME), "id", NAME)
        return [pick(item, FIELDS) for item in listed]

    def list_clusters(self, *, node_pools: bool = False) -> list[JsonObject]:
        """Return every cluster; with ``node_pools`` running ones carry their pools as ``nodePools``.

        A private API server that this machine cannot reach leaves its cluster without pools, not the listing without
        the cluster.
        """
        clusters = self.clusters()
        running = [cluster for cluster in clusters if cluster.get("status") == "STATUS_RUNNING"] if node_pools else []
        if running:
            with concurrent.futures.ThreadPoolExecutor(max_workers=_PARALLEL) as workers:
                for cluster, pools in zip(running, workers.map(self._pools_or_none, running), strict=True):
                    cluster["nodePools"] = pools
        return clusters

    def _pools_or_none(self, cluster: JsonObject) -> list[JsonObject] | None:
        try:
            return self.node_pools(cluster)
        except TransportError:
            return None

    def node_pools(self, cluster: JsonObject) -> list[JsonObject]:
        """Return the node pools of a running cluster: name, wanted spec and node counts.

        Raises :class:`TransportError` when the cluster's API server does not answer.
        """
        endpoint = text(cluster.get("apiServerEndpoint"))
        if endpoint is None or not _HOST.match(endpoint.lower()):
            raise unexpected_answer(NAME, "a cluster without usable apiServerEndpoint")
        base = BaseUrl(Origin("https", endpoint.lower(), _HTTPS), "")
        http = self._access.http(base, bearer(self._access.token), error_detail=error_detail)
        return [_pool(item) for item in read_items(http.get(NODE_POOLS), "items", NAME)]


def _pool(item: JsonObject) -> JsonObject:
    spec, status = as_mapping(item.get("spec")), as_mapping(item.get("status"))
    counts = {key: value for key, value in status.items() if isinstance(value, int)}
    return {"name": as_mapping(item.get("metadata")).get("name"), **pick(spec, POOL_FIELDS), "status": counts}
