# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of a fabric verdict against a real API server: written, shown in check mode, taken away, refused."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import kubernetes_target
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_world import Said

GIVEN: dict[str, t.Any] = {"image": "x/y:1", "placement": {"backend": "kubernetes", "namespace": "default"}}
LABELS = {"muster.training/island": "ib-8x400g", "muster.training/lane": "A", "muster.training/fabric": "pass"}


def patch(**labels: str | None) -> dict[str, t.Any]:
    found = {f"muster.training/{key}": value for key, value in labels.items()}
    return {"metadata": {"labels": found, "annotations": {"muster.training/fabric-busbw-gb-s": "370"}}}


@pytest.fixture
def pair(client: Client) -> t.Iterator[tuple[str, str]]:
    """Two Node objects, the second not ready."""
    names = ("fab-1", "fab-2")
    for name, ready in zip(names, ("True", "False"), strict=True):
        labels = {"kubernetes.io/hostname": name}
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        status = {"conditions": [{"type": "Ready", "status": ready, "reason": "x"}]}
        client.patch("v1/Node", name, {"status": status}, subresource="status")
        # The API server taints what is new until its kubelet reports.
        client.patch("v1/Node", name, {"spec": {"taints": None}})
    yield names
    for name in names:
        client.delete("v1/Node", name)


def cluster(kubeconfig: pathlib.Path, said: Said | None = None, **options: t.Any) -> kubernetes_target.KubernetesTarget:
    """Return the target in check mode: there is no kubelet here that could run a pod."""
    values = {"kubeconfig": str(kubeconfig), "state_home": {}, "cluster": "default", "job": GIVEN, **options}
    request = training_job.RunRequest(
        options=values,
        hosts=["localhost"],
        hostvars={},
        base=pathlib.Path("/"),
        check=True,
        connect=lambda _names: [],
        progress=said or Said(),
    )
    given = kubernetes_target.find_kubernetes_job(values, request.surroundings)
    assert given is not None
    return kubernetes_target.KubernetesTarget(request, given)


def test_labels_are_written_once_changed_and_taken_away(api: ApiServer, client: Client, pair: tuple[str, str]) -> None:
    first, second = pair
    target = cluster(api.kubeconfig)
    target.find_nodes()
    patches = {first: patch(island="ib-8x400g", lane="A", fabric="pass"), "nowhere": patch(island="x")}
    published = target.publish(patches, check=True)
    assert published.changed and any("ib-8x400g" in item["after"] for item in published.diff)
    assert not set(LABELS) & set(labels(client, first))
    assert target.publish(patches, check=False).changed
    assert LABELS.items() <= labels(client, first).items()
    assert labels(client, first)["kubernetes.io/hostname"] == first, "labels of others stay"
    assert client.get("v1/Node", "nowhere") is None, "no node is made"
    assert not target.publish(patches, check=False).changed
    gone = {first: patch(island=None, lane=None, fabric=None), second: patch(lane="C")}
    assert target.publish(gone, check=False).changed
    assert not set(LABELS) & set(labels(client, first)) and labels(client, second)["muster.training/lane"] == "C"


def test_a_label_that_somebody_else_wrote_is_taken_over(api: ApiServer, client: Client, pair: tuple[str, str]) -> None:
    first, _ = pair
    client.patch("v1/Node", first, {"metadata": {"labels": {"muster.training/island": "guessed"}}})
    target = cluster(api.kubeconfig)
    target.find_nodes()
    assert target.publish({first: patch(island="lan-10g")}, check=False).changed
    assert labels(client, first)["muster.training/island"] == "lan-10g"


def test_check_mode_makes_no_pod_and_names_the_node_that_is_not_ready(
    api: ApiServer, client: Client, pair: tuple[str, str]
) -> None:
    first, second = pair
    client.patch("v1/Node", first, {"spec": {"unschedulable": True}})
    said = Said()
    with pytest.raises(RefusedError, match=r"could be tested: fab-1 \(cordoned\); fab-2: the node is not ready"):
        cluster(api.kubeconfig, said).find_nodes()
    assert said.lines == ["not tested: fab-1 (cordoned)"]
    client.patch("v1/Node", first, {"spec": {"unschedulable": None, "taints": None}})
    found = cluster(api.kubeconfig).find_nodes()
    assert [node.name for node in found.nodes] == [first]
    assert [(item.name, item.problem) for item in found.absent] == [(second, "fab-2: the node is not ready")]
    # Other tests have pods of their own on this server.
    assert [item for item in client.list("v1/Pod").items if item["metadata"]["name"].startswith("fabric-")] == []


def test_a_node_that_is_not_there_is_named(api: ApiServer, pair: tuple[str, str]) -> None:
    with pytest.raises(
        InputError, match=r"'fab-9' is not a node of the cluster. Name nodes of the cluster: fab-1, fab-2"
    ):
        cluster(api.kubeconfig, hosts=[pair[0], "fab-9"]).find_nodes()


def test_a_user_who_may_not_read_or_change_nodes_is_told(api: ApiServer, client: Client, pair: tuple[str, str]) -> None:
    limited = api.kubeconfig_for("fabric-reader", {"token": "reader-token-0123456789"})
    with pytest.raises(RefusedError, match="this kubeconfig may not list nodes"):
        cluster(limited).find_nodes()
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}
    client.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "sees"}, "rules": [rule]})
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "sees"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "sees"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "reader"}],
    }
    client.apply(binding)
    target = cluster(limited)
    eventually(lambda: _readable(target), "the right to read nodes")
    published = target.publish({pair[0]: patch(lane="A")}, check=False)
    assert not published.changed and "node labels were not written" in published.note
    assert not set(LABELS) & set(labels(client, pair[0]))
    # Others try what this user may not read.
    client.delete(f"{rbac}/v1/ClusterRoleBinding", "sees")


def labels(client: Client, node: str) -> dict[str, str]:
    found: dict[str, str] = (client.get("v1/Node", node) or {})["metadata"]["labels"]
    return found


def _readable(target: kubernetes_target.KubernetesTarget) -> bool:
    try:
        return bool(target.find_nodes().nodes)
    except RefusedError:
        return False
