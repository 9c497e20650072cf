# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides whether a machine can be part of a K3s cluster: abilities, disks, ports, and what others installed."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import re
import socket
import time
import typing as t

from . import facts_devices, facts_gpu, facts_host, host_blobs
from .facts_source import FactsSource

# Folders that K3s and its role write below.
_WRITTEN = ("etc", "usr/local/bin", "var/lib")
_DATA = "var/lib/rancher/k3s"
_CONTROLLERS = ("cpu", "memory", "pids")
# Packages that decide whether GPUs and containers work.
_PACKAGES = re.compile(r"(docker|containerd|moby|nvidia|libnvidia|cuda|kubelet|kubeadm|k3s|rke2)")
_WHOLE = ("installed", "not-installed", "config-files")
_DRIVER = ("nvidia-driver-", "nvidia-open", "libnvidia-compute", "cuda-drivers")
_DOCKER = ("docker-ce.list", "docker.io.list", "moby-engine.list")
_RUNTIMES = ("usr/bin/nvidia-container-runtime", "usr/local/nvidia/toolkit/nvidia-container-runtime")
_LISTENED = {"server": (6443, 6444, 10250, 10256), "agent": (6444, 10250, 10256)}
_VXLAN = 8472


def read_ability(source: FactsSource) -> dict[str, str]:
    """Return what the rule about K3s takes, in the words of the probe of a rented machine."""
    status = source.lines(os.path.join(source.proc, "1/status"))
    virtual = facts_host.read_virtualisation(source)
    mounts = source.lines(os.path.join(source.proc, "self/mountinfo"))
    writable = any(re.search(r" /sys/fs/cgroup\S* \S*\brw\b", line) for line in mounts)
    return {
        "container": str(virtual["technology"]) if virtual["kind"] == "container" else "none",
        "cap_eff": next((line.partition(":")[2].strip() for line in status if line.startswith("CapEff:")), ""),
        "systemd": str(int(os.path.isdir(source.below("run/systemd/system")))),
        "kmsg": str(int(os.path.exists(os.path.join(source.dev, "kmsg")))),
        "tun": str(int(os.path.exists(os.path.join(source.dev, "net/tun")))),
        "cgroup_rw": str(int(writable)),
    }


def read_machine(source: FactsSource, role: str) -> dict[str, t.Any]:
    """Return the facts of a machine that shall have the ``role`` in a cluster; nothing is changed."""
    release = source.below("etc/os-release")
    return {
        "os": facts_host.parse_os_release(source.lines(release)),
        "selinux": (source.text(os.path.join(source.sys, "fs/selinux/enforce")) or "") == "1",
        "cgroup": read_cgroups(source),
        **facts_host.read_memory(source),
        "swap_gib": _read_swap(source),
        "free_bytes": host_blobs.free_bytes(pathlib.Path(source.below(_DATA))),
        "read_only": [f"/{name}" for name in _WRITTEN if _is_read_only(source.below(name))],
        "ports": _find_taken_ports(role) if source.live else [],
        "broken_packages": read_broken_packages(source),
        "docker": _read_docker(source),
        "driver": read_driver(source),
        "device_records": facts_devices.read_records(source),
        "time": time.time(),
    }


def read_cgroups(source: FactsSource) -> dict[str, t.Any]:
    """Return ``{version, missing}``: the version of the tree, and controllers that the kernel does not offer."""
    unified = source.text(os.path.join(source.sys, "fs/cgroup/cgroup.controllers"))
    if unified is not None:
        return {"version": 2, "missing": [name for name in _CONTROLLERS if name not in unified.split()]}
    rows = [line.split() for line in source.lines(os.path.join(source.proc, "cgroups")) if not line.startswith("#")]
    enabled = {row[0] for row in rows if len(row) == 4 and row[3] == "1"}
    return {"version": 1 if enabled else None, "missing": [name for name in _CONTROLLERS if name not in enabled]}


def read_broken_packages(source: FactsSource) -> list[str]:
    """Return packages for containers and GPUs that dpkg has begun and not finished, as ``name (state)``."""
    found, name = [], ""
    try:
        with open(source.below("var/lib/dpkg/status"), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _unused, value = line.partition(": ")
                if key == "Package":
                    name = value.strip()
                elif key == "Status" and _PACKAGES.match(name) and value.split()[-1] not in _WHOLE:
                    found.append(f"{name} ({value.split()[-1]})")
    except OSError:
        return []
    return found


def read_driver(source: FactsSource) -> dict[str, t.Any]:
    """Return ``{gpus, module, libraries, managed_by, runtime}`` of NVIDIA's driver, None for what is not there."""
    module = facts_gpu.parse_driver("\n".join(source.lines(os.path.join(source.proc, "driver/nvidia/version"))))
    libraries = None
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64"):
        for name in source.names(source.below(folder)):
            match = re.fullmatch(r"libnvidia-ml\.so\.([0-9]+\.[0-9.]+)", name)
            libraries = match[1] if match else libraries
    return {
        "gpus": _count_gpus(source),
        "module": module["version"],
        "libraries": libraries,
        "managed_by": _find_manager(source) if module["version"] or libraries else None,
        "runtime": any(os.path.exists(source.below(path)) for path in _RUNTIMES),
    }


def _find_manager(source: FactsSource) -> str:
    """Return in words who installed the driver, and so who may change it."""
    if os.path.exists(source.below("etc/dgx-release")):
        return "DGX OS"
    if any(
        name.startswith(_DRIVER) and name.endswith(".list") for name in source.names(source.below("var/lib/dpkg/info"))
    ):
        return "its packages"
    if os.path.exists(source.below("usr/bin/nvidia-uninstall")):
        return "NVIDIA's installer"
    return "the host of the container" if facts_host.read_virtualisation(source)["kind"] == "container" else "unknown"


def _count_gpus(source: FactsSource) -> int:
    """Return how many NVIDIA GPUs are on the bus: display (0x03) controllers of the vendor."""
    base = os.path.join(source.sys, "bus/pci/devices")
    devices = [os.path.join(base, name) for name in source.names(base)]
    return sum(
        source.text(f"{place}/vendor") == f"0x{facts_gpu.NVIDIA}"
        and (source.text(f"{place}/class") or "").startswith("0x03")
        for place in devices
    )


def _read_docker(source: FactsSource) -> dict[str, t.Any] | None:
    """Return ``{running, managed_by}`` of Docker, None where it is not installed."""
    known = [name for name in source.names(source.below("var/lib/dpkg/info")) if name in _DOCKER]
    snap = os.path.isdir(source.below("snap/docker"))
    if not known and not snap and not os.path.exists(source.below("usr/bin/dockerd")):
        return None
    return {
        "running": os.path.exists(source.below("run/docker.sock")),
        "managed_by": "its package" if known else "snap" if snap else "hand",
    }


def _read_swap(source: FactsSource) -> float:
    rows = [line.split() for line in source.lines(os.path.join(source.proc, "swaps"))[1:]]
    return round(sum(int(row[2]) for row in rows if len(row) > 2 and row[2].isdecimal()) / 2**20, 2)


def _is_read_only(path: str) -> bool:
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _find_taken_ports(role: str) -> list[str]:
    """Return the ports of K3s that another program has, as ``6443/tcp``."""
    asked = [(port, socket.SOCK_STREAM) for port in _LISTENED[role]] + [(_VXLAN, socket.SOCK_DGRAM)]
    found = []
    for port, kind in asked:
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind == socket.SOCK_STREAM))
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                found.append(f"{port}/{'tcp' if kind == socket.SOCK_STREAM else 'udp'}")
    return found
