# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU facts: driver, NVLink fabric and architecture."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_gpu,
)
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource


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


def read_with(tmp_path: pathlib.Path, program: str, on_bus: int) -> tuple[dict[str, object], list[str]]:
    """The facts of a machine with eight device files and this nvidia-smi."""
    (tmp_path / "dev").mkdir()
    for number in range(8):
        (tmp_path / "dev" / f"nvidia{number}").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    source = FactsSource({"root": str(tmp_path), "path": [str(tmp_path / "bin")]})
    bus = {f"0000:0{number}:00.0": ("10de", "030200") for number in range(on_bus)}
    return facts_gpu.read_gpus(source, bus, False), source.problems


def test_a_gpu_that_fell_off_the_bus_is_not_counted_by_its_device_file(tmp_path: pathlib.Path) -> None:
    gpu, problems = read_with(
        tmp_path, "echo 'Unable to determine the device handle for GPU1: Unknown Error'; exit 9", 7
    )
    assert gpu["count"] == 7 and problems == ["nvidia-smi failed with 9: " + problems[0].partition(": ")[2]]
    assert "device handle for GPU1" in problems[0]


RECOVERY = "uuid,gpu_recovery_action"


@pytest.mark.parametrize(
    ("answer", "count", "named"),
    [
        ("echo GPU-0, None; echo GPU-1, Reset", 1, "gpu/0000:01:00.0: is not counted, nvidia-smi asks for: Reset"),
        (
            "echo GPU-0, Reboot; echo GPU-1, Drain P2P",
            0,
            "gpu/0000:00:00.0: is not counted, nvidia-smi asks for: Reboot",
        ),
        ("echo GPU-0, None; echo GPU-1, '[N/A]'", 2, ""),
        ("echo 'Field \"gpu_recovery_action\" is not a valid field to query.'; exit 2", 2, ""),
    ],
    ids=["reset", "all", "not supported", "older driver"],
)
def test_a_gpu_that_asks_for_a_reset_is_not_counted_and_is_named(
    tmp_path: pathlib.Path, answer: str, count: int, named: str
) -> None:
    cards = "\n".join(CARD.format(number) for number in range(2))
    program = f"case \"$1\" in *{RECOVERY}*) {answer};; -L) ;; *) cat <<'T'\n{cards}\nT\n;; esac"
    gpu, problems = read_with(tmp_path, program, 2)
    assert gpu["count"] == count and len(t.cast(list[object], gpu["devices"])) == count
    assert [item for item in problems if item.startswith("gpu/")][:1] == ([named] if named else [])


def test_a_gpu_that_fell_off_is_named_by_its_slot(tmp_path: pathlib.Path) -> None:
    _gpu, problems = read_with(tmp_path, f"case $1 in -L) ;; *) cat <<'T'\n{CARD.format(0)}\nT\n;; esac", 2)
    assert "gpu: 2 GPUs are on the PCI bus, nvidia-smi lists 1: not 0000:01:00.0" in problems


CARD = "{0}, NVIDIA A100-SXM4-80GB, GPU-{0}, 81920, 00000000:0{0}:00.0, 550.127.08, 8.0, 87"
SLICED = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)
  MIG 1g.10gb     Device  0: (UUID: MIG-a)
  MIG 3g.40gb     Device  1: (UUID: MIG-b)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
"""


@pytest.mark.parametrize(("both", "count", "memory"), [(True, 1, 10.0), (False, 1, 80.0)])
def test_slices_of_a_gpu_are_not_counted_as_whole_gpus(
    tmp_path: pathlib.Path, both: bool, count: int, memory: float
) -> None:
    listing = SLICED + ("  MIG 2g.20gb     Device  0: (UUID: MIG-c)\n" if both else "")
    cards = "\n".join(CARD.format(number) for number in range(2))
    gpu, problems = read_with(
        tmp_path, f"case $1 in -L) cat <<'T'\n{listing}T\n;; *) cat <<'T'\n{cards}\nT\n;; esac", 2
    )
    assert (gpu["count"], gpu["memory_gib"]) == (count, memory)
    assert any(item.startswith("gpu: MIG is on") for item in problems)
