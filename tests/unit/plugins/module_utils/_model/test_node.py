# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node record as values."""

from __future__ import annotations

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
