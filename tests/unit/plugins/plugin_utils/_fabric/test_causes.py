# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes: the messages of several versions that name each, what explains what, and what must not be read as a cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.causes import CAUSES, Finding, as_cause, choose
from ansible_collections.muster.training.plugins.plugin_utils._fabric.causes_combined import scaling_finding
from ansible_collections.muster.training.plugins.plugin_utils._fabric.causes_lines import Findings, virtual_interface
from ansible_collections.muster.training.tests.support.nccl_text import (
    PREFIXES,
    codes,
    info,
    judged,
    prefixed,
    rank_line,
    ring,
    warn,
)

QP = "on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::"
SPARK = "[0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
# Code to messages as NCCL's WARN records: (source, text).
WARNINGS: dict[str, list[tuple[str, str]]] = {
    "no_iface_in_subnet": [
        ("include/socket.h:197", "Net : No interface found in the same subnet as remote address 10.1.0.1<27030>"),
        ("misc/socket.cc:230", "Net : No interface found in the same subnet as remote address 10.1.0.1<27030>"),
    ],
    "bootstrap_bad_address": [
        ("misc/socket.cc:397", "Net : connecting to address  with family 33621 is neither AF_INET(2) nor AF_INET6(10)"),
        (
            "misc/socket.cc:600",
            "ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) nor AF_INET6(10)",
        ),
        ("bootstrap.cc:1", "Net : No valid <IPv4_or_hostname>:<port> pair found"),
        ("bootstrap.cc:1", "Net : No valid [IPv6]:port pair found"),
    ],
    "socket_connect_timeout": [
        ("include/socket.h:403", "Connect to 10.0.0.2<43789> failed : Connection timed out"),
        ("include/socket.h:409", "Net : Connect to 10.0.0.2<43789> failed : No route to host"),
        (
            "misc/socket.cc:483",
            "socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort",
        ),
        ("misc/socket.cc:484", "socketStartConnect: Connect to 10.0.0.2<45763> failed : Network is unreachable"),
        (
            "misc/socket.cc:533",
            "socketPollConnect: Connect to 10.0.0.2<56849> returned 113(No route to host) errno 115",
        ),
        (
            "misc/socket.cc:544",
            "socketPollConnect: connect returned Connection refused, exceeded error retry count (35)",
        ),
        (
            "os/linux.cc:200",
            "ncclOsSocketPollConnect: connect to 10.0.0.2<37857> returned Connection refused, exceeded error retry count "
            "after 35 attempts",
        ),
        ("include/socket.h:360", "Call to connect failed : Connection timed out"),
        ("x.cc:1", "Call to connect timed out"),
    ],
    "socket_reset": [
        ("include/socket.h:416", "Net : Connection closed by remote peer"),
        ("misc/socket.cc:49", "socketProgress: Connection closed by remote peer node-2<41109>"),
        ("misc/socket.cc:520", "Call to recv from 10.0.0.2<41109> failed : Connection reset by peer"),
    ],
    "modify_qp_timeout": [
        ("misc/ibvwrap.cc:284", "Call to ibv_modify_qp failed with error Connection timed out"),
        ("misc/ibvwrap.cc:309", f"Call to ibv_modify_qp failed with 110 Connection timed out, {QP}"),
    ],
    "modify_qp_unreachable": [
        ("misc/ibvwrap.cc:187", "Call to ibv_modify_qp failed with error Network is unreachable"),
        ("misc/ibvwrap.cc:309", f"Call to ibv_modify_qp failed with 101 Network is unreachable, {QP}"),
        ("misc/ibvwrap.cc:309", f"Call to ibv_modify_qp failed with 113 No route to host, {QP}"),
        ("misc/ibvwrap.cc:309", f"Call to ibv_modify_qp failed with error No route to host errno 113, {QP}"),
    ],
    "roce_gid_per_pod": [
        ("misc/ibvwrap.cc:284", "Call to ibv_modify_qp failed with error No such device"),
        (
            "misc/ibvwrap.cc:309",
            "Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_0:1, local GID ::",
        ),
    ],
    "roce_gid_index": [
        ("misc/ibvwrap.cc:284", "Call to ibv_modify_qp failed with error Invalid argument"),
        ("misc/ibvwrap.cc:309", f"Call to ibv_modify_qp failed with 22 Invalid argument, {QP}"),
    ],
    "wc_retry_exceeded": [
        ("transport/net_ib.cc:788", "NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129"),
        (
            "transport/net_ib.cc:1296",
            "NET/IB : Got completion from peer 10.0.0.2<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
        ),
        (
            "transport/net_ib.cc:2244",
            "NET/IB: Got completion from peer 10.0.0.2<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv)",
        ),
        (
            "transport/net_ib/p2p.cc:648",
            "NET/IB: Got completion from peer 10.0.0.2<40554> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129 localGid ::ffff:1.1.2.2 hca mlx5_1",
        ),
        (
            "transport/net_ib.cc:1",
            "NET/IB : Got completion from peer 10.0.0.2<1> with status=13 opcode=0 len=0 vendor err 135",
        ),
    ],
    "acs_iommu": [
        ("transport/net_ib.cu:788", "NET/IB : Got completion with error 4, opcode 1, len 21938, vendor err 81"),
        (
            "transport/net_ib.cc:2453",
            "NET/IB: Got completion from peer 10.0.0.2<51161> with status=4 opcode=32614 len=32614 vendor err 81 (Send)",
        ),
    ],
    "reg_mr_failed": [
        ("misc/ibvwrap.cc:230", "Call to ibv_reg_mr failed"),
        ("misc/ibvwrap.cc:230", "Call to ibv_reg_mr failed with error Cannot allocate memory"),
        ("misc/ibvwrap.cc:240", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"),
        ("misc/ibvwrap.cc:250", "Call to ibv_reg_dmabuf_mr failed with error Bad address"),
    ],
    "create_cq_failed": [
        ("misc/ibvwrap.cc:268", "Call to ibv_create_cq failed"),
        ("misc/ibvwrap.cc:268", "Call to ibv_create_cq failed with error Cannot allocate memory"),
        ("misc/ibvwrap.cc:280", "Call to ibv_create_qp failed with error Cannot allocate memory"),
    ],
    "dev_shm_full": [
        ("include/shm.h:28", "Call to posix_fallocate failed : No space left on device"),
        (
            "include/shm.h:48",
            "Error while creating shared memory segment nccl-shm-recv-1462445a6f01cbfc-1-2-3 (size 9637888)",
        ),
        ("misc/shmutils.cc:71", "Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes"),
        (
            "misc/shmutils.cc:88",
            "Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)",
        ),
    ],
    "version_mismatch": [
        ("init.cc:900", "Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703"),
    ],
    "duplicate_gpu": [
        ("init.cc:497", "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"),
        (
            "init.cc:1141 (initTransportsRank)",
            "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.",
        ),
    ],
    "nic_count_mismatch": [
        (
            "init.cc:1300",
            "Detected mixed local Net device counts across ranks (min 1, max 2). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.",
        ),
    ],
    "fabric_manager": [
        ("init.cc:1", "Cuda failure 802 'system not yet initialized'"),
        ("enqueue.cc:1", "Cuda failure 'system not yet initialized'"),
        ("transport/nvls.cc:165", "Cuda failure 'invalid argument'"),
        ("transport/nvls.cc:244", "Cuda failure 1 'invalid argument'"),
        (
            "transport/nvls.cc:300",
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be'",
        ),
    ],
    "imex": [
        (
            "mnnvl.cc:60",
            "MNNVL (cliqueSize 72) is available but not working on this system. Check the IMEX channel configuration "
            "(/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.",
        ),
        (
            "mnnvl.cc:70",
            "MNNVL (cliqueSize 72) is available but not working. Check the IMEX state (nvidia-imex-ctl -N).",
        ),
    ],
    "address_family": [
        ("include/socket.h:344", "Socket creation failed : Address family not supported by protocol"),
        ("misc/socket.cc:1", "Net : unsupported IP family"),
    ],
    "rendezvous_dns": [
        ("misc/socket.cc:1", "Net : error encountered when getting address info : Name or service not known"),
    ],
    "collective_mismatch": [
        (
            "transport/net_ib.cc:1038",
            "NET/IB : req 0/1 tag 0 peer 10.0.0.2<58683> collective mismatch error, local size 496640 remote size 65536",
        ),
        ("init.cu:1197", "Mismatched collective detected, please check your collective calls at and around rank 11."),
        ("transport/net_socket.cc:1", "NET/Socket : message truncated : receiving 524288 bytes instead of 65536"),
    ],
    "plugin_broken": [
        ("get_ofi_provider:312", "NET/OFI Could not find any optimal provider"),
        (
            "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):259",
            "NET/OFI Unable to find a protocol that worked.  Failing initialization.",
        ),
        ("init.cc:1", "Failed to initialize any NET plugin"),
        ("net.cc:1", "Error: network AWS Libfabric not found."),
    ],
    "libibverbs_missing": [("misc/ibvwrap.cc:63", "Failed to open libibverbs.so[.1]")],
}
# Code to INFO texts.
NOTICES: dict[str, list[str]] = {
    "ib_no_device": ["NET/IB : No device found.", "NET/IB: No device found."],
    "libibverbs_missing": ["Failed to open libibverbs.so[.1]"],
    "ras_port_shared": ["RAS failed to establish a client listening socket at localhost:28028"],
    "ofi_tcp_provider": [
        "NET/OFI Selected Provider is tcp;ofi_rxm",
        "NET/OFI Selected provider is tcp, fabric is 10.0.0.0/24 (found 1 nics)",
        "NET/OFI Selected Provider is sockets",
    ],
    "plugin_broken": [
        "NET/Plugin : Plugin load (libnccl-net.so) returned 0 : /opt/x/libnccl-net.so: undefined symbol: ncclNet_v5",
        "NET/Plugin : dlerror=libfabric.so.1: cannot open shared object file: No such file or directory No plugin found",
        "NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not supported.",
    ],
    "socket_connect_timeout": [
        "Call to connect returned Connection timed out, retrying",
        "Call to connect returned Connection refused, retrying",
        "socketPollConnect: connect returned Connection refused, retrying (33/34) after sleep for 3300 msec",
        "ncclOsSocketPollConnect: connect to 10.0.0.2<4> returned Connection timed out, retrying (1/34) after sleep for 1 msec",
    ],
    "modify_qp_timeout": [
        f"Call to ibv_modify_qp failed with 110 Connection timed out, {QP}, retrying 1/35 after 100 msec of sleep",
    ],
    "wrong_interface": [
        f"Bootstrap : Using {name}:10.42.0.1<0>"
        for name in ("veth0", "docker0", "cni0", "flannel.1", "tailscale0", "br-0123456789ab", "cali12ab34cd56e")
    ]
    + ["Bootstrap: Using [0]veth25f2e72:fe80::380d:bfff:fe5b:54d2%veth25f2e72<0>"],
}
# Code to lines that launchers, PyTorch, gloo, the kernel or Kubernetes write.
OTHERS: dict[str, list[str]] = {
    "ranks_missing": [
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/2 clients joined.",
        "  Missing communicator data from 1 rank",
        "There are not enough slots available in the system to satisfy the 4",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "  Warning  Failed  kubelet  Error: ImagePullBackOff",
    ],
    "rendezvous_dns": [
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 10.0.0.1:1234",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
        "RuntimeError: connect() timed out. Original timeout was 60000 ms.",
        "[c10d] The IPv4 network addresses of (head, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "ssh: Could not resolve hostname worker-1: Temporary failure in name resolution",
    ],
    "wrong_interface": [
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
        "Unable to find address for: eth9",
    ],
    "socket_connect_timeout": [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.2]:31337: Connection refused",
    ],
    "socket_reset": [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:28370",
    ],
    "oom_gpu": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        "RuntimeError: CUDA error: out of memory",
    ],
    "oom_host": [
        "[12345.6] Out of memory: Killed process 4242 (python) total-vm:99kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=kubepods",
        "    reason: OOMKilled",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory: you tried to",
    ],
    "dev_shm_full": [
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "RuntimeError: unable to write to file </torch_4242_1234_0>: No space left on device (28)",
    ],
    "checkpoint_failed": [
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "OSError: [Errno 28] No space left on device: '/mnt/checkpoints/step-100.pt'",
        "OSError: [Errno 30] Read-only file system: '/data/ckpt'",
        "RuntimeError: Error(s) in loading state_dict for Model:",
    ],
    "collective_mismatch": [
        "  Communicator ranks have different AllGather operation counts",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: BROADCAST",
        "Not all ranks joining collective 3 at entry 2",
    ],
    "fabric_manager": [
        "node-1: Test CUDA failure common.cu:941 'system not yet initialized'",
        "RuntimeError: CUDA error: system not yet initialized (cudaErrorSystemNotReady)",
    ],
    "mtu_black_hole": ["ping: local error: message too long, mtu=1280"],
    "relayed_path": ["pong from node-2 (100.64.0.2) via DERP(fra) in 34ms"],
}


