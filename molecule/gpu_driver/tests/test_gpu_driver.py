# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with its driver, as the role leaves it."""

from __future__ import annotations

import json
import typing as t

testinfra_hosts = ["ansible://muster_nodes"]


def test_the_driver_lists_all_gpus_and_is_held_to_its_branch(host: t.Any) -> None:
    assert len(host.check_output("nvidia-smi -L").splitlines()) == 2
    assert host.package("nvidia-driver-pinning-595").is_installed
    assert host.package("nvidia-kernel-open-dkms").is_installed and not host.package("nvidia-kernel-dkms").is_installed


def test_its_daemon_runs_now_and_after_a_boot(host: t.Any) -> None:
    daemon = host.service("nvidia-persistenced")
    assert daemon.is_running and daemon.is_enabled


def test_what_came_is_on_record_and_upgrades_leave_it_alone(host: t.Any) -> None:
    record = json.loads(host.file("/var/lib/muster/packages-gpu-driver.json").content_string)
    assert record["complete"] and "nvidia-driver-cuda" in record["added"]
    assert host.file("/etc/apt/apt.conf.d/52muster-gpu-driver").contains("Package-Blacklist")


def test_nothing_of_the_other_roles_is_there(host: t.Any) -> None:
    assert not host.package("nvidia-container-toolkit").is_installed and not host.package("rdma-core").is_installed
