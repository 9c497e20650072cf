# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node records of all providers: the contract's fields, odd values, addresses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._providers import node_record
from ansible_collections.muster.training.tests.support.listings import CANARY
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import MAPPINGS, json_values


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


@pytest.mark.parametrize(
    ("value", "address"),
    [("10.0.0.1", "10.0.0.1"), (" fd7a::1 ", "fd7a::1"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.1/24", "10.0.0.1"),
     ("0.0.0.0", None), ("::", None), ("", None), (None, None), ("host.example.com", None), ("1.2.3", None), (5, None)],
)  # fmt: skip
def test_addresses(value: object, address: str | None) -> None:
    assert node_record.clean_address(value) == address
    assert node_record.clean_addresses([value, "10.9.9.9"]) == ((address, "10.9.9.9") if address else ("10.9.9.9",))
