# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What carried the collectives of a run in pods, by its own ranks' sockets or NCCL's lines, and drift from the verdict."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_gpus
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command, training
from ansible_collections.muster.training.tests.lab.test_fabric_cluster import Fabric
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, not_run, team

__all__ = ["kube_lab", "team"]

# In place of NCCL, which needs GPUs: a rank that writes where NCCL would what NCCL writes.
NCCL = """
import os, pathlib, socket, time
rank, peer, host, pid = int(os.environ["NODE_RANK"]), 1 - int(os.environ["NODE_RANK"]), socket.gethostname(), os.getpid()
place = pathlib.Path(os.environ["NCCL_DEBUG_FILE"].replace("%h", host).replace("%p", str(pid)))
lines = (
    f"NCCL INFO Bootstrap: Using eth0:10.0.0.{rank + 1}<0>",
    f"NCCL INFO ncclCommInitRankConfig comm 0x55{rank} rank {rank} nranks 2 cudaDev 0 busId 1a000 commId 0xab - Init START",
    f"NCCL INFO Channel 00/0 : {rank}[0] -> {peer}[0] [send] via NET/IB/0/GDRDMA",
    f"NCCL INFO Channel 00/0 : {peer}[0] -> {rank}[0] [receive] via NET/IB/0/GDRDMA",
)
place.write_text("".join(f"{host}:{pid}:{pid} [0] {line}\\n" for line in lines))
for step in range(1, 6):
    print(f"step={step}", flush=True)
    time.sleep(0.5)
"""


@pytest.fixture
def fabric(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[Fabric]:
    """A controller with the verdict of a fabric test on the two nodes that its runs are placed to."""
    if not kube_lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    yield Fabric(kube_lab, team, tmp_path)
    kube_lab.unlabel()


def train(controller: Controller, name: str) -> tuple[Dict, str]:
    """Train on two nodes, one pod each because two have no room on one; return the record and what was said."""
    job = training(controller.lab, f"{controller.team.namespace}-{name}", 60, 0.1, name=name)
    code, output = controller.play("train", {**job, "resources": {"cpu": 1.2, "memory": "2Gi"}})
    assert code == 0, output
    return controller.run(f"{name}-*")[0], output


@pytest.mark.torch
def test_sockets_of_the_ranks_name_what_a_run_used_and_drift_is_told(fabric: Fabric) -> None:
    _, output = fabric.verify(muster_fabric_allow_unproven=True)
    assert fabric.verdict()["transport"]["verdict"] == "tcp", output[-3000:]
    record, output = train(fabric.controller, "same")
    assert record["transport_seen"] == "tcp", record["transport"]
    seen, pair = record["transport"], fabric.pair
    assert seen["evidence_kind"] == "socket_peers_and_netdev_counters"
    assert {(item["a"], item["b"]) for item in seen["pairs"]} == {(pair[0], pair[1]), (pair[1], pair[0])}
    assert {item["via"] for item in seen["pairs"]} == {"eth0"} and seen["drift"] == []
    assert "fabric test of island" not in output
    # What an earlier fabric test proved is better than what the next run uses: its RDMA devices are gone.
    (place,) = (fabric.controller.folder / "state").glob("*/fabric.json")
    document = json.loads(place.read_text())
    for entry in document["islands"]:
        if entry["island"] == "lab":
            entry["transport"] = {**entry["transport"], "verdict": "rdma_gdr", "expected": "rdma_gdr"}
    place.write_text(json.dumps(document))
    record, output = train(fabric.controller, "drift")
    drift = "the run's collectives use tcp (slower), and the fabric test of island lab proved rdma_gdr"
    assert record["transport_seen"] == "tcp" and record["transport"]["drift"] == [drift]
    assert f"warning: {drift}" in output


def test_the_lines_of_nccl_name_what_a_run_used(kube_lab: KubeLab, tmp_path: pathlib.Path) -> None:
    """They are files in the pods, which go with them: their lines come with the run's records."""
    first, second = kube_lab.nodes[:2]
    job = command("python3", "-c", NCCL, gpus_per_node=1)
    with contextlib.ExitStack() as stack:
        team = stack.enter_context(kube_lab.namespace(cpu="4", memory="8Gi", gpu="2"))
        stack.enter_context(kube_gpus.offered(kube_lab, (first, second)))
        stack.enter_context(kube_gpus.vendor_runtime(kube_lab, (first, second)))
        controller = Controller(kube_lab, team, tmp_path)
        code, output = controller.play("train", job)
    assert code == 0, output
    record, _unused = controller.run()
    assert record["transport_seen"] == "rdma_gdr", record["transport"]
    assert record["transport"]["evidence_kind"] == "nccl_log"
    pairs = {(item["a"], item["b"], item["via"], item["gdr"]) for item in record["transport"]["pairs"]}
    assert {pair[:2] for pair in pairs} == {(first, second), (second, first)}, pairs
    assert {pair[2:] for pair in pairs} == {("IB", True)}
