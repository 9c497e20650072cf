# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of the bill: what a listing proves, what a machine costs, and what is said of both.

Every case goes through the options of node_pool to a provider's fake.
"""

from __future__ import annotations

import dataclasses
import email.utils
import errno
import os
import pathlib
import pwd
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger import ledger_store
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.fakes.api import Answer, Fault
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import PRICE, FakeRunpod
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.faults.shop import Shop, named

HOUR_S, DAY_S = 3600.0, 86400.0
JSON = dict[str, t.Any]


@pytest.fixture
def said(shop: Shop) -> list[str]:
    """The lines on the screen."""
    lines: list[str] = []
    shop.context = dataclasses.replace(shop.context, report=lines.append)
    return lines


def pods(api: FakeRunpod, change: Callable[[list[JSON]], list[JSON]], **beside: t.Any) -> None:
    """List as ``change`` returns the pods."""

    def rewrite(name: str, answer: Answer) -> Answer:
        if name != "list" or answer.status != 200:
            return answer
        return Answer(200, {"pods": change(answer.data["pods"]), **beside})

    api.rewrite = rewrite


def each(api: FakeRunpod, **values: t.Any) -> None:
    pods(api, lambda listed: [{**item, **values} for item in listed])


def key_of_b(shop: Shop, **more: t.Any) -> list[JSON]:
    """Return a second key of the same account."""
    return [{"name": "runpod", "api_token": f"{TOKEN}-of-b", "api_url": shop.urls["runpod"], **more}]


# One id listed twice, and one listed without a name.


@pytest.mark.parametrize("first", ["ours", "renamed"])
@pytest.mark.parametrize("how", ["end", "reap"])
def test_dup_pages(shop: Shop, api: FakeRunpod, how: str, first: str) -> None:
    shop.rent(lease_s=300)
    shop.clock.sleep(400)

    def twice(listed: list[JSON]) -> list[JSON]:
        renamed = [{**item, "name": "renamed-by-hand", "env": {}} for item in listed]
        return [*listed, *renamed] if first == "ours" else [*renamed, *listed]

    pods(api, twice)
    assert getattr(shop, how)()["clean"] and api.alive() == []


@pytest.mark.parametrize("how", ["end", "reap"])
def test_sparse_listing(shop: Shop, api: FakeRunpod, how: str) -> None:
    (node,) = shop.rent(lease_s=300)["nodes"]
    shop.clock.sleep(400)
    each(api, name=None, env={})
    result = getattr(shop, how)()
    assert result["clean"] and api.alive() == []
    assert [item["name"] for item in result["leases"]] == [node["name"]]


def test_a_sparse_listing_costs_a_pool_nothing(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    shop.clock.sleep(100)
    each(api, name=None, env={})
    assert shop.rent()["placed"] == 0 and len(api.things) == 1


def test_a_machine_without_a_name_that_was_never_seen_as_ours_is_not_touched(shop: Shop, api: FakeRunpod) -> None:
    bob = api.stranger("training-box")
    api.fault = Fault("create", "strange_id")
    each(api, name=None, env={})
    assert shop.rent(wait_timeout_s=60, release_timeout_s=60)["failed"]
    assert bob in api.alive()


# A. Check mode.


def test_check_says_what_a_teardown_would_end(shop: Shop, api: FakeRunpod) -> None:
    (node,) = shop.rent()["nodes"]
    result = shop.end(check=True)
    assert result["summary"].startswith(f"would end {node['name']} (2.99 USD per hour)") and result["changed"]
    assert (result["would_end_usd_per_hour"], result["would_end"][0]["usd_per_hour"]) == (PRICE, PRICE)
    assert not result.get("failed") and len(api.alive()) == 1


def test_check_says_what_a_reap_would_end_and_leave(shop: Shop, api: FakeRunpod) -> None:
    (node,) = shop.rent(lease_s=600)["nodes"]
    result = shop.reap(check=True)
    assert "would end nothing, leaving 1 within their lease (2.99 USD per hour)" in result["summary"]
    assert result["within_lease_usd_per_hour"] == PRICE and result["within_lease"][0]["deadline"]
    shop.clock.sleep(700)
    result = shop.reap(check=True)
    assert f"would end {node['name']} (2.99 USD per hour, its deadline " in result["summary"]
    assert " has passed)" in result["summary"] and "0 within their lease (0.00 USD per hour)" in result["summary"]
    assert len(api.alive()) == 1


@pytest.mark.parametrize("due_only", [True, False])
def test_check_fails_where_the_real_run_does(shop: Shop, api: FakeRunpod, due_only: bool) -> None:
    shop.rent(lease_s=300)
    shop.clock.sleep(400)
    api.stranger("lab-h100-7-0badf00d")
    result = shop.end(check=True, due_only=due_only)
    assert result["failed"] and "0badf00d" in result["msg"] and "2.99 USD per hour" in result["msg"]
    result = shop.end(check=True, due_only=due_only, providers=[])
    assert result["failed"] and "no credentials for runpod" in result["msg"] and not result["would_end"]
    result = shop.end(check=True, due_only=due_only, providers=named(shop, "b"))
    assert result["failed"] and "proves nothing" in result["msg"] and len(api.alive()) == 2


def test_check_of_a_lease_that_cannot_be_seen_fails(shop: Shop) -> None:
    shop.rent(lease_s=DAY_S)
    result = shop.reap(check=True, providers=[])
    assert result["failed"] and "cannot be seen" in result["msg"] and result["residual_usd_per_hour"] == PRICE


def test_check_of_rent_says_what_it_would_order(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    shop.rent(check=True, count=2, lease_s=600)
    assert sum("2.99 USD per hour" in line and line.startswith("would order ") for line in said) == 2, said
    shop.rent(count=1)
    said.clear()
    shop.rent(check=True, count=2)
    assert any("2.99 USD per hour, no deadline" in line for line in said) and len(api.alive()) == 1, said


# B. What a run or a pool may cost.


@pytest.mark.parametrize("again", [False, True])
def test_maxcost_norun(shop: Shop, api: FakeRunpod, again: bool) -> None:
    shop.rent(max_cost_usd=7.0)
    shop.clock.sleep(2 * HOUR_S)
    if again:
        shop.rent(max_cost_usd=7.0)
    assert shop.reap()["within_lease"] and len(api.alive()) == 1
    shop.clock.sleep(HOUR_S)
    result = shop.reap()
    assert result["clean"] and "its pool has cost 8." in result["reasons"][0]["reason"] and api.alive() == []


@pytest.mark.parametrize("again", [False, True])
def test_maxcost_rise(shop: Shop, api: FakeRunpod, again: bool) -> None:
    shop.rent(run_id="r1", max_cost_usd=50.0)
    each(api, cost=200.0)
    if again:
        shop.rent(run_id="r1", max_cost_usd=50.0)
        (lease,) = read_ledger(shop.state).leases.values()
        assert lease.price_usd_per_hour == 200.0, "the higher price is in the ledger"
    shop.clock.sleep(HOUR_S)
    result = shop.reap()
    assert result["clean"] and "its run has cost 20" in result["reasons"][0]["reason"] and api.alive() == []


@pytest.mark.parametrize("price", [0.25, 1e-7])
def test_unit_drift(shop: Shop, api: FakeRunpod, said: list[str], price: float) -> None:
    each(api, cost=price)
    result = shop.rent(max_cost_usd=5.0)
    assert result["price_usd_per_hour"] == PRICE
    assert any(f"is listed at {price:g} USD per hour" in line and "2.99 USD" in line for line in said), said
    result = shop.reap()
    assert result["within_lease"][0]["usd_per_hour"] == PRICE and "is listed at" in result["notes"][0]
    shop.clock.sleep(2 * HOUR_S)
    assert "its pool has cost 5.9" in shop.reap()["reasons"][0]["reason"] and api.alive() == []


def test_sf_cents(shop: Shop, clock: VirtualClock) -> None:
    shade = FakeShadeform(clock, boot_s=10.0)

    def dollars(name: str, answer: Answer) -> Answer:
        if name != "list" or answer.status != 200:
            return answer
        rows = [{**item, "hourly_price": item["hourly_price"] / 100} for item in answer.data["instances"]]
        return Answer(200, {"instances": rows})

    with shade.loopback() as url:
        shop.urls["shadeform"] = url
        shade.rewrite = dollars
        result = shop.rent("shadeform", max_cost_usd=3.0)
        assert result["price_usd_per_hour"] >= 1.0
        shop.clock.sleep(3 * HOUR_S)
        assert shop.reap("shadeform")["reasons"] and shade.alive() == []


def test_what_is_refused_costs_a_pool_nothing(shop: Shop, api: FakeRunpod) -> None:
    api.fault = Fault("create", "throttled")
    shop.rent(max_cost_usd=5.0)
    shop.clock.sleep(1.5 * HOUR_S)
    assert not shop.reap()["reasons"] and len(api.alive()) == 1


def test_a_pool_before_this_one_is_not_of_its_cost(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(max_cost_usd=5.0)
    shop.clock.sleep(1.5 * HOUR_S)
    shop.end()
    shop.rent(max_cost_usd=5.0)
    shop.clock.sleep(1.5 * HOUR_S)
    assert not shop.reap()["reasons"] and len(api.alive()) == 1


# C. Another address of the API.


@pytest.mark.parametrize("how", ["end", "reap"])
def test_url_swap(shop: Shop, api: FakeRunpod, how: str) -> None:
    shop.rent(lease_s=300)
    other = [{**shop.providers("runpod")[0], "api_url": shop.urls["b"]}]
    if how == "reap":
        result = shop.reap(providers=other)
        assert result["failed"] and "cannot be seen" in result["msg"]
        shop.clock.sleep(400)
    result = getattr(shop, how)(providers=other)
    assert result["failed"] and not result["leases"] and f"set api_url to {shop.urls['runpod']}" in result["msg"]
    with pytest.raises(MusterError, match="nothing is ordered: .*set api_url"):
        shop.rent(providers=other)
    assert getattr(shop, how)()["clean"] and api.alive() == []


def test_an_address_that_shows_our_machine_is_the_same_api(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(lease_s=300)
    with api.loopback() as moved:
        other = [{**shop.providers("runpod")[0], "api_url": moved}]
        assert shop.end(providers=other)["clean"] and api.alive() == []


# D. A second key of the account.


@pytest.mark.parametrize("how", ["end", "reap"])
def test_reaper_key(shop: Shop, api: FakeRunpod, how: str) -> None:
    shop.rent(lease_s=300)
    result = shop.reap(providers=key_of_b(shop))
    assert not result.get("failed") and len(result["within_lease"]) == 1, "it is listed"
    shop.clock.sleep(400)
    result = getattr(shop, how)(providers=key_of_b(shop))
    assert result["clean"] and len(result["leases"]) == 1 and api.alive() == []


def test_rot_mid(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    (lease,) = read_ledger(shop.state).leases.values()
    assert shop.end(release_timeout_s=30)["failed"] and api.alive() == []
    result = shop.end(providers=key_of_b(shop))
    assert result["failed"] and f"set account: {lease.fingerprints[0]}" in result["msg"]
    assert shop.end(providers=key_of_b(shop, account="acme"))["failed"]
    assert shop.end(providers=key_of_b(shop, account=lease.fingerprints[0]))["clean"]


def test_rot_live(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    api.ignored.clear()
    assert not shop.rent(providers=key_of_b(shop)).get("failed"), "the second key shows our machine"
    assert len(api.things) == 1
    assert shop.end(providers=key_of_b(shop))["clean"] and api.alive() == []


# E. A listing that is not whole.


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (206, {"pods": []}),
        (203, {"pods": []}),
        (200, {"pods": [], "errors": [{"message": "region EU is unavailable"}]}),
        (200, {"pods": [], "error": {"message": "try later"}}),
        (200, {"pods": [], "total": 1}),
    ],
)
def test_err200_long(shop: Shop, api: FakeRunpod, status: int, data: JSON) -> None:
    shop.rent(lease_s=DAY_S)
    shop.clock.sleep(62)
    api.reply("list", Answer(status, data))
    with pytest.raises(MusterError, match="not whole"):
        shop.rent(wait_timeout_s=200)
    result = shop.reap()
    assert result["failed"] and "not whole" in result["msg"] and len(api.alive()) == 1
    assert len(api.things) == 1


def test_err200_lambda(shop: Shop, cloud: FakeLambda) -> None:
    shop.rent("lambda")
    shop.clock.sleep(62)
    cloud.reply("list", Answer(200, {"data": [], "error": {"code": "global/internal", "message": "try later"}}))
    with pytest.raises(MusterError, match="try later"):
        shop.rent("lambda")
    assert len(cloud.alive()) == len(cloud.things) == 1


def test_err200_vastai(shop: Shop, clock: VirtualClock) -> None:
    vast = FakeVast(clock, boot_s=10.0, asks=6)
    with vast.loopback() as url:
        shop.urls["vastai"] = url
        shop.rent("vastai")
        shop.clock.sleep(100)
        vast.reply("list", Answer(200, {"success": False, "instances": []}))
        with pytest.raises(MusterError, match="not whole"):
            shop.rent("vastai")
        assert len(vast.alive()) == len(vast.things) == 1


# F. A machine within its lease that is not listed.


@pytest.mark.parametrize("how", ["reap", "end"])
def test_hidden_within(shop: Shop, api: FakeRunpod, how: str) -> None:
    (node,) = shop.rent(lease_s=7200)["nodes"]
    shop.clock.sleep(100)
    pods(api, lambda _listed: [])
    result = getattr(shop, how)(**({"nodes": []} if how == "end" else {}))
    if how == "reap":
        (entry,) = result["within_lease"]
        assert (entry["name"], entry["usd_per_hour"]) == (node["name"], None)
        assert result["within_lease_usd_per_hour"] is None
        assert "not listed: gone, or hidden and billing 2.99 USD per hour" in result["summary"]
        assert "unknown price" in result["summary"]
    assert not result.get("failed") and len(api.alive()) == 1


def test_lambda_pages(shop: Shop, cloud: FakeLambda) -> None:
    shop.rent("lambda", lease_s=7200)
    cloud.reply("list", Answer(200, {"data": [], "page_token": "abc"}))
    result = shop.reap("lambda")
    assert result["failed"] and "page_token" in result["msg"]


# G. Clocks.


def dated(shop: Shop, api: t.Any, offset_s: float) -> None:
    """Let the API's clock be ahead of this one."""

    def rewrite(_name: str, answer: Answer) -> Answer:
        date = email.utils.formatdate(shop.clock.time() + offset_s, usegmt=True)
        return dataclasses.replace(answer, headers={**answer.headers, "Date": date})

    api.rewrite = rewrite


