# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From listings to node records: exact for the recorded ones, never a crash for odd ones."""

from __future__ import annotations

import datetime
import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._providers import node_record, parsing
from ansible_collections.muster.training.plugins.plugin_utils._providers.coreweave import mapping as coreweave
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud import mapping as lambda_cloud
from ansible_collections.muster.training.plugins.plugin_utils._providers.runpod import mapping as runpod
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform import mapping as shadeform
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale import mapping as tailscale
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.client import from_v1
from ansible_collections.muster.training.plugins.plugin_utils._providers.vastai import mapping as vastai
from ansible_collections.muster.training.tests.support.listings import CANARY, listing

NOW = datetime.datetime(2026, 11, 21, 10, 0, tzinfo=datetime.UTC)


def to_device(raw: dict[str, t.Any], account: str) -> node_record.ProviderHost:
    return tailscale.to_host(raw, account, NOW)


MAPPINGS: dict[
    str, tuple[t.Callable[[dict[str, t.Any], str], node_record.ProviderHost], list[dict[str, t.Any]], str]
] = {
    "lambda": (lambda_cloud.to_host, listing("lambda")["data"], "lambda_"),
    "runpod": (runpod.to_host, listing("runpod")["pods"]["pods"], "runpod_"),
    "vastai": (vastai.to_host, listing("vastai"), "vastai_"),
    "shadeform": (shadeform.to_host, listing("shadeform")["instances"]["instances"], "shadeform_"),
    "coreweave": (coreweave.to_host, listing("coreweave")["clusters"]["items"], "coreweave_"),
    "tailscale": (to_device, listing("tailscale")["devices"], "tailscale_"),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_records_keep_the_contract(name: str) -> None:
    mapping, raws, prefix = MAPPINGS[name]
    for raw in raws:
        host = mapping(raw, "0123456789ab")
        node = Node.from_dict(host.record)
        whole = node.to_dict()
        assert {
            key: whole[key] for key in ("id", "name", "state", "addresses", "network_types", "owner", "k3s", "cpu")
        } == {
            key: host.record[key]
            for key in ("id", "name", "state", "addresses", "network_types", "owner", "k3s", "cpu")
        }
        assert node.account == "0123456789ab" and node.provider == name
        assert all(key.startswith(prefix) for key in host.data)
        assert CANARY not in json.dumps([host.record, host.data])
        assert [net for net in ("mesh", "lan", "public") if host.record["addresses"][net]] == host.record[
            "network_types"
        ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=12) | st.just("::1%eth0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", MAPPINGS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_odd_values_become_unknown(name: str, data: st.DataObject) -> None:
    mapping, raws, _prefix = MAPPINGS[name]
    raw = json.loads(json.dumps(data.draw(st.sampled_from(raws))))
    keys = [key for key in raw if key not in ("id", "nodeId")]
    for key in data.draw(st.lists(st.sampled_from(keys), max_size=6)):
        raw[key] = data.draw(json_values)
    for key in data.draw(st.lists(st.sampled_from(keys), max_size=3)):
        raw.pop(key, None)
    host = mapping(raw, "")
    Node.from_dict(host.record)


def one(name: str, index: int) -> tuple[node_record.ProviderHost, dict[str, t.Any]]:
    mapping, raws, _prefix = MAPPINGS[name]
    host = mapping(raws[index], "acc")
    return host, host.record


def test_lambda_record() -> None:
    host, record = one("lambda", 0)
    assert record == {
        "id": "0920582c7ff041399e34823a0be62549",
        "name": "lab-h100-0-1f2e3d4c",
        "ownership": "rented",
        "provider": "lambda",
        "account": "acc",
        "product": "gpu_8x_h100_sxm5",
        "kind": "vm",
        "state": "running",
        "region": "us-west-3",
        "site": None,
        "preemptible": False,
        "ssh": {"host": None, "port": None, "user": "ubuntu"},
        "addresses": {
            "mesh": [],
            "lan": [{"address": "10.19.0.2", "interface": None, "prefix": None}],
            "public": [{"address": "198.51.100.2", "interface": None, "prefix": None}],
        },
        "network_types": ["lan", "public"],
        "gpu": {"model": "H100", "count": 8, "memory_gib": 80.0, "arch": None},
        "cpu": {"count": 208, "arch": "x86_64"},
        "memory_gib": 1800.0,
        "price_usd_per_hour": 23.92,
        "owner": {"cluster": "lab", "pool": "h100", "token": "1f2e3d4c"},
        "created_at": None,
        "fabric_hint": "us-west-3",
        "k3s": {"capable": True, "reasons": []},
    }
    assert host.data["lambda_tags"] == {"muster-cluster": "lab"} and host.direct is None


def test_lambda_without_addresses_and_on_arm() -> None:
    _host, booting = one("lambda", 1)
    assert booting["state"] == "creating" and booting["network_types"] == [] and booting["fabric_hint"] is None
    _host, grace = one("lambda", 2)
    assert (grace["cpu"]["arch"], grace["state"], grace["gpu"]["memory_gib"]) == ("aarch64", "failed", 96.0)
    assert one("lambda", 3)[1]["state"] == "gone"
    raw = {**listing("lambda")["data"][0], "cluster_id": "1cc-1", "instance_type": {"architecture": "arm64"}}
    record = lambda_cloud.to_host(raw, "").record
    assert (record["fabric_hint"], record["cpu"]["arch"], record["account"]) == ("1cc-1", "aarch64", None)


def test_runpod_member_and_lone_pod() -> None:
    raw = {**listing("runpod")["pods"]["pods"][0], "clusterNetwork": {"cidr": "10.65.0.0/16"}}
    host = runpod.to_host(raw, "acc")
    assert host.direct == ("203.0.113.4", 22001, "root") and host.data["runpod_cluster_cidr"] == "10.65.0.0/16"
    assert host.record["addresses"]["lan"][0]["address"] == "10.65.0.2"
    assert (host.record["fabric_hint"], host.data["runpod_cluster_rank"]) == ("cluster_abc123", 0)
    assert host.record["k3s"] == {"capable": False, "reasons": [node_record.CONTAINER]}
    second, record = one("runpod", 1)
    assert second.direct is None and second.data["runpod_cluster_rank"] is None and not second.data["runpod_reachable"]
    assert record["state"] == "creating" and record["network_types"] == []
    _host, lone = one("runpod", 2)
    assert lone["owner"]["token"] == "0a1b2c3d" and lone["gpu"]["memory_gib"] is None


@pytest.mark.parametrize(
    ("index", "state", "kind", "direct"),
    [
        (0, "running", "container", ("192.0.2.45", 20000, "root")),
        (1, "running", "vm", ("ssh6.vast.ai", 10600, "root")),
        (2, "creating", "container", ("ssh6.vast.ai", 10601, "root")),
        (3, "failed", "container", ("ssh6.vast.ai", 10600, "root")),
        (4, "failed", "container", ("192.0.2.45", 20000, "root")),
        (5, "stopped", "container", ("192.0.2.45", 20000, "root")),
    ],
)
def test_vast_states_and_endpoints(index: int, state: str, kind: str, direct: tuple[str, int, str]) -> None:
    host, record = one("vastai", index)
    assert (record["state"], record["kind"], host.direct) == (state, kind, direct)
    assert record["k3s"]["capable"] is (kind == "vm")


def test_vast_units() -> None:
    host, record = one("vastai", 0)
    assert record["gpu"] == {"model": "RTX 4090", "count": 4, "memory_gib": 24.0, "arch": None}
    # Half of the machine's cores come with half of its memory.
    assert record["memory_gib"] == round(515000 / 2 / 1024, 1) and record["cpu"] == {"count": 32, "arch": "x86_64"}
    assert record["created_at"] == "2026-11-21T10:40:00Z" and record["preemptible"] is False
    assert one("vastai", 2)[0].name == "vast-314" and host.data["vastai_machine_id"] == "12"


def test_shadeform_units_and_port() -> None:
    host, record = one("shadeform", 0)
    assert record["price_usd_per_hour"] == 14.40 and record["gpu"]["memory_gib"] == 80.0 and record["kind"] is None
    assert host.direct == ("192.0.2.77", 22, "shadeform") and record["k3s"]["capable"] is None
    waiting, record = one("shadeform", 1)
    assert waiting.direct is None and record["state"] == "creating"


def test_coreweave_is_a_cluster() -> None:
    raw = {**listing("coreweave")["clusters"]["items"][0], "nodePools": [{"name": "h100", "targetNodes": 4}]}
    host = coreweave.to_host(raw, "acc")
    assert (host.record["kind"], host.record["ownership"], host.record["state"]) == ("cluster", "managed", "running")
    assert host.data["coreweave_api_server"] == "https://abc123-abcd1234.k8s.us-east-04a.coreweave.com"
    assert host.data["coreweave_node_pools"][0]["target_nodes"] == 4
    assert one("coreweave", 1)[0].data["coreweave_api_server"] is None


@pytest.mark.parametrize(
    ("index", "name", "state", "online", "expired", "reachable"),
    [
        (0, "spark-01", "running", True, False, True),
        (1, "spark-02", "offline", False, False, False),
        (2, "spark-03", "offline", True, True, False),
        (3, "spark-04", "offline", True, False, False),
        (4, "hello", "running", True, False, True),
        (5, "lab-h100-0-1f2e3d4c", "running", True, False, True),
        (6, "node", "running", True, False, True),
        (7, "node", "offline", False, False, False),
    ],
)
def test_tailnet_devices(index: int, name: str, state: str, online: bool, expired: bool, reachable: bool) -> None:
    host, record = one("tailscale", index)
    assert (host.name, record["state"]) == (name, state)
    found = [host.data[f"tailscale_{key}"] for key in ("online", "expired", "reachable")]
    assert found == [online, expired, reachable]
    assert record["ownership"] == ("rented" if index == 5 else "owned")


def test_tailnet_names_and_variables() -> None:
    host, record = one("tailscale", 0)
    assert host.dns == "spark-01.tail1234.ts.net" and record["network_types"] == ["mesh"]
    assert (
        host.data["tailscale_node_id"] == "n1CNTRL" == record["id"]
        and host.data["tailscale_client_version"] == "1.98.0"
    )
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-1.ts.net", "hostname": "GPU"}) == "GPU"
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-1.ts.net", "hostname": "gpu-1"}) == "gpu-1"
    assert tailscale.short_name({"nodeId": "7", "name": "renamed.ts.net", "hostname": "gpu"}) == "renamed"
    assert tailscale.short_name({"nodeId": "7", "name": "gpu-a1.ts.net", "hostname": "gpu"}) == "gpu-a1"
    assert tailscale.short_name({"nodeId": "7"}) == "7"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"lastSeen": "2026-11-21T09:55:00Z"}, True),
        ({"lastSeen": "2026-11-21T11:55:00+02:00"}, True),
        ({"lastSeen": "2026-11-21T09:00:00"}, False),
        ({"lastSeen": "0001-01-01T00:00:00Z"}, None),
        ({"lastSeen": "yesterday"}, None),
        ({}, None),
        ({"connectedToControl": False, "lastSeen": "2026-11-21T09:59:59Z"}, False),
    ],
)
def test_online_without_a_connection_flag(device: dict[str, t.Any], expected: bool | None) -> None:
    assert tailscale.is_online(device, NOW) is expected


