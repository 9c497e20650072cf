# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role rdma_stack against a real API server: what it installs, binds, refuses and removes, by the server's count."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.rdma_machines import describe, port
from ansible_collections.muster.training.tests.support.stack_cluster import (
    HELM_CHART,
    PLAY,
    Cluster,
    Dict,
    changed,
    leaves,
    require_crds,
    start_server,
)

KINDS = ("v1/Node", "v1/ConfigMap", "apps/v1/DaemonSet")
ROCE = [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")]
# One port is for storage: left out by its interface, so that its node needs another configuration.
PART = describe("gpu-2", ROCE, rdma={"exclude": ["mlx5_1"]})
WHOLE = describe("gpu-1", ROCE)
DEVICES = [{"gpu-1": WHOLE, "gpu-2": PART, "cpu-1": describe("cpu-1", [])}]
THEIRS = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.1"
MULTUS = "nvcr.io/nvidia/mellanox/multus-cni@sha256:" + "a" * 64
READY = {"type": "Ready", "status": "True"}
PLUGINS = "nvcr.io/nvidia/mellanox/plugins@sha256:" + "b" * 64


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    with start_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> t.Iterator[Cluster]:
    with Cluster(api, client, tmp_path, "rdma_stack", rdma_stack_devices=DEVICES) as made:
        yield made
        made.play(rdma_stack_state="absent")


def own_sets(client: Client) -> dict[str, Dict]:
    """Return the role's DaemonSets by the part of their name that says which configuration they have."""
    listed = client.list("apps/v1/DaemonSet", "kube-system", labels="muster.training/stack=rdma").items
    return {str(item["metadata"]["name"]).removeprefix("muster-rdma-"): t.cast("Dict", item) for item in listed}


def test_the_life_of_the_plugin(cluster: Cluster, client: Client) -> None:
    """Check mode, present, again without a write, a machine that was not read, a node less, absent, absent again."""
    bare = cluster.versions(*KINDS)
    assert changed(cluster.play("--check")) > 0 and cluster.versions(*KINDS) == bare
    output = cluster.play()
    assert "install: rdma/roce is to be offered on gpu-1, gpu-2" in output
    groups = {node: cluster.labels(node)["muster.training/rdma"] for node in ("gpu-1", "gpu-2")}
    assert len(set(groups.values())) == 2 and cluster.labels("cpu-1") == {} and cluster.annotations("cpu-1") == {}
    sets = own_sets(client)
    assert set(sets) == set(groups.values())
    for node, name in groups.items():
        spec = sets[name]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert container["image"].startswith("ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3@sha256:")
        assert spec["nodeSelector"] == {"muster.training/rdma": name} and spec["hostNetwork"] is True
        held = client.get("v1/ConfigMap", f"muster-rdma-{name}", "kube-system") or {}
        (entry,) = json.loads(t.cast("Dict", held)["data"]["config.json"])["configList"]
        assert entry == (PART if node == "gpu-2" else WHOLE)["rdma"]["plugin_entry"]
        facts = json.loads(cluster.annotations(node)["muster.training/rdma-facts"])
        assert facts["nccl_ib_hca"] == ("=mlx5_0" if node == "gpu-2" else "")
    before = cluster.versions("v1/Node", "v1/ConfigMap")
    assert changed(cluster.play()) == 0
    # Only one machine was read, as when it joins: the other stays as it was.
    assert changed(cluster.play(rdma_stack_devices=[{"gpu-1": WHOLE}])) == 0
    assert cluster.versions("v1/Node", "v1/ConfigMap") == before
    less = [{**DEVICES[0], "gpu-2": describe("gpu-2", [])}]
    assert changed(cluster.play(rdma_stack_devices=less)) == 2
    assert cluster.labels("gpu-2") == {} and cluster.annotations("gpu-2") == {}
    assert set(own_sets(client)) == {groups["gpu-1"]}
    assert changed(cluster.play(rdma_stack_state="absent")) == 2
    assert own_sets(client) == {} and cluster.labels("gpu-1") == {} and cluster.annotations("gpu-1") == {}
    assert not client.list("v1/ConfigMap", "kube-system", labels="muster.training/stack=rdma").items
    assert changed(cluster.play(rdma_stack_state="absent")) == 0


def test_a_cluster_without_hcas_is_left_alone(cluster: Cluster, client: Client) -> None:
    output = cluster.play(rdma_stack_devices=[])
    assert "none: no Node is known to have an HCA for jobs" in output and changed(output) == 0
    assert own_sets(client) == {}


def test_what_another_tool_installed_is_bound_and_two_owners_are_refused(cluster: Cluster, client: Client) -> None:
    cluster.add_plugin("theirs", "gpu-1", "gpu-2", image=THEIRS)
    before = cluster.state()
    output = cluster.play()
    assert "bind: RDMA is offered by DaemonSet kube-system/theirs" in output
    assert changed(output) == 0 and cluster.state() == before
    assert changed(cluster.play(rdma_stack_provider="bind")) == 0
    cluster.add_plugin("rival", "gpu-2", image="nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:1")
    refused = " ".join(cluster.play(code=2).split())
    line = "the HCAs of gpu-2 are claimed by DaemonSet kube-system/rival and by DaemonSet kube-system/theirs"
    assert line in refused and own_sets(client) == {}
    assert changed(cluster.play(rdma_stack_state="absent")) == 0
    assert client.get("apps/v1/DaemonSet", "theirs", "kube-system") is not None


def test_bad_choices_are_refused_before_anything_is_changed(cluster: Cluster, client: Client) -> None:
    bare = cluster.versions(*KINDS)

    def refused(**values: t.Any) -> str:
        return " ".join(cluster.play(code=2, **values).split())

    assert "nothing offers the HCAs of gpu-1, gpu-2" in refused(rdma_stack_provider="bind")
    assert "value of rdma_stack_provider must be one of" in refused(rdma_stack_provider="ofed")
    assert "sriov needs HelmChart" in refused(rdma_stack_provider="sriov")
    exclusive = [{"gpu-1": describe("gpu-1", ROCE, netns_exclusive=True)}]
    assert "gpu-1: RDMA devices belong to one network namespace each" in refused(rdma_stack_devices=exclusive)
    unloaded = [{"gpu-1": describe("gpu-1", ROCE, modules=["ib_uverbs"])}]
    assert "gpu-1: rdma_cm, rdma_ucm, ib_umad not loaded" in refused(rdma_stack_devices=unloaded)
    assert "devices.gpu-1: must have facts and rdma" in refused(rdma_stack_devices=[{"gpu-1": {"rdma": {}}}])
    assert cluster.versions(*KINDS) == bare and own_sets(client) == {}


def test_a_machine_that_joins_has_its_hcas_offered_and_the_others_stay(cluster: Cluster, client: Client) -> None:
    """The role join, with what the role devices has read of the new machine, whose Node has another name."""
    cluster.play(rdma_stack_devices=[{"gpu-2": PART}])
    before = json.dumps([cluster.labels("gpu-2"), cluster.annotations("gpu-2")])
    task = {"ansible.builtin.include_role": {"name": "muster.training.join", "tasks_from": "offer_devices"}}
    (cluster.folder / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    facts: Dict = {"nodes": {"localhost": WHOLE}, "stale": {"rdma": []}}
    joined: Dict = {"__devices": facts, "muster_node": {"name": "gpu-1"}}
    assert changed(cluster.play(**joined)) == 2 and len(own_sets(client)) == 2
    assert cluster.labels("gpu-1")["muster.training/rdma"] in own_sets(client)
    assert json.dumps([cluster.labels("gpu-2"), cluster.annotations("gpu-2")]) == before
    assert changed(cluster.play(**joined)) == 0
    bare: Dict = {"nodes": {"localhost": describe("x", [])}, "stale": {"rdma": []}}
    assert changed(cluster.play(__devices=bare)) == 0
    (cluster.folder / "play.yml").write_text(PLAY.format("rdma_stack"))


class Operator:
    """A cluster that installs charts, and has the definitions that the operator's brings."""

    def __init__(self, cluster: Cluster, definitions: t.Sequence[Dict]) -> None:
        self.cluster, self.definitions = cluster, [*definitions, HELM_CHART]

    def __enter__(self) -> Operator:
        client = self.cluster.client
        apply(client, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "network-operator"}}])
        apply(client, self.definitions)
        for version in ("26.1.1", "26.1.2", "26.7.0"):
            (self.cluster.folder / f"network-operator-{version}.tgz").write_bytes(b"a chart")
        return self

    def __exit__(self, *_args: object) -> None:
        self.play(rdma_stack_state="absent")
        for item in self.definitions:
            self.cluster.client.delete(t.cast("t.Any", item), item["metadata"]["name"])

    def play(self, **values: t.Any) -> str:
        """Run the role with a chart that is at hand."""
        return self.cluster.play(rdma_stack_source=str(self.cluster.folder), **values)

    def refuses_misspelt(self, kind: str) -> int:
        """Check that each field of the applied objects of a kind is known to the server; return how many."""
        client, count = self.cluster.client, 0
        for item in client.list(kind).items:
            meta = {key: value for key, value in item["metadata"].items() if key in ("name", "namespace")}
            live: Dict = {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": meta}
            spec = t.cast("Dict", item)["spec"]
            apply(client, [{**live, "spec": spec}], check=True, force=True)
            # What a selector names is the user's, and no field.
            for path in leaves({key: value for key, value in spec.items() if key not in ("nodeSelector",)}):
                wrong = json.loads(json.dumps(spec))
                *parents, last = path
                place = wrong
                for key in parents:
                    place = place[key]
                place[f"{last}x"] = place.pop(last)
                with pytest.raises(KubeError, match=f"{last}x|{last}"):
                    apply(client, [{**live, "spec": wrong}], check=True, force=True)
                count += 1
        return count


def test_the_operators_policies_are_what_their_definitions_know(cluster: Cluster, client: Client) -> None:
    definitions = require_crds("nicclusterpolicies", "nicnodepolicies")
    with Operator(cluster, definitions) as operator:
        several = " ".join(operator.play(rdma_stack_provider="network_operator", code=2).split())
        assert "nodes need different configurations" in several
        same: Dict = {"rdma_stack_provider": "network_operator", "rdma_stack_devices": [{"gpu-1": WHOLE}]}
        operator.play(**same)
        chart = t.cast("Dict", client.get("helm.cattle.io/v1/HelmChart", "network-operator", "kube-system"))["spec"]
        assert chart["chartContent"] == "YSBjaGFydA==" and chart["failurePolicy"] == "abort"
        values = yaml.safe_load(chart["valuesContent"])
        assert values["operator"] == {"cniBinDirectory": "/opt/cni/bin", "cniNetworkDirectory": "/etc/cni/net.d"}
        assert values["sriovNetworkOperator"] == {"enabled": False} and values["nfd"] == {"enabled": True}
        (policy,) = client.list("mellanox.com/v1alpha1/NicClusterPolicy").items
        plugin = t.cast("Dict", policy)["spec"]["rdmaSharedDevicePlugin"]
        # As a bundle's archive has it: by its tag.
        assert plugin["version"] == "v1.5.3" and plugin["repository"] == "ghcr.io/mellanox"
        assert json.loads(plugin["config"])["configList"] == [WHOLE["rdma"]["plugin_entry"]]
        assert operator.refuses_misspelt("mellanox.com/v1alpha1/NicClusterPolicy") >= 4
        assert changed(operator.play(**same)) == 0
        # From this version on each group has a policy of its own.
        operator.play(rdma_stack_provider="network_operator", rdma_stack_operator_version="26.7.0")
        assert len(client.list("mellanox.com/v1alpha1/NicNodePolicy").items) == 2
        assert client.list("mellanox.com/v1alpha1/NicClusterPolicy").items == []
        assert operator.refuses_misspelt("mellanox.com/v1alpha1/NicNodePolicy") >= 8
        # Back to the plugin alone: policies and chart go.
        operator.play()
        assert client.list("mellanox.com/v1alpha1/NicNodePolicy").items == [] and len(own_sets(client)) == 2
        assert client.get("helm.cattle.io/v1/HelmChart", "network-operator", "kube-system") is None
        apply(client, [{**FOREIGN_POLICY, "spec": {}}])
        refused = " ".join(operator.play(**same, code=2).split())
        assert "would change NicClusterPolicy nic-cluster-policy, of another tool" in refused
        client.delete(t.cast("t.Any", FOREIGN_POLICY), "nic-cluster-policy")


FOREIGN_POLICY: Dict = {
    "apiVersion": "mellanox.com/v1alpha1",
    "kind": "NicClusterPolicy",
    "metadata": {"name": "nic-cluster-policy"},
}


def test_virtual_functions_have_policies_and_networks(cluster: Cluster, client: Client) -> None:
    names = ("sriovnetworknodepolicies", "sriovnetworks", "sriovibnetworks")
    definitions = require_crds("nicclusterpolicies", *(f"sriovnetwork.openshift.io_{name}" for name in names))
    asked: Dict = {
        "rdma_stack_provider": "sriov",
        "rdma_stack_images": {"multus-cni": MULTUS, "plugins": PLUGINS},
        "rdma_stack_ipam": {"type": "host-local", "subnet": "10.56.0.0/16"},
        "rdma_stack_namespaces": ["vision"],
    }
    with Operator(cluster, definitions) as operator:
        refused = " ".join(operator.play(**{**asked, "rdma_stack_images": {}}, code=2).split())
        assert "rdma_stack_images.multus-cni: its digest is not in" in refused
        assert "has no GID" in " ".join(operator.play(**{**asked, "rdma_stack_ipam": {}}, code=2).split())
        wrong = {"operator": {"cniNetworkDirectory": "/etc/cni"}}
        folders = " ".join(operator.play(**asked, rdma_stack_operator_values=wrong, code=2).split())
        assert "cniNetworkDirectory is /etc/cni, and the nodes have /etc/cni/net.d" in folders
        operator.play(**asked)
        policies = client.list("sriovnetwork.openshift.io/v1/SriovNetworkNodePolicy").items
        chosen = {tuple(t.cast("Dict", item)["spec"]["nicSelector"]["pfNames"]) for item in policies}
        assert chosen == {("eth1", "eth2"), ("eth1",)}
        (network,) = client.list("sriovnetwork.openshift.io/v1/SriovNetwork").items
        spec = t.cast("Dict", network)["spec"]
        assert spec["networkNamespace"] == "vision" and json.loads(spec["ipam"])["subnet"] == "10.56.0.0/16"
        assert operator.refuses_misspelt("sriovnetwork.openshift.io/v1/SriovNetworkNodePolicy") >= 12
        assert operator.refuses_misspelt("sriovnetwork.openshift.io/v1/SriovNetwork") >= 3
        assert operator.refuses_misspelt("mellanox.com/v1alpha1/NicClusterPolicy") >= 6
        assert changed(operator.play(**asked)) == 0
        # Of this release the digests are in the collection's list.
        operator.play(**{**asked, "rdma_stack_images": {}}, rdma_stack_operator_version="26.1.1")
        (policy,) = client.list("mellanox.com/v1alpha1/NicClusterPolicy").items
        multus = t.cast("Dict", policy)["spec"]["secondaryNetwork"]["multus"]
        assert multus["version"].startswith("sha256:8167840a2a7f")


def test_a_node_with_hcas_and_no_gpu_is_proven_in_a_pod(cluster: Cluster, client: Client) -> None:
    """The pod is the API server's; that it ran, and what it saw, is said here in the place of its node."""
    cluster.play()
    offered = {"status": {"allocatable": {"rdma/roce": "63"}, "capacity": {"rdma/roce": "63"}}}
    client.patch("v1/Node", "gpu-2", offered, subresource="status")
    for name in ("gpu-1", "gpu-2"):
        client.patch("v1/Node", name, {"spec": {"taints": None}})
        client.patch("v1/Node", name, {"status": {"conditions": [READY]}}, subresource="status")
    proof = cluster.folder / "proof.yml"
    proof.write_text(PLAY.format("gpu_verify"))
    values = {"gpu_verify_image": "train:1", "gpu_verify_timeout_s": 4}
    said = " ".join(cluster.play(code=2, playbook=proof, **values).split())
    # Of gpu-1 the role has noted HCAs, and nothing offers them; of cpu-1 nothing is known.
    assert "gpu-1: its facts have 2 HCAs for jobs, and it offers no RDMA resource" in said
    assert "gpu-2: its pod did not run:" in said and "cpu-1" not in said
    found = json.loads((cluster.folder / "state/default/gpus.json").read_text())
    assert {item["node"]: item["rdma"]["resource"] for item in found["nodes"]} == {"gpu-1": None, "gpu-2": "rdma/roce"}
    assert client.list("batch/v1/Job", "kube-system").items == []
