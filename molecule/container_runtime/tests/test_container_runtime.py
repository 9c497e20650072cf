# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose containers can use its GPUs, as the role leaves it."""

from __future__ import annotations

import typing as t

testinfra_hosts = ["ansible://muster_nodes"]
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


def test_the_four_packages_have_one_version(host: t.Any) -> None:
    assert {host.package(name).version for name in PACKAGES} == {"1.20.2-1"}


def test_gpus_are_described_by_cdi_now_and_after_a_boot(host: t.Any) -> None:
    assert {"nvidia.com/gpu=0", "nvidia.com/gpu=1"} <= set(host.check_output("nvidia-ctk cdi list").splitlines())
    assert host.service("nvidia-cdi-refresh").is_enabled


def test_the_repository_is_signed_by_its_own_key(host: t.Any) -> None:
    sources = host.file("/etc/apt/sources.list.d/muster-nvidia-container-toolkit.sources")
    # One repository stands in for two, and is known to the machine under the first one's name.
    assert sources.exists or host.file("/etc/apt/sources.list.d/muster-cuda.sources").contains("Signed-By")


def test_containerd_has_read_that_it_takes_devices_by_cdi(host: t.Any) -> None:
    assert "enable_cdi = true" in host.check_output("containerd config dump")
    changed = int(host.check_output("stat --format=%Y /etc/containerd/config.toml"))
    began = host.check_output("systemctl show containerd --property=ActiveEnterTimestamp --timestamp=unix --value")
    assert host.service("containerd").is_running and int(began.lstrip("@")) >= changed
