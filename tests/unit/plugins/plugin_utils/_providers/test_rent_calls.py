# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each provider is sent when something is rented or ended, and what its answers are taken for."""

from __future__ import annotations

import base64
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._http.errors import WireFailure
from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, InputError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import Created, Refused, Rental, Unsettled
from ansible_collections.muster.training.plugins.module_utils._model.offer import Offer, OfferQuery, Order, same_model
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._providers.connection import ProviderConnection
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.provision import LambdaProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.provision import RunpodProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.provision import ShadeformProvider
from ansible_collections.muster.training.plugins.plugin_utils._providers.sshkeys import KeyRing, key_name, public_key
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai.provision import VastProvider
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, access
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

NAME = "lab-h100-0-1f2e3d4c"
KEYS = {"data": [{"id": "k1", "name": "mine", "public_key": f"{KEY.rsplit(' ', 1)[0]} other@comment"}]}


def order(provider: str, **more: t.Any) -> Order:
    offers = {
        "lambda": Offer("lambda", "gpu_1x_h100_sxm5", "us-east-1", "vm", 2.99),
        "runpod": Offer("runpod", "NVIDIA H100", "US-TX-3", "container", 2.99, gpu_count=1, ref={"cloud": "SECURE"}),
        "vastai": Offer("vastai", "9001", None, "container", 2.0, ref={"ask": 9001}),
        "shadeform": Offer("shadeform", "H100", "canada-1", "vm", 2.4, ref={"cloud": "hyperstack"}),
    }
    values: dict[str, t.Any] = {"offer": offers[provider], "ssh_public_key": KEY, "image": "img", **more}
    return Order("1f2e3d4c", NAME, cluster="lab", pool="h100", **values)


def scripted(make: t.Callable[[ProviderConnection], t.Any], *calls: Call) -> tuple[Script, t.Any]:
    script = Script(*calls)
    given = ProviderConnection(Secret(TOKEN, "api_token", token=True), exchange=script, clock=VirtualClock())
    return script, make(given)


LAUNCH = "/api/v1/instance-operations/launch"
ERROR = {"error": {"code": "x", "message": "told", "suggestion": ""}}


def lambda_error(code: str) -> dict[str, t.Any]:
    return {"error": {"code": code, "message": "told", "suggestion": ""}}


def launch(*calls: Call) -> t.Any:
    script, provider = scripted(LambdaProvider, Call("GET", "/api/v1/ssh-keys", answer=KEYS), *calls)
    with script:
        return provider.create(order("lambda"))


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
    assert found == Created("i-1")


@pytest.mark.parametrize(
    ("status", "answer", "kind", "why"),
    [
        (400, lambda_error("instance-operations/launch/insufficient-capacity"), Refused, "capacity"),
        (400, lambda_error("global/quota-exceeded"), Refused, "quota"),
        (400, lambda_error("global/invalid-parameters"), Refused, "rule"),
        (401, lambda_error("global/invalid-api-key"), Refused, "credentials"),
        (403, lambda_error("global/account-inactive"), Refused, "credentials"),
        (404, lambda_error("global/object-does-not-exist"), Refused, "capacity"),
        (429, {}, Refused, "throttled"),
        (409, {}, Unsettled, None),
        (500, lambda_error("instance-operations/launch/insufficient-capacity"), Unsettled, None),
        (502, {}, Unsettled, None),
        (200, {"data": {"instance_ids": []}}, Unsettled, None),
        (200, {"data": {"instance_ids": ["a", "b"]}}, Unsettled, None),
        (200, {"data": None}, Unsettled, None),
        (200, [], Unsettled, None),
    ],
)
def test_lambda_answers(status: int, answer: t.Any, kind: type, why: str | None) -> None:
    found = launch(Call("POST", LAUNCH, status=status, answer=answer))
    assert isinstance(found, kind)
    assert getattr(found, "why", None) == why


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Call("POST", LAUNCH, raw=b"<html>"), Unsettled),
        (Call("POST", LAUNCH, raw=b'{"data": {"inst'), Unsettled),
        (Call("POST", LAUNCH, raw=b""), Unsettled),
        (Call("POST", LAUNCH, failure=WireFailure("timed out", sent=True, transient=True)), Unsettled),
        (Call("POST", LAUNCH, failure=WireFailure("refused", sent=False, transient=True)), Refused),
        (Call("POST", LAUNCH, status=302, answer_headers={"location": "https://elsewhere.example/"}), Refused),
    ],
)
def test_an_answer_that_is_none_is_never_sent_for_twice(call: Call, kind: type) -> None:
    assert isinstance(launch(call), kind)


