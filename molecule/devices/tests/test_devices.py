# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with its driver, its container runtime and RDMA, as the roles leave it."""

from __future__ import annotations

import json
import typing as t

testinfra_hosts = ["ansible://muster_nodes"]


def test_the_driver_lists_all_gpus_and_its_daemon_runs(host: t.Any) -> None:
    assert len(host.check_output("nvidia-smi -L").splitlines()) == 2
    assert host.service("nvidia-persistenced").is_running and host.service("nvidia-persistenced").is_enabled


def test_the_module_is_the_open_one_of_the_default_branch(host: t.Any) -> None:
    assert host.package("nvidia-kernel-open-dkms").is_installed and not host.package("nvidia-kernel-dkms").is_installed
    assert host.package("nvidia-driver-pinning-595").is_installed


def test_the_repository_is_signed_and_upgrades_leave_the_driver_alone(host: t.Any) -> None:
    sources = host.file("/etc/apt/sources.list.d/muster-cuda.sources")
    assert sources.contains("Signed-By: /usr/share/keyrings/muster-cuda.asc")
    assert host.file("/etc/apt/apt.conf.d/52muster-gpu-driver").contains("Package-Blacklist")


def test_what_came_is_on_record(host: t.Any) -> None:
    record = json.loads(host.file("/var/lib/muster/packages-gpu-driver.json").content_string)
    assert record["complete"] and {"nvidia-driver-cuda", "libnvidia-ml1"} <= set(record["added"])


def test_containers_get_the_gpus_by_cdi(host: t.Any) -> None:
    assert host.package("nvidia-container-toolkit").version == "1.20.2-1"
    assert {"nvidia.com/gpu=0", "nvidia.com/gpu=1"} <= set(host.check_output("nvidia-ctk cdi list").splitlines())
    assert host.service("nvidia-cdi-refresh").is_enabled


def test_rdma_is_there_now_and_after_a_boot(host: t.Any) -> None:
    assert host.package("rdma-core").is_installed and host.file("/sys/module/rdma_ucm").is_directory
    assert host.file("/etc/modules-load.d/muster-rdma.conf").contains("rdma_ucm")
