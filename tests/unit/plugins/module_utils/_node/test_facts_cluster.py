# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a machine that shall be in a cluster, from trees as machines have them, and from this machine."""

from __future__ import annotations

import pathlib
import socket
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import facts_cluster
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource

V2 = "24 30 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"


def machine(root: pathlib.Path, files: dict[str, str]) -> FactsSource:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return FactsSource({"root": str(root)})


def test_a_virtual_machine_is_able(tmp_path: pathlib.Path) -> None:
    files = {"proc/1/status": "Name:\tsystemd\nCapEff:\t000001ffffffffff\n", "proc/self/mountinfo": V2}
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    found = facts_cluster.read_ability(machine(tmp_path, {**files, "dev/kmsg": "", "dev/net/tun": ""}))
    assert found == {
        "container": "none",
        "cap_eff": "000001ffffffffff",
        "systemd": "1",
        "kmsg": "1",
        "tun": "1",
        "cgroup_rw": "1",
    }


def test_a_container_without_anything_is_not(tmp_path: pathlib.Path) -> None:
    files = {"proc/1/environ": "container=docker\0", "proc/self/mountinfo": V2.replace(" rw,", " ro,", 1)}
    found = facts_cluster.read_ability(machine(tmp_path, files))
    assert (found["container"], found["cgroup_rw"], found["kmsg"], found["systemd"]) == ("docker", "0", "0", "0")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}, {"version": 2, "missing": []}),
        ({"sys/fs/cgroup/cgroup.controllers": "cpu pids\n"}, {"version": 2, "missing": ["memory"]}),
        (
            {"proc/cgroups": "#subsys_name\thierarchy\tnum\tenabled\ncpu\t1\t1\t1\nmemory\t2\t1\t0\npids\t3\t1\t1\n"},
            {"version": 1, "missing": ["memory"]},
        ),
    ],
)
def test_the_cgroup_tree(tmp_path: pathlib.Path, files: dict[str, str], expected: dict[str, t.Any]) -> None:
    assert facts_cluster.read_cgroups(machine(tmp_path, files)) == expected


def test_packages_that_were_begun_are_named(tmp_path: pathlib.Path) -> None:
    status = (
        "Package: docker-ce\nStatus: install ok half-installed\n\nPackage: vim\nStatus: install ok half-installed\n\n"
        "Package: nvidia-driver-580\nStatus: install ok half-configured\n\n"
        "Package: containerd\nStatus: install ok installed\n\nPackage: cuda\nStatus: deinstall ok config-files\n"
    )
    source = machine(tmp_path, {"var/lib/dpkg/status": status})
    assert facts_cluster.read_broken_packages(source) == [
        "docker-ce (half-installed)",
        "nvidia-driver-580 (half-configured)",
    ]
    assert facts_cluster.read_broken_packages(machine(tmp_path / "none", {})) == []


VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 23:42:11 UTC 2025\n"
GPU = {"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n"}


@pytest.mark.parametrize(
    ("files", "manager"),
    [
        ({"etc/dgx-release": "x"}, "DGX OS"),
        ({"var/lib/dpkg/info/libnvidia-compute-570.list": ""}, "its packages"),
        ({"usr/bin/nvidia-uninstall": ""}, "NVIDIA's installer"),
        ({}, "unknown"),
    ],
)
def test_a_driver_and_who_manages_it(tmp_path: pathlib.Path, files: dict[str, str], manager: str) -> None:
    own = {"proc/driver/nvidia/version": VERSION, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.133.20": ""}
    runtime = {"usr/bin/nvidia-container-runtime": ""}
    found = facts_cluster.read_driver(machine(tmp_path, {**GPU, **own, **runtime, **files}))
    assert found == {
        "gpus": 1,
        "module": "570.133.20",
        "libraries": "570.133.20",
        "managed_by": manager,
        "runtime": True,
    }


def test_gpus_without_a_driver(tmp_path: pathlib.Path) -> None:
    found = facts_cluster.read_driver(machine(tmp_path, GPU))
    assert found == {"gpus": 1, "module": None, "libraries": None, "managed_by": None, "runtime": False}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (
            {"var/lib/dpkg/info/docker-ce.list": "", "run/docker.sock": ""},
            {"running": True, "managed_by": "its package"},
        ),
        ({"usr/bin/dockerd": ""}, {"running": False, "managed_by": "hand"}),
        ({"snap/docker/current": ""}, {"running": False, "managed_by": "snap"}),
    ],
)
def test_docker_and_who_manages_it(tmp_path: pathlib.Path, files: dict[str, str], expected: t.Any) -> None:
    found = facts_cluster.read_machine(machine(tmp_path, files), "agent")
    assert found["docker"] == expected and found["ports"] == [] and found["read_only"] == []


def test_swap_is_added_up(tmp_path: pathlib.Path) -> None:
    swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1048576 0 -2\n/swap file 1048576 0 -3\n"
    assert facts_cluster.read_machine(machine(tmp_path, {"proc/swaps": swaps}), "agent")["swap_gib"] == 2.0


def test_a_port_that_another_program_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken, socket.socket(type=socket.SOCK_DGRAM) as vxlan:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        vxlan.bind(("127.0.0.1", 0))
        ports = (taken.getsockname()[1], vxlan.getsockname()[1])
        monkeypatch.setattr(facts_cluster, "_LISTENED", {"agent": ports[:1]})
        monkeypatch.setattr(facts_cluster, "_VXLAN", ports[1])
        assert facts_cluster._find_taken_ports("agent") == [f"{ports[0]}/tcp", f"{ports[1]}/udp"]
    assert facts_cluster._find_taken_ports("agent") == []


def test_this_machine_can_be_read() -> None:
    found = facts_cluster.read_machine(FactsSource({}), "server")
    assert found["free_bytes"] > 0 and found["memory_gib"] > 0 and found["cgroup"]["version"] in (1, 2)