def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    found = launch(Call("POST", LAUNCH, status=429, answer={}, answer_headers={"Retry-After": "33"}))
    assert found == Refused("throttled", "status 429", 33.0)


@given(
    st.integers(200, 599),
    st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)),
)
def test_any_answer_is_classified(status: int, answer: t.Any) -> None:
    found = launch(Call("POST", LAUNCH, status=status, answer=answer))
    assert isinstance(found, Created | Refused | Unsettled)
    if isinstance(found, Refused):
        assert 300 <= status < 500


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
        assert provider.create(order("lambda")) == Created("i-1")
        assert provider.create(order("lambda")) == Created("i-2")
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
        assert provider.create(order("lambda")) == Created("i-1")


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
    thing = Rental(rental, "i-1", NAME, "1f2e3d4c", "running")
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


def test_lambda_says_not_found_with_its_code_only() -> None:
    thing = Rental("lambda", "i-1", NAME, "1f2e3d4c", "running")
    call = Call("POST", "/api/v1/instance-operations/terminate", status=404, answer={"message": "wrong path"})
    script, provider = scripted(LambdaProvider, call)
    with script, pytest.raises(ApiError):
        provider.delete(thing)


@pytest.mark.parametrize(
    ("status", "detail", "why"),
    [
        (400, "There are no longer any instances available with the requested specifications", "capacity"),
        (400, "This machine does not have the resources to deploy your pod", "capacity"),
        (400, "image is required", "rule"),
        (402, "balance", "quota"),
        (403, "no access to this pool", "rule"),
        (422, "gpu.count must be an integer", "rule"),
        (429, "slow down", "throttled"),
    ],
)
def test_runpod_refusals(status: int, detail: str, why: str) -> None:
    problem = {"title": "Bad", "status": status, "detail": detail}
    script, provider = scripted(RunpodProvider, Call("POST", "/v2/pods", status=status, answer=problem))
    with script:
        assert provider.create(order("runpod")).why == why


def test_runpod_is_sent_the_key_in_the_environment_and_no_account_key_is_touched() -> None:
    call = Call("POST", "/v2/pods", status=201, answer={"id": "p1"})
    script, provider = scripted(RunpodProvider, call)
    with script:
        assert provider.create(order("runpod", ports=("8888/http",))) == Created("p1")
    body = json.loads(script.done[0].body or b"")
    assert body["env"] == {"PUBLIC_KEY": KEY}
    assert body["ports"] == ["22/tcp", "8888/http"]
    assert body["name"] == NAME


def test_runpods_member_pods_that_outlive_their_cluster_are_seen() -> None:
    clock = VirtualClock()
    api = FakeRunpod(clock, boot_s=0.0)
    api.strays = True
    with api.loopback() as url:
        provider = RunpodProvider(access(url, clock))
        offer = Offer(
            "runpod",
            "NVIDIA H100 80GB HBM3",
            None,
            "container",
            9.0,
            gpu_count=1,
            unit="cluster",
            ref={"cloud": "SECURE"},
        )
        made = provider.create(order("runpod", offer=offer, count=2))
        assert isinstance(made, Created)
        (cluster,) = provider.list_instances()
        assert cluster.resource == "cluster" and [item.name for item in cluster.members] == [f"{NAME}-0", f"{NAME}-1"]
        assert all(item.ssh and item.ssh.port == 22001 for item in cluster.machines)
        assert cluster.price_usd_per_hour == pytest.approx(5.98)
        assert provider.delete(cluster)
        strays = provider.list_instances()
        assert [item.token for item in strays] == ["1f2e3d4c", "1f2e3d4c"]
        assert [item.resource for item in strays] == ["instance", "instance"]
        assert all(provider.delete(item) for item in strays)
        assert provider.list_instances() == ()
    assert api.violations == []


def test_runpods_pages_are_all_read() -> None:
    clock = VirtualClock()
    api = FakeRunpod(clock, boot_s=0.0)
    api.page = 2
    with api.loopback() as url:
        provider = RunpodProvider(access(url, clock))
        for _number in range(5):
            assert isinstance(provider.create(order("runpod")), Created)
        assert len(provider.list_instances()) == 5


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
        assert made == Created("70001")
        assert "canary" not in repr(made) + repr(provider.list_instances())
    assert api.account_keys == [KEY]
    (body,) = api.bodies
    assert body["label"] == NAME and body["cancel_unavail"] is True and body["env"] == {"-p 8080:8080": "1"}
    assert "vm" not in body and body["onstart"] == "echo hi"
    assert api.violations == []