def test_clock_behind(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(lease_s=7200)
    dated(shop, api, DAY_S)
    result = shop.reap(check=True)
    assert result["failed"] and "86400 s behind that of runpod" in result["msg"]
    result = shop.reap()
    assert result["failed"] and "86400 s behind that of runpod" in result["msg"]
    assert len(result["leases"]) == 1 and api.alive() == [], "by the API's time it is due"


def test_clock_ahead(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(lease_s=DAY_S)
    shop.clock.sleep(2 * DAY_S)
    dated(shop, api, -2 * DAY_S)
    result = shop.reap()
    assert result["failed"] and "172800 s ahead of that of runpod" in result["msg"]
    assert len(result["within_lease"]) == 1 and len(api.alive()) == 1


def test_clock_year(shop: Shop, api: FakeRunpod, clock: VirtualClock, said: list[str]) -> None:
    now = clock.time()
    clock._now = now + 1.5 * DAY_S
    dated(shop, api, -1.5 * DAY_S)
    shop.rent(lease_s=300)
    assert any("ahead of that of runpod" in line for line in said)
    clock._now = now + 400
    dated(shop, api, 0.0)
    for pod in api.alive():
        pod.made_at = pod.visible_from = now
    result = shop.reap(check=True)
    assert "is in the future" in result["msg"] and "its deadline" in result["summary"], "its deadline was right"
    assert shop.end()["clean"] and api.alive() == []


def test_a_clock_that_is_right_is_not_spoken_of(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    dated(shop, api, 30.0)
    shop.rent(lease_s=7200)
    result = shop.reap()
    assert result["clean"] and not any("clock" in line for line in (*said, *result["notes"]))


# H. Proofs.


def test_stale_cache(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    shop.clock.sleep(100)
    api.end = lambda thing: None  # type: ignore[method-assign]

    def cached(name: str, answer: Answer) -> Answer:
        age = 600 if name.startswith("list") else 0
        date = email.utils.formatdate(shop.clock.time() - age, usegmt=True)
        data = {"pods": []} if name == "list" else answer.data
        more = {"Age": "600", "X-Cache": "HIT"} if age else {}
        return dataclasses.replace(answer, data=data, headers={"Date": date, **more})

    api.rewrite = cached
    result = shop.end(release_timeout_s=500)
    assert result["failed"] and not result["leases"] and "from a cache and is 600 s old" in result["msg"]


def test_moved_account(shop: Shop, api: FakeRunpod) -> None:
    (node,) = shop.rent()["nodes"]
    shop.clock.sleep(100)
    (pod,) = api.alive()
    del api.things[pod.id]
    result = shop.end()
    assert [item["how"] for item in result["leases"]] == ["never_seen_to_end"]
    words = f"0 proved gone, 1 not in their account (never seen to end: {node['name']})"
    assert words in result["summary"], result["summary"]


def test_what_was_ended_is_told_apart(shop: Shop) -> None:
    shop.rent()
    result = shop.end()
    assert result["summary"].startswith("1 proved gone, ") and result["leases"][0]["how"] == "ended"


def test_terminated_bills(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    shop.clock.sleep(100)
    api.end = lambda thing: None  # type: ignore[method-assign]
    each(api, status="TERMINATED", cost=2.0)
    result = shop.end(release_timeout_s=200)
    assert result["failed"] and "still listed (TERMINATED)" in result["msg"] and not result["leases"]
    each(api, status="TERMINATED", cost=0.0)
    assert shop.end()["clean"]


# I. Words.


@pytest.fixture
def locked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A cluster whose ledger belongs to somebody else, who alone may read it."""
    shop.rent()
    real = pathlib.Path.open

    def refuse(self: pathlib.Path, *args: t.Any, **more: t.Any) -> t.Any:
        if self.name == ledger_store.LEDGER:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, *args, **more)

    monkeypatch.setattr(pathlib.Path, "open", refuse)
    yield shop


@pytest.mark.parametrize("check", [True, False])
def test_nobody(locked: Shop, api: FakeRunpod, check: bool) -> None:
    owner = pwd.getpwuid(os.getuid()).pw_name
    for run in (locked.end, locked.reap):
        result = run(check=check)
        assert result["failed"] and str(locked.state / "ledger.jsonl") in result["msg"]
        assert f"run this as {owner}" in result["msg"] and "(2.99 USD per hour)" in result["msg"]
    with pytest.raises(MusterError, match="nothing is ordered: .*cannot be read by"):
        locked.rent()
    assert len(api.alive()) == 1


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.EACCES, "Run this as "), (errno.EROFS, "Mount it"), (errno.ENOSPC, "Free space")]
)
def test_ledger_ro2(shop: Shop, api: FakeRunpod, monkeypatch: pytest.MonkeyPatch, code: int, advice: str) -> None:
    shop.rent()
    real = os.open

    def refuse(path: t.Any, flags: int, *more: t.Any, **options: t.Any) -> int:
        if str(path).endswith(ledger_store.LEDGER) and flags & os.O_RDWR:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = shop.end()
    assert result["failed"] and api.alive() == [] and advice in result["msg"]
    assert result["msg"].startswith("everything that was to be deleted is, but: ") and "0.00" not in result["msg"]


def test_wrong_cluster(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    (node,) = shop.rent()["nodes"]
    result = shop.end(cluster="lab2")
    (line,) = result["notes"]
    assert node["name"] in line and "muster_cluster=lab" in line and "2.99 USD per hour" in line
    assert any(line in item for item in said) and len(api.alive()) == 1


def test_create200err(shop: Shop, api: FakeRunpod) -> None:
    api.reply("create", Answer(200, {"errors": [{"message": "insufficient funds"}]}))
    result = shop.rent(wait_timeout_s=300)
    assert result["failed"] and "insufficient funds" in result["msg"], result["msg"]


def test_immortal_bad(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    api.statuses = ["ERROR"]
    api.faults = [Fault("delete", "no_effect", nth) for nth in range(1, 200)]
    result = shop.rent(wait_timeout_s=60, release_timeout_s=300)
    assert result["failed"] and any("is still listed" in line and "300 s" in line for line in said), said


def test_rent_says_what_it_ends_at_its_start(shop: Shop, cloud: FakeLambda, said: list[str]) -> None:
    shop.rent("lambda")
    (ours,) = cloud.alive()
    cloud.make("copy of it", ssh_key_names=["bobs"], tags=list(ours.fields["tags"]), end="active")
    result = shop.rent("lambda")
    assert any(line.startswith("copy of it: lambda-2 is a second machine") for line in said), said
    assert any("copy of it" in line for line in result["history"])


def test_rent_says_price_and_deadline(shop: Shop, said: list[str]) -> None:
    result = shop.rent(count=2)
    names = [item["name"] for item in result["nodes"]]
    assert [line for line in said if "no deadline" in line] == [
        f"{name}: 2.99 USD per hour, no deadline: it bills until teardown" for name in names
    ]
    said.clear()
    deadline = shop.rent(count=2, lease_s=7200)["deadline"]
    assert [line for line in said if "due at" in line] == [
        f"{name}: 2.99 USD per hour, due at {deadline}" for name in names
    ]


def test_retry_after(shop: Shop, api: FakeRunpod) -> None:
    api.reply("create", api.error(429, "slow down"))
    result = shop.rent(wait_timeout_s=120)
    assert result["failed"] and "429" in result["msg"] and any("429" in line for line in result["history"])


def test_ledger_trunc(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    shop.rent()
    path = shop.state / "ledger.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"intent"' in line))
    result = shop.end(release_timeout_s=150)
    assert result["failed"] and "the proof takes" in result["msg"]
    assert any("150 s are too few" in line and "order without an answer" in line for line in said)
