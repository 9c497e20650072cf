# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's real device plugin on the lab's cluster: a gang gets GPUs, loses a pod and resumes; faults are found by name.

Real: the device plugin, CDI, kubelet and containerd. Stand-ins: the driver's library and its device files.
"""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import kube_fake_gpus as gpus
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import INTERVAL, Controller, Dict, training
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab, not_run

__all__ = ["kube_lab"]

H100 = {"count": gpus.COUNT, "model": "NVIDIA H100 80GB HBM3", "memory_gib": 80.0, "arch": "hopper"}
NODES = ("node-1", "node-2")
FIRST_S = 60
# To the process of the device plugin, whose name the kernel cuts.
_SIGNAL = """for place in /proc/[0-9]*; do
  [ "$(cat $place/comm 2>/dev/null)" != nvidia-device-p ] || kill -{signal} ${{place#/proc/}}
done"""


class Stack:
    """The role on the lab's cluster, with the facts that the machines would have."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.lab = controller, controller.lab
        self.values: Dict = {
            "gpu_stack_records": [{"name": node, "gpu": H100} for node in NODES],
            "gpu_stack_image": gpus.IMAGE,
            "gpu_stack_driver_root": gpus.ROOT,
        }

    def play(self, **values: t.Any) -> str:
        """Run the playbook gpu_stack and return its output."""
        code, output = self.controller.play("gpu_stack", **{**self.values, **values})
        assert code == 0, output
        return output

    def verify(self, count: int = gpus.COUNT, **values: t.Any) -> dict[str, tuple[str, list[str]]]:
        """Run the playbook verify_gpus; return by node its outcome and the codes of its problems."""
        records = [{"name": node, "gpu": {**H100, "count": count}} for node in NODES]
        given = {
            "gpu_verify_image": self.lab.image,
            "gpu_verify_records": records,
            "gpu_verify_timeout_s": 90,
            **values,
        }
        code, output = self.controller.play("verify_gpus", **given)
        (place,) = (self.controller.folder / "state").glob("*/gpus.json")
        found = json.loads(place.read_text())
        assert (code == 0) is found["ok"], output
        for entry in found["nodes"]:
            for item in entry["problems"]:
                assert item["problem"] in " ".join(output.split()), output
        return {item["node"]: (item["outcome"], [one["code"] for one in item["problems"]]) for item in found["nodes"]}

    def wait_offered(self, count: int = gpus.COUNT, limit_s: float = FIRST_S) -> None:
        """Wait until both nodes offer so many GPUs."""
        assert until(lambda: {gpus.offered(self.lab, node) for node in NODES} == {str(count)}, limit_s), "not offered"

    def versions(self) -> list[tuple[str, str]]:
        """Return the labels of the nodes with those who applied them, and the generation of each DaemonSet."""
        nodes = [json.dumps(item["metadata"]["labels"], sort_keys=True) for item in self.lab.items("/api/v1/nodes")]
        sets = self.lab.items("/apis/apps/v1/daemonsets")
        return [
            *enumerate_text(nodes),
            *((item["metadata"]["uid"], str(item["metadata"]["generation"])) for item in sets),
        ]


def enumerate_text(texts: t.Sequence[str]) -> t.Iterator[tuple[str, str]]:
    """Yield texts with their places."""
    return ((str(number), text) for number, text in enumerate(texts))


@pytest.fixture
def stack(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Stack]:
    """A team with a quota of GPUs on nodes with two each; all of it goes at the end."""
    try:
        gpus.require_programs(kube_lab, gpus.PLUGIN, gpus.HOOK)
    except LabError as error:
        not_run(str(error))
    with kube_lab.namespace(cpu="4", memory="8Gi", gpu="4") as team, gpus.fake_gpus(kube_lab, NODES, tmp_path):
        made = Stack(Controller(kube_lab, team, tmp_path))
        try:
            yield made
        finally:
            made.play(gpu_stack_state="absent")
            kube_lab.unlabel()


@pytest.mark.torch
def test_a_gang_gets_gpus_of_the_real_plugin_is_killed_and_resumes(stack: Stack) -> None:
    lab, controller = stack.lab, stack.controller
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    bare = stack.versions()
    stack.play()
    stack.wait_offered()
    before = stack.versions()
    assert "changed=0" in stack.play().partition("PLAY RECAP")[2] and stack.versions() == before, "nothing was written"
    assert stack.verify() == dict.fromkeys(NODES, ("pass", []))
    entry = json.loads(next((controller.folder / "state").glob("*/gpus.json")).read_text())["nodes"][0]
    assert entry["seen"]["devices"] == ["/dev/nvidia0", "/dev/nvidia1"] and entry["seen"]["smi"] == 2, entry
    space = controller.team.namespace
    job = training(
        lab,
        space,
        pace_s=0.1,
        gpus_per_node=gpus.COUNT,
        processes_per_node=1,
        gpu={"model": "h100", "memory_gib_min": 80},
    )
    play = controller.start("train", job, muster_drill={"target": "agent", "rank": 1, "at_step": 50})
    seen: dict[str, list[str]] = {}

    def look() -> bool:
        for pod in lab.pods(space):
            name = pod["metadata"]["name"]
            if pod["status"]["phase"] == "Running" and "-probe-" not in name and name not in seen:
                said = lab.kubectl("exec", "-n", space, name, "--", "sh", "-c", "ls /dev | grep nvidia[0-9]")
                seen[name] = said.split()
        return len(seen) >= 2 or play.ended

    assert until(look, 120), play.output
    code, output = play.wait()
    assert code == 0, output
    assert list(seen.values()) == [["nvidia0", "nvidia1"]] * len(seen) and len(seen) >= 2
    record, _ = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert record["drill"]["resumed"] is True and record["steps_lost"] <= INTERVAL, record["drill"]
    stack.play(gpu_stack_state="absent")
    assert stack.versions() == bare, "what was installed and labelled is gone"


def test_each_fault_is_found_by_its_name(stack: Stack) -> None:
    """CDI off, no runtime, fewer GPUs than facts, a plugin that was killed, and none."""
    lab = stack.lab
    fine: tuple[str, list[str]] = ("pass", [])
    stack.play()
    stack.wait_offered()
    gpus.switch_cdi(lab, NODES[0], on=False)
    assert stack.verify() == {NODES[0]: ("fail", ["cdi_off"]), NODES[1]: fine}
    gpus.switch_cdi(lab, NODES[0], on=True)
    assert stack.verify() == dict.fromkeys(NODES, fine)
    assert stack.verify(count=4) == dict.fromkeys(NODES, ("fail", ["fewer_gpus"]))
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    lab.cluster.apply([runtime])
    try:
        without = stack.verify(gpu_verify_runtime_class="nvidia")
    finally:
        lab.kubectl("delete", "runtimeclass", "nvidia")
    assert without == dict.fromkeys(NODES, ("fail", ["runtime_missing"]))
    lab.kubectl("delete", "pod", "-n", "kube-system", "-l", "app.kubernetes.io/name=muster-nvidia-device-plugin")
    stack.wait_offered()
    assert stack.verify() == dict.fromkeys(NODES, fine)
    stack.play(gpu_stack_state="absent")
    stack.wait_offered(0)
    assert stack.verify() == dict.fromkeys(NODES, ("fail", ["plugin_missing"]))


def test_a_restart_a_stale_plugin_a_gpu_that_fails_and_a_second_owner(stack: Stack) -> None:
    """The kubelet starts again, with a plugin that hangs too, a GPU falls off the bus, and another plugin comes beside."""
    lab = stack.lab
    fine: tuple[str, list[str]] = ("pass", [])
    stack.play()
    applied = time.monotonic()
    stack.wait_offered()
    assert stack.verify() == dict.fromkeys(NODES, fine)
    NOTES.append(f"gpu_stack: proven in pods of both nodes {time.monotonic() - applied:.0f} s after it was applied")
    assert time.monotonic() - applied <= FIRST_S

    lab.on_node(NODES[0], "systemctl", "restart", "lab-kubelet")
    stack.wait_offered()
    assert stack.verify() == dict.fromkeys(NODES, fine), "the plugin has registered again"

    # A plugin that hangs does not register with a kubelet that starts again: its pod runs, and its GPUs are gone.
    lab.on_node(NODES[0], "sh", "-c", _SIGNAL.format(signal="STOP"))
    try:
        lab.on_node(NODES[0], "systemctl", "restart", "lab-kubelet")
        assert until(lambda: gpus.offered(lab, NODES[0]) == "0", FIRST_S), "the kubelet still has the GPUs"
        assert stack.verify() == {NODES[0]: ("fail", ["plugin_stale"]), NODES[1]: fine}
    finally:
        lab.on_node(NODES[0], "sh", "-c", _SIGNAL.format(signal="CONT"))
    stack.wait_offered()
    assert stack.verify() == dict.fromkeys(NODES, fine)

    lab.on_node(NODES[0], "sh", "-c", f"echo 1 79 > {gpus.ROOT}/xid")
    assert until(lambda: gpus.offered(lab, NODES[0]) == "1", FIRST_S), "the plugin has not taken the GPU back"
    assert stack.verify() == {NODES[0]: ("fail", ["fewer_gpus"]), NODES[1]: fine}
    (place,) = (stack.controller.folder / "state").glob("*/gpus.json")
    assert "offers 1 of 2 GPUs (1 unhealthy)" in place.read_text()
    lab.on_node(NODES[0], "rm", f"{gpus.ROOT}/xid")
    lab.kubectl("delete", "pod", "-n", "kube-system", "-l", "app.kubernetes.io/name=muster-nvidia-device-plugin")
    stack.wait_offered()

    place_of = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    own = lab.api.get(f"{place_of}/muster-nvidia-device-plugin") or {}
    labels = {"app": "rival"}
    template = {**own["spec"]["template"], "metadata": {"labels": labels}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "rival", "namespace": "kube-system"}
    lab.cluster.apply([{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}])
    try:
        assert until(lambda: len(lab.pods("kube-system", "app=rival")) == len(NODES), FIRST_S)
        code, output = stack.controller.play("gpu_stack", **stack.values)
        said = " ".join(output.split())
        assert code == 2 and "of node-1, node-2 is offered by DaemonSet kube-system/muster-nvidia-device-plugin" in said
        assert "and by DaemonSet kube-system/rival. Remove one of them" in said and "Nothing was changed" in said
    finally:
        lab.kubectl("delete", "daemonset", "-n", "kube-system", "rival", "--wait=true")
