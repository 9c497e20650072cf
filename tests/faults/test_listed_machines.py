# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that cost money or said something untrue, each through the options of node_pool to a provider's fake."""

from __future__ import annotations

import dataclasses
import errno
import os
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.tests.fakes.api import Answer, Fault
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.faults.shop import Shop

# One listing ends no machine.


@pytest.mark.parametrize("kind", ["flicker_404", "partial"])
def test_one_incomplete_listing_changes_nothing(shop: Shop, api: FakeRunpod, kind: t.Any) -> None:
    shop.rent(count=2)
    shop.clock.sleep(70)
    before = sorted(item.id for item in api.alive())
    count = sum(call[0] == "list" for call in api.calls)
    api.fault = Fault("list", kind, count + 1)
    result = shop.rent(count=2)
    assert not result.get("failed") and api.tripped
    assert sorted(item.id for item in api.alive()) == before and result["placed"] == 0


@pytest.mark.parametrize("wait_s", [5, 70])
def test_joined_machines_are_kept_when_an_extension_fails(shop: Shop, api: FakeRunpod, wait_s: int) -> None:
    shop.rent(count=2)
    shop.clock.sleep(wait_s)
    before = sorted(item.id for item in api.alive())
    count = sum(call[0] == "list" for call in api.calls)
    api.fault = Fault("list", "partial", count + 1)
    api.refusals = [(400, "no capacity")] * 9
    result = shop.rent(count=3)
    assert result["failed"] and sorted(item.id for item in api.alive()) == before


# One machine's oddity.


def test_an_odd_machine_of_somebody_else_stops_nothing(shop: Shop, cloud: FakeLambda) -> None:
    shop.clock.later(5.0, lambda: cloud.lasting.add("odd_machine"))
    assert not shop.rent("lambda").get("failed")
    shop.clock.sleep(60)
    assert not shop.reap("lambda").get("failed")
    assert shop.end("lambda")["clean"] and cloud.alive() == []


def test_machines_end_by_id_where_no_listing_can_be_read(shop: Shop, cloud: FakeLambda) -> None:
    shop.rent("lambda")
    cloud.rewrite = lambda name, answer: Answer(200, {"data": [None]}) if name == "list" else answer
    result = shop.end("lambda", release_timeout_s=60)
    shop.clock.sleep(60)
    assert result["failed"] and "lab-h100-0" in result["msg"] and cloud.alive() == []


# Caps.


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (1, {"max_total_usd_per_hour": 3.0}),
        (1, {"candidate": {"max_price_usd_per_hour": 3.0}}),
        (1, {"max_price_usd_per_hour": 3.0}),
    ],
)
def test_a_bill_above_a_cap_is_given_back_and_fails(
    shop: Shop, api: FakeRunpod, count: int, options: dict[str, t.Any]
) -> None:
    api.lasting.add("overpriced")
    result = shop.rent(count=count, **options)
    assert result["failed"] and "29.90 USD per hour" in result["msg"]
    assert api.alive() == [] and sum(call[0] == "create" for call in api.calls) == 1


@pytest.mark.parametrize("how", ["no effect", "forbidden"])
def test_a_machine_that_cannot_be_ended_is_within_the_cap_and_told(shop: Shop, api: FakeRunpod, how: str) -> None:
    api.statuses = ["ERROR"]
    if how == "no effect":
        api.faults = [Fault("delete", "no_effect", nth) for nth in range(1, 200)]
    else:
        api.end = lambda thing: None  # type: ignore[method-assign]
        api.rewrite = lambda name, answer: api.error(403, "no") if name == "delete" else answer
    result = shop.rent(max_total_usd_per_hour=4.0, release_timeout_s=60)
    assert result["failed"] and "lab-h100-0" in result["msg"]
    assert sum(call[0] == "create" for call in api.calls) == 1
    assert [item["name"] for item in result["not_proved_gone"]]


def test_a_complete_pool_with_a_machine_that_bills_beside_it_fails(shop: Shop, api: FakeRunpod) -> None:
    api.statuses = ["ERROR"]
    api.faults = [Fault("delete", "no_effect", nth) for nth in range(1, 200)]
    result = shop.rent(release_timeout_s=60)
    assert result["failed"] and "is complete, but other machines may still be billing" in result["msg"]


# What was sold.


def test_a_machine_that_is_listed_as_another_product_is_not_taken(shop: Shop, api: FakeRunpod) -> None:
    api.lasting.add("wrong_hardware")
    result = shop.rent(readiness={"ssh": False})
    assert result["failed"] and api.alive() == []
    assert any("NVIDIA A40" in line for line in result["history"])


def test_the_gate_wants_what_was_ordered_where_the_listing_is_silent(shop: Shop, api: FakeRunpod) -> None:
    def silent(name: str, answer: Answer) -> Answer:
        if name == "list" and answer.status == 200:
            for item in answer.data["pods"]:
                item["gpu"] = None
        return answer

    api.rewrite = silent
    shop.rent(candidate={"gpu_count": 8})
    assert {item.gpu_count for item in shop.prober.ordered} == {8}


# One deadline.


