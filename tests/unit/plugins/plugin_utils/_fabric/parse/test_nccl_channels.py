# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Channel lines of all generations of NCCL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_channels import (
    Channel,
    Via,
    network_class,
    parse_channel,
    parse_collnet,
    parse_via,
)

NAMES = ("IB", "IBext", "IBext_v8", "IBext_v10", "Socket", "FastSocket", "AWS Libfabric", "Libfabric", "gIB", "ODL_TB5")


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"15 -> 0 [send] via NET/Socket/0", Channel(15, 0, "send", Via("net", "Socket"), False)),
        (b"10[2] -> 14[6] via P2P/IPC", Channel(10, 14, None, Via("p2p", "IPC"), False)),
        (b"0[1b000] -> 7[41000] via direct shared memory", Channel(0, 7, None, Via("shm", "SHM"), False)),
        (
            b"9[101d0] -> 0[101c0] [receive] via NET/AWS Libfabric/0",
            Channel(9, 0, "receive", Via("net", "AWS Libfabric"), False),
        ),
        (b"0[0] -> 8[0] [send] via NET/IB/3(5)/GDRDMA", Channel(0, 8, "send", Via("net", "IB", True, 5), True)),
        (b"0[0] -> 8[0] [send] via NET/IB/3/GDRDMA(PCI)/Shared", Channel(0, 8, "send", Via("net", "IB", True), True)),
        (b"0[0] -> 8[0] [receive] via NET/IB/3/Shared", Channel(0, 8, "receive", Via("net", "IB"), True)),
        (b"4[0] -> 3[3] via P2P/MNNVL/read", Channel(4, 3, None, Via("p2p", "MNNVL"), False)),
        (b"1[1] -> 0[0] via SHM/direct/direct", Channel(1, 0, None, Via("shm", "SHM"), False)),
        (b"1[c1000] -> 0[c000] via P2P/IPC comm 0x55 nRanks 08", Channel(1, 0, None, Via("p2p", "IPC"), False)),
        (b"0[0] -> 1[1] via P2P/indirect/3[3]", Channel(0, 1, None, Via("p2p", "indirect"), False)),
        (b"0[0] -> 1[1] via P2P/direct pointer", Channel(0, 1, None, Via("p2p", "direct"), False)),
    ],
)
def test_lines_of_every_generation(tail: bytes, expected: Channel) -> None:
    assert parse_channel(tail) == expected


@given(
    st.integers(0, 100_000),
    st.integers(0, 100_000),
    st.sampled_from(["", "[{:d}]", "[{:x}000]"]),
    st.sampled_from(["send", "receive"]),
    st.sampled_from(NAMES),
    st.integers(0, 64),
    st.sampled_from(["", "(7)"]),
    st.sampled_from(["", "/GDRDMA", "/GDRDMA(PCI)"]),
    st.sampled_from(["", "/Shared"]),
)
def test_network_lines(
    a: int, b: int, device: str, way: str, name: str, dev: int, proxy: str, gdr: str, shared: str
) -> None:
    first, second = device.format(a % 8), device.format(b % 8)
    line = f"{a}{first} -> {b}{second} [{way}] via NET/{name}/{dev}{proxy}{gdr}{shared}"
    found = parse_channel(line.encode())
    assert found and (found.a, found.b, found.direction) == (a, b, way)
    assert found.via == Via("net", name, bool(gdr), 7 if proxy else None)
    assert found.printed_by == (a if way == "send" else b)
    assert found.same_device == (bool(device) and a % 8 == b % 8)


@pytest.mark.parametrize(
    "tail", [b"   0   1   2   3", b"", b"0 -> via NET/IB/0", b"0[0] -> 1[1] via ", b"x -> y via NET/IB/0"]
)
def test_other_lines_are_no_channels(tail: bytes) -> None:
    assert parse_channel(tail) is None


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parsers(raw: bytes) -> None:
    parse_channel(raw)
    parse_channel(b"0[0] -> 1[1] via " + raw)
    parse_collnet(raw)
    assert parse_via(raw).kind in ("net", "p2p", "shm", "other")


def test_in_network_reduction_names_a_network() -> None:
    for prefix in (b"0 [send]", b"0 [receive]"):
        assert parse_collnet(prefix + b" via COLLNET/SHARP/0/GDRDMA") == Via("collnet", "SHARP", True)
    assert parse_collnet(b"0 [send] via NET/IB/0") is None


def test_what_moves_the_data() -> None:
    rdma = ("IB", "IBext", "IBext_v6", "IBext_v10", "AWS Libfabric", "Libfabric", "gIB", "UCX", "RoCE-x")
    assert {network_class(name) for name in rdma} == {"rdma"}
    tcp = ("Socket", "FastSocket", "GPUDirectTCPX_v7", "FasTrak")
    assert {network_class(name) for name in tcp} == {"tcp"}
    assert {network_class(name) for name in ("ODL_TB5", "AcmeNet", "")} == {"unknown"}
