# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a log proves about the transport: the rules, and the lines that have misled others."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.scan import scan_log
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse import nccl_state
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.transport import (
    build_transport,
    read_transport,
)
from ansible_collections.muster.training.tests.support.nccl_text import (
    HEADER,
    PREFIXES,
    codes,
    info,
    judged,
    prefixed,
    rank_line,
    ring,
    row,
    warn,
)

RDMA = ("IB", "IBext", "IBext_v8", "IBext_v10", "AWS Libfabric", "Libfabric", "gIB")
TCP = ("Socket", "FastSocket", "GPUDirectTCPX_v7", "FasTrak")
FORMATS = ("Ring 00 : ", "Channel 00 : ", "Channel 07/0 : ", "Channel 31/1 : ")


@pytest.mark.parametrize("prefix", FORMATS)
@pytest.mark.parametrize("name", RDMA)
def test_rdma_with_gpudirect_on_every_channel(name: str, prefix: str) -> None:
    found = judged(*ring(f"NET/{name}/0/GDRDMA", prefix=prefix))
    assert (found.transport, found.transport_verdict, found.gdr) == (name, "rdma_gdr", "yes")
    assert found.outcome == "unproven" and found.nodes == ("node-1", "node-2")


@pytest.mark.parametrize("name", RDMA)
def test_rdma_without_gpudirect(name: str) -> None:
    found = judged(*ring(f"NET/{name}/0"))
    assert (found.transport, found.transport_verdict, found.gdr) == (name, "rdma_no_gdr", "no")


@pytest.mark.parametrize("name", TCP)
def test_tcp(name: str) -> None:
    found = judged(*ring(f"NET/{name}/0"))
    assert (found.transport, found.transport_verdict, found.gdr) == (name, "tcp", "no")


@pytest.mark.parametrize("style", PREFIXES)
def test_prefixes_change_nothing(style: str) -> None:
    lines = [prefixed(style, line, 1) for line in ring("NET/IB/0/GDRDMA")]
    assert judged(*lines).transport_verdict == "rdma_gdr"


@given(st.permutations([prefixed("mpirun", line) for line in ring("NET/IB/0/GDRDMA", 3, 1)]))
def test_the_order_of_lines_changes_nothing(lines: list[str]) -> None:
    assert judged(*lines).transport_verdict == "rdma_gdr"


def test_some_channels_without_gpudirect() -> None:
    # Receiving with and sending without is how PCIe GPUs are by default.
    lines = [line if "[send]" not in line else line.replace("/GDRDMA", "") for line in ring("NET/IB/0/GDRDMA")]
    found = judged(*lines)
    assert (found.transport_verdict, found.gdr, codes(found)) == ("rdma_no_gdr", "yes", [])


def test_gpudirect_that_one_node_lacks_is_named() -> None:
    lines = [line.replace("/GDRDMA", "") if "node-2" in line else line for line in ring("NET/IB/0/GDRDMA", 3)]
    found = judged(*lines)
    assert (found.transport_verdict, codes(found), found.outcome) == ("rdma_no_gdr", ["gpudirect_off"], "warn")


def test_rdma_and_tcp_in_one_communicator_fail() -> None:
    lines = [
        line.replace("IB/0/GDRDMA", "Socket/0") if "node-2" in line else line for line in ring("NET/IB/0/GDRDMA", 3)
    ]
    found = judged(*lines)
    assert (found.transport, found.transport_verdict, found.outcome) == ("IB+Socket", "mixed", "fail")


def test_multi_node_nvlink() -> None:
    found = judged(*ring("P2P/MNNVL", inside="P2P/MNNVL"))
    assert (found.transport, found.transport_verdict, found.gdr) == ("MNNVL", "mnnvl", "unknown")


def test_nvlink_inside_the_rack_and_tcp_between_racks_is_tcp() -> None:
    lines = [
        line.replace("P2P/MNNVL", "NET/Socket/0") if "3[1] -> 4[0]" in line else line for line in ring("P2P/MNNVL", 4)
    ]
    found = judged(*lines)
    assert (found.transport, found.transport_verdict) == ("Socket", "tcp")


def test_libfabric_over_tcp_keeps_its_name_but_is_tcp() -> None:
    for line in ("NET/OFI Selected Provider is tcp;ofi_rxm", "NET/OFI Selected provider is tcp, fabric is 10.0.0.0/24"):
        found = judged(info(line), *ring("NET/AWS Libfabric/0"))
        assert (found.transport, found.transport_verdict) == ("AWS Libfabric", "tcp")
        assert codes(found) == ["ofi_tcp_provider"]
    assert judged(
        info("NET/OFI Selected Provider is efa (found 4 nics)"), *ring("NET/AWS Libfabric/0")
    ).transport_verdict == ("rdma_no_gdr")


