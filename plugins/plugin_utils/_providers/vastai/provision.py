# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers and instances of Vast.ai: an order takes one offer of one host, a container or a VM, on demand.

The create call is a PUT that creates an instance each time it is sent. The key in its answer is dropped.
"""

from __future__ import annotations

import typing as t

from ....module_utils._http.messages import HttpResponse, JsonResponse, decode_json, json_request
from ....module_utils._http.urls import route
from ....module_utils._model.errors import ApiError, TransportError
from ....module_utils._model.lease import Instance, OrderAccepted, OrderRefused, OrderResult, ProviderTraits
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
from ..connection import TOKEN_VARIABLE, ProviderConnection
from ..parsing import JsonObject, as_mapping, flag, number, objects, positive, text, whole
from ..ssh_keys import KeyRing, blob
from .client import API_URL, VastClient, error_detail, read_answer
from .mapping import memory_gib, to_host

_MIB_PER_GIB = 1024
_MOST_OFFERS = 128
_DEFAULT_DISK_GIB = 50
# States that never become running; a stopped instance was outbid or could not be scheduled, and still bills its disk.
_TERMINAL = ("exited", "unknown", "offline", "stopped", "frozen")
# The search wants exact names; these are the variants that people mean by the short ones.
_VARIANTS = {
    "A100": ("A100 SXM4", "A100 PCIE"),
    "H100": ("H100 SXM", "H100 PCIE", "H100 NVL"),
    "H200": ("H200", "H200 NVL"),
    "RTX4090": ("RTX 4090",),
    "RTX5090": ("RTX 5090",),
}
# The answer to a key of a team's account: its instances get the key one by one, after they were created.
_TEAM = "team_ssh_keys_not_supported"


class VastProvider(MachineProvider):
    """One Vast.ai account."""

    name = "vastai"
    # Endpoints have a least interval per user of 1.0 to 4.5 s; a new instance may be missing for a minute.
    traits = ProviderTraits(create_interval_s=1.0, list_lag_s=75.0, settle_s=180.0, boot_limit_s=900.0)
    capabilities = Capabilities(image_required=True, user_data="script")

    def __init__(self, access: ProviderConnection, account: str = "") -> None:
        super().__init__(access, account, API_URL)
        self._client = VastClient(access)
        self._http = self._client.http
        self._keys = KeyRing(self._find_key, self._add_key)

    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return verified on-demand offers, cheapest first; virtual machines where K3s or a VM is asked for."""
        vm = query.kind == "vm" or query.k3s_capable is True
        search: dict[str, t.Any] = {
            "type": "ondemand",
            "limit": _MOST_OFFERS,
            "order": [["dph_total", "asc"]],
            "verified": {"eq": True},
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "direct_port_count": {"gte": 1},
        }
        if vm:
            search["vms_enabled"] = {"eq": True}
        if query.gpu_count:
            search["num_gpus"] = {"in": [query.gpu_count]}
        if query.gpu_model:
            search["gpu_name"] = {"in": list(_list_gpu_names(query.gpu_model))}
        if query.max_price_usd_per_hour is not None:
            search["dph_total"] = {"lte": query.max_price_usd_per_hour}
        answer = self._http.call(json_request("POST", "/bundles/", body=search, idempotent=True))
        return tuple(offer for item in read_answer(answer.data, "offers") for offer in _parse_offers(item, vm))

    def create(self, order: Order) -> OrderResult:
        """Take one offer; ``cancel_unavail`` asks for an error instead of an instance that waits for a free host."""
        try:
            team = self._keys.ensure(order.ssh_public_key or "") == _TEAM
        except TransportError as error:
            return classify_preparation_error(error)
        body: dict[str, t.Any] = {
            "image": order.image,
            "label": order.name,
            "disk": float(order.disk_gib or _DEFAULT_DISK_GIB),
            "runtype": "ssh_direct",
            "target_state": "running",
            "cancel_unavail": True,
            "env": {**{f"-p {port}:{port}": "1" for port in order.ports}, TOKEN_VARIABLE: order.token},
        }
        if order.offer.kind == "vm":
            body["vm"] = True
        if order.user_data:
            body["onstart"] = order.user_data
        path = route("/asks/{id}/", id=order.offer.ref["ask"])
        answer = send_order(self._http, json_request("PUT", path, body=body), _read_created, error_detail, self.clock)
        if team and isinstance(answer, OrderAccepted) and answer.usable:
            return self._attach(answer, order.ssh_public_key or "")
        return answer

    def list_instances(self) -> tuple[Instance, ...]:
        return build_instances(self.name, self._client.instances(), lambda raw: _parse_instance(raw, self.account))

    def knows(self, instance: Instance) -> bool:
        path = route("/instances/{id}/", id=instance.id)
        return knows_id(
            self._http, path, lambda raw: _parse_instance(raw, self.account), "instances", absent=_is_no_instance
        )

    def delete(self, instance: Instance) -> bool:
        """Delete one instance; a failure may be told by ``success`` in the body of a 200."""
        request = json_request("DELETE", route("/instances/{id}/", id=instance.id))
        return send_delete(
            self._http, request, _is_unknown, lambda response: response.status < 400 and _is_ok(response)
        )

    def _attach(self, created: OrderAccepted, key: str) -> OrderResult:
        """Give a team's instance its key; without one it cannot be used, but it exists."""
        try:
            self._http.call(
                json_request(
                    "POST", route("/instances/{id}/ssh/", id=created.id), body={"ssh_key": key}, idempotent=True
                )
            )
        except TransportError as error:
            return OrderAccepted(created.id, usable=False, reason=error.message)
        return created

    def _find_key(self, want: str) -> str | None:
        data = self._http.get("/ssh/")
        # The API answers a bare list; newer versions wrap it.
        listed = objects(data if isinstance(data, list) else as_mapping(data).get("ssh_keys"))
        active = (item for item in listed if not item.get("deleted_at"))
        keys = {blob(str(item.get("key") or item.get("public_key"))): text(item.get("id")) for item in active}
        return keys.get(want)

    def _add_key(self, _name: str, key: str) -> str:
        try:
            self._http.call(post_request("/ssh/", {"ssh_key": key}))
        except ApiError as error:
            if _TEAM in error.message:
                return _TEAM
            raise
        return blob(key)


