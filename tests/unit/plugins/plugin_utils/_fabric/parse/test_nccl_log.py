# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of NCCL versions and faults that the recorded excerpts do not show.

Written for this test from the format strings of NCCL's sources (transport/net.cc, transport/net_ib, init.cc, bootstrap.cc,
socket.cc of 2.4 to 2.30) and from the log forms of public issues; hosts, numbers and addresses are invented. They show
that the rules go by NCCL's forms and not by the recorded files.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from ansible_collections.muster.training.tests.support.nccl_text import codes, judged


@dataclasses.dataclass(frozen=True)
class Log:
    """A log, and what it proves: network, verdict, GPUDirect, the deciding codes, and whether the job failed."""

    name: str
    text: str
    transport: str | None
    verdict: str
    gdr: str
    causes: tuple[str, ...] = ()
    failed: bool = False


LOGS = (
    Log(
        "2.4 ring lines with bus ids, no channel in the name of the line",
        """
        alpha:210:301 [0] NCCL INFO Bootstrap : Using [0]eno1:192.168.4.11<0>
        alpha:210:301 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eno1:192.168.4.11<0>
        NCCL version 2.4.8+cuda10.1
        beta:144:233 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eno1:192.168.4.12<0>
        alpha:210:301 [0] NCCL INFO comm 0x7f10 rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE
        alpha:210:301 [0] NCCL INFO Ring 00 : 1[1b000] -> 0[41000] [receive] via NET/IB/0/GDRDMA
        alpha:210:301 [0] NCCL INFO Ring 00 : 0[41000] -> 1[1b000] [send] via NET/IB/0
        beta:144:233 [0] NCCL INFO Ring 00 : 0[41000] -> 1[1b000] [receive] via NET/IB/0/GDRDMA
        beta:144:233 [0] NCCL INFO Ring 00 : 1[1b000] -> 0[41000] [send] via NET/IB/0
        beta:144:233 [0] NCCL INFO comm 0x7f20 rank 1 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE
        """,
        "IB",
        # Sending without GPUDirect is NCCL's choice on PCIe GPUs, so the network is RDMA and not all of it GPUDirect.
        "rdma_no_gdr",
        "yes",
    ),
    Log(
        "2.11 channels with bus ids and two GPUs a node",
        """
        n01:10:20 [0] NCCL INFO Channel 00 : 3[ca000] -> 0[87000] [receive] via NET/IB/5/GDRDMA
        n01:10:20 [0] NCCL INFO Channel 00 : 0[87000] -> 1[8d000] via P2P/IPC/read
        n01:11:21 [1] NCCL INFO Channel 00 : 1[8d000] -> 2[c7000] [send] via NET/IB/5/GDRDMA
        n02:10:20 [0] NCCL INFO Channel 00 : 1[8d000] -> 2[c7000] [receive] via NET/IB/5/GDRDMA
        n02:10:20 [0] NCCL INFO Channel 00 : 2[c7000] -> 3[ca000] via P2P/IPC/read
        n02:11:21 [1] NCCL INFO Channel 00 : 3[ca000] -> 0[87000] [send] via NET/IB/5/GDRDMA
        n01:10:20 [0] NCCL INFO comm 0x7fbc rank 0 nranks 4 cudaDev 0 busId 87000 - Init COMPLETE
        n01:11:21 [1] NCCL INFO comm 0x7fbd rank 1 nranks 4 cudaDev 1 busId 8d000 - Init COMPLETE
        n02:10:20 [0] NCCL INFO comm 0x7fbe rank 2 nranks 4 cudaDev 0 busId c7000 - Init COMPLETE
        n02:11:21 [1] NCCL INFO comm 0x7fbf rank 3 nranks 4 cudaDev 1 busId ca000 - Init COMPLETE
        """,
        "IB",
        "rdma_gdr",
        "yes",
    ),
    Log(
        "2.20 PXN: through another rank's NIC, shared buffers",
        """
        w0:500:901 [0] NCCL INFO ncclCommInitRank comm 0xa0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0x9 - Init START
        w1:500:902 [0] NCCL INFO ncclCommInitRank comm 0xa1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0x9 - Init START
        w0:500:901 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [send] via NET/IBext_v8/3(5)/GDRDMA/Shared
        w0:500:901 [0] NCCL INFO Channel 00/1 : 1[0] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA/Shared
        w1:500:902 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [receive] via NET/IBext_v8/0/GDRDMA/Shared
        w1:500:902 [0] NCCL INFO Channel 00/1 : 1[0] -> 0[0] [send] via NET/IBext_v8/3(5)/GDRDMA/Shared
        """,
        "IBext_v8",
        "rdma_gdr",
        "yes",
    ),
    Log(
        "2.28 GPUDirect over PCIe on C2C machines",
        """
        gh1:77:88 [0] NCCL INFO ncclCommInitRankConfig comm 0xb0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 901000 commId 0x51 - Init START
        gh2:77:88 [0] NCCL INFO ncclCommInitRankConfig comm 0xb1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 901000 commId 0x51 - Init START
        gh1:77:88 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA(PCI)
        gh1:77:88 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA(PCI)
        gh2:77:88 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA(PCI)
        gh2:77:88 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA(PCI)
        """,
        "IB",
        "rdma_gdr",
        "yes",
    ),
    Log(
        "2.29 plugin lines, RDMA missing, TCP carries all",
        """
        p-0:1:90 [0] NCCL INFO NET/IB : No device found.
        p-0:1:90 [0] NCCL INFO Failed to initialize NET plugin IB
        p-0:1:90 [0] NCCL INFO NET/Socket : Using [0]eth0:10.4.0.7<0>
        p-0:1:90 [0] NCCL INFO Initialized NET plugin Socket
        p-0:1:90 [0] NCCL INFO Assigned NET plugin Socket to comm
        p-1:1:91 [0] NCCL INFO Assigned NET plugin Socket to comm
        p-0:1:90 [0] NCCL INFO ncclCommInitRank comm 0xc0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x33 - Init START
        p-1:1:91 [0] NCCL INFO ncclCommInitRank comm 0xc1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x33 - Init START
        p-0:1:90 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
        p-1:1:91 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0
        p-0:1:90 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
        p-1:1:91 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0
        p-0:1:90 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
        """,
        "Socket",
        "tcp",
        "no",
        ("ib_no_device",),
    ),
    Log(
        "2.27 a completion that ran out of retries, with the name of the HCA",
        """
        [2025-07-03 04:05:06] g7:4100:4200 [2] transport/net_ib.cc:2400 NCCL WARN NET/IB: Got completion from peer 10.9.0.8<40112> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::a288:c2ff:fe0b:1 remoteGids fe80::a288:c2ff:fe0c:2 hca mlx5_2
        g7:4100:4200 [2] NCCL INFO transport/net.cc:1308 -> 6
        """,
        None,
        "unproven",
        "unknown",
        ("wc_retry_exceeded",),
        True,
    ),
    Log(
        "2.30 GIN: a protection error beside flushed ones",
        """
        [2026-05-05 06:16:47] node-01:18:99 [3] transport/net_ib/gin.cc:901 NCCL WARN NET/IB/GIN: Got completion from peer 10.0.3.4<5000> with status=5 opcode=0 len=0 vendor err 249 (Send) hca mlx5_3
        [2026-05-05 06:16:47] node-01:18:99 [3] transport/net_ib/gin.cc:901 NCCL WARN NET/IB/GIN: Got completion from peer 10.0.3.4<5000> with status=4 opcode=1 len=0 vendor err 81 (Recv) hca mlx5_3
        """,
        None,
        "unproven",
        "unknown",
        ("acs_iommu",),
        True,
    ),
    Log(
        "2.30 nodes with different numbers of NICs",
        """
        [2026-06-11 10:00:00] q0:31:41 [0] init.cc:1502 NCCL WARN Detected mixed local Net device counts across ranks (min 4, max 8). Set NCCL_IGNORE_NET_MISMATCH=1 to ignore.
        q0:31:41 [0] NCCL INFO init.cc:1999 -> 2
        """,
        None,
        "unproven",
        "unknown",
        ("nic_count_mismatch",),
        True,
    ),
    Log(
        "2.26 NVLink between nodes is no fallback",
        """
        t1:9:19 [0] NCCL INFO ncclCommInitRankConfig comm 0xd0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 901000 commId 0x77 - Init START
        t2:9:19 [0] NCCL INFO ncclCommInitRankConfig comm 0xd1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 901000 commId 0x77 - Init START
        t1:9:19 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL
        t2:9:19 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] via P2P/MNNVL
        t1:9:19 [0] NCCL INFO comm 0xd0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 1
        """,
        "MNNVL",
        "mnnvl",
        "unknown",
    ),
    Log(
        "2.21 libfabric fell back to TCP under a name that looks fast",
        """
        i-a:700:800 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm (found 2 nics)
        i-a:700:800 [0] NCCL INFO Using network AWS Libfabric
        i-a:700:800 [0] NCCL INFO ncclCommInitRank comm 0xe0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 101c0 commId 0x2 - Init START
        i-b:700:801 [0] NCCL INFO ncclCommInitRank comm 0xe1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 101c0 commId 0x2 - Init START
        i-a:700:800 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0
        i-b:700:801 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/1
        """,
        "AWS Libfabric",
        "tcp",
        "no",
        ("ofi_tcp_provider",),
    ),
    Log(
        "2.23 pods that bootstrap over the bridge of their node",
        """
        job-0:1:55 [0] NCCL INFO Bootstrap: Using cni0:10.42.1.1<0>
        job-1:1:55 [0] NCCL INFO Bootstrap: Using cni0:10.42.2.1<0>
        job-1:1:60 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: connect to 10.42.1.1<44321> returned Connection refused(111), exceeded retries (35)
        """,
        None,
        "unproven",
        "unknown",
        ("wrong_interface", "socket_connect_timeout"),
        True,
    ),
    Log(
        "2.18 one machine: nothing crosses a network",
        """
        box:100:200 [0] NCCL INFO ncclCommInitRank comm 0xf0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x4 - Init START
        box:101:201 [1] NCCL INFO ncclCommInitRank comm 0xf1 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0x4 - Init START
        box:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
        box:101:201 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct
        box:100:200 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
        """,
        None,
        "unproven",
        "unknown",
    ),
)