def test_an_unknown_plugin_proves_its_name_only() -> None:
    found = judged(*ring("NET/AcmeNet/0"))
    assert (found.transport, found.transport_verdict, found.gdr) == ("AcmeNet", "unproven", "no")
    assert judged(*ring("NET/AcmeNet/0/GDRDMA")).transport_verdict == "rdma_gdr"


# What was seen beside another transport proves nothing (each has a real log against it).
MISLEADING = (
    "Connected all rings, use ring PXN 1 GDR 1",
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>",
    "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0'",
    "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
    "DMA-BUF is available on GPU device 0",
    "Using network IB",
    "Using network IBext_v8",
    "Initialized NET plugin IB",
    "Assigned NET plugin IB to comm",
    "NVLS multicast support is available on dev 0",
    "Trees [0] 1/-1/-1->0->-1",
    "Channel 00/02 :    0   1",
    "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
)


@pytest.mark.parametrize("text", MISLEADING)
def test_start_up_lines_prove_no_rdma(text: str) -> None:
    found = judged(info("Bootstrap : Using eth0:10.0.0.1<0>"), info(text))
    assert (found.transport, found.transport_verdict, found.gdr) == (None, "unproven", "unknown")
    assert found.outcome != "pass"


def test_all_misleading_lines_beside_tcp_channels_are_tcp() -> None:
    found = judged(*(info(text) for text in MISLEADING), *ring("NET/Socket/0"))
    assert (found.transport, found.transport_verdict, found.gdr) == ("Socket", "tcp", "no")
    assert codes(found) == ["silent_tcp"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Using network Socket", "tcp"),
        ("Using internal Network Socket", "tcp"),
        ("Assigned NET plugin Socket to comm", "tcp"),
        ("NET/FastSocket plugin initialized", "tcp"),
        ("NET/OFI Selected Provider is tcp;ofi_rxm", "tcp"),
        ("Failed to open libibverbs.so[.1]", "tcp"),
        ("NET/Socket : Using [0]eth0:10.0.0.1<0>", "unproven"),
        ("Initialized NET plugin Socket", "unproven"),
    ],
)
def test_what_start_up_lines_say_of_tcp(text: str, verdict: str) -> None:
    found = judged(info(text))
    assert (found.transport, found.transport_verdict) == (None, verdict)


def test_two_nodes_of_one_name_are_told_apart_by_address() -> None:
    lines = [line.replace("node-1", "ubuntu").replace("node-2", "ubuntu") for line in ring("NET/Socket/0")]
    found = judged(*lines)
    assert (found.transport, found.nodes) == ("Socket", ("ubuntu@10.0.0.1", "ubuntu@10.0.0.2"))


def test_two_nodes_of_one_name_without_addresses_follow_ncclss_choice() -> None:
    lines = [line.replace("node-2", "node-1") for line in ring("NET/Socket/0") if "Bootstrap" not in line]
    assert judged(*lines).transport == "Socket"
    without_local = [line for line in lines if "P2P" not in line]
    assert judged(info("NCCL_SHM_DISABLE set by environment to 1."), *lines).transport_verdict == "unproven"
    assert (
        judged(*[line.replace("[0] [send]", "[3] [send]") for line in without_local if "receive" not in line]).transport
        is None
    )


def test_the_network_inside_one_machine_is_no_proof() -> None:
    lines = [line.replace("node-2", "node-1").replace("10.0.0.2", "10.0.0.1") for line in ring("NET/IB/0/GDRDMA")]
    found = judged(*lines)
    assert (found.transport, found.transport_verdict, found.gdr) == (None, "unproven", "unknown")
    one = info("comm 0x55 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0")
    assert judged(one, info("Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0")).transport is None


def test_threads_of_one_process_are_on_one_machine() -> None:
    pair = "2[c7000] -> 0[87000] [{}] via NET/IB/5/GDRDMA"
    lines = [
        info(f"Channel 01 : {pair.format('receive')}", "node-1", 9, 0, 21),
        info(f"Channel 01 : {pair.format('send')}", "node-1", 9, 2, 22),
        info("Channel 01 : 0[87000] -> 1[8d000] via P2P/IPC", "node-1", 9, 0, 21),
    ]
    assert judged(*lines).transport is None
    assert judged(*(line.replace("node-1:9:22", "node-1:8:22") for line in lines)).transport == "IB"


def test_containers_of_one_name_and_process_number_are_told_apart() -> None:
    lines = []
    for address, way in (("10.0.0.1", "send"), ("10.0.0.2", "receive")):
        lines.append(info(f"Bootstrap: Using eth0:{address}<0>", "trainer", 1))
        lines.append(info(f"Channel 00/0 : 0[0] -> 1[0] [{way}] via NET/Socket/0", "trainer", 1))
    assert judged(*lines).transport == "Socket"


