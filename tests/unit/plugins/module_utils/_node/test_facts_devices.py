# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts for drivers and RDMA that recorded hosts do not show: locks, records, containerd's files."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._node import facts_devices
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource


def test_the_holder_of_apts_lock_is_named(tmp_path: pathlib.Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    lock.parent.mkdir(parents=True)
    lock.touch()
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/comm").write_text("unattended-upgr\n")
    inode = os.stat(lock).st_ino
    (tmp_path / "proc/locks").write_text(f"1: POSIX  ADVISORY  WRITE 77 fe:01:{inode} 0 EOF\n")
    assert facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))["lock"] == "unattended-upgr"


def test_packages_that_dpkg_began_are_found_whatever_they_are_called(tmp_path: pathlib.Path) -> None:
    status = tmp_path / "var/lib/dpkg/status"
    (status.parent / "updates").mkdir(parents=True)
    states = {"zsh": "half-configured", "nvidia-smi": "unpacked", "man-db": "triggers-pending", "ed": "installed"}
    status.write_text("\n".join(f"Package: {name}\nStatus: install ok {state}\n" for name, state in states.items()))

    def read() -> list[str]:
        facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
        return t.cast("list[str]", facts["packages"]["broken"])

    assert read() == ["zsh (half-configured)", "nvidia-smi (unpacked)"]
    (status.parent / "updates/0001").touch()
    assert read()[2:] == ["dpkg itself (it was interrupted)"]


def test_records_say_whether_an_installation_came_to_its_end(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "var/lib/muster"
    place.mkdir(parents=True)
    (place / "packages-rdma.json").write_text('{"there": [], "complete": false}')
    (place / "packages-gpu-driver.json").write_text('{"there": [], "complete": true}')
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    assert facts["records"] == {"gpu-driver": True, "rdma": False}


def test_what_the_roles_left_is_found(tmp_path: pathlib.Path) -> None:
    for path, text in (
        ("etc/modules-load.d/muster-rdma.conf", ""),
        ("run/muster-reboot", "modules were replaced\n"),
        ("run/muster-rdma-removed", ""),
        ("var/lib/muster/drained", ""),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    own = {"gpu_driver": [], "container_runtime": [], "rdma": ["/etc/modules-load.d/muster-rdma.conf"]}
    assert (facts["own_files"], facts["reboot"], facts["drained"]) == (own, "modules were replaced", True)
    assert facts["rdma"]["removed"]


def test_processes_are_counted_by_their_files_where_nvidia_smi_does_not_answer(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module  595.71.05  Release"
    )
    for pid, name, device in (
        ("7", "python3", "/dev/nvidia0"),
        ("8", "nvidia-persiste", "/dev/nvidia0"),
        ("9", "a", "/x"),
    ):
        (tmp_path / "proc" / pid / "fd").mkdir(parents=True)
        (tmp_path / "proc" / pid / "comm").write_text(name)
        (tmp_path / "proc" / pid / "fd/3").symlink_to(device)
    assert facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))["driver"]["processes"] == 1


def test_a_limit_counts_as_declared_once_systemd_has_read_it(tmp_path: pathlib.Path) -> None:
    units = tmp_path / "etc/systemd/system"
    (units / "k3s.service.d").mkdir(parents=True)
    (units / "k3s.service").write_text("[Service]\n")
    (units / "k3s.service.d/50-muster-rdma.conf").write_text("[Service]\nLimitMEMLOCK=infinity\n")
    tool = tmp_path / "tools/systemctl"
    tool.parent.mkdir()
    for answer, declared in (("yes", {}), ("no", {"k3s": "unlimited"})):
        tool.write_text(f"#!/bin/sh\necho NeedDaemonReload={answer}\n")
        tool.chmod(0o755)
        facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": [str(tool.parent)]}))
        assert facts["rdma"]["memlock_declared"] == declared


def test_an_hca_without_an_rdma_device_is_named(tmp_path: pathlib.Path) -> None:
    for at, has in (("0000:01:00.0", True), ("0000:01:00.2", False)):
        device = tmp_path / "sys/bus/pci/devices" / at
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x15b3")
        (device / "class").write_text("0x020000")
        if has:
            (device / "infiniband").mkdir()
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    assert facts["rdma"]["silent"] == ["0000:01:00.2"]


def test_containerd_says_whether_it_takes_devices_by_cdi() -> None:
    read = facts_devices._read_containerd
    assert read("version = 2\n") == {"cdi": None, "nvidia": False, "default": False}
    on = 'enable_cdi = true\n[plugins.x.containerd.runtimes."nvidia"]\ndefault_runtime_name = "nvidia"\n'
    assert read(on) == {"cdi": True, "nvidia": True, "default": True}


def test_files_that_containerd_imports_are_read_with_its_own(tmp_path: pathlib.Path) -> None:
    """nvidia-ctk since 1.18 leaves ``enable_cdi`` in a file beside containerd's own."""
    folder = tmp_path / "etc/containerd"
    (folder / "conf.d").mkdir(parents=True)
    own = 'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n[plugins]\n  enable_cdi = false\n'
    (folder / "config.toml").write_text(own)

    def read() -> t.Any:
        return facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))["runtime"]["containerd"]

    assert read()["cdi"] is False
    (folder / "conf.d/99-nvidia.toml").write_text('[plugins.x.runtimes."nvidia"]\n  enable_cdi = true\n')
    assert read() == {"cdi": True, "nvidia": True, "default": False}
    (folder / "config.toml").write_text(own.replace("/etc/containerd/", ""))
    assert read()["cdi"] is True, "a path that is relative to the file"
