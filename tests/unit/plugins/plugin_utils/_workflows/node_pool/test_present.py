# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""node_pool with state present: options to machines, check mode, gangs, refusals, secrets."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
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
    SECRETS,
    Place,
    clock,
    lambda_api,
    place,
    shade_api,
)

WRITES = ("create", "delete", "add_key", "create_cluster", "delete_cluster")


def writes(api: t.Any) -> list[str]:
    return [call[0] for call in api.calls if call[0] in WRITES]


def test_rent_again_and_give_back(place: Place, lambda_api: FakeLambda) -> None:
    first = place.pool(lease_s=3600)
    assert first["changed"] and len(first["nodes"]) == 2
    node = first["nodes"][0]
    assert node["ssh"] == {"host": "198.51.100.7", "port": 22, "user": "ubuntu"}
    assert (
        f"{place.state}/known_hosts/lambda-" in node["ssh_arguments"]
        and "HostKeyAlias=lambda-" in node["ssh_arguments"]
    )
    assert node["owner"]["cluster"] == "lab" and node["provider"] == "lambda"
    assert first["price_usd_per_hour"] == pytest.approx(5.98)
    assert first["deadline"] == format_time(1_795_255_200.0 + 3600)
    done = len(writes(lambda_api))
    again = place.pool(lease_s=3600)
    assert not again["changed"] and [item["id"] for item in again["nodes"]] == [item["id"] for item in first["nodes"]]
    assert len(writes(lambda_api)) == done
    gone = place.pool(state="absent", pool=None)
    assert gone["changed"] and gone["clean"] and len(gone["leases"]) == 2
    assert lambda_api.alive() == []
    proof = json.loads((place.state / "teardown.json").read_text())
    assert proof["schema"] == 1 and len(proof["leases"]) == 2 and proof["residual_usd_per_hour"] == 0
    once_more = place.pool(state="absent", pool=None)
    assert not once_more["changed"] and once_more["clean"]
    assert json.loads((place.state / "teardown.json").read_text())["leases"] == proof["leases"]
    place.pool(count=1)
    third = place.pool(state="absent", pool=None)
    kept = json.loads((place.state / "teardown.json").read_text())["leases"]
    assert kept[:2] == proof["leases"] and [item["token"] for item in kept[2:]] == [third["leases"][0]["token"]]


def test_check_mode_writes_nothing_and_predicts(place: Place, lambda_api: FakeLambda) -> None:
    result = place.pool(check=True)
    assert result["changed"] and [item["product"] for item in result["planned"]] == ["gpu_1x_h100_sxm5"] * 2
    assert result["diff"]["before"]["nodes"] == [] and len(result["diff"]["after"]["nodes"]) == 2
    assert "2.99 USD" in result["diff"]["after"]["nodes"][0]
    assert writes(lambda_api) == [] and not place.state.exists()
    place.pool()
    done, ledger = writes(lambda_api), (place.state / "ledger.jsonl").read_bytes()
    assert not place.pool(check=True)["changed"]
    with pytest.raises(MusterError, match="set rented_nodes_shrink: true"):
        place.pool(check=True, count=1)
    shrink = place.pool(check=True, count=1, shrink=True)
    assert shrink["changed"] and len(shrink["diff"]["after"]["nodes"]) == 1
    leave = place.pool(check=True, state="absent", pool=None)
    assert leave["changed"] and len(leave["diff"]["before"]["leases"]) == 2
    assert writes(lambda_api) == done
    assert (place.state / "ledger.jsonl").read_bytes() == ledger
    assert not (place.state / "teardown.json").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"max_total_usd_per_hour": 5.0},
            r"no offer fits the price caps \(the cheapest costs 2.99 USD per hour, 2 of them 5.98\)",
        ),
        ({"candidates": [{"provider": "lambda", "gpu_model": "H999"}]}, "no candidate has an offer that fits"),
    ],
)
def test_check_mode_fails_where_the_call_would(place: Place, options: dict[str, t.Any], reason: str) -> None:
    predicted, real = place.pool(check=True, **options), place.pool(**options)
    for result in (predicted, real):
        assert result["failed"] and not result["changed"] and re.search(reason, result["msg"]), result
    assert predicted["msg"] == real["msg"]


def test_check_mode_warns_where_an_offer_may_still_come(place: Place, lambda_api: FakeLambda) -> None:
    waits = place.pool(check=True, count=2, max_total_usd_per_hour=60, capacity_wait_s=600)
    assert waits["changed"] and not waits.get("failed")


def test_a_gang_that_cannot_be_completed_fails_with_the_reason(place: Place, lambda_api: FakeLambda) -> None:
    lambda_api.refusals = ["instance-operations/launch/insufficient-capacity"] * 2
    result = place.pool()
    assert result["failed"] and result["nodes"] == []
    assert "every offer was refused" in result["msg"]
    assert "insufficient-capacity" in " ".join(result["history"])
    assert lambda_api.alive() == []


