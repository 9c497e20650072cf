# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transport from sockets and from counters."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.transport_counters import (
    needed_bytes,
    read_counters,
    read_sockets,
)

SIZE, ITERATIONS = 32 << 20, 10
MOVED = SIZE * ITERATIONS


def bench(evidence: list[dict[str, t.Any]], backend: str = "gloo", collective: str = "all_reduce") -> BenchResult:
    row = {
        "size_bytes": SIZE,
        "iterations": ITERATIONS,
        "time_us": 1.0,
        "algbw_gb_s": 1.0,
        "busbw_gb_s": 1.0,
        "wrong_values": 0,
    }
    nodes = len({item["node"] for item in evidence})
    return BenchResult.from_dict(
        {
            "schema": 1,
            "collective": collective,
            "backend": backend,
            "ranks": len(evidence),
            "nodes": nodes,
            "results": [row],
            "evidence": evidence,
        }
    )


def rank(
    number: int,
    total: int = 2,
    interface: str | None = "eth0",
    moved: int = MOVED,
    carried: int | None = None,
    node: str | None = None,
) -> dict[str, t.Any]:
    sockets = []
    for other in range(total):
        if other != number:
            end: dict[str, t.Any] = {
                "local": f"10.0.0.{number + 1}:4000{other}",
                "peer": f"10.0.0.{other + 1}:4000{number}",
                "interface": interface,
                "peer_rank": other,
            }
            if carried is not None:
                end |= {"tx_bytes": [0, carried], "rx_bytes": [0, carried]}
            sockets.append(end)
    counters = {"rx_bytes": [1000, 1000 + moved], "tx_bytes": [5, 5 + moved]}
    netdev = {interface: counters} if interface else {}
    return {
        "rank": number,
        "host": "h",
        "node": node or f"node-{number + 1}",
        "sockets": sockets,
        "netdev": netdev,
        "rdma": {},
    }


def test_what_must_cross_a_nic() -> None:
    assert needed_bytes(bench([rank(0), rank(1)]), 2) == MOVED // 2
    assert needed_bytes(bench([rank(0), rank(1)], collective="all_gather"), 2) == MOVED // 4
    assert needed_bytes(bench([rank(0)]), 1) == 0


def test_sockets_and_counters_prove_tcp() -> None:
    seen = read_sockets(bench([rank(0), rank(1)]), "tcp", {"node-1": "eth0", "node-2": "eth0"})
    assert (seen.transport.verdict, seen.transport.evidence_kind) == ("tcp", "socket_peers_and_netdev_counters")
    assert {(pair.a, pair.b, pair.via) for pair in seen.transport.pairs} == {
        ("node-1", "node-2", "eth0"),
        ("node-2", "node-1", "eth0"),
    }
    assert (seen.causes, seen.reasons) == ((), ())
    assert str(MOVED) in seen.transport.pairs[0].evidence


def test_a_counter_that_stood_still_proves_nothing() -> None:
    seen = read_sockets(bench([rank(0, moved=1000), rank(1, moved=1000)]))
    assert seen.transport.verdict == "unproven" and "eth0 carried 1000 bytes" in seen.reasons[0]


def test_a_counter_that_was_reset_proves_nothing() -> None:
    evidence = [rank(0), rank(1)]
    for item in evidence:
        item["netdev"]["eth0"]["tx_bytes"] = [10 * MOVED, 17]
    assert read_sockets(bench(evidence)).transport.verdict == "unproven"


def test_no_socket_proves_nothing() -> None:
    evidence = [rank(0), rank(1)]
    for item in evidence:
        item["sockets"] = []
    seen = read_sockets(bench(evidence))
    assert seen.transport.verdict == "unproven" and seen.reasons


@pytest.mark.parametrize("change", [{"interface": None}, {"peer_rank": None}])
def test_a_socket_of_which_something_is_unknown_proves_nothing(change: dict[str, None]) -> None:
    evidence = [rank(0), rank(1)]
    for item in evidence:
        item["sockets"][0] |= change
    assert read_sockets(bench(evidence)).transport.pairs == ()


def test_a_counter_that_was_not_read_proves_nothing() -> None:
    evidence = [rank(0), rank(1)]
    for item in evidence:
        item["netdev"] = {}
    assert read_sockets(bench(evidence)).transport.verdict == "unproven"


def test_traffic_on_another_interface_is_the_cause() -> None:
    seen = read_sockets(bench([rank(0), rank(1, interface="eth1")]), "tcp", {"node-1": "eth0", "node-2": "eth0"})
    (cause,) = seen.causes
    assert (cause.code, cause.node) == ("wrong_interface", "node-2") and "eth1" in cause.evidence


def test_a_connection_that_carried_nothing_is_no_proof() -> None:
    assert read_sockets(bench([rank(0, carried=100), rank(1, carried=100)])).transport.pairs == ()
    assert len(read_sockets(bench([rank(0, carried=MOVED), rank(1, carried=MOVED)])).transport.pairs) == 2


def test_ranks_of_one_node_are_no_pair() -> None:
    seen = read_sockets(bench([rank(0, node="a"), rank(1, node="a")]))
    assert seen.transport.verdict == "unproven"


def nccl(node: str, number: int, rdma: int, ethernet: int) -> dict[str, t.Any]:
    def counters(value: int) -> dict[str, list[int]]:
        return {"rx_bytes": [0, value], "tx_bytes": [0, value]}

    devices = {"eth0": counters(ethernet), "lo": counters(10 * MOVED)}
    return {
        "rank": number,
        "host": node,
        "node": node,
        "sockets": [],
        "netdev": devices,
        "rdma": {"mlx5_0/1": counters(rdma)},
    }


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ((MOVED, 1000), (MOVED, 1000), "rdma_no_gdr"),
        ((1000, MOVED), (1000, MOVED), "tcp"),
        ((MOVED, 1000), (1000, MOVED), "mixed"),
        ((MOVED, MOVED), (MOVED, 0), "mixed"),
        ((0, 0), (0, 0), "unproven"),
        ((MOVED, 0), (0, 0), "unproven"),
    ],
)
def test_counters(first: tuple[int, int], second: tuple[int, int], verdict: str) -> None:
    seen = read_counters(bench([nccl("a", 0, *first), nccl("b", 1, *second)], "nccl"), "rdma_gdr")
    assert seen.transport.verdict == verdict and seen.transport.evidence_kind == "rdma_counters"
    assert bool(seen.transport.pairs) == (verdict != "unproven")
    if verdict == "rdma_no_gdr":
        assert {(pair.a, pair.b, pair.gdr) for pair in seen.transport.pairs} == {("a", "b", None), ("b", "a", None)}


def test_counters_of_many_nodes_name_all_others() -> None:
    seen = read_counters(bench([nccl(name, index, 2 * MOVED, 0) for index, name in enumerate("abc")], "nccl"))
    assert {pair.b for pair in seen.transport.pairs} == {"all others"}


def test_counters_of_one_node_prove_nothing() -> None:
    assert read_counters(bench([nccl("a", 0, MOVED, 0)], "nccl")).transport.verdict == "unproven"
