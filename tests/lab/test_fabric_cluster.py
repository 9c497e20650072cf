# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify_fabric on a real cluster: facts by pods, torch and gloo in gangs of pods, links shaped by tbf, node labels."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.test_kube_training import Controller
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab, not_run, team

__all__ = ["kube_lab", "team"]

RATE = 400
PREFIX = "muster.training/"
Dict = dict[str, t.Any]


@contextlib.contextmanager
def shaped(lab: KubeLab, rates: t.Mapping[str, int]) -> t.Iterator[None]:
    """Shape what nodes send to a rate in Mbit/s each for as long as the block lasts."""
    try:
        for node, rate in rates.items():
            words = ("root", "tbf", "rate", f"{rate}mbit", "burst", "131072", "latency", "50ms")
            lab.on_node(node, "tc", "qdisc", "replace", "dev", "eth0", *words)
        yield
    finally:
        for node in rates:
            with contextlib.suppress(Exception):
                lab.on_node(node, "tc", "qdisc", "del", "dev", "eth0", "root")


class Fabric:
    """A controller, and what one verification after another shows."""

    def __init__(self, lab: KubeLab, team: Team, folder: pathlib.Path) -> None:
        self.lab, self.controller = lab, Controller(lab, team, folder)
        self.pair = list(lab.nodes[:2])

    def verify(self, *, check: bool = False, **extra: t.Any) -> tuple[int, str]:
        """Run the playbook."""
        lab, torch = self.lab, self.lab.torch
        job = {
            "image": lab.image,
            "env": {"PYTHONPATH": torch},
            "mounts": [{"name": "torch", "path": torch, "host_path": torch, "read_only": True}],
            "resources": {"cpu": 0.5, "memory": "1Gi"},
            "placement": {"backend": "kubernetes", "namespace": self.controller.team.namespace},
        }
        # Machines of the lab share a kernel: only the user can know that there is a wire between them.
        island = {"name": "lab", "nodes": self.pair, "link": "ethernet", "nic_count": 1, "nic_rate_gbps": RATE / 1000}
        return self.controller.play(
            "verify_fabric",
            check=check,
            muster_fabric_job=job,
            muster_islands=[island],
            fabric_verify_seconds=0.3,
            **extra,
        )

    def verdict(self) -> Dict:
        """Return the stored verdict on the pair."""
        (place,) = (self.controller.folder / "state").glob("*/fabric.json")
        return next(item for item in json.loads(place.read_text())["islands"] if item["island"] == "lab")

    def labels(self, node: str) -> dict[str, str]:
        """Return our labels of a node."""
        found = (self.lab.api.get(f"/api/v1/nodes/{node}") or {})["metadata"]["labels"]
        return {key.removeprefix(PREFIX): value for key, value in found.items() if key.startswith(PREFIX)}


@pytest.fixture
def fabric(kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path) -> t.Iterator[Fabric]:
    if not kube_lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    made = Fabric(kube_lab, team, tmp_path)
    yield made
    kube_lab.unlabel()


