# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node records, islands and expectations survive JSON, and say what they cannot read."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.expectation import Expectation, ExpectationRow
from ansible_collections.muster.training.plugins.module_utils._model.island import Island, IslandOverride, PairPath
from ansible_collections.muster.training.plugins.module_utils._model.node import Node

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "nics", "addresses", "gpu", "state", "ssh", "k3s", "network_types", "driver", "x"])
READERS: list[t.Callable[[t.Any], t.Any]] = [
    Node.from_dict,
    Island.from_dict,
    IslandOverride.from_dict,
    PairPath.from_dict,
    Expectation.from_dict,
    ExpectationRow.from_dict,
]


@pytest.mark.parametrize("read", READERS)
@given(value=JSON | st.dictionaries(KEYS, JSON, max_size=4))
def test_any_value_is_read_or_refused_in_one_line(read: t.Callable[[t.Any], t.Any], value: t.Any) -> None:
    try:
        read(value)
    except InputError as error:
        assert "\n" not in str(error)


@given(
    st.text("abc-", min_size=1),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
    st.none() | st.floats(0, 1e4),
    st.sampled_from("ABCDE"),
)
def test_islands_round_trip(name: str, nodes: list[str], rate: float | None, lane: t.Any) -> None:
    island = Island(name, tuple(nodes), lane, "ethernet", 1, rate, None, ("why",))
    assert Island.from_dict(json.loads(json.dumps(island.to_dict()))) == island


def test_island_has_the_contract_s_names() -> None:
    assert list(Island("x", ("a",), "A", "ib").to_dict()) == [
        "name",
        "nodes",
        "lane",
        "link",
        "nic_count",
        "nic_rate_gbps",
        "expected_busbw_gb_s",
        "reasons",
    ]


def test_node_record_has_the_contract_s_names() -> None:
    record = Node.from_dict({"name": "a"}).to_dict()
    wanted = (
        "id name ownership provider account product kind state region site preemptible ssh addresses network_types "
        "gpu cpu memory_gib price_usd_per_hour owner created_at fabric_hint k3s nics driver kernel limits "
        "clock_skew_s mesh_path"
    )
    assert set(wanted.split()) <= set(record)
    assert set(record["nics"]) == set() and set(record["owner"]) == {"cluster", "pool", "token"}
    assert record["state"] == "unknown" and record["gpu"]["count"] is None


def test_addresses_as_people_write_them() -> None:
    node = Node.from_dict(
        {
            "name": "a",
            "addresses": {"lan": "10.0.0.1", "mesh": ["100.64.0.1"], "public": [{"address": "1.1.1.1", "prefix": 24}]},
        }
    )
    assert node.addresses.lan[0].address == "10.0.0.1"
    assert node.addresses.mesh[0].address == "100.64.0.1"
    assert node.addresses.public[0].prefix == 24


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({}, "muster_node.name"),
        ({"name": "a", "state": "happy"}, "muster_node.state"),
        ({"name": "a", "nics": [{"name": "n", "link_layer": "token ring"}]}, "muster_node.nics[0].link_layer"),
        ({"name": "a", "addresses": {"lan": [{"prefix": 8}]}}, "muster_node.addresses.lan[0].address"),
        ({"name": "a", "ssh": {"port": 70000}}, "muster_node.ssh.port"),
    ],
)
def test_what_cannot_be_read_is_named(value: t.Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        Node.from_dict(value)
    assert caught.value.option == path


def test_unknown_facts_are_left_out_but_a_misspelt_override_is_refused() -> None:
    assert Node.from_dict({"name": "a", "tomorrow": 1, "gpu": {"colour": "red"}}).name == "a"
    with pytest.raises(InputError, match="lane"):
        IslandOverride.from_dict({"nodes": ["a"], "lan": "A"})
    with pytest.raises(InputError, match="nic_count"):
        ExpectationRow.from_dict({"busbw_gb_s": 1, "source": "me", "nics_count": 8})


@pytest.mark.parametrize(
    ("lane", "link", "rate", "slow"),
    [("A", "ib", 400, False), ("C", "ethernet", 1, True), ("C", "ethernet", None, False), ("D", "mesh", None, True)],
)
def test_slow_islands(lane: t.Any, link: t.Any, rate: float | None, slow: bool) -> None:
    assert Island("x", ("a", "b"), lane, link, 1, rate).slow is slow
