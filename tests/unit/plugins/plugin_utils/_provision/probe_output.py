# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of the readiness probe, for tests."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._provision.readiness import (
    MachineRequirements,
)

VM = {
    "muster_probe": "1",
    "init": "systemd",
    "systemd": "1",
    "container": "none",
    "cap_eff": "000001ffffffffff",
    "kmsg": "1",
    "tun": "1",
    "cgroup_rw": "1",
    "python": "3.10",
    "disk_free_kib": str(400 * 2**20),
    "memory_kib": str(200 * 2**20),
    "cloud_init": "done",
    "apt_busy": "0",
    "gpu_count": "8",
    "cuda": "0 8",
    "done": "1",
}


WANTED = MachineRequirements(gpu_count=8)


def output(facts: dict[str, str], **changes: str | None) -> str:
    merged = {**facts, **changes}
    return "Welcome to Ubuntu\n" + "".join(f"{key}={value}\n" for key, value in merged.items() if value is not None)
