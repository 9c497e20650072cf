# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers, pods and clusters of RunPod (REST v2): an Instant Cluster is pods that share a fast network.

A name is not unique there and there are no tags: the token is in the name and, for a machine that is renamed, in the
environment. ``env`` comes back in every answer, so bodies are never kept.
"""

from __future__ import annotations

import typing as t

from ....module_utils._http.messages import JsonResponse, json_request
from ....module_utils._http.urls import route
from ....module_utils._model.lease import (
    Instance,
    Leftover,
    OrderAccepted,
    OrderRefused,
    OrderResult,
    ProviderTraits,
    parse_instance_name,
)
from ....module_utils._model.offer import Offer, OfferQuery, Order
from ..base import (
    Capabilities,
    MachineProvider,
    ProviderDeclaration,
    build_instance,
    build_instances,
    knows_id,
    post_request,
    send_delete,
    send_order,
)
from ..connection import TOKEN_VARIABLE, ProviderConnection
from ..parsing import JsonObject, as_mapping, number, objects, positive, read_items, require_text, text, whole
from .client import API_URL, NAME, RunpodClient, error_detail
from .mapping import STATES, to_host

# A 400 has no code: only its text tells a lack of machines from a broken rule.
_CAPACITY_WORDS = ("no capacity", "does not have the resources", "no longer any instances available")
_SELLS = {"NONE": False, "LOW": True, "MEDIUM": True, "HIGH": True}
_DISK_GIB = 50


class RunpodProvider(MachineProvider):
    """One RunPod account. Stopped pods still bill their disk, so a pod that has exited counts as there."""

    name = "runpod"
    traits = ProviderTraits(poll_interval_s=6.0, boot_limit_s=1200.0)
    capabilities = Capabilities(clusters=True, image_required=True)

    def __init__(self, access: ProviderConnection, account: str = "") -> None:
        super().__init__(access, account, API_URL)
        self._client = RunpodClient(access)
        self._http = self._client.http

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return every GPU in both clouds, at the price of the whole order; CPU pods are not offered."""
        gpus = query.gpu_count or 1
        product = "CLUSTER" if query.unit == "cluster" else "POD"
        parameters = [("include", "AVAILABILITY"), ("product", product), ("count", str(gpus))]
        gpu_types = read_items(self._http.get("/catalog/gpus", parameters), "gpus", NAME)
        return tuple(offer for item in gpu_types for offer in _parse_offers(item, query, gpus, count))

    def create(self, order: Order) -> OrderResult:
        """Create one pod or one cluster; the key goes into its environment, the account's keys are left alone."""
        offer = order.offer
        body: dict[str, t.Any] = {
            "name": order.name,
            "image": order.image,
            "ports": sorted({"22/tcp", *order.ports}),
            "disk": order.disk_gib or _DISK_GIB,
            "env": {"PUBLIC_KEY": order.ssh_public_key or "", TOKEN_VARIABLE: order.token},
        }
        if offer.region:
            body["dataCenterIds"] = [offer.region]
        if offer.unit == "cluster":
            compute = {"gpuTypeId": offer.product, "gpuCountPerPod": offer.gpu_count, "podCount": order.count}
            body |= {"type": "TRAINING", "compute": compute}
            return send_order(self._http, post_request("/clusters", body), _read_answer, error_detail, self.clock)
        body |= {"cloud": offer.ref["cloud"], "gpu": {"id": offer.product, "count": offer.gpu_count}}
        return send_order(self._http, post_request("/pods", body), _read_answer, error_detail, self.clock)

    def list_instances(self) -> tuple[Instance, ...]:
        """Return clusters with their members, and all other pods, among them members that outlived their cluster."""
        # Pods first: a cluster that comes to be in between then lacks members for one listing, instead of its pods
        # looking like strays.
        listed = self._client.pods()
        clusters = {str(raw["id"]): raw for raw in self._client.clusters()}
        members: dict[str, list[Instance]] = {key: [] for key in clusters}
        alone: list[Instance] = []
        for raw in listed:
            cluster = clusters.get(str(as_mapping(raw.get("cluster")).get("id")), {})
            (pod,) = build_instances(self.name, [{**raw, "clusterNetwork": cluster.get("network")}], self._pod)
            # What has ended costs nothing: one that still does bills, whatever its state is called.
            if pod.state != "gone" or pod.price_usd_per_hour:
                members.get(str(cluster.get("id")), alone).append(pod)
        return (*(_build_cluster(raw, members[key]) for key, raw in clusters.items()), *alone)

    def knows(self, instance: Instance) -> bool:
        if instance.resource == "cluster":
            return knows_id(self._http, route("/clusters/{id}", id=instance.id), lambda raw: _build_cluster(raw, []))
        return knows_id(self._http, route("/pods/{id}", id=instance.id), self._pod)

    def delete(self, instance: Instance) -> bool:
        path = "/clusters/{id}" if instance.resource == "cluster" else "/pods/{id}"
        return send_delete(self._http, json_request("DELETE", route(path, id=instance.id)))

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        """Return network volumes with a name of ours; their price is not in the API."""
        volumes = read_items(self._http.get("/network-volumes"), "networkVolumes", NAME)
        return tuple(
            Leftover("volume", self.name, str(item.get("id")), str(item.get("name")))
            for item in volumes
            if (parts := parse_instance_name(text(item.get("name")))) and parts.cluster in clusters
        )

    def _pod(self, raw: JsonObject) -> Instance:
        status = str(raw.get("status"))
        terminal = STATES.get(status) in ("failed", "stopped")
        return build_instance(
            to_host(raw, self.account), detail=status, terminal=terminal, token=text(raw.get("muster_token"))
        )


