# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short Jobs with a request of their own: objects that an API server takes, and a command that really answers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import visit_job
from ansible_collections.muster.training.tests.support.kube_schemas import problems

INPUT = agent_package.boot_input({"op": "s3", "step": "clean_up", "node": "n", "state_root": None, "delete": []})
PROGRAM, _newline, REQUEST = INPUT.partition(b"\n")
VISIT = visit_job.Visit(
    "muster-visit-1", "team", "image", agent_package.boot_command(sys.executable), f"{PROGRAM.decode()}\n", ("pull",)
)


def test_an_api_server_takes_them_and_each_request_is_in_a_secret_of_its_own() -> None:
    made: list[t.Any] = list(visit_job.build_objects(VISIT, {"gpu-1": REQUEST, "gpu-2": b"{}"}))
    assert [item["kind"] for item in made] == ["ConfigMap", "Secret", "Secret", "Job", "Job"]
    assert [problem for item in made for problem in problems(item)] == []
    pods = [item["spec"]["template"] for item in made[3:]]
    assert pods[0]["spec"]["volumes"][1]["secret"]["secretName"] == made[1]["metadata"]["name"] == "muster-visit-1-0"
    assert pods[1]["metadata"]["labels"] == made[4]["metadata"]["labels"] == {visit_job.LABEL: "muster-visit-1"}
    assert "clean_up" not in json.dumps([made[3], made[4], made[0]["data"] and ""])


def test_a_team_admits_them_beside_its_queue() -> None:
    """A time limit of the pods, and nothing but processors and memory: as the policy of the role team wants it."""
    job: t.Any = visit_job.build_objects(VISIT, {"gpu-1": REQUEST})[-1]
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["activeDeadlineSeconds"] > 0 and "resourceClaims" not in spec
    assert set(container["resources"]["requests"]) | set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_the_scheduler_chooses_where_no_node_is_named() -> None:
    placed, free = (
        t.cast("t.Any", visit_job.build_objects(VISIT, {name: REQUEST})[-1])["spec"]["template"]["spec"]
        for name in ("gpu-1", visit_job.ANY_NODE)
    )
    assert "gpu-1" in json.dumps(placed["affinity"]) and "affinity" not in free


def test_limits_of_the_namespace_are_kept() -> None:
    limits: t.Any = {"spec": {"limits": [{"type": "Container", "max": {"memory": "256Mi"}}]}}
    job: t.Any = visit_job.build_objects(dataclasses.replace(VISIT, ranges=(limits,)), {"gpu-1": REQUEST})[-1]
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "256Mi"}


def test_a_folder_of_the_node_is_in_the_pod_with_what_jobs_may_do() -> None:
    made = visit_job.build_objects(dataclasses.replace(VISIT, folders=("/scratch",)), {"gpu-1": REQUEST})
    assert [problem for item in made for problem in problems(item)] == []
    job: t.Any = made[-1]
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["volumes"][-1] == {"name": "folder-0", "hostPath": {"path": "/scratch", "type": "Directory"}}
    mounted = {"name": "folder-0", "mountPath": "/scratch", "mountPropagation": "HostToContainer"}
    assert container["volumeMounts"][-1] == mounted and "capabilities" not in container["securityContext"]


def test_the_command_of_the_pod_answers(tmp_path: pathlib.Path) -> None:
    job: t.Any = visit_job.build_objects(VISIT, {"gpu-1": REQUEST})[-1]
    (tmp_path / "program").write_text(VISIT.program)
    (tmp_path / "request").write_bytes(REQUEST)
    words = job["spec"]["template"]["spec"]["containers"][0]["command"]
    command = words[2].replace("/muster/program/", f"{tmp_path}/").replace("/muster/request/", f"{tmp_path}/")
    done = subprocess.run([*words[:2], command], capture_output=True, text=True, check=False, timeout=60)
    assert agent_package.parse_answer("n", done.returncode, done.stdout, done.stderr) == {"left": 0}


def build_tests(**options: t.Any) -> list[t.Any]:
    test = visit_job.DeviceTest("muster-gpus-1", "kube-system", "train:1", "echo end", 120, **options)
    devices = {"gpu-1": {"nvidia.com/gpu": 2}, "gpu-2": {"nvidia.com/gpu": 1, "rdma/ib": 1}}
    return visit_job.build_device_tests(test, devices)


def test_each_node_has_a_job_whose_first_container_has_its_devices() -> None:
    first, second = build_tests()
    assert [item["metadata"]["name"] for item in (first, second)] == ["muster-gpus-1-0", "muster-gpus-1-1"]
    spec = first["spec"]["template"]["spec"]
    with_devices, bare = spec["containers"]
    assert with_devices["resources"]["limits"] == {"memory": "512Mi", "nvidia.com/gpu": "2"}
    assert bare["resources"]["limits"] == {"memory": "512Mi"}
    assert with_devices["command"] == bare["command"] == ["sh", "-c", "echo end"]
    assert with_devices["securityContext"]["capabilities"] == {"drop": ["ALL"]} and "runtimeClassName" not in spec
    assert first["spec"]["activeDeadlineSeconds"] == spec["activeDeadlineSeconds"] == 120
    place = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert place[0]["matchFields"][0]["values"] == ["gpu-1"]
    with_rdma, without = second["spec"]["template"]["spec"]["containers"]
    assert with_rdma["resources"]["limits"]["rdma/ib"] == "1"
    # RDMA programs lock memory.
    assert with_rdma["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert without["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_devices_that_belong_to_the_nodes_network_are_tested_in_it() -> None:
    test = visit_job.DeviceTest("muster-gpus-1", "kube-system", "train:1", "echo end", 120)
    devices = {"gpu-1": {"rdma/roce": 1}, "gpu-2": {"rdma/ib": 1}}
    first, second = t.cast("list[t.Any]", visit_job.build_device_tests(test, devices, {"gpu-1"}))
    assert first["spec"]["template"]["spec"]["hostNetwork"] is True
    assert "hostNetwork" not in second["spec"]["template"]["spec"]


def test_a_runtime_class_and_secrets_are_those_of_the_order() -> None:
    spec = build_tests(runtime_class="nvidia", pull_secrets=("registry",))[0]["spec"]["template"]["spec"]
    assert spec["runtimeClassName"] == "nvidia" and spec["imagePullSecrets"] == [{"name": "registry"}]
