# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts for drivers and RDMA that recorded hosts do not show: locks, records, containerd's files."""

from __future__ import annotations

import os
import pathlib

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


def test_records_say_whether_an_installation_came_to_its_end(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "var/lib/muster"
    place.mkdir(parents=True)
    (place / "packages-rdma.json").write_text('{"there": [], "complete": false}')
    (place / "packages-gpu-driver.json").write_text('{"there": [], "complete": true}')
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    assert facts["records"] == {"gpu-driver": True, "rdma": False}


def test_containerd_says_whether_it_takes_devices_by_cdi() -> None:
    read = facts_devices._read_containerd
    assert read("version = 2\n") == {"cdi": None, "nvidia": False, "default": False}
    on = 'enable_cdi = true\n[plugins.x.containerd.runtimes."nvidia"]\ndefault_runtime_name = "nvidia"\n'
    assert read(on) == {"cdi": True, "nvidia": True, "default": True}
