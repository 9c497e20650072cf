# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are not as a job needs them: one line each with the host, the fact and what to do, or it is mended.

What concerns pods and plugins (names of resources, node labels, what a pod sees) is for the roles of clusters.
"""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.device_plans import ROLES
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_device_info import read_device_plans
from ansible_collections.muster.training.tests.support.device_hosts import BARE

Dict = dict[str, t.Any]
HOST = "gpu-1"
GPU: Dict = {"pci": "0000:10:00.0", "device": "2330", "driver": "nvidia"}
P100: Dict = {**GPU, "device": "15f8", "driver": None}
WORKS: Dict = {"module": "595.91.07", "libraries": "595.91.07", "listed": 1, "owner": "cuda", "flavour": "open"}
TOOLKIT: Dict = dict.fromkeys(
    ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"),
    "1.20.2",
)
RUNTIME: Dict = {"packages": TOOLKIT, "cdi_specs": ["nvidia.yaml"], "refresh_unit": True}
PORT: Dict = {
    "name": "mlx5_0",
    "port": 1,
    "vendor": "15b3",
    "device": "1021",
    "link_layer": "ethernet",
    "state": "active",
    "rate_gbps": 400.0,
    "netdev": "eth0",
    "mtu": 9000,
    "gid_types": ["roce_v2"],
    "pci": None,
}
IB: Dict = {**PORT, "link_layer": "infiniband", "netdev": None, "mtu": None, "gid_types": []}
MODULES = ["ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad"]


def driver(**values: t.Any) -> Dict:
    return {"gpus": [GPU], "persistence": True, "driver": {**WORKS, **values}}


def packages(**values: t.Any) -> Dict:
    return {"packages": {**BARE["packages"], **values}}


def rdma(*ports: Dict, **values: t.Any) -> Dict:
    return {"gpus": [], "rdma": {"ports": list(ports), "modules": MODULES, "doca": "3.5.0", **values}}


def read(facts: Dict, options: Dict, refuse: bool) -> Dict:
    class Machine:
        name = HOST

        def call(self, _op: str) -> Dict:
            return {"time": time.time(), **BARE, **facts}

    remotes: t.Any = [Machine()]
    return read_device_plans(remotes, {HOST: options}, ROLES, refuse)


REFUSED: list[tuple[str, Dict, Dict, tuple[str, str]]] = [
    (
        "driver of a runfile and of packages",
        driver(runfile=True),
        {},
        ("has a driver of NVIDIA's .run file and one of packages", "Run nvidia-uninstall on it"),
    ),
    (
        "Secure Boot and dkms",
        {"secure_boot": True},
        {},
        ("Secure Boot is on, and refuses modules that dkms builds", "mokutil --import /var/lib/dkms/mok.pub"),
    ),
    (
        "Secure Boot and dkms on a virtual machine",
        {"secure_boot": True, "virtualisation": {"kind": "vm"}},
        {},
        ("Secure Boot is on", "Switch Secure Boot off where the machine is made"),
    ),
    (
        "nouveau drives a display",
        {"driver": {"nouveau": True, "nouveau_in_use": True}},
        {},
        ("nouveau drives a display with its GPU", "systemctl set-default multi-user.target"),
    ),
    (
        "no headers of the running kernel",
        {"headers": "missing"},
        {},
        ("the archive has no linux-headers-6.1.0-38-amd64", "boot the newest kernel"),
    ),
    (
        "P100 with open modules",
        {"gpus": [P100]},
        {"gpu_driver": {"modules": "open"}},
        ("its pascal GPUs have no GSP", "Set gpu_driver_modules: auto"),
    ),
    (
        "module and libraries of two versions",
        driver(libraries="595.71.05", listed=None),
        {},
        ("the kernel module is 595.91.07 and the libraries are 595.71.05", "Boot it again"),
    ),
    (
        "a GPU that fell off the bus",
        {**driver(), "gpus": [GPU, {**GPU, "pci": "0000:11:00.0"}]},
        {},
        ("2 GPUs are on the PCI bus, nvidia-smi lists 1", "One fell off the bus (Xid 79)"),
    ),
    (
        "a toolkit with a hole",
        {**driver(), "runtime": {**RUNTIME, "packages": dict.fromkeys(TOOLKIT, "1.17.3")}},
        {},
        ("nvidia-container-toolkit 1.17.3 is below 1.17.8", "Set container_runtime_upgrade: true"),
    ),
    (
        "held packages of an older branch",
        packages(held=["nvidia-driver-570"]),
        {},
        ("held packages: nvidia-driver-570", "Release them (apt-mark unhold)"),
    ),
    (
        "disk that cannot hold what dkms builds",
        {"free_bytes": 1 << 29},
        {},
        ("0.5 GiB free below /var/lib, 3 are needed", "Remove what is not needed"),
    ),
    (
        "disk that was full while dkms built",
        packages(broken=["nvidia-kernel-open-dkms (half-configured)"]),
        {},
        ("half-installed packages: nvidia-kernel-open-dkms (half-configured)", "Run dpkg --configure -a on it"),
    ),
    (
        "another package that is half-installed",
        packages(broken=["postgresql-17 (half-configured)", "dpkg itself (it was interrupted)"]),
        {},
        ("half-installed packages: postgresql-17 (half-configured), dpkg itself", "apt-get --fix-broken install"),
    ),
    (
        "full /boot",
        {"boot": {"free_bytes": 20 << 20, "image_bytes": 61 << 20}},
        {},
        ("20 MiB free below /boot, and the initial file system has 61", "Remove kernels that are not used"),
    ),
    (
        "a clock that is years behind",
        {"time": time.time() - 3 * 365 * 86400},
        {},
        ("its clock is 1095 days behind the controller's", "timedatectl set-ntp true"),
    ),
    (
        "a clock that is years ahead",
        {**driver(), "runtime": {}, "time": time.time() + 2 * 365 * 86400},
        {},
        ("its clock is 730 days ahead of the controller's", "timedatectl set-ntp true"),
    ),
    (
        "fabric manager of another version",
        {**driver(), "nvswitches": 4, "fabric_manager": {"version": "595.71.05", "running": True}},
        {},
        ("the fabric manager is 595.71.05 and the driver is 595.91.07", "Install the fabric manager of the driver's"),
    ),
    (
        "exclusive network namespaces",
        rdma(PORT, netns_exclusive=True),
        {},
        ("RDMA devices belong to one network namespace each (exclusive)", "rdma system set netns shared"),
    ),
]
TOLD: list[tuple[str, Dict, str, tuple[str, str]]] = [
    (
        "apt in use",
        {"lock": "unattended-upgr"},
        "gpu_driver",
        ("the package manager is in use by unattended-upgr", "the installation waits for it"),
    ),
    (
        "containerd without CDI",
        {**driver(), "runtime": {**RUNTIME, "containerd": {"cdi": None}, "containerd_version": "1.7.24"}},
        "container_runtime",
        ("CDI is off in its containerd", "a pod would start without its GPUs"),
    ),
    (
        "no subnet manager",
        rdma({**IB, "state": "init"}),
        "rdma",
        ("mlx5_0 is INIT: no subnet manager answers", "Start one"),
    ),
    (
        "one port slower than the others",
        rdma(IB, {**IB, "name": "mlx5_1", "rate_gbps": 200.0}),
        "rdma",
        ("mlx5_1 is left out: it is slower than others (200 Gb/s, 400)", "check its cable"),
    ),
    ("a low MTU", rdma({**PORT, "mtu": 1500}), "rdma", ("the MTU of eth0 is below 9000", "set rdma_mtu")),
    (
        "a bond over both ports",
        rdma({**PORT, "name": "mlx5_bond_0"}, bonds=["bond0"]),
        "rdma",
        ("bond0 bonds ports: its RDMA device stands for both", "NCCL sees one"),
    ),
    (
        "a virtual function without a driver",
        {"gpus": [], "rdma": {"ports": [], "silent": ["0000:01:00.2"]}},
        "rdma",
        ("0000:01:00.2: an HCA, or its virtual function, without an RDMA device", "Load mlx5_ib"),
    ),
]
MENDED: list[tuple[str, Dict, str, str, object]] = [
    (
        "K3s started before the toolkit",
        {**driver(), "k3s_unit": "k3s", "runtime": {**RUNTIME, "k3s": {"nvidia": False}}},
        "container_runtime",
        "restart",
        "k3s",
    ),
    (
        "packages that a run of this collection began and did not finish",
        {
            **packages(broken=["nvidia-kernel-open-dkms (half-configured)"], versions={"nvidia-driver-cuda": "595"}),
            "driver": {"libraries": "595.91.07", "owner": "cuda"},
            "records": {"gpu-driver": False},
        },
        "gpu_driver",
        "packages",
        ("nvidia-driver-cuda", "nvidia-kernel-open-dkms"),
    ),
    ("rdma_ucm is not loaded", rdma(PORT, modules=MODULES[:2]), "rdma", "modules", tuple(MODULES)),
    ("services may lock 8 MiB", rdma(PORT, memlock={"k3s": 8 << 20}), "rdma", "memlock", ("k3s",)),
    (
        "a storage HCA whose name begins as that of another",
        rdma(IB, {**IB, "name": "mlx5_10", "link_layer": "ethernet"}),
        "rdma",
        "nccl_ib_hca",
        "=mlx5_0",
    ),
]


@pytest.mark.parametrize(("facts", "options", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused_is_one_line_and_nothing_is_changed(facts: Dict, options: Dict, says: tuple[str, str]) -> None:
    result = read(facts, options, refuse=False)
    lines = [line for line in result["refusals"] if says[0] in line]
    assert len(lines) == 1 and lines[0].startswith(f"{HOST}: ") and says[1] in lines[0], result["refusals"]
    assert "\n" not in lines[0]
    with pytest.raises(RefusedError, match="Nothing was changed on any host"):
        read(facts, options, refuse=True)


@pytest.mark.parametrize(("facts", "role", "says"), [row[1:] for row in TOLD], ids=[row[0] for row in TOLD])
def test_what_is_not_changed_unasked_is_told(facts: Dict, role: str, says: tuple[str, str]) -> None:
    result = read(facts, {}, refuse=True)
    lines = [line for line in result["nodes"][HOST][role]["warnings"] if says[0] in line]
    assert len(lines) == 1 and says[1] in lines[0], result["nodes"][HOST][role]["warnings"]


@pytest.mark.parametrize(
    ("facts", "role", "field", "value"), [row[1:] for row in MENDED], ids=[row[0] for row in MENDED]
)
def test_what_can_be_mended_is_planned(facts: Dict, role: str, field: str, value: object) -> None:
    result = read(facts, {"gpu_driver": {"reboot": "when_needed"}}, refuse=True)
    assert result["nodes"][HOST][role][field] == value
    assert (HOST in result["stale"][role]) is (field != "nccl_ib_hca")
