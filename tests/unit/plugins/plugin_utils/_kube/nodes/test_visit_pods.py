# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short pods with a request of their own: objects that an API server takes, and a command that really answers."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import visit_pods
from ansible_collections.muster.training.tests.support.kube_schemas import problems

INPUT = agent_package.boot_input({"op": "s3", "step": "clean_up", "node": "n", "state_root": None, "delete": []})
PROGRAM, _newline, REQUEST = INPUT.partition(b"\n")
VISIT = visit_pods.Visit(
    "muster-visit-1", "team", "image", agent_package.boot_command(sys.executable), f"{PROGRAM.decode()}\n", ("pull",)
)


def test_an_api_server_takes_them_and_each_request_is_in_a_secret_of_its_own() -> None:
    made: list[t.Any] = list(visit_pods.build_objects(VISIT, {"gpu-1": REQUEST, "gpu-2": b"{}"}))
    assert [item["kind"] for item in made] == ["ConfigMap", "Secret", "Secret", "Pod", "Pod"]
    assert [problem for item in made[:3] for problem in problems(item)] == []
    for pod in made[3:]:
        # The schemas that are kept know a pod as the template of a Job.
        template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        job: t.Any = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": pod["metadata"],
            "spec": {"template": template},
        }
        assert problems(job) == []
    first, second = made[3:]
    assert first["spec"]["volumes"][1]["secret"]["secretName"] == made[1]["metadata"]["name"] == "muster-visit-1-0"
    assert second["metadata"]["labels"] == {visit_pods.LABEL: "muster-visit-1"}
    assert "clean_up" not in json.dumps([first, second, made[0]["data"] and ""])


def test_the_command_of_the_pod_answers(tmp_path: pathlib.Path) -> None:
    pod: t.Any = visit_pods.build_objects(VISIT, {"gpu-1": REQUEST})[-1]
    (tmp_path / "program").write_text(VISIT.program)
    (tmp_path / "request").write_bytes(REQUEST)
    words = pod["spec"]["containers"][0]["command"]
    command = words[2].replace("/muster/program/", f"{tmp_path}/").replace("/muster/request/", f"{tmp_path}/")
    done = subprocess.run([*words[:2], command], capture_output=True, text=True, check=False, timeout=60)
    assert agent_package.parse_answer("n", done.returncode, done.stdout, done.stderr) == {"left": 0}


@pytest.mark.parametrize(
    ("spec", "ready", "takes"),
    [
        ({}, "True", True),
        ({}, "False", False),
        ({"unschedulable": True}, "True", False),
        ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, "True", True),
        ({"taints": [{"key": "other", "effect": "NoSchedule"}]}, "True", False),
        ({"taints": [{"key": "other", "effect": "PreferNoSchedule"}]}, "True", True),
    ],
)
def test_nodes_that_take_pods_of_jobs(spec: t.Any, ready: str, takes: bool) -> None:
    node: t.Any = {"spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    assert visit_pods.takes_jobs(node) is takes
