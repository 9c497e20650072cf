# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's real driver of DRA on the lab's cluster: pods of a gang claim GPUs, one is killed, and the gang resumes.

Real: the driver, the scheduler's allocation, CDI, kubelet, containerd and Kueue's count of claims. Stand-ins: the library
that the GPU driver brings and its device files.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.lab import kube_fake_gpus as gpus
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import INTERVAL, Controller, training
from ansible_collections.muster.training.tests.lab.test_kube_gpu_stack import FIRST_S, NODES, Stack
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, kube_lab, not_run

__all__ = ["kube_lab"]

_API = "/apis/resource.k8s.io/v1"
_CONFIG, _KEY = "kueue-manager-config", "controller_manager_config.yaml"
MAPPINGS = [{"name": gpus.GPU, "deviceClassNames": ["gpu.nvidia.com"]}]


@contextlib.contextmanager
def counted_claims(lab: KubeLab) -> t.Iterator[None]:
    """Have Kueue count claims as GPUs for as long as the block lasts, as the role gang_scheduling sets it up."""
    place = f"/api/v1/namespaces/kueue-system/configmaps/{_CONFIG}"
    before = (lab.api.get(place) or {})["data"][_KEY]
    settings = yaml.safe_load(before)
    settings["resources"] = {**(settings.get("resources") or {}), "deviceClassMappings": MAPPINGS}
    try:
        set_up_kueue(lab, yaml.safe_dump(settings))
        yield
    finally:
        set_up_kueue(lab, before)


def set_up_kueue(lab: KubeLab, config: str) -> None:
    """Give Kueue a configuration, and start it again."""
    lab.kubectl(
        "patch", "-n", "kueue-system", "configmap", _CONFIG, "--type=merge", "-p", json.dumps({"data": {_KEY: config}})
    )
    lab.kubectl("rollout", "restart", "-n", "kueue-system", "deployment/kueue-controller-manager")
    lab.kubectl("rollout", "status", "-n", "kueue-system", "deployment/kueue-controller-manager", "--timeout=120s")


def count_offered(lab: KubeLab) -> dict[str, int]:
    """Return by node how many GPUs its driver has published."""
    found: dict[str, int] = {}
    for item in lab.items(f"{_API}/resourceslices"):
        if item["spec"]["driver"] == "gpu.nvidia.com":
            found[item["spec"]["nodeName"]] = len(item["spec"].get("devices") or ())
    return found


@pytest.fixture
def stack(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Stack]:
    """A team with a quota of GPUs on nodes with two each, that pods claim; all of it goes at the end."""
    try:
        gpus.require_programs(kube_lab, gpus.DRIVER, gpus.HOOK)
    except LabError as error:
        not_run(str(error))
    driver = gpus.fake_gpus(kube_lab, NODES, tmp_path, gpus.DRIVER, gpus.DRIVER_IMAGE)
    with kube_lab.namespace(cpu="4", memory="8Gi", gpu="4") as team, driver, counted_claims(kube_lab):
        made = Stack(Controller(kube_lab, team, tmp_path))
        made.values |= {"gpu_stack_provider": "dra", "gpu_stack_image": gpus.DRIVER_IMAGE}
        try:
            yield made
        finally:
            made.play(gpu_stack_state="absent")
            kube_lab.unlabel()


@pytest.mark.torch
def test_a_gang_claims_gpus_is_killed_and_resumes_and_faults_are_found(stack: Stack) -> None:
    lab, controller = stack.lab, stack.controller
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    bare = stack.versions()
    stack.play()
    began = time.monotonic()
    assert until(lambda: count_offered(lab) == dict.fromkeys(NODES, gpus.COUNT), FIRST_S), count_offered(lab)
    assert gpus.offered(lab, NODES[0]) == "0", "no kubelet offers what pods claim"
    before = stack.versions()
    again = stack.play()
    assert "changed=0" in again.partition("PLAY RECAP")[2] and stack.versions() == before, again
    assert "deviceClassMappings" not in again, "Kueue counts claims"
    assert stack.verify() == dict.fromkeys(NODES, ("pass", []))
    proved_s = time.monotonic() - began
    entry = json.loads(next((controller.folder / "state").glob("*/gpus.json")).read_text())["nodes"][0]
    assert entry["seen"]["devices"] == ["/dev/nvidia0", "/dev/nvidia1"], entry

    space = controller.team.namespace
    wanted: dict[str, t.Any] = {"gpus_per_node": gpus.COUNT, "processes_per_node": 1, "gpu": {"model": "h100"}}
    play = controller.start(
        "train", training(lab, space, pace_s=0.1, **wanted), muster_drill={"target": "agent", "rank": 1, "at_step": 50}
    )
    seen: dict[str, list[str]] = {}
    charged: set[str] = set()

    def look() -> bool:
        for pod in lab.pods(space):
            name = pod["metadata"]["name"]
            if pod["status"]["phase"] == "Running" and pod["spec"].get("resourceClaims") and name not in seen:
                said = lab.kubectl("exec", "-n", space, name, "--", "sh", "-c", "ls /dev | grep nvidia[0-9]")
                seen[name] = said.split()
        for load in lab.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{space}/workloads"):
            for part in ((load.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
                charged.add(str((part.get("resourceUsage") or {}).get(gpus.GPU)))
        return len(seen) >= 2 or play.ended

    assert until(look, 150), play.output
    code, output = play.wait()
    assert code == 0, output
    assert list(seen.values()) == [["nvidia0", "nvidia1"]] * len(seen) and len(seen) >= 2
    assert charged == {"4"}, "the queue's quota has been charged for what pods claim"
    record, _ = controller.run()
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": 2, "seen": 2})
    assert record["drill"]["resumed"] is True and record["steps_lost"] <= INTERVAL, record["drill"]

    gpus.switch_cdi(lab, NODES[0], on=False)
    assert stack.verify() == {NODES[0]: ("fail", ["cdi_off"]), NODES[1]: ("pass", [])}
    gpus.switch_cdi(lab, NODES[0], on=True)
    assert stack.verify(count=4) == dict.fromkeys(NODES, ("fail", ["fewer_gpus"]))
    stack.play(gpu_stack_state="absent")
    assert stack.versions() == bare and lab.items(f"{_API}/deviceclasses") == []
    assert until(lambda: count_offered(lab) == {}, 90), "the kubelets have dropped what the driver said"
    assert stack.verify() == dict.fromkeys(NODES, ("fail", ["plugin_missing"]))
    NOTES.append(f"gpu_stack_provider dra: proven in pods of both nodes {proved_s:.0f} s after it was applied")