def test_a_vast_team_gets_its_key_on_each_instance() -> None:
    api, clock = vast(team=True)
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        assert provider.create(order("vastai")) == Created("70001")
    assert api.attached == {"70001": [KEY]}


@pytest.mark.parametrize(
    ("refusal", "found"),
    [
        ((410, "no_such_ask", False), Refused("capacity", "no_such_ask: refused")),
        ((404, "no_such_ask", False), Refused("capacity", "no_such_ask: refused")),
        ((400, "invalid_price", False), Refused("rule", "status 400: invalid_price: refused")),
        ((400, "invalid_price", True), Created("70001", usable=False, reason="invalid_price: refused")),
        ((200, "no_capacity", False), Refused("rule", "no_capacity: refused")),
        ((429, "search_quota_exceeded", False), Refused("throttled", "status 429: search_quota_exceeded: refused")),
    ],
)
def test_vast_refusals(refusal: tuple[int, str, bool], found: t.Any) -> None:
    api, clock = vast(refusals=[refusal])
    with api.loopback() as url:
        assert VastProvider(access(url, clock)).create(order("vastai")) == found


@pytest.mark.parametrize(
    ("status", "doomed"),
    [("exited", True), ("offline", True), ("unknown", True), ("stopped", True), ("running", False), ("loading", False)],
)
def test_vast_states_that_never_run(status: str, doomed: bool) -> None:
    api, clock = vast(statuses=[status])
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        provider.create(order("vastai"))
        (found,) = provider.list_instances()
    assert found.doomed is doomed
    assert found.host == "501"


def test_twenty_six_vast_instances_are_two_pages() -> None:
    api, clock = vast()
    with api.loopback() as url:
        provider = VastProvider(access(url, clock))
        for ask in list(api.asks)[:26]:
            offer = Offer("vastai", str(ask), None, "container", 2.0, ref={"ask": ask})
            assert isinstance(provider.create(order("vastai", offer=offer)), Created)
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


def test_shadeform_keeps_the_deadline_itself() -> None:
    keys = Call("GET", "/v1/sshkeys", answer={"ssh_keys": [{"id": "k1", "public_key": KEY}]})
    script, provider = scripted(ShadeformProvider, keys, Call("POST", "/v1/instances/create", answer={"id": "s1"}))
    with script:
        made = provider.create(order("shadeform", deadline="2026-11-22T10:00:00.000Z", user_data="echo hi"))
        assert made == Created("s1")
    body = json.loads(script.done[1].body or b"")
    assert body["auto_delete"] == {"date_threshold": "2026-11-22T10:00:00.000Z"}
    assert body["tags"] == ["muster-token:1f2e3d4c", "muster-cluster:lab"]
    assert base64.b64decode(body["launch_configuration"]["script_configuration"]["base64_script"]) == b"echo hi"


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
            assert found and all(same_model("H100", offer.gpu_model) for offer in found)
            first = found[0]
            assert first.price_usd_per_hour > 0 and first.gpu_memory_gib and first.provider == provider.name
            made = provider.create(order(provider.name, offer=first))
            assert isinstance(made, Created), made
            (rental,) = provider.list_instances()
            assert (rental.name, rental.token) == (NAME, "1f2e3d4c")
        assert api.violations == []


def test_a_runpod_clusters_price_is_that_of_all_its_machines() -> None:
    clock = VirtualClock()
    api = FakeRunpod(clock)
    with api.loopback() as url:
        query = OfferQuery(unit="cluster", gpu_count=8, regions=("US-TX-3", "EU-XX-1"))
        first, second = RunpodProvider(access(url, clock)).offers(query, 4)
    assert first.price_usd_per_hour == pytest.approx(2.99 * 8 * 4)
    assert (first.region, first.available, first.unit) == ("US-TX-3", True, "cluster")
    assert (second.region, second.available) == ("EU-XX-1", None)


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


@pytest.mark.parametrize(
    "value",
    ["", "hello", "ssh-ed25519", "ssh-ed25519 short", "ssh-dss AAAAB3NzaC1kc3MAAACBAP user", f"{KEY}\n{KEY}"],
)
def test_what_is_no_public_key_is_refused(value: str) -> None:
    with pytest.raises(InputError):
        public_key(value)


def test_a_private_key_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError) as caught:
        public_key("-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----")
    assert "canary" not in str(caught.value) and "private key" in str(caught.value)


def test_a_key_ring_asks_once_for_each_key() -> None:
    asked: list[str] = []
    ring = KeyRing(lambda want: (asked.append(want), "found")[1], lambda name, key: name)
    assert ring.ensure(KEY) == ring.ensure(f"{KEY.rsplit(' ', 1)[0]} elsewhere") == "found"
    assert len(asked) == 1
