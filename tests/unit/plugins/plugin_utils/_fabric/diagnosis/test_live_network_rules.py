# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sockets and interfaces of a running job's ranks say, one rule at a time."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.diagnosis.test_live_rules import (
    HUNG,
    MOVES,
    Dict,
    codes,
    end,
    judged,
    look,
    rank,
)


def test_a_connection_that_is_not_made_needs_a_second_try() -> None:
    for tries, expected in ((0, []), (1, [("socket_connect_timeout", "a")])):
        asking = rank(0, sockets=[end(state="syn_sent", retransmits=tries)])
        found = judged(look("a", asking), look("b", rank(1)))
        assert codes(found) == expected
    assert "10.0.0.2:6000 (b)" in found.causes[0].evidence


@pytest.mark.parametrize(("mtu", "reasons"), [(1500, []), (1280, [("mtu_black_hole", "a")])])
def test_what_is_not_acknowledged(mtu: int, reasons: list[tuple[str, str]]) -> None:
    item = end(unsent_bytes=90_000, retransmits=5)
    facts = {"interfaces": [{"name": "eth0", "mtu": mtu}]}
    found = judged(look("a", rank(0, sockets=[item]), steps=HUNG), look("b", rank(1), facts=facts))
    assert codes(found) == [*reasons, ("path_lost", "a")]
    assert "10.0.0.2:6000 (b) did not acknowledge 90000 bytes that rank 0 sent 5 times" in found.causes[-1].evidence


def test_a_few_retransmissions_are_no_cause() -> None:
    item = end(unsent_bytes=90_000, retransmits=2)
    assert codes(judged(look("a", rank(0, sockets=[item]), steps=HUNG), look("b", rank(1)))) == [("stalled", None)]


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("NCCL_SOCKET_IFNAME", "=eth7", True),
        ("GLOO_SOCKET_IFNAME", "eth7", True),
        ("NCCL_SOCKET_IFNAME", "=eth0", False),
        ("NCCL_SOCKET_IFNAME", "eth", False),
        ("NCCL_SOCKET_IFNAME", "^docker", False),
    ],
)
def test_a_variable_that_names_no_interface(name: str, value: str, wrong: bool) -> None:
    told = {"names": [name], "network": {name: value}}
    found = judged(look("a", rank(0, environment=told), steps=HUNG), look("b", rank(1)))
    assert (("wrong_interface", "a") in codes(found) + [(i.code, i.node) for i in found.also]) is wrong


def test_ranks_that_meet_on_a_container_s_interface() -> None:
    facts = {"addresses": {"lan": [{"address": "172.17.0.2", "interface": "docker0"}]}}
    found = judged(look("a", rank(0, sockets=[end(local="172.17.0.2")]), facts=facts), look("b", rank(1)))
    assert codes(found) == [("wrong_interface", "a")]


def test_tcp_beside_rdma_ports_that_do_not_count() -> None:
    moved: Dict = {"rx_bytes": 0, "tx_bytes": 64 << 20}
    still: Dict = {"rx_bytes": 0, "tx_bytes": 100}
    for rdma, expected in ((still, [("silent_tcp", "a")]), (moved, [])):
        counted = {"netdev": {"eth0": moved}, "rdma": {"mlx5_0/1": rdma}, "retransmits": 0}
        found = judged(look("a", rank(0, nccl=True), steps=MOVES, counters=counted), look("b", rank(1, nccl=True)))
        assert codes(found) == expected and found.outcome == ("warn" if expected else "pass")


def test_a_relay_counts_where_ranks_use_the_mesh() -> None:
    facts = {"mesh_path": "relayed", "addresses": {"mesh": [{"address": "100.64.0.1", "interface": "tailscale0"}]}}
    for local, expected in (("100.64.0.1", True), ("10.0.0.1", False)):
        told = {"names": [], "network": {"NCCL_SOCKET_IFNAME": "=tailscale0"}}
        one = rank(0, sockets=[end(local=local)], environment=told)
        found = judged(look("a", one, facts=facts, steps=MOVES), look("b", rank(1)))
        assert (("relayed_path", "a") in codes(found)) is expected