def test_the_price_after_a_failure_is_that_of_what_remains(place: Place, lambda_api: FakeLambda) -> None:
    assert place.pool(count=1)["price_usd_per_hour"] == pytest.approx(2.99)
    lambda_api.statuses = ["unhealthy"] * 20
    lambda_api.reply("delete", lambda_api.error(403, "forbidden"))
    result = place.pool(count=2, max_replacements=1)
    assert result["failed"]
    billed = [item for item in lambda_api.alive() if item not in lambda_api.strangers]
    assert len(billed) > 1, "what was complete, and what could not be deleted"
    assert result["price_usd_per_hour"] == pytest.approx(2.99 * len(billed))


def test_a_later_call_sets_the_deadline_anew(place: Place, clock: VirtualClock, lambda_api: FakeLambda) -> None:
    """What is ready now is not due by what an earlier call said; a call without a lease leaves it."""
    first = place.pool(lease_s=3600)
    clock.sleep(3000)
    again = place.pool(lease_s=3600)
    assert not again["changed"] and again["deadline"] == format_time(clock.time() + 3600) > first["deadline"]
    assert place.pool()["deadline"] == again["deadline"]
    clock.sleep(3000)
    assert place.pool(state="absent", pool=None, due_only=True)["leases"] == [] and len(lambda_api.alive()) == 2
    clock.sleep(700)
    assert len(place.pool(state="absent", pool=None, due_only=True)["leases"]) == 2


def test_a_deadline_that_the_provider_keeps_is_not_promised_later(place: Place, clock: VirtualClock) -> None:
    options = {
        "providers": place.providers("shadeform"),
        "candidates": [{"provider": "shadeform", "gpu_model": "H100"}],
    }
    first = place.pool(lease_s=3600, **options)
    clock.sleep(1800)
    assert place.pool(lease_s=3600, **options)["deadline"] == first["deadline"]
    more = place.pool(count=3, lease_s=3600, **options)
    assert len(more["nodes"]) == 3 and more["deadline"] == first["deadline"], "when the first of them is due"


def test_the_next_candidate_completes_the_gang(place: Place, lambda_api: FakeLambda, shade_api: FakeShadeform) -> None:
    lambda_api.refusals = ["instance-operations/launch/insufficient-capacity"]
    candidates = [{"provider": "lambda"}, {"provider": "shadeform", "gpu_model": "H100", "kind": "vm"}]
    result = place.pool(candidates=candidates, providers=place.providers("lambda", "shadeform"), lease_s=7200)
    assert [item["provider"] for item in result["nodes"]] == ["shadeform", "shadeform"]
    assert [item["ssh"]["user"] for item in result["nodes"]] == ["shadeform", "shadeform"]
    assert lambda_api.alive() == []
    # Nobody gives these back: the provider itself does, at the deadline.
    place.clock.sleep(7200)
    assert shade_api.alive() == []


def test_a_second_controller_waits_its_turn(place: Place, lambda_api: FakeLambda) -> None:
    place.state.mkdir(parents=True)
    with LedgerWriter(place.state, "process 1 on head"), pytest.raises(MusterError, match="process 1 on head"):
        place.pool()
    assert lambda_api.calls == []


def test_a_torn_ledger_is_used_and_told(place: Place, lambda_api: FakeLambda) -> None:
    place.pool(count=1)
    with (place.state / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"at": "2026-')
    result = place.pool(state="absent", pool=None)
    assert result["clean"] and len(result["ledger_warnings"]) == 1
    assert lambda_api.alive() == [] and len(read_ledger(place.state).warnings) == 1


def test_no_secret_is_in_any_file(place: Place) -> None:
    place.pool(user_data="#cloud-config\n# canary-user-data\n")
    place.pool(state="absent", pool=None)
    for path in place.folder.rglob("*"):
        if path.is_file():
            assert not any(secret.encode() in path.read_bytes() for secret in SECRETS), path
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cluster": "Lab"}, "cluster"),
        ({"pool": "h-100"}, "pool"),
        ({"count": 0}, "count"),
        ({"candidates": [{"provider": "lambda", "gpu_modle": "H100"}]}, "gpu_modle"),
        ({"candidates": [{"provider": "lambda", "unit": "cluster"}]}, "does not offer clusters"),
        ({"candidates": [{"provider": "runpod"}], "providers": [{"name": "runpod", "api_token": TOKEN}]}, "image"),
        ({"ssh_public_key": None}, "ssh_public_key"),
        ({"ssh_public_key": "hello"}, "ssh_public_key"),
        ({"ssh_public_key": None, "ssh_public_key_file": "missing.pub"}, "ssh_public_key_file"),
        ({"lease_s": 5}, "lease_s"),
        ({"readiness": {"cdua": False}}, "cdua"),
        ({"run_id": "Run 1"}, "run_id"),
        ({"providers": [{"name": "lambda"}]}, "LAMBDA_API_KEY"),
        ({"providers": [{"name": "lambda", "api_token": "sh0rt!"}]}, "api_token"),
        ({"providers": [{"name": "lambda", "api_token": TOKEN}] * 2}, "second time"),
        ({"state_home": {"store": "s3"}}, "muster_state.s3"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(
    place: Place, lambda_api: FakeLambda, options: dict[str, t.Any], word: str
) -> None:
    with pytest.raises(MusterError, match=word) as caught:
        place.pool(**options)
    assert lambda_api.calls == []
    assert not any(secret in str(caught.value) for secret in (*SECRETS, "sh0rt!"))
    assert not (place.state / "ledger.jsonl").exists()
