# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each thing that keeps a machine out of a cluster, with the one line that names it and what to do."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import checks, cluster_checks
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.k3s import K3sMember

ABLE = {
    "container": "none",
    "systemd": "1",
    "cap_eff": "000001ffffffffff",
    "kmsg": "1",
    "tun": "1",
    "cgroup_rw": "1",
}
NO_DRIVER = {"gpus": 0, "module": None, "libraries": None, "managed_by": None, "runtime": False}
FACTS: dict[str, t.Any] = {
    "os": {"id": "debian", "version": "13", "name": "Debian GNU/Linux 13"},
    "selinux": False,
    "cgroup": {"version": 2, "missing": []},
    "memory_gib": 8.0,
    "memory_limit_gib": None,
    "swap_gib": 0,
    "free_bytes": 40 << 30,
    "read_only": [],
    "ports": [],
    "broken_packages": [],
    "docker": None,
    "driver": NO_DRIVER,
}
ADDRESSES = (
    {"interface": "eth0", "address": "192.0.2.7", "prefix": 24},
    {"interface": "tailscale0", "address": "100.101.2.3", "prefix": 32},
)


def member(role: str = "agent", facts: dict[str, t.Any] | None = None, **changes: t.Any) -> K3sMember:
    values: dict[str, t.Any] = {"architecture": "x86_64", "addresses": ADDRESSES, "ability": ABLE}
    machine = {**FACTS, **(facts or {})}
    return K3sMember("gpu-1", role, "gpu-1", **{**values, "machine": machine, "version": "v1.36.4+k3s1", **changes})


def refuse(item: K3sMember) -> str:
    with pytest.raises(RefusedError) as raised:
        checks.raise_first_failure(cluster_checks.check_machine(item))
    return str(raised.value)


def test_a_whole_machine_passes() -> None:
    for item in (member(), member("server"), member(installed=True, facts={"ports": ["6443/tcp"], "free_bytes": 0})):
        assert [check for check in cluster_checks.check_machine(item) if not check.ok] == []
        assert cluster_checks.describe(item) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"foreign": ("K3s (/usr/local/bin/k3s)",)},
            "gpu-1: has K3s (/usr/local/bin/k3s) that this collection did not",
        ),
        ({"architecture": "armv7l"}, "gpu-1: is a armv7l machine, for which K3s is not installed. Use amd64 or arm64"),
        ({"ability": {**ABLE, "kmsg": "0"}}, "gpu-1: cannot run K3s: has no /dev/kmsg. Train on it over SSH"),
        (
            {"ability": {**ABLE, "container": "docker", "systemd": "0"}},
            "K3s: is a docker container, systemd is not running. Train on it over SSH (placement.backend: hosts)",
        ),
        ({"root": False}, "gpu-1: is not managed as root. Set ansible_become: true"),
        ({"flannel_iface": "eth7"}, "gpu-1: has no interface eth7 (k3s_flannel_iface). It has eth0, tailscale0"),
        (
            {"node_ip": "192.0.2.8"},
            "gpu-1: has no interface with the address 192.0.2.8 (k3s_node_ip). It has 192.0.2.7",
        ),
        (
            {"flannel_iface": "tailscale0", "version": "v1.36.1+k3s1"},
            "gpu-1: K3s v1.36.1+k3s1 loses the network between pods whenever the mesh's daemon starts again. Use v1.33.13",
        ),
        ({"node_ip": "100.101.2.3", "version": "v1.32.20+k3s1"}, "gpu-1: K3s v1.32.20+k3s1 loses the network"),
        ({"clock_skew_s": 61.0}, "gpu-1: the clock is 61 s ahead of the controller's. Start time synchronisation"),
        ({"clock_skew_s": -3600.0}, "gpu-1: the clock is 3600 s behind the controller's"),
    ],
)
def test_what_was_asked_of_a_machine_that_does_not_have_it(changes: dict[str, t.Any], said: str) -> None:
    assert said in refuse(member(**changes))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"read_only": ["/etc", "/usr/local/bin"]}, "gpu-1: /etc, /usr/local/bin are read-only. Mount it with write"),
        ({"read_only": ["/etc"]}, "gpu-1: /etc is read-only"),
        ({"free_bytes": 1 << 30}, "gpu-1: has 1.0 GiB free for /var/lib/rancher/k3s, 2 are needed"),
        ({"memory_gib": 0.25}, "gpu-1: has 0.2 GiB of memory, an agent needs 0.4"),
        ({"memory_limit_gib": 0.25}, "gpu-1: has 0.2 GiB of memory"),
        (
            {"cgroup": {"version": 2, "missing": ["memory"]}},
            "gpu-1: has no cgroup controller memory. Add cgroup_enable",
        ),
        (
            {"cgroup": {"version": 1, "missing": []}},
            "gpu-1: has version 1 of the cgroup tree, which K3s v1.36.4+k3s1 refuses. Boot it with systemd.unified",
        ),
        ({"broken_packages": ["docker-ce (half-installed)"]}, "gpu-1: half-installed packages: docker-ce (half-insta"),
        (
            {"driver": {**NO_DRIVER, "gpus": 8, "module": "570.1", "libraries": "580.2"}},
            "gpu-1: NVIDIA's driver is half-installed: the kernel module is 570.1 and the libraries are 580.2. Boot it",
        ),
        (
            {"driver": {**NO_DRIVER, "gpus": 8, "libraries": "580.2"}},
            "gpu-1: NVIDIA's driver is half-installed: the module is not loaded",
        ),
        ({"ports": ["10250/tcp", "8472/udp"]}, "gpu-1: another program has port 10250/tcp, 8472/udp. Stop it"),
    ],
)
def test_what_is_on_a_machine_and_keeps_it_out(facts: dict[str, t.Any], said: str) -> None:
    assert said in refuse(member(facts=facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"broken_packages": ["nvidia-kernel-open-dkms (half-configured)"], "device_records": {"gpu-driver": False}},
        {"driver": {**NO_DRIVER, "gpus": 8, "libraries": "580.2"}, "device_records": {"gpu-driver": True}},
    ],
)
def test_what_a_role_of_the_collection_began_keeps_no_machine_out(facts: dict[str, t.Any]) -> None:
    assert all(check.ok for check in cluster_checks.check_machine(member(facts=facts)))


