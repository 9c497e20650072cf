# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, link speed and paths between two nodes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.island import PairPath
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import links


def node(name: str, address: str | None = None, prefix: int | None = 24, **facts: t.Any) -> Node:
    lan = [{"address": address, "interface": "eth0", "prefix": prefix}] if address else []
    addresses = {"lan": lan, **facts.pop("addresses", {})}
    return Node.from_dict({"name": name, "boot_id": name, "addresses": addresses, **facts})


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (("10.0.0.1", 24), ("10.0.0.2", 24), True),
        (("10.0.0.1", 24), ("10.0.1.2", 24), False),
        # One side without a prefix is enough when the other's network holds it.
        (("10.0.0.1", 24), ("10.0.0.2", None), True),
        (("10.0.0.1", None), ("10.0.0.2", None), False),
    ],
)
def test_nodes_of_one_network(first: tuple[str, int | None], second: tuple[str, int | None], together: bool) -> None:
    a, b = (links.LanAddresses.of(node("x", *end)) for end in (first, second))
    assert a.shares(b) is together and b.shares(a) is together


def test_an_address_that_is_not_valid_is_left_out() -> None:
    assert links.LanAddresses.of(node("a", "not-an-address")) == links.LanAddresses(frozenset(), frozenset())


def test_the_inventory_separates_nodes_and_a_fabric_hint_decides() -> None:
    assert links.separating_field(node("a", site="one"), node("b", site="two")) == "site"
    assert links.separating_field(node("a", site="one"), node("b")) is None
    same = {"fabric_hint": "pod-1"}
    assert links.separating_field(node("a", site="one", **same), node("b", site="two", **same)) is None
    assert links.shares_declared_lan(node("a", **same), node("b", **same))
    assert not links.shares_declared_lan(node("a", site="one"), node("b", site="one"))


def test_the_link_speed_is_that_of_the_interface_with_the_lan_address() -> None:
    interfaces = [{"name": "eth0", "speed_gbps": 10}, {"name": "eth1", "speed_gbps": 100}]
    assert links.lan_rate_gbps(node("a", "10.0.0.1", interfaces=interfaces)) == 10
    nics = [{"name": "e", "link_layer": "ethernet", "rate_gbps": 25, "state": "active"}]
    assert links.lan_rate_gbps(node("a", nics=nics)) == 25 and links.lan_rate_gbps(node("a")) is None


def test_paths_follow_from_facts_and_a_probe_overrides_them() -> None:
    mesh = {"mesh": [{"address": "100.64.0.1"}]}
    nodes = {
        "a": node("a", "10.0.0.1", addresses=mesh),
        "b": node("b", "10.0.0.2"),
        "c": node("c", addresses=mesh),
        "d": node("d", addresses=mesh, mesh_path="relayed"),
    }
    paths = links.Paths(nodes, [])
    assert [paths.path("a", other) for other in "bcd"] == ["lan", "mesh_direct", "mesh_relayed"]
    assert paths.path("b", "c") == "none" and not paths.has_probe("a", "b") and paths.rate("a", "b") is None
    probed = links.Paths(nodes, [PairPath("b", "a", "none")])
    assert probed.path("a", "b") == "none" and probed.has_probe("a", "b")
    assert paths.within("lan", "mesh_direct")("a", "c") and not paths.within("lan")("a", "c")