def _list_gpu_names(model: str) -> tuple[str, ...]:
    return _VARIANTS.get(model.upper().replace(" ", "").replace("_", ""), (model.replace("_", " "),))


def _read_created(answer: JsonResponse) -> OrderResult | None:
    data = as_mapping(answer.data)
    ident, error = text(data.get("new_contract")), text(data.get("error"))
    if ident is not None:
        # An order may be refused and leave a stopped instance all the same.
        usable = answer.status < 400 and data.get("success") is not False and error is None
        return OrderAccepted(ident, usable, "" if usable else error_detail(data) or f"status {answer.status}")
    if answer.status in (404, 410) or (
        400 <= answer.status < 500 and error in ("no_such_ask", "insufficient_resources")
    ):
        return OrderRefused("capacity", error_detail(data))
    if answer.status < 400 and data.get("success") is False:
        return OrderRefused("rule", error_detail(data) or "refused without a reason")
    return None


def _read_body(response: HttpResponse) -> t.Mapping[str, object]:
    try:
        return as_mapping(decode_json(response.body))
    except ValueError:
        return {}


def _is_ok(response: HttpResponse) -> bool:
    return _read_body(response).get("success") is not False


def _is_unknown(response: HttpResponse) -> bool:
    return response.status in (404, 410) or _read_body(response).get("error") == "no_such_instance"


def _is_no_instance(response: HttpResponse) -> bool:
    # An instance that has ended may be shown as null.
    return _is_unknown(response) or _read_body(response).get("instances", {}) is None


def _parse_instance(raw: JsonObject, account: str) -> Instance:
    host = to_host(raw, account)
    status = text(raw.get("actual_status"))
    terminal = status in _TERMINAL or host.record["state"] in ("failed", "stopped")
    token, machine = text(raw.get("muster_token")), text(raw.get("machine_id"))
    return build_instance(host, detail=status or "not begun", terminal=terminal, token=token, machine=machine)


def _parse_offers(raw: JsonObject, vm: bool) -> t.Iterator[Offer]:
    ask, price, gpus = whole(raw.get("id")), positive(raw.get("dph_total")), whole(raw.get("num_gpus"))
    if ask is None or price is None or gpus is None:
        return
    memory = number(raw.get("gpu_ram"))
    cluster = text(raw.get("cluster_id"))
    yield Offer(
        provider="vastai",
        product=str(ask),
        region=text(raw.get("geolocation")),
        kind="vm" if vm else "container",
        price_usd_per_hour=price,
        gpu_model=text(raw.get("gpu_name")) if gpus else None,
        gpu_count=gpus,
        gpu_memory_gib=None if memory is None else round(memory / _MIB_PER_GIB, 1),
        cpu_count=whole(raw.get("cpu_cores")),
        cpu_arch={"amd64": "x86_64", "arm64": "aarch64"}.get(str(raw.get("cpu_arch"))),
        memory_gib=memory_gib(raw),
        disk_gib=number(raw.get("disk_space")),
        available=flag(raw.get("rentable")),
        stock=1,
        k3s_capable=vm,
        network_types=("lan", "public") if cluster and not vm else ("public",),
        host=text(raw.get("machine_id")),
        ref={"ask": ask},
    )


PROVIDER = ProviderDeclaration("vastai", VastProvider, "VAST_API_KEY")
