# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes: the messages of several versions that name each, what explains what, and what must not be read as a cause."""

from __future__ import annotations

import pathlib

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.causes import (
    Finding,
    split_by_weight,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_table import CAUSES
from ansible_collections.muster.training.tests.support.nccl_text import (
    codes,
    info,
    judged,
    ring,
    warn,
)

SPARK = "[0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
MESSAGES = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric" / "messages.tsv"


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


@given(st.lists(st.sampled_from(sorted(CAUSES)), max_size=12))
def test_choosing_loses_and_doubles_nothing(found: list[str]) -> None:
    findings = [Finding(code, line, "x") for line, code in enumerate(found)]
    leading, rest = split_by_weight(findings)
    assert sorted((*leading, *rest), key=lambda one: one.line) == findings
    assert bool(leading) == bool(findings)
    if any(one.weight == "fatal" for one in findings):
        assert all(one.weight != "secondary" for one in leading)
