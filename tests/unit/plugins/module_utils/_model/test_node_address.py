# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one rule by which the address of a node is chosen."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import node_address
from ansible_collections.muster.training.plugins.module_utils._model.node import Node


def node(**addresses: object) -> Node:
    return Node.from_dict({"name": "n", "addresses": addresses})


def own(address: str) -> dict[str, object]:
    return {"address": address, "interface": "eth0", "prefix": 24}


@pytest.mark.parametrize(
    ("addresses", "wanted", "chosen"),
    [
        ({}, (), None),
        ({"lan": "10.0.0.1", "mesh": "100.64.0.1", "public": "192.0.2.1"}, (), "10.0.0.1"),
        ({"mesh": "100.64.0.1", "public": "192.0.2.1"}, (), "100.64.0.1"),
        ({"lan": "10.0.0.1", "mesh": "100.64.0.1"}, ("mesh",), "100.64.0.1"),
        ({"lan": "10.0.0.1"}, ("mesh", "public"), None),
        ({"mesh": "100.64.0.1", "public": "192.0.2.1"}, ("public", "mesh"), "192.0.2.1"),
        # On an interface before stated only, whatever the network.
        ({"lan": ["10.0.0.1"], "mesh": [own("100.64.0.1")]}, (), "100.64.0.1"),
        ({"lan": ["10.0.0.1", own("10.0.0.2")]}, (), "10.0.0.2"),
        ({"lan": [own("fd00::1"), own("10.0.0.1")]}, (), "10.0.0.1"),
        ({"lan": [own("fe80::1"), own("169.254.1.1")], "public": "0.0.0.0"}, (), None),
        ({"lan": "gpu-1.example.com"}, (), "gpu-1.example.com"),
    ],
)
def test_the_order(addresses: dict[str, object], wanted: tuple[str, ...], chosen: str | None) -> None:
    found = node_address.choose_address(node(**addresses), wanted)
    assert (found and found.address) == chosen


def test_an_excluded_address_is_not_chosen() -> None:
    both = node(lan="172.17.0.2", mesh="100.64.0.1")
    found = node_address.choose_address(both, (), {"172.17.0.2"})
    assert found and found.address == "100.64.0.1"


def test_shared_addresses_are_those_of_several_nodes() -> None:
    fleet = [node(lan=["172.17.0.2", "10.0.0.1"], mesh="172.17.0.2"), node(lan=["172.17.0.2", "10.0.0.2"])]
    assert node_address.find_shared_addresses(fleet) == {"172.17.0.2"}


@pytest.mark.parametrize(
    ("address", "expected"), [("127.0.0.9", True), ("::1", True), ("localhost", True), ("n", False)]
)
def test_loopback(address: str, expected: bool) -> None:
    assert node_address.is_loopback(address) is expected
