# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is tried between nodes before islands are formed, and what answers and silence mean."""

from __future__ import annotations

import socket
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.island import PairPath
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._node import host_reachability
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import reachability
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands

Dict = dict[str, t.Any]


def node(name: str, number: int, **more: t.Any) -> Node:
    addresses = {
        "lan": [{"address": f"10.0.0.{number}", "interface": "eth0", "prefix": 24}],
        "mesh": [{"address": f"100.64.0.{number}", "interface": "tailscale0"}] if more.pop("mesh", False) else [],
    }
    return Node.from_dict({"name": name, "boot_id": name, "addresses": addresses, **more})


def answer(*ok: str, mesh: Dict | None = None) -> Dict:
    return {"answers": [{"address": address, "port": 22, "ok": True} for address in ok], "mesh": mesh or {}}


def judged(nodes: list[Node], answers: t.Mapping[str, Dict]) -> list[PairPath]:
    typed = {name: reachability.ReachAnswer.from_dict(value) for name, value in answers.items()}
    return reachability.read_paths(nodes, reachability.connection_targets(nodes, {}), typed)


def test_every_pair_is_tried_once_and_the_declared_address_first() -> None:
    nodes = [node("c", 3), node("a", 1), node("b", 2)]
    asked = reachability.connection_targets(nodes, {"b": "192.0.2.9"})
    assert {(a, b) for a, targets in asked.items() for b in targets} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert asked["a"]["b"] == [("192.0.2.9", 22), ("192.0.2.9", 29500), ("10.0.0.2", 22), ("10.0.0.2", 29500)]
    many = reachability.connection_targets([node(f"n{i:03d}", i) for i in range(100)], {})
    assert sum(len(targets) for targets in many.values()) == 99


def test_nodes_of_one_machine_and_loopback_are_not_tried() -> None:
    assert reachability.connection_targets([node("a", 1, boot_id="x"), node("b", 2, boot_id="x")], {}) == {}
    alone = Node.from_dict({"name": "b", "addresses": {"lan": [{"address": "127.0.0.2"}]}})
    assert reachability.connection_targets([node("a", 1), alone], {}) == {}


def test_an_address_that_both_nodes_have_is_not_tried() -> None:
    """A node answers there itself, and the two would be taken for one LAN."""
    bridge = {"address": "172.17.0.1", "interface": "docker0", "prefix": 16}
    pair = [
        Node.from_dict({"name": name, "addresses": {"lan": [bridge, {"address": f"10.0.{number}.1", "prefix": 24}]}})
        for number, name in enumerate("ab")
    ]
    assert reachability.connection_targets(pair, {}) == {"a": {"b": [("10.0.1.1", 22), ("10.0.1.1", 29500)]}}


def test_an_answer_confirms_a_lan_and_silence_denies_it() -> None:
    nodes = [node("a", 1), node("b", 2)]
    assert judged(nodes, {"a": answer("10.0.0.2")}) == [PairPath("a", "b", "lan")]
    assert judged(nodes, {"a": answer()}) == [PairPath("a", "b", "none")]
    # A node that could not be asked says nothing.
    assert judged(nodes, {}) == []
    strangers = find_islands(nodes, judged(nodes, {"a": answer()}))
    assert [item.nodes for item in strangers] == [("a",), ("b",)]
    together = find_islands(nodes, judged(nodes, {"a": answer("10.0.0.2")}))
    assert [item.nodes for item in together] == [("a", "b")] and not any(
        "from a probe" in r for r in together[0].reasons
    )


@pytest.mark.parametrize(
    ("mesh", "path"),
    [({"100.64.0.2": "direct"}, "mesh_direct"), ({"100.64.0.2": "relayed"}, "mesh_relayed"), ({}, "mesh_direct")],
)
def test_a_mesh_below_equal_private_ranges(mesh: Dict, path: str) -> None:
    nodes = [node("a", 1, mesh=True), node("b", 2, mesh=True)]
    found = judged(nodes, {"a": answer("100.64.0.2", mesh=mesh)})
    assert found == [PairPath("a", "b", t.cast(t.Any, path))]
    assert find_islands(nodes, found)[0].lane == ("E" if path == "mesh_relayed" else "D")


def test_what_facts_call_a_mesh_stays_one_without_an_answer() -> None:
    nodes = [node("a", 1, mesh=True, site="one"), node("b", 2, mesh=True, site="two")]
    assert judged(nodes, {"a": answer()}) == []


def test_real_answers_of_open_closed_and_silent_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        full = socket.socket()
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for item in fillers:
            item.setblocking(False)
            item.connect_ex(full.getsockname())
        targets = [server.getsockname(), closed.getsockname(), full.getsockname(), ("not-an-address", 1)]
        found = host_reachability.check_addresses(targets, 0.3)
        for item in (*fillers, full):
            item.close()
    assert [item["ok"] for item in found] == [True, True, False, False]
    assert found[0]["problem"] is None and found[2]["problem"] == "no answer" and found[3]["problem"]
    assert host_reachability.check_addresses([], 1.0) == [] and host_reachability.read_tailscale_paths([]) == {}