def test_an_endless_listing_ends_in_time(shop: Shop, api: FakeRunpod) -> None:
    shop.rent()
    number = iter(range(10**6))
    beside: list[str] = []

    def endless(name: str, answer: Answer) -> Answer:
        if name != "list":
            return answer
        shop.clock.sleep(0.5)
        count = next(number)
        if count == 20:
            # Another command beside the one that hangs does not wait for it: it says who is at work.
            with pytest.raises(MusterError, match=f"the ledger of lab is in use by process {os.getpid()}") as caught:
                shop.reap()
            beside.append(caught.value.message)
        pods = [{**item, "id": f"{item['id']}-{count}", "name": "other"} for item in answer.data["pods"][:1]]
        more = {"nextCursor": f"more-{count}", "hasNextPage": True}
        return Answer(200, {"pods": [*answer.data["pods"], *pods], "pagination": more})

    api.rewrite = endless
    start = shop.clock.time()
    result = shop.end(release_timeout_s=300)
    assert result["failed"] and "the listing" in result["msg"]
    assert shop.clock.time() - start <= 300 + 120 + 30 and api.alive() == []
    assert len(beside) == 1
    api.rewrite = lambda _operation, answer: answer
    assert not shop.end().get("failed"), "once it has ended, the ledger is free for the next command"


# The ledger lost.


@pytest.mark.parametrize("how", ["gone", "empty", "of another time"])
def test_nothing_is_ordered_beside_our_own_machines(shop: Shop, api: FakeRunpod, how: str) -> None:
    path = shop.state / "ledger.jsonl"
    shop.rent(pool="first")
    old = path.read_text()
    shop.rent(count=2)
    if how == "gone":
        path.unlink()
    else:
        path.write_text("" if how == "empty" else old)
    with pytest.raises(MusterError, match="not in its ledger.*lab-h100-0"):
        shop.rent(count=2)
    assert len(api.alive()) == 3


# Refusals that act.


def test_a_429_that_makes_the_machine_makes_one(shop: Shop, api: FakeRunpod) -> None:
    api.faults = [Fault("create", "throttled_after", nth) for nth in range(1, 100)]
    result = shop.rent()
    assert not result.get("failed") and len(api.things) == 1


# Ids.


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("how", ["rent", "teardown", "reap"])
def test_an_id_under_a_foreign_name_is_not_touched(shop: Shop, api: FakeRunpod, how: str, proved: bool) -> None:
    shop.rent(lease_s=300)
    (pod,) = api.alive()
    if proved:
        shop.end()
    shop.clock.sleep(400)
    bob = dataclasses.replace(pod, name="bobs-precious-box", ended_at=None, gone_at=None)
    bob.fields = {**pod.fields, "env": {}}
    api.things[pod.id] = bob
    result = {"rent": shop.rent, "teardown": shop.end, "reap": shop.reap}[how]()
    assert bob in api.alive()
    if not proved:
        assert result["failed"] and "bobs-precious-box" in result["msg"]


def test_an_answer_with_a_foreign_id_touches_only_our_machine(shop: Shop, api: FakeRunpod) -> None:
    bob = api.stranger("training-box")
    api.fault = Fault("create", "strange_id")
    result = shop.rent()
    assert not result.get("failed") and [item["id"] for item in result["nodes"]] != [bob.id]
    assert len(api.alive()) == 2
    assert shop.end()["clean"] and api.alive() == [bob]


def test_a_machine_that_was_renamed_before_it_was_found_is_found(shop: Shop, api: FakeRunpod) -> None:
    api.fault = Fault("create", "timeout_after")
    api.lasting.add("renamed")
    result = shop.rent()
    assert not result.get("failed") and len(api.things) == 1
    assert shop.end()["clean"] and api.alive() == []


# What is said.


def test_what_runs_within_its_lease_is_said(shop: Shop, api: FakeRunpod) -> None:
    shop.rent(lease_s=86400)
    result = shop.reap()
    assert not result.get("failed") and result["residual_usd_per_hour"] == 0
    (entry,) = result["within_lease"]
    assert entry["usd_per_hour"] == result["within_lease_usd_per_hour"] == 2.99
    assert entry["id"] == api.alive()[0].id and entry["deadline"]


def _refuse_writing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let the disk refuse what the operating system would: the opening for writing, or the write itself."""
    real_open, real_write = os.open, os.write

    def refuse_open(path: t.Any, flags: int, *more: t.Any, **options: t.Any) -> int:
        if code == errno.EROFS and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(code, os.strerror(code), str(path))
        return real_open(path, flags, *more, **options)

    def refuse_write(descriptor: int, data: bytes) -> int:
        if code == errno.ENOSPC and data.startswith(b'{"'):
            raise OSError(code, os.strerror(code))
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "open", refuse_open)
    monkeypatch.setattr(os, "write", refuse_write)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_stops_no_ending(
    shop: Shop, api: FakeRunpod, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    shop.rent()
    _refuse_writing(monkeypatch, code)
    result = shop.end()
    assert api.alive() == [], "it ended all the same"
    assert result["failed"] and "cannot be written" in result["msg"]
    assert {item["event"] for item in result["unwritten"]} == {"draining", "deleted", "verified"}
    monkeypatch.undo()
    assert shop.end()["clean"]


def test_a_clock_that_was_put_back_delays_no_proof(shop: Shop, api: FakeRunpod, clock: VirtualClock) -> None:
    api.fault = Fault("create", "timeout_after")
    clock.sleep(7200)
    shop.rent(wait_timeout_s=60, readiness={"ssh": False}, nodes=None)
    text = [line for line in (shop.state / "ledger.jsonl").read_text().splitlines() if '"intent"' in line]
    (shop.state / "ledger.jsonl").write_text("\n".join(text) + "\n")
    clock._now -= 7200
    for pod in api.alive():
        pod.made_at = pod.visible_from = clock.time()
    assert shop.end(release_timeout_s=600)["clean"] and api.alive() == []
