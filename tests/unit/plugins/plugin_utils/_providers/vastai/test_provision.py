# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders, keys and listings at Vast.ai against scripted answers."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError
from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, OrderAccepted, OrderRefused
from ansible_collections.muster.training.plugins.module_utils._model.offer import Offer, OfferQuery
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.provision import VastProvider
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import access
from ansible_collections.muster.training.tests.support.scripted_http import Call
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import NAME, order, scripted


def vast(**more: t.Any) -> t.Any:
    clock = VirtualClock()
    api = FakeVast(clock, boot_s=0.0)
    for key, value in more.items():
        setattr(api, key, value)
    return api, clock


def test_vast_orders_registers_its_key_and_drops_the_instance_key() -> None:
    api, clock = vast()
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        made = provider.create(order("vastai", ports=("8080",), user_data="echo hi"))
        assert made == OrderAccepted("70001")
        assert "canary" not in repr(made) + repr(provider.list_instances())
    assert api.account_keys == [KEY]
    (body,) = api.bodies
    assert (
        body["label"] == NAME
        and body["cancel_unavail"] is True
        and body["env"]
        == {
            "-p 8080:8080": "1",
            "MUSTER_TOKEN": "1f2e3d4c",
        }
    )
    assert "vm" not in body and body["onstart"] == "echo hi"
    assert api.violations == []


def test_a_vast_team_gets_its_key_on_each_instance() -> None:
    api, clock = vast(team=True)
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        assert provider.create(order("vastai")) == OrderAccepted("70001")
    assert api.attached == {"70001": [KEY]}


@pytest.mark.parametrize(
    ("refusal", "found"),
    [
        ((410, "no_such_ask", False), OrderRefused("capacity", "no_such_ask: refused")),
        ((404, "no_such_ask", False), OrderRefused("capacity", "no_such_ask: refused")),
        ((400, "invalid_price", False), OrderRefused("rule", "status 400: invalid_price: refused")),
        ((400, "invalid_price", True), OrderAccepted("70001", usable=False, reason="invalid_price: refused")),
        ((200, "no_capacity", False), OrderRefused("rule", "no_capacity: refused")),
        (
            (429, "search_quota_exceeded", False),
            OrderRefused("throttled", "status 429: search_quota_exceeded: refused"),
        ),
    ],
)
def test_vast_refusals(refusal: tuple[int, str, bool], found: t.Any) -> None:
    api, clock = vast(refusals=[refusal])
    with api.loopback() as url:
        assert VastProvider(access(url, clock)).create(order("vastai")) == found


def test_a_vast_delete_is_judged_by_its_body() -> None:
    made = Instance("vastai", "70001", "lab-h100-0-1f2e3d4c", "1f2e3d4c", "running")
    call = Call(
        "DELETE", "/api/v0/instances/70001/", answer={"success": False, "error": "locked", "msg": "by its host"}
    )
    script, provider = scripted(VastProvider, call)
    with script, pytest.raises(ApiError, match="locked: by its host"):
        provider.delete(made)
    for answer, existed in (({"success": True}, True), ({"success": False, "error": "no_such_instance"}, False)):
        script, provider = scripted(VastProvider, Call("DELETE", "/api/v0/instances/70001/", answer=answer))
        with script:
            assert provider.delete(made) is existed


@pytest.mark.parametrize(
    ("status", "terminal"),
    [("exited", True), ("offline", True), ("unknown", True), ("stopped", True), ("running", False), ("loading", False)],
)
def test_vast_states_that_never_run(status: str, terminal: bool) -> None:
    api, clock = vast(statuses=[status])
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        provider.create(order("vastai"))
        (found,) = provider.list_instances()
    assert found.terminal is terminal
    assert found.host == "501"


def test_twenty_six_vast_instances_are_two_pages() -> None:
    api, clock = vast()
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        for ask in list(api.asks)[:26]:
            offer = Offer("vastai", str(ask), None, "container", 2.0, ref={"ask": ask})
            assert isinstance(provider.create(order("vastai", offer=offer)), OrderAccepted)
        assert len(provider.list_instances()) == 26


def test_a_vast_search_asks_for_the_variants_that_people_mean() -> None:
    call = Call("POST", "/api/v0/bundles/", answer={"offers": []})
    script, provider = scripted(VastProvider, call, call)
    with script:
        assert provider.offers(OfferQuery(gpu_model="h100", gpu_count=8, k3s_capable=True)) == ()
        assert provider.offers(OfferQuery(gpu_model="RTX_3090")) == ()
    first, second = (json.loads(request.body or b"") for request in script.done)
    assert first["gpu_name"] == {"in": ["H100 SXM", "H100 PCIE", "H100 NVL"]}
    assert first["vms_enabled"] == {"eq": True} and first["num_gpus"] == {"in": [8]}
    assert second["gpu_name"] == {"in": ["RTX 3090"]} and "vms_enabled" not in second
