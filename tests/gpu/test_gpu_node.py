# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection finds out about a node with a GPU, beside what CUDA says of it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.offer import Hardware
from ansible_collections.muster.training.plugins.module_utils._node.facts_gpu import architecture
from ansible_collections.muster.training.plugins.plugin_utils._provision import readiness
from ansible_collections.muster.training.tests.e2e.playbook_world import World

# The memory that CUDA reports lacks what the driver keeps for itself, and error correction takes.
MEMORY_SHARE = 0.9
PLAY = """
- hosts: muster_nodes
  gather_facts: false
  tasks:
    - muster.training.node_info: {python: "{{ muster_training_python }}", packages: [torch]}
      register: found
    - ansible.builtin.copy: {content: "{{ found | to_json }}", dest: "{{ answer }}", mode: "0600"}
"""


def ask_node(world: World, python: str) -> dict[str, t.Any]:
    """Return what the module node_info returns."""
    place = world.root / "node_info.yml"
    place.write_text(PLAY)
    answer = world.root / "answer.json"
    values = json.dumps(world.values(answer=str(answer), muster_training_python=python))
    argv = [world.program, "-i", str(world.inventory), str(place), "-e", values]
    done = subprocess.run(argv, env=world.environment(), cwd=world.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, t.Any] = json.loads(answer.read_text())
    return found


def test_facts_of_the_gpus_are_what_cuda_says(world: World, gpus: list[dict[str, t.Any]], torch_python: str) -> None:
    found = ask_node(world, torch_python)
    facts = found["node"]["facts"]
    gpu, devices = found["record"]["gpu"], facts["gpu"]["devices"]
    print(json.dumps({"record": gpu, "facts": facts}, indent=1))
    assert gpu["count"] == len(gpus) == len(devices)
    assert gpu["model"] == gpus[0]["name"]
    assert gpu["arch"] == architecture(".".join(map(str, gpus[0]["arch"])))
    for device, said in zip(devices, gpus, strict=True):
        assert MEMORY_SHARE <= said["gib"] / device["memory_gib"] <= 1.0
        assert device["pci"] == said["pci"]
    version = pathlib.Path("/proc/driver/nvidia/version").read_text()
    assert facts["driver"]["version"] in version


def test_a_rented_machine_with_this_gpu_would_be_ready(gpus: list[dict[str, t.Any]]) -> None:
    """The script that renting runs on a new machine, on this one: the driver answers, and CUDA initialises."""
    done = subprocess.run(["sh", "-c", readiness.PROBE_SCRIPT], capture_output=True, text=True, check=True)
    ordered = Hardware(gpu_model=gpus[0]["name"], gpu_memory_gib=gpus[0]["gib"])
    print(done.stdout)
    wanted = readiness.MachineRequirements(gpu_count=len(gpus), disk_free_gib_min=1, ordered=ordered)
    report = readiness.judge_probe(done.stdout, wanted)
    assert (report.state, report.problems) == ("ready", ())
    more = readiness.judge_probe(done.stdout, dataclasses.replace(wanted, gpu_count=len(gpus) + 1))
    assert more.problems == (f"nvidia-smi shows {len(gpus)} of {len(gpus) + 1} GPUs",)
    other = dataclasses.replace(wanted, ordered=Hardware(gpu_model="NVIDIA L4", gpu_memory_gib=24))
    assert readiness.judge_probe(done.stdout, other).state == "bad"
