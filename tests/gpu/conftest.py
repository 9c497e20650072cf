# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the tests that need one NVIDIA GPU: what is missing is a failure, because they are asked for by name."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World

# What CUDA itself says of the GPUs, through PyTorch: neither nvidia-smi nor sysfs, which the collection reads.
ASK = """
import json, torch
def tell(number):
    gpu = torch.cuda.get_device_properties(number)
    place = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    return {"name": gpu.name, "gib": gpu.total_memory / 2**30, "arch": [gpu.major, gpu.minor], "pci": place}
print(json.dumps([tell(number) for number in range(torch.cuda.device_count())]))
"""


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The interpreter whose PyTorch sees a GPU."""
    return os.environ["MUSTER_TORCH_PYTHON"]


@pytest.fixture(scope="session")
def gpus(torch_python: str) -> list[dict[str, t.Any]]:
    """The GPUs as CUDA describes them."""
    done = subprocess.run([torch_python, "-c", ASK], capture_output=True, text=True, check=True)
    found: list[dict[str, t.Any]] = json.loads(done.stdout)
    assert found, "these tests need a machine with an NVIDIA GPU, its driver and a PyTorch for CUDA"
    return found


@pytest.fixture
def world(tmp_path: pathlib.Path, gpus: list[dict[str, t.Any]]) -> t.Iterator[World]:
    """One node, this machine, with nothing on it; whatever a test leaves running is ended."""
    assert gpus
    found = World(tmp_path)
    found.inventory = tmp_path / "nodes.muster_local.yml"
    found.inventory.write_text("plugin: muster.training.local\nnodes: 1\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("muster_cluster: local\n")
    yield found
    found.close()