@pytest.mark.torch
def test_a_pair_of_nodes_passes_and_gets_its_labels_then_loses_half_its_rate(fabric: Fabric) -> None:
    lab, (first, second) = fabric.lab, fabric.pair
    namespace = fabric.controller.team.namespace
    with shaped(lab, {first: RATE, second: RATE}):
        # Other nodes of the lab are islands of one CPU node each, which nothing proves.
        _, output = fabric.verify(muster_fabric_allow_unproven=True)
    found = fabric.verdict()
    assert found["outcome"] == "pass", (found["reasons"], output[-3000:])
    assert found["transport"]["verdict"] == "tcp" and found["wrong_values"] == 0
    assert {(pair["a"], pair["b"]) for pair in found["transport"]["pairs"]} == {(first, second), (second, first)}
    assert found["ranks"] == {"expected": 2, "seen": 2, "missing": []}
    for node in (first, second):
        labels = fabric.labels(node)
        assert {key: labels[key] for key in ("island", "lane", "fabric")} == {
            "island": "lab",
            "lane": "C",
            "fabric": "pass",
        }
    node = lab.api.get(f"/api/v1/nodes/{first}") or {}
    managers = [item["manager"] for item in node["metadata"]["managedFields"] if item["manager"] == "muster-fabric"]
    assert managers, "the labels have an owner of their own"
    # Nothing of the tests stays, and check mode makes nothing and shows what would be written again.
    until(lambda: not lab.pods(namespace), 60)
    lab.kubectl("label", "node", first, f"{PREFIX}fabric=stale", "--overwrite")
    code, output = fabric.verify(check=True, muster_fabric_allow_unproven=True)
    assert code == 0 and "changed=1" in output.partition("PLAY RECAP")[2], output
    assert lab.pods(namespace) == [] and fabric.labels(first)["fabric"] == "stale"
    with shaped(lab, {first: RATE, second: RATE // 2}):
        code, output = fabric.verify(muster_fabric_allow_unproven=True)
    found = fabric.verdict()
    assert found["outcome"] in ("warn", "fail") and (code != 0) == (found["outcome"] == "fail"), output[-3000:]
    assert [cause["code"] for cause in found["causes"]].count("slow_path") == 1
    assert fabric.labels(first)["fabric"] == found["outcome"] != "pass"
    left = lab.kubectl("get", "jobs,configmap,networkpolicy,service", "-n", namespace, "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt"]


def test_an_image_that_nobody_has_is_told_and_nothing_stays(fabric: Fabric) -> None:
    job = {"image": "localhost/muster-lab/no-such-image:1"}
    place = {"backend": "kubernetes", "namespace": fabric.controller.team.namespace}
    code, output = fabric.controller.play("verify_fabric", muster_fabric_job={**job, "placement": place})
    assert code != 0 and "image cannot be pulled" in output and "Traceback" not in output, output[-3000:]
    until(lambda: not fabric.lab.pods(fabric.controller.team.namespace), 60)


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
def with_gpus(lab: KubeLab, nodes: t.Iterable[str]) -> t.Iterator[None]:
    """Have nodes offer one GPU each and the recorded programs for as long as the block lasts."""
    files = {"all_reduce_perf": PERF, "printed.txt": RECORDED.read_text()}
    for node in nodes:
        for name, text in files.items():
            data = base64.b64encode(text.encode()).decode()
            place = f"{PROGRAMS}/{name}"
            lab.on_node(node, "sh", "-c", f"mkdir -p {PROGRAMS}; echo {data} | base64 -d > {place}; chmod 755 {place}")
        offer_gpus(lab, node, "1")
    try:
        yield
    finally:
        for node in nodes:
            offer_gpus(lab, node, None)
            lab.on_node(node, "rm", "-r", PROGRAMS)


def offer_gpus(lab: KubeLab, node: str, count: str | None) -> None:
    patch = {"status": {"capacity": {"nvidia.com/gpu": count}, "allocatable": {"nvidia.com/gpu": count}}}
    lab.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(patch))


@pytest.fixture
def gpu_team(kube_lab: KubeLab) -> t.Iterator[Team]:
    """A namespace with a queue for four cores and the GPUs of two nodes."""
    with kube_lab.namespace(cpu="4", memory="8Gi", gpu="2") as made:
        yield made


def test_nccl_tests_run_under_mpirun_in_pods(kube_lab: KubeLab, gpu_team: Team, tmp_path: pathlib.Path) -> None:
    kube_lab.cluster.install(["mpi-operator"])
    fabric = Fabric(kube_lab, gpu_team, tmp_path)
    job = {
        "image": kube_lab.image,
        "mounts": [{"name": "perf", "path": "/opt/perf", "host_path": PROGRAMS, "read_only": True}],
        "resources": {"cpu": 0.2, "memory": "256Mi"},
        "placement": {"backend": "kubernetes", "namespace": gpu_team.namespace},
    }
    island = {"name": "lab", "nodes": fabric.pair, "link": "ib", "lane": "A", "nic_count": 1, "nic_rate_gbps": 400}
    with with_gpus(kube_lab, fabric.pair):
        code, output = fabric.controller.play(
            "verify_fabric",
            muster_fabric_job=job,
            muster_islands=[{**island, "expected_busbw_gb_s": 380}],
            fabric_verify_bench="nccl_tests",
            fabric_verify_nccl_tests="/opt/perf",
        )
        found = fabric.verdict()
    kube_lab.unlabel()
    assert code == 0 and found["outcome"] == "pass", f"{json.dumps(found, indent=1)}\n{output[-3000:]}"
    assert found["bandwidth"]["busbw_gb_s"] == 386.56 and found["transport"]["verdict"] == "rdma_gdr"
    both = {tuple(fabric.pair), tuple(fabric.pair[::-1])}
    assert {(pair["a"], pair["b"]) for pair in found["transport"]["pairs"]} == both
    assert found["ranks"] == {"expected": 2, "seen": 2, "missing": []}
    until(lambda: not kube_lab.pods(gpu_team.namespace), 60)


HANGS = """
import json, os, time
rank = int(os.environ["RANK"])
for step in range(1, 6):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as out:
        out.write(json.dumps({"at": time.time(), "step": step}) + "\\n")
if rank == 1:
    print("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", flush=True)
time.sleep(600)
"""


def test_a_run_in_pods_is_diagnosed_by_a_controller_that_never_knew_it(
    kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path
) -> None:
    first, second = Controller(kube_lab, team, tmp_path / "one"), Controller(kube_lab, team, tmp_path / "two")
    for controller in (first, second):
        controller.folder.mkdir()
    job = {"name": "hangs", "nodes": 2, "launcher": "command", "command": ["python3", "-u", "-c", HANGS]}
    job |= {"resources": {"cpu": 0.1, "memory": "128Mi"}}
    code, output = first.play("train", job, training_job_wait=False)
    assert code == 0, output
    out = tmp_path / "diagnosis.json"

    def found() -> Dict:
        values = {"diagnose_out": str(out), "diagnose_namespace": team.namespace}
        code, said = second.play("diagnose", **values)
        assert code == 0 and "Traceback" not in said, said
        return t.cast(Dict, json.loads(out.read_text()))

    # A step that is half a minute old is a hang.
    until(lambda: found()["state"] == "hanging", 120)
    diagnosis = found()
    assert diagnosis["state"] == "hanging" and diagnosis["progress"]["last_step"] == 5, diagnosis
    assert diagnosis["ranks"] == {"expected": 2, "alive": 2}
    assert set(diagnosis["nodes"]) <= set(kube_lab.nodes) and len(diagnosis["nodes"]) == 2
    # What rank 1 printed is what there is to go by.
    assert [(item["code"], item.get("node") in kube_lab.nodes) for item in diagnosis["causes"]][0] == (
        "oom_gpu",
        True,
    )
    kube_lab.kubectl("delete", "jobset", "--all", "--namespace", team.namespace, "--wait")
