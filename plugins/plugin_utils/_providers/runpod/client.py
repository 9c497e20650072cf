# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods and Instant Clusters of RunPod (REST v2)."""

from __future__ import annotations

from collections.abc import Mapping

from ....module_utils._secrets.auth import bearer
from ..connection import TOKEN_VARIABLE, ProviderConnection
from ..listing import read_listing
from ..parsing import (
    JsonObject,
    as_mapping,
    join_texts,
    pick,
    read_pages,
    text,
    unexpected_answer,
    unique_items,
)

API_URL = "https://api.runpod.io/v2"
NAME = "RunPod"

# env holds the pod's secrets; image arguments and registry may name private things.
POD_FIELDS = (
    "id", "name", "status", "actions", "gpu", "cpu", "cloud", "dataCenterId", "cudaVersion", "ssh", "cluster",
    "cost", "locked", "ports", "runtime", "createdAt", "startedAt", "disk", "image",
)  # fmt: skip
CLUSTER_FIELDS = ("id", "name", "type", "compute", "dataCenterId", "pods", "network", "primary", "createdAt")

_ADVICE = {
    402: "The account's balance is used up",
    403: "The key has no access to this; 'error code: 1010' is Cloudflare refusing the client, not the key",
}


def error_detail(body: object) -> str:
    """Return title and detail of a problem document (RFC 9457)."""
    error = as_mapping(body)
    return join_texts(error.get("title"), error.get("detail"))


def next_cursor(data: Mapping[str, object]) -> str | None:
    """Return the cursor of the next page, None at the end or from an API without pages (before September 2026)."""
    page = as_mapping(data.get("pagination"))
    cursor = text(page.get("nextCursor"))
    if page.get("hasNextPage") is True and cursor is None:
        raise unexpected_answer(NAME, "a next page without cursor")
    return cursor if page.get("hasNextPage") is not False else None


class RunpodClient:
    """One RunPod account. About 60 requests a minute are allowed: listings are polled, not single pods."""

    def __init__(self, access: ProviderConnection) -> None:
        base = access.base(API_URL)
        self.http = access.http(base, bearer(access.token), error_detail=error_detail, advice=_ADVICE)
        self.account = access.account
        self._deadline = access.listing_deadline

    def pods(self) -> list[JsonObject]:
        """Return every pod, members of clusters too, whitelisted."""
        listed = self._list("/pods", "pods", [("includeClusterPods", "true")])
        return [_pod(item) for item in listed]

    def clusters(self) -> list[JsonObject]:
        """Return every cluster, whitelisted."""
        return [pick(item, CLUSTER_FIELDS) for item in self._list("/clusters", "clusters", [])]

    def list_pods(self) -> list[JsonObject]:
        """Return every pod; members of clusters carry their cluster's network as ``clusterNetwork``."""
        pods = self.pods()
        if any(as_mapping(pod.get("cluster")) for pod in pods):
            networks = {cluster["id"]: cluster.get("network") for cluster in self.clusters()}
            for pod in pods:
                pod["clusterNetwork"] = networks.get(as_mapping(pod.get("cluster")).get("id"))
        return pods

    def _list(self, path: str, key: str, query: list[tuple[str, str]]) -> list[JsonObject]:
        def fetch(cursor: str | None) -> tuple[list[JsonObject], str | None]:
            pages = [*query, ("cursor", cursor)] if cursor else query
            items, data = read_listing(self.http, path, key, NAME, pages, ("pagination",))
            return items, next_cursor(data)

        return unique_items(read_pages(fetch, NAME, self._deadline()), "id", NAME)


def _pod(raw: JsonObject) -> JsonObject:
    pod = pick(raw, POD_FIELDS)
    # Of the environment only the lease's token is kept: a name may be changed, and the rest may be secret.
    pod["muster_token"] = text(as_mapping(raw.get("env")).get(TOKEN_VARIABLE))
    # Only the ports of a running pod are kept: its utilisation changes with every call and would spoil a cache's diff.
    runtime = raw.get("runtime")
    if isinstance(runtime, Mapping):
        pod["runtime"] = pick(runtime, ("ports",))
    return pod
