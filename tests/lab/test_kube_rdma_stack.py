# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCAs by the role rdma_stack on the lab's cluster: a real kubelet offers them, pods prove them, a gang gets them."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_fake_gpus as gpus
from ansible_collections.muster.training.tests.lab import kube_fake_rdma as hcas
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, kube_lab, not_run
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port

__all__ = ["kube_lab"]

NODES = ("node-1", "node-2")
H100 = {"count": gpus.COUNT, "model": "NVIDIA H100 80GB HBM3", "memory_gib": 80.0, "arch": "hopper"}
IB = port("mlx5_0", link_layer="infiniband")
STORAGE = port("mlx5_1", netdev="eth1", device="1019")
# What a rank prints of its pod: its device, how much it may lock, and which HCA NCCL is to open.
LOOK = 'echo "LOOK $(ls /dev/infiniband) $(ulimit -l) $NCCL_IB_HCA"'


class Stack:
    """The roles on the lab's cluster, with the facts that the machines would have."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.lab = controller, controller.lab
        machines = [{node: describe(node, [IB, STORAGE]) for node in NODES}]
        self.values: Dict = {"rdma_stack_devices": machines, "rdma_stack_image": hcas.IMAGE}

    def play(self, **values: t.Any) -> str:
        """Run the playbook rdma_stack and return its output."""
        code, output = self.controller.play("rdma_stack", **{**self.values, **values})
        assert code == 0, output
        return output

    def gpu_stack(self, **values: t.Any) -> None:
        """Run the playbook gpu_stack."""
        records = [{"name": node, "gpu": H100} for node in NODES]
        given = {"gpu_stack_records": records, "gpu_stack_image": gpus.IMAGE, "gpu_stack_driver_root": gpus.ROOT}
        code, output = self.controller.play("gpu_stack", **{**given, **values})
        assert code == 0, output

    def verify(self) -> dict[str, tuple[str, list[str]]]:
        """Run the playbook verify_gpus; return by node its outcome and the codes of its problems."""
        records = [{"name": node, "gpu": H100} for node in NODES]
        given: Dict = {"gpu_verify_image": self.lab.image, "gpu_verify_records": records, "gpu_verify_timeout_s": 90}
        code, output = self.controller.play("verify_gpus", **given)
        (place,) = (self.controller.folder / "state").glob("*/gpus.json")
        found = json.loads(place.read_text())
        assert (code == 0) is found["ok"], output
        return {item["node"]: (item["outcome"], [one["code"] for one in item["problems"]]) for item in found["nodes"]}

    def wait_offered(self, count: str, resource: str = "rdma/ib") -> None:
        """Wait until both nodes offer so many of a resource."""
        assert until(lambda: {hcas.offered(self.lab, node, resource) for node in NODES} == {count}, 60), resource


@pytest.fixture
def stack(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Stack]:
    """A team with a quota of both on nodes with two GPUs and an HCA each; all of it goes at the end."""
    try:
        gpus.require_programs(kube_lab, gpus.PLUGIN, gpus.HOOK)
        hcas.require_program(kube_lab)
    except LabError as error:
        not_run(str(error))
    quota: dict[str, t.Any] = {"cpu": "4", "memory": "8Gi", "gpu": "4", "rdma/ib": "126"}
    with (
        kube_lab.namespace(**quota) as team,
        hcas.fake_hcas(kube_lab, NODES, tmp_path),
        gpus.fake_gpus(kube_lab, NODES, tmp_path),
    ):
        made = Stack(Controller(kube_lab, team, tmp_path))
        try:
            yield made
        finally:
            made.play(rdma_stack_state="absent")
            made.gpu_stack(gpu_stack_state="absent")
            kube_lab.unlabel()


def test_pods_get_the_hca_and_its_loss_is_found(stack: Stack) -> None:
    lab, controller = stack.lab, stack.controller
    stack.gpu_stack()
    assert "install: rdma/ib is to be offered on node-1, node-2" in stack.play()
    stack.wait_offered("63")
    stack.wait_offered(str(gpus.COUNT), gpus.GPU)
    assert "changed=0" in stack.play().partition("PLAY RECAP")[2]
    # A sandbox may forbid more locked memory: then the proof has to say so of each node.
    locked = hcas.read_memlock(lab, NODES[0])
    limit = [] if locked == "unlimited" else ["memlock"]
    fine: tuple[str, list[str]] = ("fail" if limit else "pass", limit)
    assert stack.verify() == dict.fromkeys(NODES, fine)
    entry = json.loads(next((controller.folder / "state").glob("*/gpus.json")).read_text())["nodes"][0]["seen"]
    assert (entry["verbs"], entry["gids"], entry["smi"]) == (["/dev/infiniband/uverbs0"], 1, gpus.COUNT), entry
    hcas.set_gid(lab, NODES[0], given=False)
    assert stack.verify() == {NODES[0]: ("fail", ["gid_missing", *limit]), NODES[1]: fine}
    hcas.set_gid(lab, NODES[0], given=True)
    # A gang that names nothing gets the resource of its nodes, and the HCA that is not for storage.
    job = command(
        *("sh", "-c", LOOK), gpus_per_node=gpus.COUNT, resources={"cpu": 0.2, "memory": "256Mi", "rdma": True}
    )
    code, output = controller.play("train", job)
    assert code == 0, output
    _, place = controller.run()
    logs = "".join(path.read_text(errors="replace") for path in place.rglob("*.log"))
    assert logs.count(f"LOOK uverbs0 {locked} =mlx5_0") == 2, (logs, output)
    # The plugin goes: the proof says so, since the facts are still on the nodes.
    lab.kubectl("delete", "daemonset", "-n", "kube-system", "-l", "muster.training/stack=rdma")
    stack.wait_offered("0")
    assert stack.verify() == dict.fromkeys(NODES, ("fail", ["rdma_missing"]))
    stack.play()
    stack.wait_offered("63")
    assert stack.verify() == dict.fromkeys(NODES, fine)
