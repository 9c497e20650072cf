# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that all providers share: one call an order, answers classified, deletes, leftovers."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.clock import Deadline
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest, HttpResponse
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    Instance,
    OrderAccepted,
    OrderRefused,
    OrderUnsettled,
)
from ansible_collections.muster.training.plugins.module_utils._model.offer import OfferQuery, is_same_model
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.base import build_instance, build_instances
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud import client as lambda_client
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.provision import LambdaProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod import client as runpod_client
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.mapping import to_host as to_runpod_host
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.provision import RunpodProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform import client as shade_client
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.provision import ShadeformProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai import client as vast_client
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.mapping import to_host as to_vast_host
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.provision import VastProvider
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, access
from ansible_collections.muster.training.tests.support.scripted_http import Call
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import (
    LAUNCH,
    NAME,
    lambda_error,
    launch,
    order,
    scripted,
)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Call("POST", LAUNCH, raw=b"<html>"), OrderUnsettled),
        (Call("POST", LAUNCH, raw=b'{"data": {"inst'), OrderUnsettled),
        (Call("POST", LAUNCH, raw=b""), OrderUnsettled),
        (Call("POST", LAUNCH, failure=ExchangeError("timed out", sent=True, transient=True)), OrderUnsettled),
        (Call("POST", LAUNCH, failure=ExchangeError("refused", sent=False, transient=True)), OrderRefused),
        (Call("POST", LAUNCH, status=302, answer_headers={"location": "https://elsewhere.example/"}), OrderRefused),
    ],
)
def test_an_answer_that_is_none_is_never_sent_for_twice(call: Call, kind: type) -> None:
    assert isinstance(launch(call), kind)


def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    found = launch(Call("POST", LAUNCH, status=429, answer={}, answer_headers={"Retry-After": "33"}))
    assert found == OrderRefused("throttled", "status 429", 33.0)


@given(
    st.integers(200, 599),
    st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)),
)
def test_any_answer_is_classified(status: int, answer: t.Any) -> None:
    found = launch(Call("POST", LAUNCH, status=status, answer=answer))
    assert isinstance(found, OrderAccepted | OrderRefused | OrderUnsettled)
    if isinstance(found, OrderRefused):
        assert 300 <= status < 500


@pytest.mark.parametrize(
    ("make", "rental", "call"),
    [
        (LambdaProvider, "lambda", ("POST", "/api/v1/instance-operations/terminate")),
        (RunpodProvider, "runpod", ("DELETE", "/v2/pods/i-1")),
        (VastProvider, "vastai", ("DELETE", "/api/v0/instances/i-1/")),
        (ShadeformProvider, "shadeform", ("POST", "/v1/instances/i-1/delete")),
    ],
)
def test_ending(make: t.Any, rental: str, call: tuple[t.Any, str]) -> None:
    thing = Instance(rental, "i-1", NAME, "1f2e3d4c", "running")
    gone = lambda_error("global/object-does-not-exist") if rental == "lambda" else {"message": "no"}
    for status, answer, taken in ((200, {}, True), (404, gone, False)):
        script, provider = scripted(make, Call(*call, status=status, answer=answer))
        with script:
            assert provider.delete(thing) is taken
    script, provider = scripted(make, Call(*call, status=503, answer={}), Call(*call, answer={}))
    with script:
        assert provider.delete(thing) is True
    for status in (401, 403, 400):
        script, provider = scripted(make, Call(*call, status=status, answer={}))
        with script, pytest.raises(ApiError) as caught:
            provider.delete(thing)
        assert caught.value.status == status


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (Call("GET", "/api/v1/instances/i-1", answer={"data": {"id": "i-1", "status": "active"}}), True),
        (Call("GET", "/api/v1/instances/i-1", answer={"data": {"id": "i-1", "status": ["odd"]}}), True),
        (Call("GET", "/api/v1/instances/i-1", answer={"data": {"id": "i-1", "status": "terminated"}}), False),
        (Call("GET", "/api/v1/instances/i-1", status=404, answer=lambda_error("global/object-does-not-exist")), False),
        (Call("GET", "/api/v1/instances/i-1", answer={"data": None}), None),
        (Call("GET", "/api/v1/instances/i-1", status=404, answer={"message": "no such route"}), None),
        (Call("GET", "/api/v1/instances/i-1", status=403, answer={}), None),
        (Call("GET", "/api/v1/instances/i-1", answer={"data": []}), None),
        (Call("GET", "/api/v1/instances/i-1", answer={}), None),
        (Call("GET", "/api/v1/instances/i-1", raw=b"<html>"), None),
    ],
)
def test_an_id_is_unknown_only_by_an_answer_that_says_so(call: Call, known: bool | None) -> None:
    script, provider = scripted(LambdaProvider, call)
    machine = Instance("lambda", "i-1", NAME, None, "unknown")
    if known is None:
        with script, pytest.raises(TransportError):
            provider.knows(machine)
    else:
        with script:
            assert provider.knows(machine) is known


def test_a_listing_of_the_wrong_shape_is_an_error_not_an_empty_account() -> None:
    for make, path in (
        (LambdaProvider, "/api/v1/instances"),
        (RunpodProvider, "/v2/pods"),
        (VastProvider, "/api/v1/instances/"),
        (ShadeformProvider, "/v1/instances"),
    ):
        script, provider = scripted(make, Call("GET", path, answer={"other": []}))
        with script, pytest.raises(TransportError):
            provider.list_instances()


