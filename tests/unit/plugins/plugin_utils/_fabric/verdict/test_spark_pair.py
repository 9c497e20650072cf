# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The link between two Sparks, by recorded facts with one cable and with two, and what is broken in them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Address, Addresses, Node, Ssh
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict import spark_pair
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.spark_pair import find_pair_faults
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import fixture_node, gpu_node

LAYOUTS = ("dgx_spark", "dgx_spark_two_cables")
FIRST, SECOND = "enp1s0f1np1", "enP2p1s0f1np1"
Change = t.Callable[[Node], Node]


def pair(kind: str = "dgx_spark", **changes: Change) -> list[Node]:
    nodes = [fixture_node(kind, "a", 31), fixture_node(kind, "b", 32)]
    return [changes.get(node.name, lambda same: same)(node) for node in nodes]


def nic(name: str, **fields: t.Any) -> Change:
    """Change one RDMA device."""

    def change(node: Node) -> Node:
        nics = tuple(dataclasses.replace(item, **fields) if item.name == name else item for item in node.nics)
        assert nics != node.nics
        return dataclasses.replace(node, nics=nics)

    return change


def address(interface: str, *addresses: str) -> Change:
    """Give one interface other addresses."""

    def change(node: Node) -> Node:
        others = tuple(item for item in node.addresses.lan if item.interface != interface)
        own = tuple(Address(item, interface, 24) for item in addresses)
        return dataclasses.replace(node, addresses=dataclasses.replace(node.addresses, lan=(*others, *own)))

    return change


def all_of(*changes: Change) -> Change:
    def change(node: Node) -> Node:
        for one in changes:
            node = one(node)
        return node

    return change


def login(user: str | None) -> Change:
    return lambda node: dataclasses.replace(node, ssh=Ssh(user=user))


def found(nodes: list[Node], interfaces: dict[str, str | None] | None = None) -> list[tuple[str, str | None]]:
    return [(cause.code, cause.node) for cause in find_pair_faults(nodes, interfaces)]


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_link_as_it_should_be(kind: str) -> None:
    nodes = pair(kind)
    assert found(nodes, {"a": FIRST, "b": FIRST}) == []
    ports = spark_pair.find_ports(nodes[0])
    names = {number: [half.nic.name for half in halves] for number, halves in ports.items()}
    one = {"1": ["rocep1s0f1", "roceP2p1s0f1"]}
    assert names == (one if kind == "dgx_spark" else {"0": ["rocep1s0f0", "roceP2p1s0f0"], **one})


def test_one_spark_and_other_machines_have_no_such_link() -> None:
    broken = nic("roceP2p1s0f1", state="down")(fixture_node("dgx_spark", "a", 31))
    assert found([broken]) == [] == found([broken, gpu_node("g", 1)])