def lines(log: Log) -> list[str]:
    return [line.strip() for line in log.text.strip().splitlines()]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_of_another_version_is_judged_by_its_forms(log: Log) -> None:
    found = judged(*lines(log), name="unknown.log")
    assert (found.transport, found.transport_verdict, found.gdr) == (log.transport, log.verdict, log.gdr)
    assert tuple(codes(found)) == log.causes, [cause.evidence for cause in found.causes]
    assert (found.outcome == "fail") == log.failed and found.kind == "nccl_log"


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_names_and_numbers_that_are_ours_decide_nothing(log: Log) -> None:
    """Other hosts, process ids and communicators: a rule that hung on them would now say something else."""
    changed = []
    for line in lines(log):
        line = re.sub(r"^((?:\[[^\]]*\] )?)([\w-]+):(\d+):(\d+) ", r"\1zz-\2-q:9\3:8\4 ", line)
        changed.append(re.sub(r"(comm(?:Id)? 0x)", r"\g<1>5e", line))
    before, after = judged(*lines(log)), judged(*changed)
    assert (before.transport, before.transport_verdict, before.gdr) == (
        after.transport,
        after.transport_verdict,
        after.gdr,
    )
    assert codes(before) == codes(after) and before.outcome == after.outcome


@pytest.mark.parametrize(
    "log", [log for log in LOGS if log.verdict not in ("unproven", "mnnvl")], ids=lambda log: log.name
)
def test_without_its_channels_nothing_of_it_is_proven(log: Log) -> None:
    kept = [line for line in lines(log) if " via NET/" not in line]
    assert judged(*kept).transport is None