def test_every_providers_offers_have_what_an_order_needs() -> None:
    makes: tuple[tuple[t.Any, t.Any], ...] = (
        (FakeLambda, LambdaProvider),
        (FakeRunpod, RunpodProvider),
        (FakeVast, VastProvider),
        (FakeShadeform, ShadeformProvider),
    )
    for fake, make in makes:
        clock = VirtualClock()
        api = fake(clock)
        with api.loopback() as url:
            provider = make(access(url, clock))
            found = [
                offer for offer in provider.offers(OfferQuery(gpu_model="H100", gpu_count=1)) if offer.gpu_count == 1
            ]
            assert found and all(is_same_model("H100", offer.gpu_model) for offer in found)
            first = found[0]
            assert first.price_usd_per_hour > 0 and first.gpu_memory_gib and first.provider == provider.name
            made = provider.create(order(provider.name, offer=first))
            assert isinstance(made, OrderAccepted), made
            (rental,) = provider.list_instances()
            assert (rental.name, rental.token) == (NAME, "1f2e3d4c")
        assert api.violations == []


def test_leftovers_are_those_with_a_name_of_the_cluster() -> None:
    mine, other = {"id": "v1", "name": NAME}, {"id": "v2", "name": "somebody"}
    calls: tuple[tuple[t.Any, str, t.Any], ...] = (
        (RunpodProvider, "/v2/network-volumes", {"networkVolumes": [mine, other]}),
        (ShadeformProvider, "/v1/volumes", {"volumes": [mine, other]}),
        (LambdaProvider, "/api/v1/file-systems", {"data": [mine, other]}),
    )
    for make, path, answer in calls:
        script, provider = scripted(make, Call("GET", path, answer=answer))
        with script:
            (found,) = provider.leftovers({"lab"})
        assert (found.id, found.name, found.usd_per_hour) == ("v1", NAME, None)
    assert scripted(VastProvider)[1].leftovers({"lab"}) == ()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "key", "name", "a"]), inner),
    max_leaves=6,
)
LISTINGS: dict[str, tuple[t.Any, dict[str, str], tuple[str, ...], dict[str, t.Any]]] = {
    "lambda": (LambdaProvider, {"/instances": "data"}, lambda_client.FIELDS, {"id": "mine", "name": NAME}),
    "runpod": (
        RunpodProvider,
        {"/pods": "pods", "/clusters": "clusters"},
        (*runpod_client.POD_FIELDS, "env"),
        {"id": "mine", "name": NAME},
    ),
    "vastai": (
        VastProvider,
        {"/instances/": "instances"},
        (*vast_client.FIELDS, "extra_env"),
        {"id": "mine", "label": NAME},
    ),
    "shadeform": (
        ShadeformProvider,
        {"/instances": "instances", "/clusters": "clusters"},
        shade_client.FIELDS,
        {"id": "mine", "name": NAME},
    ),
}


class OneListing:
    """Answers a listing with these items, any other with none."""

    def __init__(self, paths: dict[str, str], items: list[dict[str, t.Any]]) -> None:
        self._paths, self._items = paths, items

    def __call__(self, origin: Origin, request: HttpRequest, deadline: Deadline) -> HttpResponse:
        del origin, deadline
        (path, key) = next((path, key) for path, key in self._paths.items() if request.path.endswith(path))
        items = self._items if path == next(iter(self._paths)) else []
        return HttpResponse(200, {"content-type": "application/json"}, json.dumps({key: items}).encode())


@pytest.mark.parametrize("name", LISTINGS)
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_entry_of_any_types_hides_no_machine(name: str, data: st.DataObject) -> None:
    kind, paths, fields, mine = LISTINGS[name]
    odd = data.draw(st.dictionaries(st.sampled_from([item for item in fields if item != "id"]), JSON))
    renamed = {**odd, **data.draw(st.sampled_from([{}, {"name": NAME}, {"label": NAME}]))}
    listing = OneListing(paths, [{**odd, "id": "odd"}, mine, {**renamed, "id": "named"}])
    secret = Secret(TOKEN, "api_token", token=True)
    instances = kind(ProviderConnection(secret, exchange=listing, clock=VirtualClock())).list_instances()
    assert [item.token for item in instances if item.id == "mine"] == ["1f2e3d4c"]
    # What a provider calls gone is not listed; everything else is, under its id.
    assert {item.id for item in instances} >= {"mine"} and len(instances) <= 3


def test_an_entry_that_cannot_be_read_is_there_with_its_id_and_its_name() -> None:
    def fail(_raw: object) -> Instance:
        raise RuntimeError

    listed = [{"id": "i-1", "name": NAME}, {"id": 7, "label": NAME}, {"id": "i-3"}]
    instances = build_instances("lambda", t.cast(t.Any, listed), fail)
    assert [(item.id, item.token) for item in instances] == [("i-1", "1f2e3d4c"), ("7", "1f2e3d4c"), ("i-3", None)]
    assert {item.state for item in instances} == {"unknown"}


def test_an_endpoint_is_plain_text_or_none() -> None:
    """What a host's owner writes into a listing must not become an option of ssh, nor another machine's address."""
    running: t.Any = {"detail": "RUNNING", "terminal": False}

    def pod(**values: object) -> object:
        direct = {"host": "203.0.113.4", "port": 22001, "username": "root", **values}
        return build_instance(
            to_runpod_host({"id": "p", "status": "RUNNING", "ssh": {"direct": direct}}, "a"), **running
        ).ssh

    assert pod() is not None and pod(host="pod.example.net") is not None and pod(username=None) is not None
    odd: tuple[dict[str, object], ...] = ({"host": "-lroot"}, {"host": "a b"}, {"username": "root -oX=y"}, {"port": 0})
    assert [pod(**values) for values in odd] == [None] * 4
    # Port 22 of a container's public address is its host's.
    container = {"id": 7, "actual_status": "running", "public_ipaddr": "203.0.113.42", "image_uuid": "pytorch"}
    assert build_instance(to_vast_host(container, "a"), **running).ssh is None
