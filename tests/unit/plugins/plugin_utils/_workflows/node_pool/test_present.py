# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runners of node_offer_info and node_pool against fakes on loopback: options in, results and files out."""

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
from ansible_collections.muster.training.plugins.module_utils._model.ledger import iso
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

WRITES = ("create", "delete", "add_key", "create_cluster", "delete_cluster")
SECRETS = (TOKEN, "canary")


class Place:
    """A controller with a state home, and the fakes of two providers."""

    def __init__(self, folder: pathlib.Path, lambda_url: str, shade_url: str, clock: VirtualClock) -> None:
        self.folder = folder
        self.clock = clock
        self.prober = SimProber()
        self.urls = {"lambda": lambda_url, "shadeform": shade_url}
        externals = Externals(clock, FakeWire(clock), {})
        self.context = node_pool_present.Context(folder, False, externals, InlineScheduler(clock), self.prober)

    def providers(self, *names: str) -> list[dict[str, t.Any]]:
        return [{"name": name, "api_token": TOKEN, "api_url": self.urls[name]} for name in names]

    def pool(self, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        given: dict[str, t.Any] = {
            "cluster": "lab",
            "pool": "h100",
            "count": 2,
            "providers": self.providers("lambda"),
            "candidates": [{"provider": "lambda", "gpu_model": "H100"}],
            "ssh_public_key": KEY,
            "state_home": {"path": str(self.folder / "state")},
            **options,
        }
        checked = parse(PoolFace, given)
        context = dataclasses.replace(self.context, check=check)
        run = node_pool_absent.ensure_absent if given.get("state") == "absent" else node_pool_present.ensure_present
        result = run(checked, context)
        text = json.dumps(result)
        assert not any(secret in text for secret in SECRETS)
        return result

    @property
    def state(self) -> pathlib.Path:
        return self.folder / "state" / "lab"


def parse(face: t.Any, options: dict[str, t.Any]) -> dict[str, t.Any]:
    found = ArgumentSpecValidator(face.OPTIONS, **face.RULES).validate(options)
    assert not found.error_messages, found.error_messages
    return dict(found.validated_parameters)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def lambda_api(clock: VirtualClock) -> FakeLambda:
    return FakeLambda(clock)


@pytest.fixture
def shade_api(clock: VirtualClock) -> FakeShadeform:
    return FakeShadeform(clock)


@pytest.fixture
def place(
    tmp_path: pathlib.Path, clock: VirtualClock, lambda_api: FakeLambda, shade_api: FakeShadeform
) -> Iterator[Place]:
    with lambda_api.loopback() as first, shade_api.loopback() as second:
        yield Place(tmp_path, first, second, clock)
    assert lambda_api.violations == [] and shade_api.violations == []


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
    assert first["deadline"] == iso(1_795_255_200.0 + 3600)
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


def test_check_mode_writes_nothing_and_predicts(place: Place, lambda_api: FakeLambda) -> None:
    result = place.pool(check=True)
    assert result["changed"] and [item["product"] for item in result["planned"]] == ["gpu_1x_h100_sxm5"] * 2
    assert result["diff"]["before"]["nodes"] == [] and len(result["diff"]["after"]["nodes"]) == 2
    assert "2.99 USD" in result["diff"]["after"]["nodes"][0]
    assert writes(lambda_api) == [] and not place.state.exists()
    place.pool()
    done, ledger = writes(lambda_api), (place.state / "ledger.jsonl").read_bytes()
    assert not place.pool(check=True)["changed"]
    shrink = place.pool(check=True, count=1)
    assert shrink["changed"] and len(shrink["diff"]["after"]["nodes"]) == 1
    leave = place.pool(check=True, state="absent", pool=None)
    assert leave["changed"] and len(leave["diff"]["before"]["leases"]) == 2
    assert writes(lambda_api) == done
    assert (place.state / "ledger.jsonl").read_bytes() == ledger
    assert not (place.state / "teardown.json").exists()


def test_a_gang_that_cannot_be_completed_fails_with_the_reason(place: Place, lambda_api: FakeLambda) -> None:
    lambda_api.refusals = ["instance-operations/launch/insufficient-capacity"] * 2
    result = place.pool()
    assert result["failed"] and result["nodes"] == []
    assert "every offer was refused" in result["msg"]
    assert "insufficient-capacity" in " ".join(result["history"])
    assert lambda_api.alive() == []


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


def test_only_named_nodes_end(place: Place, lambda_api: FakeLambda) -> None:
    names = [item["name"] for item in place.pool()["nodes"]]
    result = place.pool(state="absent", pool=None, nodes=[names[0]])
    assert result["clean"] and [item.name for item in lambda_api.alive()] == [names[1]]
    with pytest.raises(InputError, match="no lease"):
        place.pool(state="absent", pool=None, nodes=["lab-h100-9-deadbeef"])
    assert place.pool(state="absent", pool=None, nodes=[names[0]])["changed"] is False


def test_an_empty_list_of_nodes_ends_nothing(place: Place, lambda_api: FakeLambda) -> None:
    place.pool()
    result = place.pool(state="absent", pool=None, nodes=[])
    assert result["clean"] and not result["changed"] and len(lambda_api.alive()) == 2


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
        ({"state_home": {"store": "s3"}}, "muster_state.store"),
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


def test_offers_of_all_providers_by_price(place: Place) -> None:
    options = {"providers": place.providers("lambda", "shadeform"), "gpu_model": "H100", "k3s_capable": True}
    result = node_offer_info.find_offers(parse(OfferFace, options), place.context.externals)
    assert [(item["provider"], item["price_usd_per_hour"]) for item in result["offers"]] == [
        ("shadeform", 2.4),
        ("lambda", 2.99),
    ]
    assert result["found"] == 2 and result["problems"] == []
    assert json.dumps(result)


def test_a_provider_that_does_not_answer_is_named(place: Place) -> None:
    broken = {"name": "shadeform", "api_token": TOKEN, "api_url": "http://127.0.0.1:1"}
    options = parse(OfferFace, {"providers": [*place.providers("lambda"), broken]})
    result = node_offer_info.find_offers(options, place.context.externals)
    assert [item["provider"] for item in result["problems"]] == ["shadeform"]
    assert len(result["offers"]) == 1
    with pytest.raises(ProviderError):
        node_offer_info.find_offers(parse(OfferFace, {"providers": [broken]}), place.context.externals)


def test_an_environment_variable_is_enough(place: Place) -> None:
    externals = place.context.externals._replace(environ={"LAMBDA_API_KEY": TOKEN})
    options = parse(OfferFace, {"providers": [{**place.providers("lambda")[0], "api_token": None}]})
    assert node_offer_info.find_offers(options, externals)["found"] == 1
    with pytest.raises(InputError, match="does not name a provider"):
        node_offer_info.find_offers(parse(OfferFace, {}), place.context.externals)
