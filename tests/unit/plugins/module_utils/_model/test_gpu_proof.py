# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod saw of a node's GPUs, judged: each fault has one finding with its cause, and what works has none."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import gpu_proof as rules
from ansible_collections.muster.training.plugins.module_utils._model.gpu_proof import PluginPod, ProvedNode, SeenDevices

TWO = SeenDevices(("/dev/nvidia0", "/dev/nvidia1"), memlock="unlimited", complete=True)
HCA = dataclasses.replace(TWO, verbs=("/dev/infiniband/uverbs0",), gids=1)
GOOD = ProvedNode("gpu-1", 2, 2, 2, seen=TWO)
VERBS = dataclasses.replace(HCA, devices=())
# A node with an HCA and no GPU, changes of it by name.
HCA_ONLY = {"expected": 0, "capacity": 0, "offered": 0, "rdma": "rdma/ib", "hcas": 1, "seen": VERBS}
PLUGIN = PluginPod("plugin-x7", "kube-system")
NO_RUNTIME = (
    'FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: failed to get sandbox runtime: no runtime for "nvidia" '
    "is configured"
)
NO_CDI = (
    "CreateContainerError: CDI device injection failed: unresolvable CDI devices k8s.device-plugin.nvidia.com/gpu=0"
)
NO_HOOK = (
    "StartError: error running createContainer hook #0: fork/exec /usr/bin/nvidia-cdi-hook: no such file or directory"
)
OLD_DRIVER = (
    "StartError: error mounting /usr/lib/x86_64-linux-gnu/libcuda.so.580.95 to rootfs: stat "
    "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95: no such file or directory"
)
REFUSED = "UnexpectedAdmissionError: Allocate failed due to no healthy devices present; cannot allocate"

# (what differs from a good node, code, outcome, words of the line)
FAULTS = [
    ({"closed": "it is not ready"}, "closed", "unproven", "takes no pods: it is not ready"),
    ({"capacity": 0, "offered": 0}, "plugin_missing", "fail", "its facts have 2: no device plugin runs on it"),
    ({"expected": None, "offered": 0}, "plugin_missing", "fail", "its kubelet knows 2: no device plugin runs on it"),
    ({"offered": 0, "plugins": (PLUGIN,)}, "plugin_stale", "fail", "although the device plugin plugin-x7 runs"),
    (
        {"offered": 0, "plugins": (dataclasses.replace(PLUGIN, problem="CrashLoopBackOff"),)},
        "plugin_failed",
        "fail",
        "plugin-x7 does not run (CrashLoopBackOff)",
    ),
    (
        {"capacity": 1, "offered": 1, "seen": dataclasses.replace(TWO, devices=TWO.devices[:1])},
        "fewer_gpus",
        "fail",
        "1 of 2",
    ),
    ({"offered": 1, "seen": dataclasses.replace(TWO, devices=TWO.devices[:1])}, "fewer_gpus", "fail", "(1 unhealthy)"),
    (
        {"expected": None, "capacity": 2, "offered": 1, "seen": dataclasses.replace(TWO, devices=TWO.devices[:1])},
        "fewer_gpus",
        "fail",
        "(1 unhealthy)",
    ),
    ({"expected": 1}, "plugin_stale", "fail", "offers 2 GPUs and has 1"),
    ({"used": 2, "seen": None}, "in_use", "unproven", "all 2 GPUs are used by pods"),
    ({"seen": None, "problem": NO_RUNTIME}, "runtime_missing", "fail", "does not know NVIDIA's runtime"),
    ({"seen": None, "problem": NO_CDI}, "cdi_missing", "fail", "finds no CDI specification"),
    ({"seen": None, "problem": NO_HOOK}, "hook_missing", "fail", "is not on it"),
    ({"seen": None, "problem": OLD_DRIVER}, "driver_changed", "fail", "another driver"),
    ({"seen": None, "problem": REFUSED}, "plugin_stale", "fail", "refused the devices"),
    ({"seen": None, "problem": "its image cannot be pulled"}, "pod_failed", "unproven", "its image cannot be pulled"),
    ({"seen": SeenDevices()}, "pod_failed", "unproven", "ended before it had listed its devices"),
    ({"seen": dataclasses.replace(TWO, devices=())}, "cdi_off", "fail", "sees no device: CDI is off"),
    ({"seen": dataclasses.replace(TWO, devices=TWO.devices[:1])}, "fewer_devices", "fail", "got 2 GPUs and sees 1"),
    ({"seen": dataclasses.replace(TWO, smi=0, smi_error="Failed to initialize NVML")}, "smi_failed", "fail", "NVML"),
    ({"seen": dataclasses.replace(TWO, smi=1)}, "smi_failed", "fail", "lists 1 GPUs in its pod, which has 2"),
    ({"rdma": "rdma/ib"}, "rdma_missing", "fail", "got rdma/ib and sees no /dev/infiniband"),
    ({"hcas": 2}, "rdma_missing", "fail", "its facts have 2 HCAs for jobs, and it offers no RDMA resource"),
    ({"rdma": "rdma/ib", "hcas": 2, "seen": HCA}, "fewer_hcas", "fail", "got rdma/ib and sees 1 of 2 HCAs"),
    ({"rdma": "rdma/roce", "seen": dataclasses.replace(HCA, gids=0)}, "gid_missing", "fail", "have no GID there"),
    (
        {"rdma": "rdma/ib", "seen": dataclasses.replace(HCA, memlock="8388608")},
        "memlock",
        "fail",
        "may lock 8388608 bytes",
    ),
    ({**HCA_ONLY, "rdma": "", "seen": None}, "rdma_missing", "fail", "1 HCAs for jobs, and it offers no RDMA resource"),
    ({**HCA_ONLY, "seen": dataclasses.replace(VERBS, verbs=())}, "rdma_missing", "fail", "sees no /dev/infiniband"),
    ({**HCA_ONLY, "seen": dataclasses.replace(VERBS, gids=0)}, "gid_missing", "fail", "have no GID there"),
    ({**HCA_ONLY, "hcas": 2}, "fewer_hcas", "fail", "sees 1 of 2 HCAs"),
    ({**HCA_ONLY, "seen": dataclasses.replace(VERBS, memlock="65536")}, "memlock", "fail", "may lock 65536 bytes"),
    ({**HCA_ONLY, "seen": SeenDevices()}, "pod_failed", "unproven", "ended before it had listed its devices"),
    ({**HCA_ONLY, "seen": None, "problem": "not ready"}, "pod_failed", "unproven", "its pod did not run: not ready"),
    ({**HCA_ONLY, "closed": "it is cordoned"}, "closed", "unproven", "takes no pods"),
]