def _read_answer(answer: JsonResponse) -> OrderResult | None:
    if answer.status < 400:
        return OrderAccepted(require_text(answer.data["id"]))
    detail = str(as_mapping(answer.data).get("detail")).lower()
    if answer.status == 400 and any(word in detail for word in _CAPACITY_WORDS):
        return OrderRefused("capacity", error_detail(answer.data))
    return None


def _build_cluster(raw: JsonObject, members: list[Instance]) -> Instance:
    """Return a cluster as one instance; it is terminal when a member is, because its shape cannot be changed.

    It runs when all its members do: one that is not listed may be gone.
    """
    name = text(raw.get("name")) or str(raw["id"])
    parts = parse_instance_name(name)
    ranked = tuple(sorted(members, key=lambda item: item.name))
    prices = [item.price_usd_per_hour for item in ranked if item.price_usd_per_hour is not None]
    # Members that are not listed yet bill, too.
    size = whole(as_mapping(raw.get("compute")).get("podCount")) or 0
    is_whole = bool(ranked) and len(ranked) >= size
    running = is_whole and all(item.state == "running" for item in ranked)
    words = sorted({item.detail for item in ranked})
    return Instance(
        provider="runpod",
        id=str(raw["id"]),
        name=name,
        token=parts.token if parts else next((item.token for item in ranked if item.token), None),
        state="running" if running else "creating",
        resource="cluster",
        detail=", ".join(words if is_whole else [*words, f"{len(ranked)} of {size} machines are listed"]),
        terminal=any(item.terminal for item in ranked),
        region=text(raw.get("dataCenterId")),
        price_usd_per_hour=sum(prices) if ranked and len(prices) == max(size, len(ranked)) else None,
        members=ranked,
    )


def _parse_offers(item: JsonObject, query: OfferQuery, gpus: int, count: int) -> t.Iterator[Offer]:
    name, price, most = text(item.get("id")), as_mapping(item.get("price")), as_mapping(item.get("maxCount"))
    centers = {str(center.get("id")): center.get("availability") for center in objects(item.get("dataCenters"))}
    cluster = query.unit == "cluster"
    for cloud in ("secure",) if cluster else ("secure", "community"):
        each = positive(price.get(cloud))
        if name is None or each is None or not item.get(cloud) or gpus > (whole(most.get(cloud)) or 0):
            continue
        regions: tuple[str | None, ...] = query.regions or (None,)
        for region in regions:
            level = centers.get(region) if region else item.get("availability")
            yield Offer(
                provider="runpod",
                product=name,
                region=region,
                kind="container",
                price_usd_per_hour=each * gpus * (count if cluster else 1),
                gpu_model=name,
                gpu_count=gpus,
                gpu_memory_gib=number(item.get("memory")),
                cpu_arch="x86_64",
                unit="cluster" if cluster else "machine",
                available=_SELLS.get(str(level)),
                network_types=("lan", "public") if cluster else ("public",),
                host=None,
                ref={"cloud": cloud.upper()},
            )


PROVIDER = ProviderDeclaration("runpod", RunpodProvider, "RUNPOD_API_KEY")
