# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders and listings at RunPod against scripted answers."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import OrderAccepted, OrderUnsettled
from ansible_collections.muster.training.plugins.module_utils._model.offer import Offer, OfferQuery
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod.provision import RunpodProvider
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import access
from ansible_collections.muster.training.tests.support.scripted_http import Call
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import NAME, order, scripted


@pytest.mark.parametrize(
    ("status", "detail", "why"),
    [
        (400, "There are no longer any instances available with the requested specifications", "capacity"),
        (400, "This machine does not have the resources to deploy your pod", "capacity"),
        (400, "image is required", "rule"),
        (402, "balance", "quota"),
        (403, "no access to this pool", "rule"),
        (404, "resource not found", "rule"),
        (422, "gpu.count must be an integer", "rule"),
        (429, "slow down", "throttled"),
    ],
)
def test_runpod_refusals(status: int, detail: str, why: str) -> None:
    problem = {"title": "Bad", "status": status, "detail": detail}
    script, provider = scripted(RunpodProvider, Call("POST", "/v2/pods", status=status, answer=problem))
    with script:
        assert provider.create(order("runpod")).why == why


@pytest.mark.parametrize("key", [None, "", [], {"a": 1}, False])
def test_an_answer_of_runpod_without_an_id_is_looked_for(key: object) -> None:
    script, provider = scripted(RunpodProvider, Call("POST", "/v2/pods", status=201, answer={"id": key}))
    with script:
        assert isinstance(provider.create(order("runpod")), OrderUnsettled)


def test_runpod_is_sent_the_key_in_the_environment_and_no_account_key_is_touched() -> None:
    call = Call("POST", "/v2/pods", status=201, answer={"id": "p1"})
    script, provider = scripted(RunpodProvider, call)
    with script:
        assert provider.create(order("runpod", ports=("8888/http",))) == OrderAccepted("p1")
    body = json.loads(script.done[0].body or b"")
    assert body["env"] == {"PUBLIC_KEY": KEY, "MUSTER_TOKEN": "1f2e3d4c"}
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
        assert isinstance(made, OrderAccepted)
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
            assert isinstance(provider.create(order("runpod")), OrderAccepted)
        assert len(provider.list_instances()) == 5


def test_a_runpod_cluster_that_lacks_a_member_does_not_run() -> None:
    clock = VirtualClock()
    api = FakeRunpod(clock, boot_s=0.0)
    with api.loopback() as url:
        provider = RunpodProvider(access(url, clock))
        hardware = {"gpu_count": 1, "unit": "cluster", "ref": {"cloud": "SECURE"}}
        offer = Offer("runpod", "NVIDIA H100 80GB HBM3", None, "container", 9.0, **hardware)  # type: ignore[arg-type]
        provider.create(order("runpod", offer=offer, count=2))
        (whole,) = provider.list_instances()
        assert (whole.state, whole.detail) == ("running", "RUNNING")
        member = next(item for item in api.things.values() if item.fields.get("cluster"))
        member.gone_at = clock.time()
        (broken,) = provider.list_instances()
    assert (broken.state, broken.detail, broken.terminal) == ("creating", "RUNNING, 1 of 2 machines are listed", False)
    assert broken.price_usd_per_hour is None


def test_a_runpod_clusters_price_is_that_of_all_its_machines() -> None:
    clock = VirtualClock()
    api = FakeRunpod(clock)
    with api.loopback() as url:
        query = OfferQuery(unit="cluster", gpu_count=8, regions=("US-TX-3", "EU-XX-1"))
        first, second = RunpodProvider(access(url, clock)).offers(query, 4)
    assert first.price_usd_per_hour == pytest.approx(2.99 * 8 * 4)
    assert (first.region, first.available, first.unit) == ("US-TX-3", True, "cluster")
    assert (second.region, second.available) == ("EU-XX-1", None)