def flat(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(code, text) for code, texts in table.items() for text in texts]


@pytest.mark.parametrize(
    ("code", "source", "text"), [(code, *item) for code, items in WARNINGS.items() for item in items]
)
def test_warnings(code: str, source: str, text: str) -> None:
    for stamp in ("", "[2026-11-21 10:11:12] "):
        found = judged(info("cudaDriverVersion 12080"), warn(text, source, stamp=stamp))
        assert codes(found) == [code]
        assert found.causes[0].evidence.startswith(f"some.log:2: {text[:30]}")
        assert found.causes[0].node == "node-1"


@pytest.mark.parametrize("style", PREFIXES)
def test_warnings_behind_prefixes(style: str) -> None:
    for code, items in WARNINGS.items():
        assert codes(judged(prefixed(style, warn(items[0][1], items[0][0])))) == [code]


@pytest.mark.parametrize(("code", "text"), flat(NOTICES))
def test_notices(code: str, text: str) -> None:
    assert codes(judged(info(text))) == [code]


@pytest.mark.parametrize(("code", "text"), flat(OTHERS))
def test_lines_of_others(code: str, text: str) -> None:
    for line in (text, prefixed("mpirun", text), prefixed("kubectl", text)):
        assert code in codes(judged("step=1 loss=2.0", line))


