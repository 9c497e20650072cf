# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes: the messages of several versions that name each, what explains what, and what must not be read as a cause."""

from __future__ import annotations

import csv
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.causes import (
    CAUSES,
    Finding,
    build_cause,
    split_by_weight,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.combined_causes import scaling_finding
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.log_patterns import (
    Findings,
    is_virtual_interface,
)
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

SPARK = "[0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
MESSAGES = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric" / "messages.tsv"


def messages(form: str) -> list[tuple[str, str, str]]:
    """(code, source file of NCCL, text) of the messages of one form: NCCL's warn and info, or others' lines."""
    with MESSAGES.open(encoding="utf-8") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["code"], row["source"], row["text"]) for row in rows if row["form"] == form]


@pytest.mark.parametrize(("code", "source", "text"), messages("warn"))
def test_warnings(code: str, source: str, text: str) -> None:
    for stamp in ("", "[2026-11-21 10:11:12] "):
        found = judged(info("cudaDriverVersion 12080"), warn(text, source, stamp=stamp))
        assert codes(found) == [code]
        assert found.causes[0].evidence.startswith(f"some.log:2: {text[:30]}")
        assert found.causes[0].node == "node-1"


@pytest.mark.parametrize("style", PREFIXES)
def test_warnings_behind_prefixes(style: str) -> None:
    for code, source, text in messages("warn"):
        assert codes(judged(prefixed(style, warn(text, source)))) == [code]


@pytest.mark.parametrize(("code", "source", "text"), messages("info"))
def test_notices(code: str, source: str, text: str) -> None:
    assert codes(judged(info(text))) == [code]


@pytest.mark.parametrize(("code", "source", "text"), messages("other"))
def test_lines_of_others(code: str, source: str, text: str) -> None:
    for line in (text, prefixed("mpirun", text), prefixed("kubectl", text)):
        assert code in codes(judged("step=1 loss=2.0", line))


def test_every_code_is_reached_somewhere() -> None:
    combined = {"nic_name_mismatch", "silent_tcp", "gpudirect_off", "negative_scaling"}
    named = {code for form in ("warn", "info", "other") for code, _source, _text in messages(form)}
    assert named | combined == set(CAUSES)


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
    "[W socket.cpp] [c10d] failed to connect to [head]:29500 (errno: 97 - Address family not supported by protocol).",
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
    assert is_virtual_interface(name)


@pytest.mark.parametrize(
    "name", ["eth0", "ens5", "bond0", "ib0", "enp1s0f1np1", "br0", "hsn0", "net1", "lo", "", "wlan0"]
)
def test_real_interfaces(name: str) -> None:
    assert not is_virtual_interface(name)


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
        assert build_cause(finding, "bench").evidence.startswith("bench: ")


@given(st.lists(st.sampled_from(sorted(CAUSES)), max_size=12))
def test_choosing_loses_and_doubles_nothing(found: list[str]) -> None:
    findings = [Finding(code, line, "x") for line, code in enumerate(found)]
    leading, rest = split_by_weight(findings)
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
        assert build_cause(finding, "x").fix
