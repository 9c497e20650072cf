# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes that follow from findings together with the transport, the devices and the environment."""

from __future__ import annotations

from ansible_collections.muster.training.tests.support.nccl_text import (
    codes,
    info,
    judged,
    rank_line,
    ring,
    warn,
)

SPARK = "[0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"


def test_a_pinned_network_that_is_missing() -> None:
    env, none = info("NCCL_NET set by environment to IB"), info("NET/IB : No device found.")
    failed = warn("Failed to initialize any NET plugin", "init.cc:1")
    found = judged(env, none, failed)
    assert (codes(found), found.outcome) == (["ib_no_device"], "fail")
    other = judged(info("NCCL_NET set by environment to AWS Libfabric"), failed)
    assert (codes(other), other.outcome) == (["plugin_broken"], "fail")


def test_a_name_that_matches_no_device() -> None:
    found = judged(info("NCCL_IB_HCA set to mlx5_9"), info("NET/IB : No device found."), info("Using network Socket"))
    assert codes(found) == ["nic_name_mismatch"] and "mlx5_9" in found.causes[0].evidence


def test_a_fixed_index_of_an_empty_gid() -> None:
    empty = warn(
        "Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_0:1, local GID ::", "ibvwrap.cc:309"
    )
    assert codes(judged(info("NCCL_IB_GID_INDEX set by environment to 3."), empty)) == ["roce_gid_index"]
    assert codes(judged(empty)) == ["roce_gid_per_pod"]


def test_no_device_is_no_cause_beside_a_plugin_that_does_rdma() -> None:
    found = judged(
        info("NET/IB : No device found."), info("Using network AWS Libfabric"), *ring("NET/AWS Libfabric/0/GDRDMA")
    )
    assert (codes(found), found.also) == ([], ())


def test_tcp_beside_rdma_devices() -> None:
    devices = info("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")
    found = judged(devices, *ring("NET/Socket/0"))
    assert codes(found) == ["silent_tcp"] and "mlx5_0" in found.causes[0].evidence
    assert codes(judged(*ring("NET/Socket/0"))) == []


def test_gpudirect_off_needs_a_reason_to_expect_it() -> None:
    ranks = [rank_line(rank, f"node-{rank // 2 + 1}") for rank in range(4)]
    assert codes(judged(*ranks, *ring("NET/IB/0"))) == ["gpudirect_off"]
    assert codes(judged(*ring("NET/IB/0"))) == []
    spark = [rank_line(rank, f"node-{rank // 2 + 1}", "NVIDIA GB10") for rank in range(4)]
    assert codes(judged(*spark, *ring("NET/IB/0"))) == []
    disabled = info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'x'")
    assert codes(judged(disabled, *ring("NET/IB/0"))) == ["gpudirect_off"]
    assert codes(judged(disabled, info(f"NET/IB : Using {SPARK}"), *ring("NET/IB/0"))) == []
    assert codes(judged(disabled, *ring("NET/IB/0/GDRDMA"))) == []


def test_a_mesh_that_was_asked_for_is_right() -> None:
    line = info("Bootstrap : Using tailscale0:100.64.0.1<0>")
    assert codes(judged(info("NCCL_SOCKET_IFNAME set by environment to =tailscale0"), line)) == []
    assert codes(judged(info("NCCL_SOCKET_IFNAME set by environment to docker0"), line)) == ["wrong_interface"]


def test_imex_only_where_multi_node_nvlink_is_used() -> None:
    failure = warn("Cuda failure 801 'operation not supported'", "transport/p2p.cc:281")
    used = info("comm 0x55 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 1")
    assert codes(judged(used, failure)) == ["imex"]
    assert codes(judged(failure)) == []


def test_ranks_that_meet_over_wifi() -> None:
    wifi = [line.replace("Using eth0:", "Using wlP9s9:") for line in ring("NET/IB/0")]
    assert codes(judged(*wifi)) == ["bootstrap_on_wifi"] and codes(judged(*ring("NET/IB/0"))) == []
    alone = [line.replace("Using eth0:", "Using wlP9s9:") for line in ring("NET/IB/0", nodes=1)]
    assert codes(judged(*alone)) == []


def pair_of_sparks(hcas: str, busbw: float, device: str = "NVIDIA GB10", size: int = 1 << 30) -> list[str]:
    """A run of nccl-tests on two machines with one GPU each."""
    half = f"    98.0  {busbw:6.2f}  {busbw:6.2f}       0"
    row = f"{size:12d} {size // 4:12d}     float     sum      -1{half}{half}"
    columns = "     time   algbw   busbw  #wrong"
    return [
        rank_line(0, "node-1", device),
        rank_line(1, "node-2", device),
        info(f"NET/IB : Using {hcas}"),
        *ring("NET/IB/0", local=1),
        f"#       size         count      type   redop    root{columns}{columns}",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)",
        row,
    ]


def test_one_half_of_the_port_of_a_spark() -> None:
    half = "[0]rocep1s0f1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
    found = judged(*pair_of_sparks(half, 12.2))
    assert codes(found) == ["cx7_half"]
    assert "NCCL uses rocep1s0f1 and not the other half of the port" in found.causes[0].evidence
    assert codes(judged(*pair_of_sparks(SPARK, 12.2))) == ["cx7_half"]
    assert codes(judged(*pair_of_sparks(SPARK, 23.7))) == []
    # Others name their ports so, too.
    assert "cx7_half" not in codes(judged(*pair_of_sparks(half, 12.2, "NVIDIA L4")))


def test_a_link_between_sparks_in_a_bad_state() -> None:
    for busbw in (1.6, 3.0):
        found = judged(*pair_of_sparks(SPARK, busbw))
        assert codes(found) == ["cx7_degraded"] and "fwupdmgr" in found.causes[0].fix
    assert codes(judged(*pair_of_sparks(SPARK, 1.6, size=1 << 16))) == []
