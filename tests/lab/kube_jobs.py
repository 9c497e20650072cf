# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs for the tests of the cluster itself: hand-written JobSets, not what the collection makes."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team

API = "/apis/jobset.x-k8s.io/v1alpha2/namespaces"


def gang(lab: KubeLab, team: Team, name: str, program: str, *words: str, **changes: t.Any) -> dict[str, t.Any]:
    """Return a JobSet of two pods that run a Python program; ``changes``: pods, cpu, gpus, torch, spec (of the pods)."""
    count = changes.get("pods", 2)
    requests = {"cpu": changes.get("cpu", "500m"), "memory": "64Mi"}
    if changes.get("gpus"):
        requests["nvidia.com/gpu"] = str(changes["gpus"])
    container: dict[str, t.Any] = {
        "name": "rank",
        "image": lab.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", program, *words],
        "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}},
    }
    pod: dict[str, t.Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if changes.get("torch"):
        lab.torch_in(container, pod)
    pod |= changes.get("spec", {})
    job = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    meta = {"name": name, "namespace": team.namespace, "labels": {"kueue.x-k8s.io/queue-name": team.queue}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
        },
    }


def submit(lab: KubeLab, team: Team, jobset: dict[str, t.Any]) -> None:
    """Create a JobSet."""
    status, answer = lab.api.ask("POST", f"{API}/{team.namespace}/jobsets", jobset)
    assert status == 201, answer


def pods(lab: KubeLab, team: Team, name: str) -> list[dict[str, t.Any]]:
    """Return the pods of a JobSet."""
    return lab.pods(team.namespace, f"jobset.sigs.k8s.io/jobset-name%3D{name}")


def phases(lab: KubeLab, team: Team, name: str) -> list[str]:
    """Return the phases of a JobSet's pods, sorted."""
    return sorted(item["status"]["phase"] for item in pods(lab, team, name))


def ended(lab: KubeLab, team: Team, name: str) -> str:
    """Return "Completed" or "Failed" of a JobSet, empty while it has not ended."""
    found = lab.api.get(f"{API}/{team.namespace}/jobsets/{name}") or {}
    conditions = found.get("status", {}).get("conditions", [])
    done = [item["type"] for item in conditions if item["status"] == "True" and item["type"] in ("Completed", "Failed")]
    return done[0] if done else ""


def logs(lab: KubeLab, team: Team, name: str) -> str:
    """Return the logs of all pods of a JobSet."""
    return lab.kubectl(
        "-n", team.namespace, "logs", "--prefix", "-l", f"jobset.sigs.k8s.io/jobset-name={name}", "--tail=100"
    )