def test_headscale_nodes() -> None:
    first, second = (to_device(from_v1(raw), "acc") for raw in listing("headscale_v1")["nodes"])
    assert (first.record["state"], first.data["tailscale_is_ephemeral"], first.dns) == ("running", True, None)
    assert (second.record["state"], second.data["tailscale_expired"], second.name) == ("offline", True, "old-renamed")


@pytest.mark.parametrize(
    ("value", "address"),
    [("10.0.0.1", "10.0.0.1"), (" fd7a::1 ", "fd7a::1"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.1/24", "10.0.0.1"),
     ("0.0.0.0", None), ("::", None), ("", None), (None, None), ("host.example.com", None), ("1.2.3", None), (5, None)],
)  # fmt: skip
def test_addresses(value: object, address: str | None) -> None:
    assert node_record.clean_address(value) == address
    assert node_record.clean_addresses([value, "10.9.9.9"]) == ((address, "10.9.9.9") if address else ("10.9.9.9",))


@given(json_values)
def test_readers_never_raise(value: t.Any) -> None:
    number, whole = parsing.number(value), parsing.whole(value)
    assert number is None or number >= 0
    assert whole is None or whole == number
    assert parsing.text(value) != ""
    for reader in (parsing.flag, parsing.as_mapping, parsing.texts, parsing.objects, parsing.moment, parsing.epoch):
        reader(value)


def test_numbers_as_text() -> None:
    assert (parsing.number("1.5"), parsing.whole("8"), parsing.whole(8.5), parsing.number(True)) == (1.5, 8, None, None)
    assert parsing.number("nan") is None and parsing.number(-1) is None and parsing.number(10**400) is None