def test_how_many_problems_there_are_is_told() -> None:
    assert "(also gpu-1: the clock is 90 s ahead" in refuse(member(root=False, clock_skew_s=90.0))


def test_an_older_kubernetes_takes_version_1_of_the_cgroup_tree() -> None:
    item = member(facts={"cgroup": {"version": 1, "missing": []}}, version="v1.34.10+k3s1")
    assert all(check.ok for check in cluster_checks.check_machine(item))


@pytest.mark.parametrize("version", ["v1.33.13+k3s1", "v1.34.9+k3s1", "v1.35.6+k3s1", "v1.36.2+k3s1", "v1.40.0+k3s1"])
def test_a_k3s_that_the_mesh_can_use(version: str) -> None:
    item = member(flannel_iface="tailscale0", version=version)
    assert all(check.ok for check in cluster_checks.check_machine(item))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"os": {"id": "rocky", "name": "Rocky Linux 9"}},
            "gpu-1: Rocky Linux 9 is not among the systems that this was",
        ),
        ({"selinux": True}, "gpu-1: SELinux is enforcing: install k3s-selinux"),
        ({"swap_gib": 2.0}, "gpu-1: swap is on (2 GiB): memory of pods can be swapped out"),
        ({"docker": {"running": True, "managed_by": "snap"}}, "gpu-1: Docker runs (managed by snap); K3s has a cont"),
        ({"driver": {**NO_DRIVER, "gpus": 2}}, "gpu-1: 2 NVIDIA GPUs without a driver: pods cannot use them"),
        (
            {"driver": {"gpus": 1, "module": "580.2", "libraries": "580.2", "managed_by": "DGX OS", "runtime": True}},
            "gpu-1: NVIDIA driver 580.2, managed by DGX OS",
        ),
    ],
)
def test_what_keeps_a_machine_out_of_nothing_is_told(facts: dict[str, t.Any], said: str) -> None:
    item = member(facts=facts)
    assert [line for line in cluster_checks.describe(item) if said in line]
    assert all(check.ok for check in cluster_checks.check_machine(item))
