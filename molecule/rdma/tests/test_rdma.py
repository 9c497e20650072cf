# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with RDMA, as the role leaves it."""

from __future__ import annotations

import typing as t

testinfra_hosts = ["ansible://muster_nodes"]
MODULES = ("ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad")


def test_packages_are_installed(host: t.Any) -> None:
    assert all(host.package(name).is_installed for name in ("rdma-core", "ibverbs-providers", "perftest"))


def test_modules_are_loaded_now_and_after_a_boot(host: t.Any) -> None:
    assert all(host.file(f"/sys/module/{name}").is_directory for name in MODULES)
    lines = host.file("/etc/modules-load.d/muster-rdma.conf").content_string.splitlines()
    assert [line for line in lines if not line.startswith("#")] == list(MODULES)


def test_acs_is_off_after_a_boot(host: t.Any) -> None:
    assert host.service("muster-acs").is_running and host.service("muster-acs").is_enabled
    # The word of its control, where hardware.sh has it.
    place = "/sys/bus/pci/devices/0000:0f:01.0/config"
    word = host.check_output(f"od --address-radix=n --format=x2 --skip-bytes=262 --read-bytes=2 {place}")
    assert word.strip() == "0000"


def test_the_kernel_was_booted_with_its_option(host: t.Any) -> None:
    assert "iommu=pt" in host.file("/proc/cmdline").content_string.split()


def test_nothing_of_the_other_roles_is_there(host: t.Any) -> None:
    assert not host.package("nvidia-driver-cuda").is_installed