def test_advice_about_networks_is_not_given_for_one_machine() -> None:
    lines = [info("NET/IB : No device found."), info("Using network Socket"), *ring("NET/Socket/0", 1)]
    found = judged(*lines)
    assert (codes(found), found.transport_verdict) == ([], "unproven")


def test_a_rank_without_a_log_is_still_another_node() -> None:
    lines = [line for line in ring("NET/IB/0/GDRDMA") if "node-1" in line]
    found = judged(*lines)
    assert found.transport_verdict == "rdma_gdr"
    assert (found.ranks.expected, found.ranks.seen, found.ranks.missing) == (4, 2, (2, 3))


def test_ranks_of_several_communicators_are_not_confused() -> None:
    # Ranks 0 and 1 of a subgroup are on both nodes; in the world they are on one.
    world = list(ring("NET/IB/0/GDRDMA"))
    sub = []
    for rank, (host, pid) in enumerate((("node-1", 100), ("node-2", 102))):
        comm = f"comm 0x77 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId a000 commId 0xcd"
        sub.append(info(f"ncclCommSplit {comm} parent 0x55 - Init START", host, pid))
        sub.append(info("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", host, pid) if not rank else "")
    found = judged(*world, *sub)
    assert found.transport_verdict == "tcp" and found.transport == "Socket"
    assert any("different transports" in note for note in found.notes)


def test_logs_of_two_jobs_are_reported() -> None:
    second = [
        line.replace("node-", "other-").replace(":10", ":90") for line in ring("NET/Socket/0", prefix="Channel 00 : ")
    ]
    old = [line for line in second if "commId" not in line] + [
        info("comm 0x5 rank 0 nranks 4 cudaDev 0 busId 1 - Init COMPLETE")
    ]
    first = [line for line in ring("NET/IB/0/GDRDMA", prefix="Channel 00 : ") if "commId" not in line]
    found = judged(*first, *old)
    assert any("several jobs" in note for note in found.notes)
    told_apart = judged(*ring("NET/IB/0/GDRDMA"), *(line.replace("0xab", "0xef") for line in second))
    assert told_apart.transport_verdict == "tcp" and not any("several jobs" in note for note in told_apart.notes)


def test_glued_and_interrupted_lines() -> None:
    text = "".join(line if index % 3 else line + "\n" for index, line in enumerate(ring("NET/IB/0/GDRDMA")))
    found = judged(text)
    assert found.transport_verdict == "rdma_gdr"


def test_nccl_tests_with_channel_lines_inside() -> None:
    lines = list(ring("NET/IB/0/GDRDMA"))
    broken = row(1 << 30, 350.0)
    root = broken.index(" -1 ") + 3
    found = judged(
        *(rank_line(rank, f"node-{rank // 2 + 1}") for rank in range(4)),
        *HEADER,
        *lines[:3],
        broken[:root] + lines[3],
        *lines[4:],
        broken[root:],
    )
    assert (found.kind, found.transport_verdict, found.busbw_gb_s) == ("nccl_tests", "rdma_gdr", 350.0)


def test_proofs_are_by_node_with_their_line() -> None:
    seen = scan_log(io.BytesIO("\n".join(ring("NET/IB/0/GDRDMA")).encode()))
    transport = build_transport(read_transport(seen.facts, {}, no_verbs=False, table=False), "a.log", "rdma_gdr")
    assert {(pair.a, pair.b, pair.via, pair.gdr) for pair in transport.pairs} == {
        ("node-1", "node-2", "IB", True),
        ("node-2", "node-1", "IB", True),
    }
    assert all(pair.evidence.startswith("a.log:") for pair in transport.pairs)


def test_a_table_that_overflows_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_state, "MAX_PAIRS", 3)
    assert judged(*ring("NET/IB/0/GDRDMA")).transport_verdict == "unproven"


def test_a_log_without_host_names() -> None:
    lines = [
        " [0] NCCL INFO Ring 00 : 15[41000] -> 0[1b000] [receive] via NET/IB/0",
        " [0] NCCL INFO Ring 00 : 0[1b000] -> 1[1c000] via P2P/IPC",
    ]
    found = judged(*lines)
    assert (found.transport, found.transport_verdict) == ("IB", "rdma_no_gdr")


def test_a_failure_after_proof_keeps_the_proof() -> None:
    found = judged(*ring("NET/IB/0"), warn("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"))
    assert (found.transport, found.outcome, codes(found)) == ("IB", "fail", ["wc_retry_exceeded"])