# By what is broken: on a, on b, and what is found with words of its evidence.
BROKEN: dict[str, tuple[dict[str, Change], list[tuple[str, str | None]], str]] = {
    "half without address": ({"a": address(SECOND)}, [("cx7_half", "a")], "roceP2p1s0f1 has no fixed address"),
    "half down": ({"b": nic("roceP2p1s0f1", state="down")}, [("cx7_half", "b")], "200 Gb/s and carries half of it"),
    "no address": (
        {"a": all_of(address(FIRST), address(SECOND))},
        [("cx7_no_address", "a")],
        "rocep1s0f1 and roceP2p1s0f1 have no fixed address (link-local ones are not counted)",
    ),
    "one subnet": (
        {
            "a": address(SECOND, "192.168.100.131"),
            "b": address(SECOND, "192.168.100.132"),
        },
        [("cx7_addresses", "a"), ("cx7_addresses", "b")],
        "both halves of port 1 (rocep1s0f1 and roceP2p1s0f1) are in 192.168.100.0/24",
    ),
    "halves crossed": (
        {"b": all_of(address(FIRST, "192.168.101.32"), address(SECOND, "192.168.100.32"))},
        [("cx7_addresses", "a"), ("cx7_addresses", "a")],
        "enp1s0f1np1 shares 192.168.100.0/24 with the other half, enP2p1s0f1np1 of b",
    ),
    "no counterpart": (
        {"b": address(SECOND, "192.168.77.32")},
        [("cx7_addresses", "a")],
        "enP2p1s0f1np1 is in 192.168.101.0/24, where b has no interface of its cable",
    ),
    "slot": ({"a": nic("roceP2p1s0f1", pci_width=2)}, [("cx7_degraded", "a")], "gen 5 x2 instead of gen 5 x4"),
    "link": ({"a": nic("rocep1s0f1", rate_gbps=100.0)}, [("cx7_degraded", "a")], "is up at 100 of 200 Gb/s"),
    "mtu": ({"b": nic("rocep1s0f1", mtu=1500)}, [("cx7_mtu", "b")], "enp1s0f1np1 has MTU 1500 instead of 9000"),
    "users": ({"a": login("nv"), "b": login("me")}, [("pair_users", None)], "the users differ: nv on a, me on b"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named_with_the_way_on(name: str) -> None:
    changes, wanted, words = BROKEN[name]
    nodes = pair(**changes)
    assert found(nodes) == wanted
    causes = find_pair_faults(nodes)
    assert words in causes[0].evidence
    assert all(cause.fix and "\n" not in cause.evidence + cause.fix for cause in causes)
    # The same, seen from the other machine first, is as many faults.
    assert len(find_pair_faults(nodes[::-1])) == len(wanted)


def move(node: Node) -> Node:
    """Plug the cable into the other port."""
    names = {"rocep1s0f1": "rocep1s0f0", "roceP2p1s0f1": "roceP2p1s0f0"}
    netdevs = {"enp1s0f1np1": "enp1s0f0np0", "enP2p1s0f1np1": "enP2p1s0f0np0"}
    nics = [
        dataclasses.replace(
            item, name=names[item.name], pci=(item.pci or "")[:-1] + "0", netdev=netdevs[item.netdev or ""]
        )
        for item in node.nics
        if item.name in names
    ]
    lan = tuple(
        dataclasses.replace(item, interface=netdevs.get(item.interface or "", item.interface))
        for item in node.addresses.lan
    )
    return dataclasses.replace(node, nics=tuple(nics), addresses=Addresses(lan=lan))


def test_swapped_ports() -> None:
    causes = find_pair_faults(pair(b=move))
    assert [cause.code for cause in causes] == ["cx7_addresses"] * 2
    assert "enp1s0f1np1 shares 192.168.100.0/24 with enp1s0f0np0 of b: the cable joins swapped ports" in (
        causes[0].evidence
    )
    assert find_pair_faults([move(node) for node in pair()]) == ()


def test_more_than_two_meet_over_a_switch() -> None:
    nodes = [*pair(b=move), fixture_node("dgx_spark", "c", 33)]
    assert found(nodes) == []


def test_users_that_nobody_named_are_not_compared() -> None:
    assert found(pair(a=login("nv"), b=login(None))) == []


@pytest.mark.parametrize(("interface", "is_wifi"), [("wlP9s9", True), ("wlan0", True), (FIRST, False), (None, False)])
def test_ranks_that_meet_over_wifi(interface: str | None, is_wifi: bool) -> None:
    assert found(pair(), {"a": interface}) == ([("bootstrap_on_wifi", "a")] if is_wifi else [])


@pytest.mark.parametrize(
    ("gbps", "code"),
    [
        (13, "cx7_degraded"),
        (24, "cx7_degraded"),
        (98, "cx7_half"),
        (92.6, "cx7_half"),
        (50, None),
        (150, None),
        (190, None),
    ],
)
def test_a_rate_names_its_cause(gbps: float, code: str | None) -> None:
    cause = spark_pair.find_rate_cause(gbps / 8, 1 << 30)
    assert (cause.code if cause else None) == code
    assert cause is None or f"shows 200 Gb/s and carries {gbps:.0f}" in cause.evidence
    assert spark_pair.find_rate_cause(gbps / 8, 1 << 20) is None
    assert spark_pair.find_rate_cause(None, 1 << 30) is None
