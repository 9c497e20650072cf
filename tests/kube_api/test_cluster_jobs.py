# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs need of a cluster, against a real API server: claims by the storage that is there, and islands for queues."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import capacity
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Dict = dict[str, t.Any]
DEFINITIONS = pathlib.Path(__file__).parents[1] / "fixtures" / "crds" / "kueue.json.gz"
KUEUE = "kueue.x-k8s.io/v1beta2"
ISLANDS = "muster-islands"
LIMIT_S = 120


class Roles:
    """Plays with roles of the collection as administrator."""

    def __init__(self, api: ApiServer, folder: pathlib.Path) -> None:
        self.api, self.folder = api, folder

    def play(self, role: str, tasks_from: str = "main", code: int = 0, **values: t.Any) -> str:
        """Run a role and return the output."""
        include = {"name": f"muster.training.{role}", "tasks_from": tasks_from}
        task = {"name": "Run it", "ansible.builtin.include_role": include}
        play = {"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": [task]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        return self.run(str(self.folder / "play.yml"), code=code, **values)

    def run(self, playbook: str, *words: str, code: int = 0, **values: t.Any) -> str:
        """Run a playbook with a server and another host, on which nothing is done, and return the output."""
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        server = {**local, "muster_k3s_role": "server", "team_pod_security": "privileged"}
        hosts = {"muster_nodes": {"hosts": {"localhost": server, "joins": local}}}
        (self.folder / "hosts.json").write_text(json.dumps(hosts))
        extra = {
            "muster_kubeconfig": str(self.api.kubeconfig),
            "muster_state": {"path": str(self.folder / "state")},
            **values,
        }
        argv = [program, "-i", str(self.folder / "hosts.json"), playbook, "-e", json.dumps(extra), *words]
        ours = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.folder), "KUBECONFIG": str(self.api.kubeconfig)}
        env = {**os.environ, **ours}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        output = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in output, output
        return output


@pytest.fixture
def roles(api: ApiServer, tmp_path: pathlib.Path) -> Roles:
    return Roles(api, tmp_path)


@pytest.fixture
def two_nodes(client: Client) -> t.Iterator[None]:
    """Two nodes that take pods."""
    names = ("claim-1", "claim-2")
    for name in names:
        add_node(client, name, {"cpu": "2", "memory": "4Gi"})
    yield
    for name in names:
        client.delete("Node", name)


def add_node(client: Client, name: str, room: Dict) -> None:
    ready = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    client.patch("Node", name, {"status": ready}, subresource="status")
    client.patch("Node", name, {"spec": {"taints": None}})


@pytest.fixture
def local_path(client: Client) -> t.Iterator[None]:
    """The storage that K3s brings."""
    apply(client, [storage_class("local-path", "rancher.io/local-path")])
    yield
    client.delete("storage.k8s.io/v1/StorageClass", "local-path")


def storage_class(name: str, provisioner: str) -> t.Any:
    meta = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": provisioner}


def changed(output: str) -> int:
    return int(output.partition("PLAY RECAP")[2].partition("changed=")[2].split()[0])


def spec_of(client: Client, kind: str, name: str, namespace: str | None = None) -> Dict:
    found = client.get(kind, name, namespace)
    assert found is not None
    return t.cast(Dict, found)["spec"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "the StorageClass local-path is of each node's own, and 2 nodes need one for their checkpoints"),
        ({"storage_claim_host_path": "/data"}, "the folder /data is of each node's own"),
        ({"storage_claim_class": "fast"}, "the cluster has no StorageClass fast"),
    ],
)
def test_storage_of_one_node_is_refused_on_several_and_nothing_is_made(
    roles: Roles, client: Client, namespace: str, two_nodes: None, local_path: None, values: Dict, said: str
) -> None:
    output = roles.play("storage_claim", code=2, storage_claim_namespace=namespace, **values)
    assert said in output and "storage_claim_nfs" in output and "storage_claim_host_path" in output
    assert client.list("v1/PersistentVolumeClaim", namespace).items == []
    assert client.get("v1/PersistentVolume", f"{namespace}-checkpoints") is None


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({"storage_claim_nfs": {"server": "192.0.2.5", "path": "/export"}}, {"server": "192.0.2.5", "path": "/export"}),
        (
            {"storage_claim_host_path": "/shared", "storage_claim_host_path_shared": True},
            {"path": "/shared", "type": "DirectoryOrCreate"},
        ),
    ],
)
def test_a_shared_folder_becomes_a_claim_of_its_own_volume_once(
    roles: Roles, client: Client, namespace: str, two_nodes: None, local_path: None, values: Dict, source: Dict
) -> None:
    assert changed(roles.play("storage_claim", storage_claim_namespace=namespace, **values)) == 1
    volume = spec_of(client, "v1/PersistentVolume", f"{namespace}-checkpoints")
    assert volume.get("nfs", volume.get("hostPath")) == source and volume["accessModes"] == ["ReadWriteMany"]
    assert volume["claimRef"]["namespace"] == namespace and volume["persistentVolumeReclaimPolicy"] == "Retain"
    claim = spec_of(client, "v1/PersistentVolumeClaim", "checkpoints", namespace)
    assert (claim["volumeName"], claim["storageClassName"]) == (f"{namespace}-checkpoints", "")
    assert changed(roles.play("storage_claim", storage_claim_namespace=namespace, **values)) == 0


