# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that do not answer: whose they are, and that nobody passes without them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.island import Island, IslandOverride
from ansible_collections.muster.training.plugins.module_utils._model.node import Address, Addresses, Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import unreachable as rules
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.unreachable import AbsentNode
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.verdict import judge_island
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.fleets import node
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.verdict.test_verdict import GOOD

ONE = Island("one", ("a", "b"), "C", "ethernet")
TWO = Island("two", ("c",), "C", "loopback")
HERE = (node("a", 1), node("b", 2), dataclasses.replace(node("c", 3), addresses=Addresses(lan=())))


def gone(name: str, **facts: t.Any) -> AbsentNode:
    return AbsentNode(Node(name, **facts), f"{name}: connect to host {name} port 22: Connection refused", "Look at it")


def test_a_declared_island_goes_on_without_the_node_and_an_empty_one_is_none() -> None:
    declared = [IslandOverride(("a", "x"), "one"), IslandOverride(("x", "y"), "two"), IslandOverride(())]
    kept = rules.without_absent_nodes(declared, [gone("x"), gone("y")])
    # The empty declaration stays: it is a mistake that islands() names.
    assert [(item.name, item.nodes) for item in kept] == [("one", ("a",)), (None, ())]
    assert rules.without_absent_nodes(declared, []) == declared


def test_a_node_belongs_where_it_was_declared() -> None:
    declared = [IslandOverride(("a", "b", "x"), "one")]
    before = [["c", "x"]]
    assert rules.assign_absent_nodes([gone("x")], [ONE, TWO], declared, before, HERE) == {"one": [gone("x")]}


def test_else_where_the_last_verdict_had_it() -> None:
    assert rules.assign_absent_nodes([gone("x")], [ONE, TWO], [], [["c", "x"]], HERE) == {"two": [gone("x")]}
    # Its old island is gone with all of its nodes: nothing says where it belongs now.
    assert rules.assign_absent_nodes([gone("x")], [ONE, TWO], [], [["q", "x"]], HERE) == {}


def test_else_where_its_address_lies() -> None:
    near = gone("x", addresses=Addresses(lan=(Address("10.0.0.9", "eth0", 24),)))
    far = gone("y", addresses=Addresses(lan=(Address("10.9.0.9", "eth0", 24),)))
    assert rules.assign_absent_nodes([near, far, gone("z")], [ONE, TWO], [], [], HERE) == {"one": [near]}


def test_an_island_without_one_of_its_nodes_warns_and_names_it() -> None:
    found = judge_island(dataclasses.replace(GOOD, absent=(gone("x"),)))
    assert (found.outcome, found.checks.attendance, found.checks.transport) == ("warn", "warn", "pass")
    assert found.reasons == ("attendance: no answer from x",)
    assert [(cause.code, cause.node) for cause in found.causes] == [("host_unreachable", "x")]
    assert "port 22" in found.causes[0].evidence and found.causes[0].fix == "Look at it"


def test_a_node_that_is_left_alone_proves_nothing_about_the_network() -> None:
    alone = dataclasses.replace(GOOD, nodes=("a",), absent=(gone("x"),))
    found = judge_island(alone)
    assert found.outcome == "unproven" and found.checks.attendance == "unproven"
    assert any("one node alone cannot test the network" in reason for reason in found.reasons)


def test_a_slow_network_without_a_node_still_fails_for_its_own_reason() -> None:
    over_tcp = dataclasses.replace(GOOD.transport, verdict="tcp")
    found = judge_island(dataclasses.replace(GOOD, transport=over_tcp, absent=(gone("x"),)))
    assert found.outcome == "fail" and [cause.code for cause in found.causes] == ["host_unreachable", "silent_tcp"]


@pytest.mark.parametrize(("count", "shown"), [(1, "from n0"), (8, ", n7"), (10, ", n7 and 2 more")])
def test_many_absent_nodes_are_counted(count: int, shown: str) -> None:
    _, text = rules.judge_attendance([gone(f"n{number}") for number in range(count)], 5)
    assert text.endswith(shown)


def test_a_node_near_to_a_part_of_an_island_is_placed_nowhere() -> None:
    apart = (*HERE, node("q", 4, addresses=Addresses(lan=(Address("10.9.0.4", "eth0", 24),))))
    mixed = Island("mixed", ("a", "q"), "D", "mesh")
    near = gone("x", addresses=Addresses(lan=(Address("10.0.0.9", "eth0", 24),)))
    assert rules.assign_absent_nodes([near], [mixed], [], [], apart) == {}
