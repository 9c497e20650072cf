# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify_fabric with nccl-tests in pods: mpirun, sshd, scheduler and network are real, the programs print a recording."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_gpus
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.test_fabric_cluster import Fabric
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab

__all__ = ["kube_lab"]

RECORDED = pathlib.Path(__file__).parents[1] / "fixtures" / "fabric" / "nccltests-good-h100-8nodes-ib-coreweave.txt"
# In place of nccl-tests: no machine here has a GPU. mpirun, sshd, operator, scheduler and pods are real.
PERF = """#!/usr/bin/env python3
import os, pathlib, socket, sys
rank, peer = int(os.environ["OMPI_COMM_WORLD_RANK"]), 1 - int(os.environ["OMPI_COMM_WORLD_RANK"])
host, start = socket.gethostname(), socket.gethostname().rpartition("-")[0]
head = f"{host}:{100 + rank}:{100 + rank} [0] NCCL INFO "
for line in (
    f"Bootstrap: Using eth0:10.0.0.{rank + 1}<0>",
    f"ncclCommInitRankConfig comm 0x55{rank} rank {rank} nranks 2 cudaDev 0 busId 1a000 commId 0xab - Init START",
    f"Channel 00/0 : {rank}[0] -> {peer}[0] [send] via NET/IB/0/GDRDMA",
    f"Channel 00/0 : {peer}[0] -> {rank}[0] [receive] via NET/IB/0/GDRDMA",
):
    print(head + line, flush=True)
if rank == 0:
    for number in range(2):
        print(f"#  Rank  {number} Group  0 Pid {100 + number} on {start}-{number} device  0 [0000:18:00] NVIDIA H100")
    print(pathlib.Path(__file__).with_name("printed.txt").read_text(), flush=True)
"""
PROGRAMS = "/tmp/muster-nccl-tests"


@contextlib.contextmanager
def recorded_programs(lab: KubeLab, nodes: t.Iterable[str]) -> t.Iterator[None]:
    """Have the recorded programs on nodes for as long as the block lasts."""
    try:
        for node in nodes:
            kube_gpus.write_file(lab, node, f"{PROGRAMS}/all_reduce_perf", PERF)
            kube_gpus.write_file(lab, node, f"{PROGRAMS}/printed.txt", RECORDED.read_text())
        yield
    finally:
        for node in nodes:
            lab.on_node(node, "rm", "-rf", PROGRAMS)


@pytest.fixture
def gpu_team(kube_lab: KubeLab) -> t.Iterator[Team]:
    """A namespace with a queue for four cores and the GPUs of two nodes."""
    with kube_lab.namespace(cpu="4", memory="8Gi", gpu="2") as made:
        yield made


def verify(fabric: Fabric) -> tuple[int, str]:
    """Verify the pair with the recorded programs."""
    lab = fabric.lab
    job = {
        "image": lab.image,
        "mounts": [{"name": "perf", "path": "/opt/perf", "host_path": PROGRAMS, "read_only": True}],
        "resources": {"cpu": 0.2, "memory": "256Mi"},
        "placement": {"backend": "kubernetes", "namespace": fabric.controller.team.namespace},
    }
    island = {"name": "lab", "nodes": fabric.pair, "link": "ib", "lane": "A", "nic_count": 1, "nic_rate_gbps": 400}
    code, output = fabric.controller.play(
        "verify_fabric",
        muster_fabric_job=job,
        muster_islands=[{**island, "expected_busbw_gb_s": 380}],
        fabric_verify_bench="nccl_tests",
        fabric_verify_nccl_tests="/opt/perf",
    )
    lab.unlabel()
    until(lambda: not lab.pods(fabric.controller.team.namespace), 60)
    return code, output


def test_nccl_tests_run_under_mpirun_in_pods(kube_lab: KubeLab, gpu_team: Team, tmp_path: pathlib.Path) -> None:
    kube_lab.cluster.install(["mpi-operator"])
    fabric = Fabric(kube_lab, gpu_team, tmp_path)
    with recorded_programs(kube_lab, fabric.pair), kube_gpus.offered(kube_lab, fabric.pair):
        with kube_gpus.vendor_runtime(kube_lab, fabric.pair):
            code, output = verify(fabric)
            passed = fabric.verdict()
        refused, said = verify(fabric)
        unproven = fabric.verdict()
    assert code == 0 and passed["outcome"] == "pass", f"{json.dumps(passed, indent=1)}\n{output[-3000:]}"
    assert passed["bandwidth"]["busbw_gb_s"] == 386.56 and passed["transport"]["verdict"] == "rdma_gdr"
    both = {tuple(fabric.pair), tuple(fabric.pair[::-1])}
    assert {(pair["a"], pair["b"]) for pair in passed["transport"]["pairs"]} == both
    assert passed["ranks"] == {"expected": 2, "seen": 2, "missing": []}
    # A worker that refused has no name any more: its own words are the reason, and mpirun's wait for it is not.
    assert refused != 0 and "the pod has 0 GPUs, the job needs 1" in said, said[-3000:]
    assert unproven["duration_s"] < 60, "the test ends with the worker, not with the time that mpirun waits"
