# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a real API server before a job is planned, and what is refused by it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    read_cluster_facts,
)

JOB = {
    "name": "x",
    "nodes": 2,
    "image": "i:1",
    "command": ["true"],
    "launcher": "command",
    "placement": {"backend": "kubernetes"},
    "mounts": [{"name": "data", "path": "/data", "pvc": "data"}],
}


def claim(namespace: str, storage_class: str, *modes: str) -> dict[str, t.Any]:
    meta = {"name": "data", "namespace": namespace}
    spec = {
        "accessModes": list(modes),
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def test_a_claim_that_waits_for_a_class_that_is_not_there_is_refused(client: Client, namespace: str) -> None:
    client.create(claim(namespace, namespace, "ReadWriteMany"))
    wanted = parse_job(JOB)
    facts = read_cluster_facts(client, wanted, namespace)
    expected = rf"job\.mounts\.data: PersistentVolumeClaim data has no volume, and its StorageClass {namespace}"
    problem = kubernetes_plan.decide(wanted, namespace, facts).problem
    assert problem and re.search(expected, str(problem))
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": namespace}}
    client.create({**kind, "provisioner": "example.com/none"})
    try:
        facts = read_cluster_facts(client, wanted, namespace)
        assert namespace in (facts.classes or ())
        # Then the nodes are looked at, of which there are none here.
        problem = kubernetes_plan.decide(wanted, namespace, facts).problem
        assert problem and "no nodes" in str(problem)
    finally:
        client.delete("storage.k8s.io/v1/StorageClass", namespace)


def test_storage_classes_are_not_read_for_claims_that_have_volumes(client: Client, namespace: str) -> None:
    client.create(claim(namespace, "any", "ReadWriteMany"))
    bound = {"status": {"phase": "Bound"}}
    client.patch("v1/PersistentVolumeClaim", "data", bound, namespace, subresource="status")
    wanted = parse_job(JOB)
    assert read_cluster_facts(client, wanted, namespace).classes is None