@pytest.mark.parametrize(
    ("changes", "code", "outcome", "words"), FAULTS, ids=[f"{row[1]}-{n}" for n, row in enumerate(FAULTS)]
)
def test_each_fault_has_its_one_line(changes: dict[str, object], code: str, outcome: str, words: str) -> None:
    node = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    (finding,) = rules.judge_node(node)
    assert (finding.code, finding.outcome) == (code, outcome) and words in finding.problem and finding.fix
    assert "\n" not in finding.problem and rules.find_outcome([finding]) == outcome
    (check,) = rules.build_checks([node])
    assert (check.name, check.ok, check.node, check.fix) == (code, False, "gpu-1", finding.fix)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"expected": None},
        {"used": 1, "seen": dataclasses.replace(TWO, devices=TWO.devices[1:])},
        {"seen": dataclasses.replace(TWO, smi=2)},
        {"rdma": "rdma/roce", "seen": HCA},
        {"rdma": "rdma/roce", "hcas": 1, "seen": HCA},
        # A virtual function, without the network that it gets in a job.
        {"rdma": "nvidia.com/rdma_roce", "hcas": 8, "seen": dataclasses.replace(HCA, gids=0)},
        # Without RDMA what it may lock does not matter.
        {"seen": dataclasses.replace(TWO, memlock="8388608")},
        HCA_ONLY,
        {**HCA_ONLY, "expected": None, "rdma": "example.com/rdma_hca", "hcas": 0},
        # The program of an image finds no driver where there is no GPU.
        {
            **HCA_ONLY,
            "seen": dataclasses.replace(VERBS, smi=0, smi_error="couldn't communicate with the NVIDIA driver"),
        },
        # Pods that share GPUs see fewer devices than they are told to have.
        {"capacity": 8, "offered": 8, "shared": "time-slicing, 4 each"},
        {"bare": dataclasses.replace(TWO, devices=())},
    ],
)
def test_what_works_has_no_finding(changes: dict[str, object]) -> None:
    node = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    assert rules.judge_node(node) == () and rules.find_outcome(()) == "pass"
    assert [item.ok for item in rules.build_checks([node])] == [True]


def test_what_is_not_wrong_is_told_beside() -> None:
    node = dataclasses.replace(GOOD, bare=TWO, shared="mps")
    assert list(rules.list_warnings(node)) == [
        "gpu-1: a container that requests no GPU sees /dev/nvidia0, /dev/nvidia1",
        "gpu-1: pods share its GPUs (mps): gangs are not placed on it",
    ]
    assert list(rules.list_warnings(GOOD)) == [] and not ProvedNode("cpu", 0).has_gpus and GOOD.has_gpus


def test_a_failure_weighs_more_than_what_is_not_proven() -> None:
    fewer = dataclasses.replace(GOOD, capacity=1, offered=1, used=1, seen=None)
    found = rules.judge_node(fewer)
    assert [item.code for item in found] == ["fewer_gpus", "in_use"] and rules.find_outcome(found) == "fail"


def test_the_program_runs_in_a_plain_shell_and_says_what_is_there(tmp_path: pathlib.Path) -> None:
    """As it is sent, with a nvidia-smi that lists two GPUs and one that fails."""
    smi = tmp_path / "nvidia-smi"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for program, listed, error in (
        ("echo 'GPU 0: H100 (UUID: a)'; echo 'GPU 1: H100 (UUID: b)'", 2, ""),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", 0, "Failed to initialize NVML"),
    ):
        smi.write_text(f"#!/bin/sh\n{program}\n")
        smi.chmod(0o755)
        done = subprocess.run(["sh", "-c", rules.SCRIPT], env=environment, capture_output=True, text=True, check=True)
        seen = rules.parse_seen(done.stdout)
        assert seen.complete and seen.smi == listed and seen.smi_error.startswith(error) and seen.memlock
        assert seen.shm_kib is not None


@given(st.text())
def test_any_output_is_read(text: str) -> None:
    seen = rules.parse_seen(text)
    assert seen.complete == ("end" in [line.strip(" ") if line == "end " else line for line in text.splitlines()])


def test_the_lines_of_the_program() -> None:
    text = "device /dev/nvidia0\nverbs /dev/infiniband/uverbs1\ngid mlx5_0/ports/1 3 fe80::1\nmemlock 65536\nshm_kib 65536\nend\n"
    assert rules.parse_seen(text) == SeenDevices(
        ("/dev/nvidia0",), ("/dev/infiniband/uverbs1",), 1, "65536", 65536, None, "", True
    )
