# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role exporter_stack on an API server: what it applies, what it keeps of others, and the kinds of an operator.

Its DaemonSets have no pods here: tests/lab/test_kube_monitoring.py runs node_exporter on a cluster.
"""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.tests.kube_api.test_cluster_jobs import Roles
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

LABEL = "muster.training/stack=exporters"
RULE, MONITOR = "monitoring.coreos.com/v1/PrometheusRule", "monitoring.coreos.com/v1/PodMonitor"


def definition(plural: str, kind: str) -> t.Any:
    """Return a definition of a kind of the operator that takes any field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": f"{plural}.monitoring.coreos.com"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def test_exporters_of_others_are_kept_and_an_operator_gets_rules_and_dashboards(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    roles = Roles(api, tmp_path)
    labels = {"app": "node-exporter"}
    pod = {"containers": [{"name": "n", "image": "quay.io/prometheus/node-exporter:v1.9.0"}]}
    theirs: t.Any = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }  # fmt: skip
    client.create(theirs)
    # An object without a controller's status is never done: nothing is waited for.
    values = {"exporter_stack_namespace": namespace, "exporter_stack_dcgm": False}
    said = roles.play("exporter_stack", **values)
    assert f"node_exporter: {namespace}/theirs is kept" in said
    assert client.list("apps/v1/DaemonSet", namespace, labels=LABEL).items == []
    refused = roles.play("exporter_stack", code=2, **values, exporter_stack_operator="true")
    assert "serves no PrometheusRule and PodMonitor" in " ".join(refused.split())
    for plural, kind in (("prometheusrules", "PrometheusRule"), ("podmonitors", "PodMonitor")):
        client.create(definition(plural, kind))
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found: t.Any = client.get(
            "apiextensions.k8s.io/v1/CustomResourceDefinition", "podmonitors.monitoring.coreos.com"
        )
        conditions = (found.get("status") or {}).get("conditions") or []
        if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
            break
        time.sleep(0.2)
    try:
        roles.play("exporter_stack", **values)
        rule: t.Any = Client(client.transport).get(RULE, "muster-rules", namespace)
        assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        assert {item["name"] for item in rule["spec"]["groups"]} >= {"muster-run", "muster-hardware"}
        boards: t.Any = client.get("v1/ConfigMap", "muster-dashboards", namespace)
        assert {json.loads(text)["uid"] for text in boards["data"].values()} == {
            "muster-fleet",
            "muster-job",
            "muster-health",
        }
        assert "changed=0" in roles.play("exporter_stack", **values)
        roles.play("exporter_stack", **values, exporter_stack_state="absent")
        assert client.get("v1/ConfigMap", "muster-dashboards", namespace) is None
        assert client.get("apps/v1/DaemonSet", "theirs", namespace) is not None
    finally:
        for plural in ("prometheusrules", "podmonitors"):
            client.delete("apiextensions.k8s.io/v1/CustomResourceDefinition", f"{plural}.monitoring.coreos.com")


def test_a_template_of_the_catalogue_runs_dcgm(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    """What the template fills in reaches the objects; the one of the command line is stronger than both."""
    roles = Roles(api, tmp_path)
    inputs = {"namespace": namespace, "node_exporter": False, "image": "registry.example.org/dcgm:1", "wait_s": 1}
    values: t.Any = {"muster_service_template": "dcgm", "muster_service_inputs": inputs}
    # No controller gives a DaemonSet a status here, so that it is never ready.
    roles.run("muster.training.exporter_stack", code=2, **values, exporter_stack_runtime_class="of-the-line")
    (made,) = client.list("apps/v1/DaemonSet", namespace, labels=LABEL).items
    spec: t.Any = made["spec"]["template"]["spec"]
    assert [item["image"] for item in spec["containers"]] == ["registry.example.org/dcgm:1"]
    assert spec["runtimeClassName"] == "of-the-line"
    roles.run("muster.training.exporter_stack", **{**values, "muster_service_inputs": {**inputs, "state": "absent"}})
    assert client.list("apps/v1/DaemonSet", namespace, labels=LABEL).items == []
    refused = roles.run("muster.training.exporter_stack", code=2, **{**values, "muster_service_template": "minio"})
    assert "template minio is not for the playbook exporter_stack. Run muster.training.services" in refused
