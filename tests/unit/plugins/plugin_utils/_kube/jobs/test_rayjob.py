# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RayJob: a Ray cluster for one run."""

from __future__ import annotations

import json

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    RICH,
    RICH_PLAN,
    build,
)


def test_a_rayjobs_cluster_goes_when_the_job_has_ended_and_its_workers_have_the_code() -> None:
    objects = build(RICH_PLAN, **{**ENGINES["rayjob"], **RICH})
    spec = objects[-1]["spec"]
    assert spec["shutdownAfterJobFinishes"] is True and spec["backoffLimit"] == 5
    assert spec["ttlSecondsAfterFinished"] <= 60, "so long the Ray cluster holds its GPUs after the job"
    assert spec["entrypoint"] == "python3 -I -S -u /muster/program/muster_node/pod.py /muster/spec/driver.json"
    group = spec["rayClusterSpec"]["workerGroupSpecs"][0]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 2
    pod = group["template"]["spec"]
    main, code = pod["containers"][0], pod["initContainers"][0]
    assert "command" not in main and code["command"][-1] == "prepare"
    assert code["resources"] == main["resources"] != {}, "a quota of the namespace may insist on amounts"
    env = {item["name"]: item for item in main["env"]}
    assert env["PYTHONPATH"]["value"] == "/muster/run/code:/opt" and env["X"]["value"] == "1"
    assert env["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "run-secrets", "key": "TOKEN"}}
    assert env["KEY_FILE"]["value"] == "/muster/secrets/KEY" and "PULL" not in env
    told = json.loads(objects[0]["data"]["driver.json"])
    assert told["env"]["MUSTER_RAY_MAX_FAILURES"] == "5" and told["ray"]["nodes"] == 2
    # The driver runs on the head: it would be refused for the lack of devices that only workers get.
    assert (told["gpus"], told["rdma"]) == (0, False)
    policy = next(item for item in objects if item["kind"] == "NetworkPolicy")
    asks = policy["spec"]["ingress"][1]
    assert asks["ports"] == [{"protocol": "TCP", "port": 8265}]
    # KubeRay's chart labels its operator by name, its manifests by component.
    named = [label for peer in asks["from"] for label in peer["podSelector"]["matchLabels"].items()]
    assert named == [(f"app.kubernetes.io/{key}", "kuberay-operator") for key in ("name", "component")]
