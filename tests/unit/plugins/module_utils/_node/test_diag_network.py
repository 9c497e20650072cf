# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections, counters and NCCL's RAS as they are now."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import diag_network

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def hexed(ip: str, port: int) -> str:
    packed = ipaddress.ip_address(ip).packed
    words = [struct.unpack("=I", packed[i : i + 4])[0] for i in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


@given(st.ip_addresses(), st.integers(0, 65535))
def test_addresses(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    wanted = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped else ip
    assert diag_network.parse_endpoint(hexed(str(ip), port)) == (str(wanted), port)


def test_a_connection_that_is_not_acknowledged() -> None:
    line = (
        f"   0: {hexed('10.0.0.1', 5000)} {hexed('10.0.0.2', 6000)} 01 00015F90:00000010 01:00000E0B 00000005 0 0 4711"
    )
    assert diag_network.parse_tcp(HEAD + line) == {
        "4711": {
            "local": "10.0.0.1",
            "local_port": 5000,
            "peer": "10.0.0.2",
            "peer_port": 6000,
            "state": "established",
            "unsent_bytes": 90000,
            "unread_bytes": 16,
            "retransmits": 5,
        }
    }


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers(text: str) -> None:
    assert isinstance(diag_network.parse_tcp(HEAD + text), dict)
    assert isinstance(diag_network.parse_netdev("a\nb\n" + text), dict)
    found = diag_network.parse_retransmits("Tcp: RetransSegs\nTcp: " + text)
    assert found is None or found >= 0


def test_counters_of_this_machine_and_their_differences() -> None:
    before = diag_network.read_counters(None)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as link:
        link.sendall(bytes(30_000))
        mine = [item for item in diag_network.list_sockets(os.getpid()) if item["peer_port"] == server.getsockname()[1]]
        assert [item["state"] for item in mine] == ["established"] and mine[0]["local"] == "127.0.0.1"
        found = diag_network.subtract_counters(before, diag_network.read_counters(os.getpid()))
    assert found["netdev"]["lo"]["tx_bytes"] >= 30_000 and found["retransmits"] >= 0


def test_a_counter_that_was_reset_is_left_out() -> None:
    before: dict[str, t.Any] = {"netdev": {"eth0": (9, 9), "eth1": (1, 1)}, "rdma": {}, "retransmits": None}
    after: dict[str, t.Any] = {"netdev": {"eth0": (1, 9), "eth1": (4, 6), "new": (1, 1)}, "rdma": {}, "retransmits": 3}
    found = diag_network.subtract_counters(before, after)
    assert found == {"netdev": {"eth1": {"rx_bytes": 3, "tx_bytes": 5}}, "rdma": {}, "retransmits": None}


def answering(text: bytes, close: bool = True) -> tuple[socket.socket, str]:
    """Return a server that takes one question and answers it, and where it is."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        link = server.accept()[0]
        assert link.recv(100) == b"verbose status\n"
        link.sendall(text)
        if close:
            link.close()
        else:
            server.settimeout(5)

    threading.Thread(target=serve, daemon=True).start()
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def test_ras_is_asked_and_a_silent_one_is_not_waited_for() -> None:
    server, address = answering(b"NCCL version 2.28.9\nJob summary\n")
    assert diag_network.query_ras(address, 5) == {
        "address": address,
        "text": "NCCL version 2.28.9\nJob summary\n",
        "problem": None,
    }
    server.close()
    refused = diag_network.query_ras(address, 1)
    assert refused is not None and refused["text"] == "" and "refused" in refused["problem"]
    assert diag_network.query_ras(address, 0) is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = diag_network.query_ras(f"127.0.0.1:{silent.getsockname()[1]}", 0.1)
    assert found is not None and "timed out" in found["problem"]
    for bad in ("nothing", "host:port", ""):
        assert (diag_network.query_ras(bad, 0.1) or {})["problem"]
