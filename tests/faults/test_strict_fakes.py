# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The four fakes are equally strict: what a provider would refuse is refused, what its document forbids is noted."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import OrderAccepted, OrderRefused
from ansible_collections.muster.training.plugins.module_utils._model.offer import Offer, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.api import ProviderApi
from ansible_collections.muster.training.tests.fakes.api import FakeApi
from ansible_collections.muster.training.tests.fakes.cycle import KEY, PRODUCTS
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, access

PROVIDERS = ["lambda", "runpod", "vastai", "shadeform"]
OFFERS = {
    "lambda": Offer("lambda", "gpu_1x_h100_sxm5", "us-east-1", "vm", 2.99),
    "runpod": Offer("runpod", "NVIDIA H100 80GB HBM3", None, "container", 2.99, gpu_count=1, ref={"cloud": "SECURE"}),
    "vastai": Offer("vastai", "9001", None, "container", 2.0, ref={"ask": 9001}),
    "shadeform": Offer("shadeform", "H100", "canada-1", "vm", 2.4, ref={"cloud": "hyperstack"}),
}
UNKNOWN = {
    "lambda": Offer("lambda", "gpu_9x_x", "us-east-1", "vm", 2.99),
    "runpod": Offer("runpod", "NVIDIA X", None, "container", 2.99, gpu_count=1, ref={"cloud": "SECURE"}),
    "vastai": Offer("vastai", "1", None, "container", 2.0, ref={"ask": 1}),
    "shadeform": Offer("shadeform", "H100", "canada-1", "vm", 2.4, ref={"cloud": "elsewhere"}),
}


def open_api(name: str) -> tuple[FakeApi, VirtualClock]:
    clock = VirtualClock()
    return PRODUCTS[name].fake(clock), clock


def order(offer: Offer, token: str = "0000abcd") -> Order:
    return Order(token, f"lab-h100-0-{token}", offer, "lab", "h100", ssh_public_key=KEY, image="ubuntu")


@pytest.mark.parametrize("name", PROVIDERS)
def test_only_what_is_sold_can_be_ordered(name: str) -> None:
    api, clock = open_api(name)
    with api.loopback() as url:
        provider: ProviderApi = PRODUCTS[name].client(access(url, clock))
        assert isinstance(provider.create(order(UNKNOWN[name])), OrderRefused)
        assert api.alive() == []
        assert isinstance(provider.create(order(OFFERS[name])), OrderAccepted)
        (made,) = provider.list_instances()
        assert made.token == "0000abcd" and made.price_usd_per_hour and provider.knows(made)
        assert provider.delete(made)
        clock.sleep(60)
        assert provider.list_instances() == () and not provider.delete(made) and not provider.knows(made)
    assert api.alive() == [] and api.violations == []


@pytest.mark.parametrize("name", ["vastai", "shadeform"])
def test_what_is_taken_is_not_sold_again(name: str) -> None:
    """An offer of Vast.ai, a name at Shadeform; the names of the others need not be unique."""
    api, clock = open_api(name)
    with api.loopback() as url:
        provider: ProviderApi = PRODUCTS[name].client(access(url, clock))
        assert isinstance(provider.create(order(OFFERS[name])), OrderAccepted)
        assert not isinstance(provider.create(order(OFFERS[name])), OrderAccepted)
    assert len(api.alive()) == 1


# A create without its keys, with a field that the document lacks, and with a value of another type.
CREATES: dict[str, tuple[str, str, dict[str, t.Any]]] = {
    "lambda": (
        "POST",
        "/api/v1/instance-operations/launch",
        {"region_name": "us-east-1", "instance_type_name": "gpu_1x_h100_sxm5", "ssh_key_names": ["nobodys"]},
    ),
    "vastai": ("PUT", "/api/v0/asks/9001/", {"label": "x", "image": "ubuntu", "disk": 50.0}),
    "shadeform": (
        "POST",
        "/v1/instances/create",
        {"cloud": "hyperstack", "region": "canada-1", "shade_instance_type": "H100", "shade_cloud": True}
        | {"name": "x", "ssh_key_id": "nobodys"},
    ),
}


def send(api: FakeApi, method: str, path: str, body: t.Any, headers: dict[str, str]) -> int:
    answer, _end = api.serve(method, path, headers, json.dumps(body).encode())
    assert not isinstance(answer, bytes)
    return answer.status


def headers(api: FakeApi) -> dict[str, str]:
    return {api.secret_header: TOKEN, "user-agent": "muster"}


@pytest.mark.parametrize("name", CREATES)
def test_nothing_is_made_without_a_key(name: str) -> None:
    api, _clock = open_api(name)
    assert send(api, *CREATES[name], headers(api)) == 400 and api.alive() == []
    assert api.violations == []


@pytest.mark.parametrize("name", CREATES)
@pytest.mark.parametrize("wrong", ["credential", "client", "type", "route"])
def test_what_the_document_forbids_is_noted(name: str, wrong: str) -> None:
    api, _clock = open_api(name)
    method, path, body = CREATES[name]
    sent = headers(api)
    if wrong == "credential":
        del sent[api.secret_header]
    elif wrong == "client":
        sent["user-agent"] = "Python-urllib/3.13"
    elif wrong == "type":
        body = {**body, next(key for key, value in body.items() if isinstance(value, str)): [1]}
    else:
        path = f"{path.rstrip('/')}/nowhere"
    try:
        send(api, method, path, body, sent)
    except (TypeError, KeyError):
        # The document was checked first.
        pass
    assert api.violations
