# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""node_pool with state absent: which leases, the proof, and what makes it fail."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.action.node_offer_info import ActionModule as OfferFace
from ansible_collections.muster.training.plugins.action.node_pool import ActionModule as PoolFace
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    ProviderError,
)
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_offer_info
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import absent as node_pool_absent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present as node_pool_present
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.shadeform import FakeShadeform
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProber
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.pool_accounts import (
    Place,
    clock,
    lambda_api,
    place,
    shade_api,
)


def test_only_named_nodes_end(place: Place, lambda_api: FakeLambda) -> None:
    names = [item["name"] for item in place.pool()["nodes"]]
    result = place.pool(state="absent", pool=None, nodes=[names[0]])
    assert result["clean"] and [item.name for item in lambda_api.alive()] == [names[1]]
    with pytest.raises(InputError, match="no lease"):
        place.pool(state="absent", pool=None, nodes=["lab-h100-9-deadbeef"])
    assert place.pool(state="absent", pool=None, nodes=[names[0]])["changed"] is False


def test_the_user_sees_what_the_last_minute_waits_for(place: Place, lambda_api: FakeLambda) -> None:
    names = [item["name"] for item in place.pool()["nodes"]]
    lines: list[str] = []
    place.context = dataclasses.replace(place.context, report=lines.append)
    assert place.pool(state="absent", pool=None)["clean"] and lambda_api.alive() == []
    (line,) = lines
    assert all(name in line for name in names) and line.endswith("no listing has shown it for 60 s")


def test_an_empty_list_of_nodes_ends_nothing(place: Place, lambda_api: FakeLambda) -> None:
    place.pool()
    result = place.pool(state="absent", pool=None, nodes=[])
    assert result["clean"] and not result["changed"] and len(lambda_api.alive()) == 2


def test_the_token_that_a_server_has_is_no_part_of_a_teardown(place: Place, lambda_api: FakeLambda) -> None:
    place.pool()
    line = {"cluster": "lab", "token": "0123abcd", "resource": "k3s_token", "provider": "k3s", "account": "lab-1"}
    line |= {"schema": 1, "at": format_time(place.clock.time()), "pool": "servers", "name": "lab-2"}
    with (place.state / "ledger.jsonl").open("a") as ledger:
        for more in ({"event": "intent"}, {"event": "created", "id": "server"}):
            ledger.write(json.dumps({**line, **more}) + "\n")
    for due in (True, False):
        result = place.pool(state="absent", pool=None, due_only=due)
        assert result["clean"] and not result.get("problems"), result
    assert lambda_api.alive() == []
    events = [event for event in read_ledger(place.state).events if event.resource == "k3s_token"]
    assert [event.event for event in events] == ["intent", "created"]


def test_another_pool_of_the_cluster_stays(place: Place, lambda_api: FakeLambda) -> None:
    place.pool(count=1)
    place.pool(count=1, pool="spare")
    assert place.pool(state="absent", pool="spare")["clean"]
    assert [item.name.split("-")[1] for item in lambda_api.alive()] == ["h100"]


def test_what_is_due_ends_and_the_rest_stays(place: Place, lambda_api: FakeLambda) -> None:
    place.pool(count=1, pool="short", lease_s=600)
    place.pool(count=1, pool="long", lease_s=86400)
    place.pool(count=1, pool="done", run_id="run-1", release="success")
    place.clock.sleep(700)
    folder = place.state / "runs" / "run-1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"state": "ended", "outcome": "succeeded"}))
    result = place.pool(state="absent", pool=None, due_only=True)
    assert result["clean"] and len(result["reasons"]) == 2
    assert [item.name.split("-")[1] for item in lambda_api.alive()] == ["long"]


def test_machines_of_a_run_on_hosts_end_without_the_cluster_that_was_brought_up_from_here(
    place: Place, lambda_api: FakeLambda
) -> None:
    """Its kubeconfig comes by itself; its API server, which is gone here, knows nothing of a run on hosts."""
    place.pool(count=1, pool="done", run_id="run-1", release="success")
    folder = place.state / "runs" / "run-1"
    folder.mkdir(parents=True)
    record = {"state": "ended", "outcome": "succeeded", "backend": "hosts"}
    (folder / "run.json").write_text(json.dumps(record))
    result = place.pool(state="absent", pool=None, due_only=True, kubeconfig=str(place.state / "missing"))
    assert result["clean"] and lambda_api.alive() == []