def test_every_code_is_reached_somewhere() -> None:
    combined = {"nic_name_mismatch", "silent_tcp", "gpudirect_off", "negative_scaling"}
    assert set(WARNINGS) | set(NOTICES) | set(OTHERS) | combined == set(CAUSES)


def test_pytorch_quotes_the_last_error() -> None:
    found = judged(
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "Last error:",
        "socketStartConnect: Connect to 10.0.0.1<45000> failed : Connection refused",
    )
    assert (found.kind, codes(found), found.outcome) == ("nccl_log", ["socket_connect_timeout"], "fail")


HARMLESS = [
    info(
        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found"
    ),
    info("NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file"),
    info("NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin."),
    info("NET/Plugin: Failed to find ncclNetPlugin_v8 symbol."),
    info("NET/Plugin: Failed to find ncclCollNetPlugin_v4 symbol."),
    info("NCCL_IB_GID_INDEX set by environment to 3."),
    info("misc/socket.cc:47 -> 3"),
    info(
        "Detected mixed local Net device counts across ranks (min 1, max 2). Ignoring due to NCCL_IGNORE_NET_MISMATCH."
    ),
    info("TUNER/Plugin: Could not find: libnccl-tuner.so"),
    info("Bootstrap : Using eth0:10.0.0.1<0>"),
    info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"),
    warn("Call to bind failed: Address already in use", "ras/client_support.cc:181"),
    warn("NET/IB : Got completion from peer 10.0.0.2<1> with status=5 opcode=0 len=0 vendor err 249", "net_ib.cc:1"),
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [head]:29500 (errno: 97 - Address family not "
    "supported by protocol).",
    "[W socket.cpp:204] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
    "urllib3.exceptions.ProtocolError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "I said: Duplicate GPU detected is what a colleague saw, and NET/IB : No device found",
    "saved checkpoint /mnt/ckpt/step-10.pt",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_what_names_no_cause(line: str) -> None:
    found = judged(info("cudaDriverVersion 12080"), line)
    assert (found.causes, found.also, found.outcome) == ((), (), "unproven")


def test_an_error_without_a_rule_still_fails() -> None:
    found = judged(warn("Cuda failure 'unspecified launch failure'", "enqueue.cc:1"), info("init.cc:867 -> 1"))
    assert (found.outcome, found.causes) == ("fail", ())
    assert any("unspecified launch failure" in note for note in found.notes)


def test_the_status_decides_and_not_the_hint() -> None:
    found = judged(
        warn(
            "NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129", "net_ib.cc:1"
        ),
        info("HINT: IBV_WC_LOC_PROT_ERR status might be caused by ACS, see the troubleshooting section"),
    )
    assert codes(found) == ["wc_retry_exceeded"]


def test_consequences_step_back() -> None:
    found = judged(
        info("NET/IB : No device found."),
        warn("socketProgress: Connection closed by remote peer node-2<41109>", "misc/socket.cc:49"),
        warn("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"),
    )
    assert codes(found) == ["duplicate_gpu"]
    assert [cause.code for cause in found.also] == ["ib_no_device", "socket_reset"]


def test_an_interface_explains_a_failed_connection() -> None:
    found = judged(
        info("Bootstrap : Using docker0:172.17.0.1<0>"),
        warn("Net : Connect to 172.17.0.1<43789> failed : Connection refused", "include/socket.h:409"),
    )
    assert codes(found) == ["wrong_interface", "socket_connect_timeout"] and found.outcome == "fail"
    other = judged(warn("Connect to fe80::1%veth25f2e72<5> failed : Connection timed out", "include/socket.h:403"))
    assert codes(other) == ["wrong_interface", "socket_connect_timeout"]


def test_retries_that_succeeded_are_no_cause() -> None:
    retry = info("socketPollConnect: connect returned Connection refused, retrying (1/34) after sleep for 100 msec")
    name = "[c10d] (head, 29500) cannot be retrieved (gai error: -2 - Name or service not known)"
    assert codes(judged(retry, name, *ring("NET/IB/0/GDRDMA"))) == []
    assert codes(judged(*ring("NET/IB/0/GDRDMA"), retry)) == ["socket_connect_timeout"]


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


@pytest.mark.parametrize(
    "name", ["veth0", "docker0", "br-0123456789ab", "cni0", "flannel.1", "tailscale0", "virbr0", "wg0"]
)
def test_virtual_interfaces(name: str) -> None:
    assert virtual_interface(name)


@pytest.mark.parametrize(
    "name", ["eth0", "ens5", "bond0", "ib0", "enp1s0f1np1", "br0", "hsn0", "net1", "lo", "", "wlan0"]
)
def test_real_interfaces(name: str) -> None:
    assert not virtual_interface(name)


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ({1: 100.0, 2: 190.0, 4: 370.0}, False),
        ({1: 231.0, 2: 57.0, 3: 32.0}, True),
        ({1: 100.0, 2: 99.0}, False),
        ({1: 100.0, 2: 150.0, 4: 120.0}, True),
        ({}, False),
        ({8: 1.0}, False),
        ({1: 0.0, 2: 0.0}, False),
    ],
)
def test_negative_scaling(points: dict[int, float], found: bool) -> None:
    finding = scaling_finding(points)
    assert (finding is not None) == found
    if finding:
        assert as_cause(finding, "bench").evidence.startswith("bench: ")


@given(st.lists(st.sampled_from(sorted(CAUSES)), max_size=12))
def test_choosing_loses_and_doubles_nothing(found: list[str]) -> None:
    findings = [Finding(code, line, "x") for line, code in enumerate(found)]
    leading, rest = choose(findings)
    assert sorted((*leading, *rest), key=lambda one: one.line) == findings
    assert bool(leading) == bool(findings)
    if any(one.weight == "fatal" for one in findings):
        assert all(one.weight != "secondary" for one in leading)


@given(st.binary(max_size=500))
def test_no_bytes_break_the_rules(raw: bytes) -> None:
    findings = Findings()
    findings.plain(1, raw)
    findings.plain(2, b"Last error: " + raw)
    for finding in findings.result(0).values():
        assert as_cause(finding, "x").fix
