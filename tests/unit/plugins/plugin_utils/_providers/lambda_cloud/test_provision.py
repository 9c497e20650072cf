# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders, keys and offers at Lambda Cloud against scripted answers."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    Instance,
    OrderAccepted,
    OrderRefused,
    OrderUnsettled,
)
from ansible_collections.muster.training.plugins.module_utils._model.offer import OfferQuery
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.provision import LambdaProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_keys import key_name
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.support.scripted_http import Call
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import (
    LAUNCH,
    NAME,
    lambda_error,
    launch,
    order,
    scripted,
)

ERROR = {"error": {"code": "x", "message": "told", "suggestion": ""}}


def test_lambda_is_sent_one_key_and_the_token_three_times() -> None:
    body = {
        "region_name": "us-east-1",
        "instance_type_name": "gpu_1x_h100_sxm5",
        "ssh_key_names": ["mine"],
        "name": NAME,
        "hostname": NAME,
        "tags": [
            {"key": "muster-cluster", "value": "lab"},
            {"key": "muster-pool", "value": "h100"},
            {"key": "muster-token", "value": "1f2e3d4c"},
        ],
        "image": {"family": "img"},
    }
    found = launch(Call("POST", LAUNCH, body=body, answer={"data": {"instance_ids": ["i-1"]}}))
    assert found == OrderAccepted("i-1")


@pytest.mark.parametrize(
    ("status", "answer", "kind", "why"),
    [
        (400, lambda_error("instance-operations/launch/insufficient-capacity"), OrderRefused, "capacity"),
        (400, lambda_error("global/quota-exceeded"), OrderRefused, "quota"),
        (400, lambda_error("global/invalid-parameters"), OrderRefused, "rule"),
        (401, lambda_error("global/invalid-api-key"), OrderRefused, "credentials"),
        (403, lambda_error("global/account-inactive"), OrderRefused, "credentials"),
        (404, lambda_error("global/object-does-not-exist"), OrderRefused, "rule"),
        (429, {}, OrderRefused, "throttled"),
        (409, {}, OrderUnsettled, None),
        (500, lambda_error("instance-operations/launch/insufficient-capacity"), OrderUnsettled, None),
        (502, {}, OrderUnsettled, None),
        (200, {"data": {"instance_ids": []}}, OrderUnsettled, None),
        (200, {"data": {"instance_ids": ["a", "b"]}}, OrderUnsettled, None),
        (200, {"data": None}, OrderUnsettled, None),
        (200, [], OrderUnsettled, None),
    ],
)
def test_lambda_answers(status: int, answer: t.Any, kind: type, why: str | None) -> None:
    found = launch(Call("POST", LAUNCH, status=status, answer=answer))
    assert isinstance(found, kind)
    assert getattr(found, "why", None) == why


def test_a_key_that_cannot_be_registered_orders_nothing() -> None:
    script, provider = scripted(LambdaProvider, Call("GET", "/api/v1/ssh-keys", status=401, answer=ERROR))
    with script:
        assert provider.create(order("lambda")).why == "credentials"


def test_a_new_key_is_added_once_under_its_own_hash() -> None:
    calls = (
        Call("GET", "/api/v1/ssh-keys", answer={"data": []}),
        Call("POST", "/api/v1/ssh-keys", body={"name": key_name(KEY), "public_key": KEY}, answer={"data": {}}),
        Call("POST", LAUNCH, answer={"data": {"instance_ids": ["i-1"]}}),
        Call("POST", LAUNCH, answer={"data": {"instance_ids": ["i-2"]}}),
    )
    script, provider = scripted(LambdaProvider, *calls)
    with script:
        assert provider.create(order("lambda")) == OrderAccepted("i-1")
        assert provider.create(order("lambda")) == OrderAccepted("i-2")
    assert json.loads(script.done[2].body or b"")["ssh_key_names"] == [key_name(KEY)]


def test_a_key_that_another_controller_added_meanwhile_is_used() -> None:
    listed = {"data": [{"id": "k", "name": key_name(KEY), "public_key": KEY}]}
    calls = (
        Call("GET", "/api/v1/ssh-keys", answer={"data": []}),
        Call("POST", "/api/v1/ssh-keys", status=400, answer=lambda_error("global/duplicate")),
        Call("GET", "/api/v1/ssh-keys", answer=listed),
        Call("POST", LAUNCH, answer={"data": {"instance_ids": ["i-1"]}}),
    )
    script, provider = scripted(LambdaProvider, *calls)
    with script:
        assert provider.create(order("lambda")) == OrderAccepted("i-1")


def test_lambda_says_not_found_with_its_code_only() -> None:
    thing = Instance("lambda", "i-1", NAME, "1f2e3d4c", "running")
    call = Call("POST", "/api/v1/instance-operations/terminate", status=404, answer={"message": "wrong path"})
    script, provider = scripted(LambdaProvider, call)
    with script, pytest.raises(ApiError):
        provider.delete(thing)


def test_lambda_offers_regions_that_the_user_names_although_none_is_listed() -> None:
    entry = {
        "instance_type": {
            "name": "gpu_1x_gh200",
            "description": "",
            "gpu_description": "GH200 (96 GB)",
            "price_cents_per_hour": 149,
            "specs": {"vcpus": 64, "memory_gib": 432, "storage_gib": 4096, "gpus": 1},
        },
        "regions_with_capacity_available": [],
    }
    call = Call("GET", "/api/v1/instance-types", answer={"data": {"gpu_1x_gh200": entry}})
    script, provider = scripted(LambdaProvider, call, call)
    with script:
        (nowhere,) = provider.offers(OfferQuery())
        (named,) = provider.offers(OfferQuery(regions=("us-east-3",)))
    assert (nowhere.region, nowhere.stock, nowhere.available) == (None, 0, False)
    assert (named.region, named.stock, named.available, named.cpu_arch) == ("us-east-3", None, False, "aarch64")
