# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readiness gate: what is missing is named, whatever a machine prints."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.offer import Hardware
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import (
    PROBE_SCRIPT,
    MachineRequirements,
    judge_probe,
    parse_probe,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._provision.probe_output import (
    VM,
    WANTED,
    output,
)

POD = {
    **VM,
    "container": "docker",
    "systemd": "0",
    "cap_eff": "00000000a80425fb",
    "tun": "0",
    "cgroup_rw": "0",
    "kmsg": "0",
}


def test_the_script_runs_on_this_machine() -> None:
    done = subprocess.run(["sh", "-s"], input=PROBE_SCRIPT, capture_output=True, text=True, timeout=60, check=True)
    facts = parse_probe(done.stdout)
    assert (facts["muster_probe"], facts["done"]) == ("1", "1")
    assert int(facts["memory_kib"]) > 0 and int(facts["disk_free_kib"]) >= 0 and facts["python"].startswith("3.")
    assert judge_probe(done.stdout, MachineRequirements(disk_free_gib_min=0)).has_answered


def test_a_whole_machine_is_ready() -> None:
    report = judge_probe(output(VM), WANTED)
    assert (report.state, report.problems) == ("ready", ())
    assert report.facts["k3s"] == {"capable": True, "reasons": []}


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({"cloud_init": "running"}, "not_yet", "cloud-init"),
        ({"apt_busy": "1"}, "not_yet", "apt"),
        ({"python": ""}, "not_yet", "python3"),
        ({"gpu_count": "7"}, "not_yet", "7 of 8"),
        ({"gpu_count": "0"}, "not_yet", "0 of 8"),
        ({"gpu_count": None}, "not_yet", "nvidia-smi is missing"),
        ({"cuda": "802 0"}, "not_yet", "error 802"),
        ({"cuda": "missing"}, "not_yet", "libcuda missing"),
        ({"cuda": ""}, "not_yet", "hangs"),
        ({"cuda": "0 4"}, "not_yet", "CUDA sees 4 of 8"),
        ({"disk_free_kib": "1024"}, "bad", "free disk"),
        ({"done": None}, "not_yet", "did not finish"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, str | None], state: str, word: str) -> None:
    report = judge_probe(output(VM, **changes), WANTED)
    assert report.state == state
    assert word in "; ".join(report.problems)


def test_a_pod_is_ready_as_a_pod_and_bad_where_k3s_is_wanted() -> None:
    assert judge_probe(output(POD), WANTED).state == "ready"
    report = judge_probe(output(POD), MachineRequirements(gpu_count=8, k3s=True))
    assert report.state == "bad"
    for word in ("docker container", "systemd", "CAP_SYS_ADMIN", "/dev/net/tun", "cgroup", "/dev/kmsg"):
        assert word in report.problems[0]


def test_a_machine_without_gpu_or_without_driver_is_not_asked_for_one() -> None:
    bare = output(VM, gpu_count=None, cuda="missing")
    assert judge_probe(bare, MachineRequirements()).state == "ready"
    assert judge_probe(bare, MachineRequirements(gpu_count=8, cuda=False)).state == "ready"


@pytest.mark.parametrize(
    ("shown", "state", "word"),
    [
        ({"gpu_name": "NVIDIA H100 80GB HBM3", "gpu_memory_mib": "81559"}, "ready", ""),
        ({"gpu_name": "", "gpu_memory_mib": ""}, "ready", ""),
        ({"gpu_name": "NVIDIA A40", "gpu_memory_mib": "81559"}, "bad", "NVIDIA A40, H100 was ordered"),
        ({"gpu_name": "NVIDIA H100 80GB HBM3", "gpu_memory_mib": "40960"}, "bad", "40 GiB of memory per GPU"),
        ({"memory_kib": str(64 * 2**20)}, "bad", "64 GiB of memory"),
    ],
)
def test_a_machine_must_be_what_was_ordered(shown: dict[str, str | None], state: str, word: str) -> None:
    wanted = MachineRequirements(gpu_count=8, ordered=Hardware("H100", 8, 80.0, 200.0))
    report = judge_probe(output(VM, **shown), wanted)
    assert report.state == state and word in "; ".join(report.problems)


def test_the_script_tells_the_smallest_gpu(tmp_path: pathlib.Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\n[ \"$1\" = -L ] && printf 'GPU 0: x\\nGPU 1: y\\n' && exit\n"
        "printf '81559, NVIDIA H100 80GB HBM3\\n46068, NVIDIA L40S\\n'\n"
    )
    smi.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-s"], input=PROBE_SCRIPT, capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    facts = parse_probe(done.stdout)
    assert (facts["gpu_count"], facts["gpu_memory_mib"], facts["gpu_name"]) == ("2", "46068", "NVIDIA L40S")


@given(st.text())
def test_any_output_has_a_verdict(text: str) -> None:
    assert judge_probe(text, WANTED).state == "not_yet"


@given(st.dictionaries(st.sampled_from(list(VM)), st.text(max_size=30)))
def test_any_fact_has_a_verdict(changes: dict[str, str]) -> None:
    judge_probe(output(VM, **changes), MachineRequirements(gpu_count=8, k3s=True))
