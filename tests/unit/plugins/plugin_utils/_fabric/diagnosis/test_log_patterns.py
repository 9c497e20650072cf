# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of several versions that name each cause, and lines that must not be read as a cause."""

from __future__ import annotations

import csv
import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.causes import (
    build_cause,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import LIVE_CAUSES
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.log_patterns import (
    Findings,
    is_virtual_interface,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_table import CAUSES
from ansible_collections.muster.training.tests.support.nccl_text import (
    PREFIXES,
    codes,
    info,
    judged,
    prefixed,
    warn,
)

ENDS = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric" / "ends.corpus"
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
    combined |= {"cx7_half", "cx7_degraded", "bootstrap_on_wifi"}
    named = {code for form in ("warn", "info", "other") for code, _source, _text in messages(form)}
    ends = set(re.findall(r"(?m)^@@ \S+ \| (\w+)", ENDS.read_text(encoding="utf-8"))) - set(LIVE_CAUSES)
    assert named | combined | ends == set(CAUSES)


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
    found = judged(warn("Cuda failure 'a failure of tomorrow'", "enqueue.cc:1"), info("init.cc:867 -> 1"))
    assert (found.outcome, found.causes) == ("fail", ())
    assert any("a failure of tomorrow" in note for note in found.notes)


def test_the_status_decides_and_not_the_hint() -> None:
    found = judged(
        warn(
            "NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129", "net_ib.cc:1"
        ),
        info("HINT: IBV_WC_LOC_PROT_ERR status might be caused by ACS, see the troubleshooting section"),
    )
    assert codes(found) == ["wc_retry_exceeded"]


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


@given(st.binary(max_size=500))
def test_no_bytes_break_the_rules(raw: bytes) -> None:
    findings = Findings()
    findings.plain(1, raw)
    findings.plain(2, b"Last error: " + raw)
    for finding in findings.result(0).values():
        assert build_cause(finding, "x").fix


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("INFO docs: if you see 'CUDA out of memory' lower the batch size", []),
        ("Note: use gradient checkpointing to avoid CUDA out of memory errors", []),
        ("This helps prevent NCCL timeouts and CUDA error: out of memory", []),
        ("When the job hits CUDA out of memory, rerun with --offload", []),
        (
            "RuntimeError: CUDA out of memory. If you see this again, set max_split_size_mb to avoid fragmentation",
            ["oom_gpu"],
        ),
        ("Retry if you can. CUDA out of memory. Tried to allocate 2.00 GiB", ["oom_gpu"]),
        ("torch.OutOfMemoryError: while you ran to avoid it: CUDA out of memory", ["oom_gpu"]),
    ],
)
def test_a_message_that_is_only_spoken_of_is_no_cause(line: str, told: list[str]) -> None:
    assert codes(judged(f"{line}\nstep 1 loss 2.0\nstep 2 loss 1.9\n")) == told