# What charts and K3s install: the class, who provides it, and whether all nodes can write one of its volumes.
CLASSES = {
    "ceph-block": ("rook-ceph.rbd.csi.ceph.com", False),
    "ceph-filesystem": ("rook-ceph.cephfs.csi.ceph.com", True),
    "juicefs-sc": ("csi.juicefs.com", True),
    "local-path": ("rancher.io/local-path", False),
    "longhorn": ("driver.longhorn.io", True),
    "nfs-csi": ("nfs.csi.k8s.io", True),
}


def test_which_storage_all_nodes_can_write_is_known_by_who_provides_it(
    roles: Roles, client: Client, namespace: str, two_nodes: None
) -> None:
    """All at once, as real objects; those of one node go last, and alone they are refused by name."""
    apply(client, [storage_class(name, provisioner) for name, (provisioner, _shared) in CLASSES.items()])
    try:
        found = capacity.read_storage(client.list("storage.k8s.io/v1/StorageClass", None).items)
        own = [item for item in found if item.name in CLASSES]
        assert {item.name: (item.provisioner, item.shared) for item in own} == CLASSES
        assert [item.shared for item in own] == [True] * 4 + [False] * 2
        for name, (_provisioner, shared) in CLASSES.items():
            if shared:
                client.delete("storage.k8s.io/v1/StorageClass", name)
        output = roles.play("storage_claim", code=2, storage_claim_namespace=namespace)
        assert "the StorageClass ceph-block is of each node's own, and 2 nodes need one" in output
    finally:
        for name in CLASSES:
            client.delete("storage.k8s.io/v1/StorageClass", name)
    assert client.list("v1/PersistentVolumeClaim", namespace).items == []


def test_a_class_that_all_nodes_can_write_is_preferred_to_the_default(
    roles: Roles, client: Client, namespace: str, two_nodes: None, local_path: None
) -> None:
    apply(client, [storage_class("a-nfs", "nfs.csi.k8s.io")])
    try:
        roles.play("storage_claim", storage_claim_namespace=namespace, storage_claim_size="5Gi")
    finally:
        client.delete("storage.k8s.io/v1/StorageClass", "a-nfs")
    claim = spec_of(client, "v1/PersistentVolumeClaim", "checkpoints", namespace)
    assert (claim["storageClassName"], claim["accessModes"]) == ("a-nfs", ["ReadWriteMany"])
    assert claim["resources"]["requests"]["storage"] == "5Gi"


def test_a_claim_of_another_tool_is_used_as_it_is(
    roles: Roles, client: Client, namespace: str, two_nodes: None, local_path: None
) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "checkpoints", "namespace": namespace}
    apply(client, [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}], "terraform")
    assert changed(roles.play("storage_claim", storage_claim_namespace=namespace)) == 0
    assert spec_of(client, "v1/PersistentVolumeClaim", "checkpoints", namespace)["accessModes"] == ["ReadWriteOnce"]