def test_a_damaged_run_record_does_not_keep_a_deadline_from_being_kept(place: Place, lambda_api: FakeLambda) -> None:
    place.pool(count=1, run_id="run-1", lease_s=600)
    folder = place.state / "runs" / "run-1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    place.clock.sleep(700)
    assert place.pool(state="absent", pool=None, due_only=True)["clean"]
    assert lambda_api.alive() == []


def test_an_orphan_fails_the_module_until_somebody_consents(place: Place, lambda_api: FakeLambda) -> None:
    stray = lambda_api.make("lab-h100-3-0badcafe", ssh_key_names=["k"], tags=[], end="active")
    stranger = lambda_api.make("somebody", ssh_key_names=["k"], tags=[], end="active")
    result = place.pool(state="absent", pool=None)
    assert result["failed"] and stray.id in result["msg"] and "2.99 USD" in result["msg"]
    assert [item["id"] for item in result["unknown"]] == [stranger.id]
    assert len(lambda_api.alive()) == 2
    assert place.pool(state="absent", pool=None, orphans="delete")["clean"]
    assert lambda_api.alive() == [stranger]


def test_leftovers_fail_the_module(place: Place, lambda_api: FakeLambda) -> None:
    system = {
        "id": "fs-1",
        "name": "lab-h100-0-00000001",
        "mount_point": "/lambda/nfs/x",
        "created": "2026-11-21T10:00:00Z",
        "created_by": {"id": "u", "email": "a@example.com", "status": "active"},
        "is_in_use": False,
        "region": {"name": "us-east-1", "description": "Virginia"},
    }
    lambda_api.file_systems = [system]
    place.pool(count=1)
    result = place.pool(state="absent", pool=None)
    assert result["failed"] and "fs-1" in result["msg"] and lambda_api.alive() == []


def test_teardown_with_other_credentials_is_refused_loudly(place: Place, lambda_api: FakeLambda) -> None:
    place.pool(count=1)
    other = [{"name": "lambda", "api_token": f"{TOKEN}-of-another-account", "api_url": place.urls["lambda"]}]
    lambda_api.rewrite = lambda name, answer: (
        dataclasses.replace(answer, data={"data": []}) if name == "list" else answer
    )
    result = place.pool(state="absent", pool=None, providers=other)
    assert result["failed"] and "account" in result["msg"]
    assert len(lambda_api.alive()) == 1
    renamed = [{**other[0], "account": "ours"}]
    with pytest.raises(ProviderError, match="account"):
        place.pool(count=1, providers=renamed)


def test_an_account_with_a_name_survives_a_new_key(place: Place, lambda_api: FakeLambda) -> None:
    old = [{**place.providers("lambda")[0], "account": "ours"}]
    new = [{**old[0], "api_token": f"{TOKEN}-rotated"}]
    place.pool(count=1, providers=old)
    assert not place.pool(count=1, providers=new)["changed"]
    assert place.pool(state="absent", pool=None, providers=new)["clean"]


def test_devices_and_keys_of_rented_nodes_go_with_them(place: Place, clock: VirtualClock) -> None:
    tailnet = FakeTailscale(clock)
    with tailnet.loopback() as url:
        (node,) = place.pool(count=1)["nodes"]
        mine = tailnet.device(node["name"])
        tailnet.device("spark-01")
        providers = [*place.providers("lambda"), {"name": "tailscale", "api_token": TOKEN, "api_url": url}]
        result = place.pool(state="absent", pool=None, providers=providers)
        assert result["clean"]
        assert [item.name for item in tailnet.alive()] == ["spark-01"]
        assert {(lease["id"]) for lease in result["leases"]} == {node["id"], mine.id}
    assert tailnet.violations == []
