# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers and instances of Shadeform (API 1.0), whose server deletes them at their deadline."""

from __future__ import annotations

import base64
import typing as t

from ....module_utils._http.messages import JsonResponse
from ....module_utils._http.urls import route
from ....module_utils._model.errors import TransportError
from ....module_utils._model.lease import (
    Instance,
    Leftover,
    OrderAccepted,
    OrderRefused,
    OrderResult,
    ProviderTraits,
    parse_instance_name,
)
from ....module_utils._model.offer import Offer, OfferKind, OfferQuery, Order
from ..base import (
    Capabilities,
    MachineProvider,
    ProviderDeclaration,
    build_instance,
    build_instances,
    classify_preparation_error,
    knows_id,
    post_request,
    send_delete,
    send_order,
)
from ..connection import ProviderConnection
from ..parsing import (
    JsonObject,
    as_mapping,
    number,
    objects,
    positive,
    read_items,
    require_text,
    text,
    texts,
    unexpected_answer,
    whole,
)
from ..ssh_keys import KeyRing, blob
from .client import API_URL, NAME, ShadeformClient, error_detail
from .mapping import STATES, to_host

_KINDS: t.Final[dict[str, OfferKind]] = {"vm": "vm", "baremetal": "baremetal", "container": "container"}
_CAPACITY_WORDS = ("out of stock", "no capacity", "insufficient capacity", "not available", "sold out")
_TAG = "muster-token:"


class ShadeformProvider(MachineProvider):
    """One Shadeform account."""

    name = "shadeform"
    traits = ProviderTraits(boot_limit_s=1800.0, keeps_deadline=True)
    capabilities = Capabilities(user_data="script")

    def __init__(self, access: ProviderConnection, account: str = "") -> None:
        super().__init__(access, account, API_URL)
        self._client = ShadeformClient(access)
        self._http = self._client.http
        self._keys = KeyRing(self._find_key, self._add_key)

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return every type in every region of every cloud that has it now."""
        parameters = [("available", "true"), ("sort", "price")]
        if query.gpu_count:
            parameters.append(("num_gpus", str(query.gpu_count)))
        types = read_items(self._http.get("/instances/types", parameters), "instance_types", NAME)
        return tuple(offer for item in types for offer in _parse_offers(item))

    def create(self, order: Order) -> OrderResult:
        """Create one instance; its token is in the name and a tag, its deadline in ``auto_delete``."""
        try:
            key = self._keys.ensure(order.ssh_public_key or "")
        except TransportError as error:
            return classify_preparation_error(error)
        offer = order.offer
        body: dict[str, t.Any] = {
            "cloud": offer.ref["cloud"],
            "region": offer.region,
            "shade_instance_type": offer.product,
            "shade_cloud": True,
            "name": order.name,
            "ssh_key_id": key,
            "tags": [f"{_TAG}{order.token}", f"muster-cluster:{order.cluster}"],
        }
        if order.image:
            body["os"] = order.image
        if order.deadline:
            body["auto_delete"] = {"date_threshold": order.deadline}
        if order.user_data:
            script = base64.b64encode(order.user_data.encode()).decode()
            body["launch_configuration"] = {"type": "script", "script_configuration": {"base64_script": script}}
        return send_order(self._http, post_request("/instances/create", body), _read_answer, error_detail, self.clock)

    def list_instances(self) -> tuple[Instance, ...]:
        instances = build_instances(self.name, self._client.instances(), lambda raw: _parse_instance(raw, self.account))
        return tuple(item for item in instances if item.state != "gone")

    def knows(self, instance: Instance) -> bool:
        path = route("/instances/{id}/info", id=instance.id)
        return knows_id(self._http, path, lambda raw: _parse_instance(raw, self.account))

    def delete(self, instance: Instance) -> bool:
        return send_delete(self._http, post_request(route("/instances/{id}/delete", id=instance.id)))

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        """Return volumes with a name of ours; their hourly price is not in the API."""
        volumes = read_items(self._http.get("/volumes"), "volumes", NAME)
        return tuple(
            Leftover("volume", self.name, str(item.get("id")), str(item.get("name")))
            for item in volumes
            if (parts := parse_instance_name(text(item.get("name")))) and parts.cluster in clusters
        )

    def _find_key(self, want: str) -> str | None:
        listed = read_items(self._http.get("/sshkeys"), "ssh_keys", NAME)
        return next((text(item.get("id")) for item in listed if blob(str(item.get("public_key"))) == want), None)

    def _add_key(self, name: str, key: str) -> str:
        answer = as_mapping(self._http.call(post_request("/sshkeys/add", {"name": name, "public_key": key})).data)
        ident = text(answer.get("id"))
        if ident is None:
            raise unexpected_answer(NAME, "a key without id")
        return ident


def _read_answer(answer: JsonResponse) -> OrderResult | None:
    if answer.status < 400:
        return OrderAccepted(require_text(answer.data["id"]))
    detail = error_detail(answer.data)
    if answer.status < 500 and any(word in detail.lower() for word in _CAPACITY_WORDS):
        return OrderRefused("capacity", detail)
    return None


def _parse_instance(raw: JsonObject, account: str) -> Instance:
    status = str(raw.get("status"))
    tags = (tag.removeprefix(_TAG) for tag in texts(raw.get("tags")) if tag.startswith(_TAG))
    terminal = STATES.get(status) in ("failed", "stopped")
    return build_instance(to_host(raw, account), detail=status, terminal=terminal, token=next(tags, None))


def _parse_offers(raw: JsonObject) -> t.Iterator[Offer]:
    name, cloud, cents = text(raw.get("shade_instance_type")), text(raw.get("cloud")), positive(raw.get("hourly_price"))
    kind = _KINDS.get(str(raw.get("deployment_type")))
    if name is None or cloud is None or cents is None or kind is None:
        return
    config = as_mapping(raw.get("configuration"))
    gpus = whole(config.get("num_gpus")) or 0
    for site in objects(raw.get("availability")):
        yield Offer(
            provider="shadeform",
            product=name,
            region=text(site.get("region")),
            kind=kind,
            price_usd_per_hour=cents / 100,
            gpu_model=text(config.get("gpu_type")) if gpus else None,
            gpu_count=gpus,
            gpu_memory_gib=number(config.get("vram_per_gpu_in_gb")),
            cpu_count=whole(config.get("vcpus")),
            memory_gib=number(config.get("memory_in_gb")),
            disk_gib=number(config.get("storage_in_gb")),
            available=site.get("available") is True,
            k3s_capable=kind != "container",
            network_types=("public",),
            host=None,
            ref={"cloud": cloud},
        )


PROVIDER = ProviderDeclaration("shadeform", ShadeformProvider, "SHADEFORM_API_KEY")