def topology_definition() -> t.Any:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "topologies.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Cluster",
            "names": {"plural": "topologies", "singular": "topology", "kind": "Topology", "listKind": "TopologyList"},
            "versions": [{"name": "v1beta2", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_queues_get_islands_where_kueue_has_topologies_and_a_team_keeps_them(roles: Roles, client: Client) -> None:
    apply(client, json.loads(gzip.decompress(DEFINITIONS.read_bytes())))
    assert changed(roles.play("gang_scheduling", "ensure_topology")) == 0
    apply(client, [topology_definition()])
    try:
        assert changed(roles.play("gang_scheduling", "ensure_topology")) == 1
        levels = spec_of(client, f"{KUEUE}/Topology", ISLANDS)["levels"]
        assert [level["nodeLabel"] for level in levels] == ["muster.training/island", "kubernetes.io/hostname"]
        wanted = {"topologyName": ISLANDS, "nodeLabels": {"kubernetes.io/os": "linux"}}
        for _time in range(2):
            team: Dict = {"muster_team": "islanders", "team_quota": {"cpu": 4, "memory": "8Gi"}, "team_flavor": ISLANDS}
            roles.play("team", **team)
            assert spec_of(client, f"{KUEUE}/ResourceFlavor", ISLANDS) == wanted
            assert changed(roles.play("gang_scheduling", "ensure_topology")) == 0
    finally:
        roles.play("team", muster_team="islanders", team_state="absent")
        client.delete("apiextensions.k8s.io/v1/CustomResourceDefinition", "topologies.kueue.x-k8s.io")


def quota_of(client: Client, team: str) -> Dict:
    (group,) = spec_of(client, f"{KUEUE}/ClusterQueue", team)["resourceGroups"]
    return {item["name"]: item["nominalQuota"] for item in group["flavors"][0]["resources"]}


def test_a_quota_of_what_the_nodes_have_grows_with_nodes_that_join_and_another_one_stays(
    roles: Roles, client: Client, two_nodes: None
) -> None:
    apply(client, json.loads(gzip.decompress(DEFINITIONS.read_bytes())))
    step = "Add what the new nodes have to the quota of the team's queue"
    joined = ("muster.training.join", "--start-at-task", step)
    left = ("muster.training.remove_nodes", "--start-at-task", "Take what these nodes had off it")
    team: Dict = {"muster_team": "growers", "muster_node_hosts": "localhost"}
    new: Dict = {**team, "muster_join_hosts": "joins", "__join_cluster": {"server": "localhost"}}
    gone: Dict = {**team, "muster_remove_nodes": "joins"}
    # A number is stored as the text of a quantity.
    own: Dict = {"muster_team_quota": {"cpu": 3, "memory": "1Gi"}}
    stored = {"cpu": "3", "memory": "1Gi"}
    try:
        roles.run("muster.training.cluster_jobs", **team)
        assert quota_of(client, "growers") == {"cpu": "4000m", "memory": "8192Mi"}
        add_node(client, "claim-3", {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "8"})
        output = roles.run(*joined, **new)
        # The team is made as the server's variables say, and by the host that joins.
        assert changed(output) == 1 and "localhost" not in output.rpartition("PLAY RECAP")[2], output
        assert quota_of(client, "growers") == {"cpu": "6000m", "memory": "12288Mi", "nvidia.com/gpu": "8"}
        limits = spec_of(client, "v1/ResourceQuota", "muster-team", "growers")["hard"]
        assert limits["requests.nvidia.com/gpu"] == "8"
        found = t.cast(Dict, client.get("v1/Namespace", "growers"))["metadata"]["labels"]
        assert found["pod-security.kubernetes.io/enforce"] == "privileged"
        assert changed(roles.run(*joined, **new)) == 0
        # The same when they leave again.
        client.delete("Node", "claim-3")
        assert changed(roles.run(*left, **gone)) == 1
        assert quota_of(client, "growers") == {"cpu": "4000m", "memory": "8192Mi"}
        # Machines are not kept for a cluster that is away.
        away = roles.folder / "away"
        away.write_text(roles.api.kubeconfig.read_text().replace(str(roles.api.port), "1"))
        output = roles.run(*left, **gone, muster_kubeconfig=str(away))
        assert "The quota of the team's queue stays as it is" in output, output
        # A quota that somebody has chosen is no longer one of the nodes.
        roles.run("muster.training.cluster_jobs", **team, **own)
        assert quota_of(client, "growers") == stored
        assert changed(roles.run(*joined, **new)) == 0
        assert quota_of(client, "growers") == stored
    finally:
        client.delete("Node", "claim-3")
        roles.play("team", muster_team="growers", team_state="absent")
