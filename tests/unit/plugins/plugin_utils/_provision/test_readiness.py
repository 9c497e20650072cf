# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readiness gate: the script runs here, its output is judged, ssh is called with a pin of its own."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.lease import Rental, SshEndpoint
from ansible_collections.muster.training.plugins.plugin_utils._provision.probe_ssh import SshProber
from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import (
    PROBE_SCRIPT,
    MachineRequirements,
    judge_probe,
    parse_probe,
)

VM = {
    "muster_probe": "1",
    "init": "systemd",
    "systemd": "1",
    "container": "none",
    "cap_eff": "000001ffffffffff",
    "kmsg": "1",
    "tun": "1",
    "cgroup_rw": "1",
    "python": "3.10",
    "disk_free_kib": str(400 * 2**20),
    "memory_kib": str(200 * 2**20),
    "cloud_init": "done",
    "apt_busy": "0",
    "gpu_count": "8",
    "cuda": "0 8",
    "done": "1",
}
POD = {
    **VM,
    "container": "docker",
    "systemd": "0",
    "cap_eff": "00000000a80425fb",
    "tun": "0",
    "cgroup_rw": "0",
    "kmsg": "0",
}
WANTED = MachineRequirements(gpu_count=8)


def output(facts: dict[str, str], **changes: str | None) -> str:
    merged = {**facts, **changes}
    return "Welcome to Ubuntu\n" + "".join(f"{key}={value}\n" for key, value in merged.items() if value is not None)


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


@given(st.text())
def test_any_output_has_a_verdict(text: str) -> None:
    assert judge_probe(text, WANTED).state == "not_yet"


@given(st.dictionaries(st.sampled_from(list(VM)), st.text(max_size=30)))
def test_any_fact_has_a_verdict(changes: dict[str, str]) -> None:
    judge_probe(output(VM, **changes), MachineRequirements(gpu_count=8, k3s=True))


class _Ssh:
    def __init__(self, returncode: int = 0, stdout: str = "", stderr: str = "", error: Exception | None = None) -> None:
        self.done = subprocess.CompletedProcess([], returncode, stdout, stderr)
        self.error = error
        self.argv: list[str] = []

    def __call__(self, argv: list[str], **_options: t.Any) -> subprocess.CompletedProcess[str]:
        self.argv = argv
        if self.error:
            raise self.error
        return self.done


def probe(
    tmp_path: pathlib.Path, ssh: _Ssh, endpoint: SshEndpoint | None = None, gpus: int = 8, ident: str = "i-1"
) -> t.Any:
    prober = SshProber(tmp_path / "known_hosts", WANTED, identity="/keys/id", execute=ssh)
    ssh_to = endpoint or SshEndpoint("192.0.2.7", 2222, "ubuntu")
    record = {"gpu": {"count": gpus}}
    return prober.probe(Rental("lambda", ident, "n", None, "running", ssh=ssh_to, record=record))


def test_ssh_pins_the_key_by_machine_not_by_address(tmp_path: pathlib.Path) -> None:
    ssh = _Ssh(stdout=output(VM))
    assert probe(tmp_path, ssh).state == "ready"
    line = " ".join(ssh.argv)
    assert "HostKeyAlias=lambda-i-1" in line
    assert f"UserKnownHostsFile={tmp_path}/known_hosts/lambda-i-1" in line
    assert "StrictHostKeyChecking=accept-new" in line
    assert "StrictHostKeyChecking=no" not in line
    assert ssh.argv[-3:] == ["--", "192.0.2.7", "sh -s"]
    assert (tmp_path / "known_hosts").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("stderr", "state", "answered"),
    [
        ("ssh: connect to host 192.0.2.7 port 22: Connection refused", "not_yet", False),
        ("ubuntu@192.0.2.7: Permission denied (publickey).", "not_yet", True),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "bad", True),
        ("", "not_yet", False),
    ],
)
def test_a_connection_that_fails(tmp_path: pathlib.Path, stderr: str, state: str, answered: bool) -> None:
    report = probe(tmp_path, _Ssh(255, stderr=stderr))
    assert (report.state, report.has_answered) == (state, answered)


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("ssh", 1), FileNotFoundError(2, "No such file")])
def test_ssh_that_hangs_or_is_missing(tmp_path: pathlib.Path, error: Exception) -> None:
    assert probe(tmp_path, _Ssh(error=error)).state == "not_yet"


def test_as_many_gpus_are_asked_for_as_were_sold(tmp_path: pathlib.Path) -> None:
    bare = _Ssh(stdout=output(VM, gpu_count=None, cuda="missing"))
    assert probe(tmp_path, bare, gpus=0).state == "ready"
    assert probe(tmp_path, bare, gpus=1).state == "not_yet"


def test_an_id_that_would_be_a_path_is_not_used(tmp_path: pathlib.Path) -> None:
    ssh = _Ssh()
    assert probe(tmp_path, ssh, ident="../../x").state == "bad"
    assert ssh.argv == []


@pytest.mark.parametrize("endpoint", [SshEndpoint("-oProxyCommand=x", 22, "root"), SshEndpoint("h", 22, "a b")])
def test_an_address_that_would_be_an_option_is_not_used(tmp_path: pathlib.Path, endpoint: SshEndpoint) -> None:
    ssh = _Ssh()
    assert probe(tmp_path, ssh, endpoint).state == "bad"
    assert ssh.argv == []
