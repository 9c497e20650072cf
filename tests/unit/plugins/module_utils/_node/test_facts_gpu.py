# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU facts: driver, NVLink fabric and architecture."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_gpu,
)


def test_driver_flavours() -> None:
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023"
    assert facts_gpu.parse_driver(opened) == {"version": "580.65.06", "flavour": "open"}
    assert facts_gpu.parse_driver(closed) == {"version": "535.129.03", "flavour": "proprietary"}
    assert facts_gpu.parse_driver(None) == {"version": None, "flavour": None}


def test_fabric_of_a_multi_node_nvlink_domain() -> None:
    text = (
        "    Fabric\n"
        "        State                             : Completed\n"
        "        CliqueId                          : 3\n"
        "        ClusterUUID                       : 8d1f2c9a-0000-4c1b-9f7a-1234567890ab\n"
    )
    assert facts_gpu.parse_fabric(text) == {"state": "Completed", "id": "8d1f2c9a-0000-4c1b-9f7a-1234567890ab.3"}
    assert facts_gpu.parse_fabric(text.replace("Completed", "N/A"))["state"] is None


@pytest.mark.parametrize(
    ("capability", "name"),
    [("9.0", "hopper"), ("8.9", "ada"), ("8.6", "ampere"), ("12.1", "blackwell"), ("7.5", "turing"), (None, None)],
)
def test_architecture(capability: str | None, name: str | None) -> None:
    assert facts_gpu.architecture(capability) == name


def test_what_an_h100_answers() -> None:
    """Read off a machine with driver 580.159.04; the memory that others use came later than the other fields."""
    line = "0, NVIDIA H100 80GB HBM3, GPU-fda4b90a, 81559, 00000000:00:06.0, 580.159.04, 9.0"
    gpu = {"model": "NVIDIA H100 80GB HBM3", "uuid": "GPU-fda4b90a", "memory_gib": 79.6, "pci": "0000:00:06.0"}
    driver = {"driver": "580.159.04", "arch": "hopper"}
    assert facts_gpu.parse_query(line) == [{**gpu, **driver, "memory_used_gib": None}]
    assert facts_gpu.parse_query(f"{line}, 61440") == [{**gpu, **driver, "memory_used_gib": 60.0}]
