# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a listing alone does not prove, and what it shows beside what was ordered: through node_pool to the fakes."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.usage_info import read_usage
from ansible_collections.muster.training.tests.fakes.api import Answer, FakeApi, Thing
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import PRICE, FakeRunpod
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.faults.shop import Shop

FAKES: dict[str, tuple[type[FakeApi], dict[str, t.Any]]] = {
    "lambda": (FakeLambda, {"data": []}),
    "runpod": (FakeRunpod, {"pods": []}),
    "vastai": (FakeVast, {"success": True, "instances": [], "total_instances": 0, "next_token": None}),
    "shadeform": (FakeShadeform, {"instances": []}),
}


@pytest.fixture
def said(shop: Shop) -> list[str]:
    """The lines on the screen."""
    lines: list[str] = []
    shop.context = dataclasses.replace(shop.context, report=lines.append)
    return lines


def double(api: FakeRunpod) -> Thing:
    """Bring a second machine into being under the name, and with the environment, of the one that bills."""
    (first,) = api.alive()
    return api.make(first.name, **first.fields)


def lease(shop: Shop) -> t.Any:
    (found,) = (item for item in read_ledger(shop.folder / "state" / "lab").leases.values() if item.state == "joined")
    return found


@pytest.mark.parametrize("provider", list(FAKES))
@pytest.mark.parametrize("really", ["alive", "gone", "unknown"])
def test_an_empty_listing_alone_replaces_no_machine(
    tmp_path: pathlib.Path, clock: VirtualClock, provider: str, really: str
) -> None:
    kind, empty = FAKES[provider]
    api = kind(clock, boot_s=10.0)
    with api.loopback() as url:
        shop = Shop(tmp_path, {"runpod": url, "b": url, "lambda": url, provider: url}, clock)
        (node,) = shop.rent(provider)["nodes"]
        clock.sleep(3600)
        before = [item.id for item in api.alive()]
        if really == "gone":
            api.end(api.alive()[0])
        else:
            api.rewrite = lambda name, answer: Answer(200, empty) if name == "list" else answer
        if really == "unknown":
            api.reply("look", api.error(500, "out of order"))
        for _round in range(2):
            result = shop.rent(provider, wait_timeout_s=600)
            clock.sleep(600)
        if really == "gone":
            assert not result.get("failed") and len(api.alive()) == 1
            return
        assert [item.id for item in api.alive()] == before and result["failed"] and result["placed"] == 0
        words = f"knows its id ({before[0]})" if really == "alive" else "asked for by its id: "
        assert node["name"] in result["msg"] and words in result["msg"]
        api.calm()
        assert not shop.rent(provider).get("failed") and [item.id for item in api.alive()] == before
    assert api.violations == []


def test_a_second_machine_of_one_order_is_said_deleted_and_costs(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    (node,) = shop.rent()["nodes"]
    second = double(api)
    shop.clock.sleep(3600)
    said.clear()
    reaped = shop.reap()
    assert reaped["within_lease_usd_per_hour"] == 2 * PRICE
    assert f"{second.id} is a second machine of one order, beside {node['id']}" in reaped["summary"]
    assert lease(shop).cost_usd(shop.clock.time()) == pytest.approx(2 * PRICE, rel=0.1)
    said.clear()
    shop.rent(check=True)
    words = f"{second.id} is a second machine of one order (2.99 USD per hour)"
    assert f"would delete {node['name']} (2.99 USD per hour): {words}" in said
    result = shop.rent()
    assert not result.get("failed") and [item.id for item in api.alive()] == [node["id"]]
    assert f"{node['name']}: {second.id} is a second machine of one order (2.99 USD per hour)" in said
    # What it has cost stays in every figure, and grows no more.
    usage = read_usage(StateHome({"path": str(shop.folder / "state")}, "lab"), ["node"], None, None, shop.clock.time())
    shop.clock.sleep(3600)
    later = read_usage(StateHome({"path": str(shop.folder / "state")}, "lab"), ["node"], None, None, shop.clock.time())
    usd = {row["node"]: row["usd"] for row in t.cast("list[dict[str, t.Any]]", usage["rows"])}
    assert usd[f"{node['name']} (second machine {second.id})"] == pytest.approx(PRICE, rel=0.1)
    assert later["ledger_usd"] == pytest.approx(t.cast(float, usage["ledger_usd"]) + PRICE, rel=0.02)
    assert shop.end()["clean"] and api.alive() == []


def test_a_second_machine_that_does_not_end_fails_rent(shop: Shop, api: FakeRunpod) -> None:
    (node,) = shop.rent()["nodes"]
    second = double(api)
    whole = api.end
    api.end = lambda thing: None if thing is second else whole(thing)  # type: ignore[method-assign]
    result = shop.rent(wait_timeout_s=600)
    assert result["failed"] and "a second machine of one order, not proved gone" in result["msg"]
    assert result["price_usd_per_hour"] == 2 * PRICE and lease(shop).ids[-1] == node["id"]
    ended = shop.end(release_timeout_s=120)
    assert ended["failed"] and ended["residual_usd_per_hour"] == PRICE


def test_a_controller_that_ends_while_a_second_machine_is_deleted_leaves_its_lease(shop: Shop, api: FakeRunpod) -> None:
    (node,) = shop.rent()["nodes"]
    double(api)
    shop.rent()
    states = [event.event for event in read_ledger(shop.folder / "state" / "lab").events]
    (found,) = read_ledger(shop.folder / "state" / "lab").leases.values()
    assert "deleted" in states and found.state == "joined" and found.id == node["id"]


def test_a_renamed_machine_has_one_name_and_the_other_is_said(shop: Shop, api: FakeRunpod, said: list[str]) -> None:
    (node,) = shop.rent()["nodes"]
    api.alive()[0].name = "bobs-box"
    words = f"{node['name']} is listed as bobs-box at runpod"
    (again,) = shop.rent()["nodes"]
    assert again["name"] == node["name"] and f"warning: {words}" in said
    assert any(line.startswith(f"{node['name']}: 2.99 USD per hour, ") for line in said)
    for how in (shop.reap, shop.end):
        said.clear()
        result = t.cast("t.Any", how)(check=True)
        assert words in " ".join(said) or f"{node['name']} (listed as bobs-box)" in result["summary"]
    said.clear()
    assert shop.end()["clean"] and f"{node['name']}: is listed as bobs-box at runpod" in said


@pytest.mark.parametrize("gpu", [{"id": "NVIDIA A40", "count": 8}, {"id": "NVIDIA H100 80GB HBM3", "count": 4}])
def test_a_kept_machine_of_other_hardware_is_named(shop: Shop, api: FakeRunpod, gpu: dict[str, t.Any]) -> None:
    """Also where several candidates, or none that says what is wanted, could have been ordered."""
    wanted = {"gpu_count": 8}
    (node,) = shop.rent(candidate=wanted)["nodes"]

    def other(name: str, answer: Answer) -> Answer:
        for item in answer.data["pods"] if name == "list" and answer.status == 200 else ():
            item["gpu"] = gpu
        return answer

    api.rewrite = other
    candidates = [{"provider": "runpod", "image": "u", "gpu_count": count} for count in (1, 8)]
    result = shop.pool(count=1, candidates=candidates, providers=shop.providers("runpod"))
    was = "NVIDIA A40, NVIDIA H100" if gpu["count"] == 8 else "4 GPUs, 8 were ordered"
    assert result["failed"] and f"{node['name']} has {was}" in result["msg"] and "it is kept" in result["msg"]
    assert len(api.alive()) == 1
