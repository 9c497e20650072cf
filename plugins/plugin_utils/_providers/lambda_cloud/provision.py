# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers and instances of Lambda Cloud (API 1.8 to 1.10): one instance a create call, five launches a minute."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._http.messages import HttpResponse, JsonResponse
from ....module_utils._http.urls import route
from ....module_utils._model.errors import ApiError, TransportError
from ....module_utils._model.lease import (
    Instance,
    Leftover,
    OrderAccepted,
    OrderRefused,
    OrderResult,
    ProviderTraits,
    RefusalKind,
    parse_instance_name,
)
from ....module_utils._model.offer import Offer, OfferQuery, Order
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
    text,
    texts,
    unexpected_answer,
    whole,
)
from ..ssh_keys import KeyRing, blob
from .client import API_URL, NAME, LambdaClient, error_detail
from .mapping import STATES, cpu_arch, gpu_memory_gib, to_host

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-f]{32}\Z")
_CODES: t.Final[dict[str, RefusalKind]] = {
    "instance-operations/launch/insufficient-capacity": "capacity",
    "global/quota-exceeded": "quota",
    "global/invalid-api-key": "credentials",
    "global/account-inactive": "credentials",
    # The image, the key or the file system of a launch.
    "global/object-does-not-exist": "rule",
}


class LambdaProvider(MachineProvider):
    """One Lambda account. An ``unhealthy`` instance never heals; one that is terminating may still bill."""

    name = "lambda"
    # Launches: documented as one per 12 s. Eight GPUs take up to 15 minutes to boot, reported.
    traits = ProviderTraits(create_interval_s=12.0, boot_limit_s=1500.0)
    capabilities = Capabilities(user_data="cloud-init")

    def __init__(self, access: ProviderConnection, account: str = "") -> None:
        super().__init__(access, account, API_URL)
        self._client = LambdaClient(access)
        self._http = self._client.http
        self._keys = KeyRing(self._find_key, self._add_key)

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return every instance type in every region that has it, and in regions the query names (advice only)."""
        data = as_mapping(self._http.get("/instance-types")).get("data")
        if not isinstance(data, t.Mapping):
            raise unexpected_answer(NAME, "no mapping 'data'")
        return tuple(offer for entry in data.values() for offer in _parse_offers(as_mapping(entry), query))

    def create(self, order: Order) -> OrderResult:
        """Launch one instance; its token is in the name, the host name and a tag."""
        try:
            key = self._keys.ensure(order.ssh_public_key or "")
        except TransportError as error:
            # Nothing was launched: a key that was added, or not, costs nothing.
            return classify_preparation_error(error)
        image = {"image": {"id" if _ID.match(order.image) else "family": order.image}} if order.image else {}
        data = {"user_data": order.user_data} if order.user_data else {}
        body = {
            "region_name": order.offer.region,
            "instance_type_name": order.offer.product,
            "ssh_key_names": [key],
            "name": order.name,
            "hostname": order.name,
            "tags": [
                {"key": "muster-cluster", "value": order.cluster},
                {"key": "muster-pool", "value": order.pool},
                {"key": "muster-token", "value": order.token},
            ],
            **image,
            **data,
        }
        return send_order(
            self._http, post_request("/instance-operations/launch", body), self._read_launch, error_detail, self.clock
        )

    def list_instances(self) -> tuple[Instance, ...]:
        instances = build_instances(self.name, self._client.instances(), lambda raw: _parse_instance(raw, self.account))
        return tuple(item for item in instances if item.state != "gone")

    def knows(self, instance: Instance) -> bool:
        path = route("/instances/{id}", id=instance.id)
        return knows_id(self._http, path, lambda raw: _parse_instance(raw, self.account), "data", _is_unknown)

    def delete(self, instance: Instance) -> bool:
        """Terminate one instance; an id that is gone is ``object-does-not-exist``, with 400 or 404."""
        request = post_request("/instance-operations/terminate", {"instance_ids": [instance.id]})
        return send_delete(self._http, request, _is_unknown)

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        """Return file systems with a name of ours; their price is not in the API."""
        systems = read_items(self._http.get("/file-systems"), "data", NAME)
        return tuple(
            Leftover("file_system", self.name, str(item.get("id")), str(item.get("name")))
            for item in systems
            if (parts := parse_instance_name(text(item.get("name")))) and parts.cluster in clusters
        )

    def _read_launch(self, answer: JsonResponse) -> OrderResult | None:
        if answer.status < 400:
            (key,) = texts(answer.data["data"]["instance_ids"])
            return OrderAccepted(key)
        why = _CODES.get(str(as_mapping(as_mapping(answer.data).get("error")).get("code")))
        return OrderRefused(why, error_detail(answer.data)) if why and answer.status < 500 else None

    def _find_key(self, want: str) -> str | None:
        listed = read_items(self._http.get("/ssh-keys"), "data", NAME)
        return next((text(item.get("name")) for item in listed if blob(str(item.get("public_key"))) == want), None)

    def _add_key(self, name: str, key: str) -> str:
        try:
            self._http.call(post_request("/ssh-keys", {"name": name, "public_key": key}))
        except ApiError as error:
            # Another controller may have added it a moment ago.
            name_of_key = self._find_key(blob(key)) if error.status in (400, 409) else None
            if name_of_key is None:
                raise
            return name_of_key
        return name


def _is_unknown(response: HttpResponse) -> bool:
    return b"object-does-not-exist" in response.body


def _parse_instance(raw: JsonObject, account: str) -> Instance:
    status = str(raw.get("status"))
    tags = {text(tag.get("key")): text(tag.get("value")) for tag in objects(raw.get("tags"))}
    state = STATES.get(status, "unknown")
    return build_instance(
        to_host(raw, account),
        detail=status,
        terminal=state in ("failed", "stopped"),
        token=tags.get("muster-token"),
    )


def _parse_offers(entry: t.Mapping[str, t.Any], query: OfferQuery) -> t.Iterator[Offer]:
    product = dict(as_mapping(entry.get("instance_type")))
    name, cents = text(product.get("name")), positive(product.get("price_cents_per_hour"))
    if name is None or cents is None:
        return
    specs = as_mapping(product.get("specs"))
    listed = objects(entry.get("regions_with_capacity_available"))
    open_regions = [region for item in listed if (region := text(item.get("name")))]
    description = text(product.get("gpu_description"))
    gpus = whole(specs.get("gpus")) or 0
    regions: list[str | None] = [*open_regions, *(item for item in query.regions if item not in open_regions)]
    for region in regions or [None]:
        yield Offer(
            provider="lambda",
            product=name,
            region=region,
            kind="vm",
            price_usd_per_hour=cents / 100,
            gpu_model=description if gpus else None,
            gpu_count=gpus,
            gpu_memory_gib=gpu_memory_gib(description),
            cpu_count=whole(specs.get("vcpus")),
            cpu_arch=cpu_arch(product),
            memory_gib=number(specs.get("memory_gib")),
            disk_gib=number(specs.get("storage_gib")),
            available=region in open_regions,
            # An order needs a region: without one the offer is for information only.
            stock=0 if region is None else None,
            k3s_capable=True,
            network_types=("lan", "public"),
        )


PROVIDER = ProviderDeclaration("lambda", LambdaProvider, "LAMBDA_API_KEY")
