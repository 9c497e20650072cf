# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that ask for a node's facts: objects that an API server takes, one a node, and what is believed of which side."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import node_facts
from ansible_collections.muster.training.tests.support.kube_schemas import problems

REQUEST = agent_package.boot_input({"op": "info", "node": "", "state_root": None, "facts": True})
ASKED = node_facts.NodeFactsRequest(
    name="fabric-facts-0a1b2c",
    namespace="team-a",
    image="registry.example/train:1",
    command=agent_package.boot_command(sys.executable),
    request=REQUEST.decode(),
    pull_secrets=("pull",),
)
NODE: dict[str, t.Any] = {
    "metadata": {
        "name": "gpu-1",
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.family": "hopper",
            "topology.kubernetes.io/region": "eu-1",
        },
    },
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": "gpu-1"}],
        "nodeInfo": {"kernelVersion": "6.8.0"},
    },
}
SEEN: dict[str, t.Any] = {
    "gpu": {"count": None, "pci_gen": 5},
    "kernel": "6.8.0-50",
    "boot_id": "b",
    "addresses": {"lan": [{"address": "10.42.1.9", "interface": "eth0", "prefix": 24}]},
    "interfaces": [{"name": "eth0", "kind": "virtual", "state": "active", "mtu": 1450}],
    "nics": [{"name": "mlx5_0", "rdma": True, "link_layer": "infiniband"}, {"name": "eth0", "rdma": False}],
}


@pytest.mark.parametrize("host_network", [True, False])
def test_an_api_server_takes_the_objects(host_network: bool) -> None:
    made = node_facts.build_objects(dataclasses.replace(ASKED, host_network=host_network), ["gpu-1", "gpu-2"])
    assert [item["kind"] for item in made] == ["ConfigMap", "Pod", "Pod"]
    assert problems(made[0]) == []
    for item in made:
        assert len(json.dumps(item)) < 1 << 20, "etcd takes no larger object"
    for pod in made[1:]:
        # The schemas that are kept know a pod as the template of a Job.
        template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": pod["metadata"], "spec": {"template": template}}
        assert problems(job) == []
    assert made[1]["spec"].get("hostNetwork", False) is host_network


def test_each_pod_is_bound_to_its_node_and_asks_for_no_device() -> None:
    _, first, second = node_facts.build_objects(ASKED, ["gpu-1", "gpu-2"])
    for pod, name in ((first, "gpu-1"), (second, "gpu-2")):
        (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        assert "nodeName" not in pod["spec"], "the scheduler must see taints and room"
        assert set(pod["spec"]["containers"][0]["resources"]["requests"]) == {"cpu", "memory"}
        assert pod["spec"]["automountServiceAccountToken"] is False
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert ASKED.selector == "muster.training/facts=fabric-facts-0a1b2c"


def test_the_command_of_the_container_answers_with_facts(tmp_path: t.Any) -> None:
    """The very command runs here, with the request as the pod finds it."""
    (tmp_path / "request").write_text(ASKED.request)
    container = node_facts.build_objects(ASKED, ["x"])[1]["spec"]["containers"][0]
    line = container["command"][2].replace("/muster/request", str(tmp_path))
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, cwd="/")
    answer = agent_package.parse_answer("x", done.returncode, done.stdout, done.stderr)
    assert not answer.get("problem") and answer["facts"]["boot_id"] and answer["live_runs"] == []


def test_gpus_are_the_node_objects_and_interfaces_the_pods() -> None:
    node = node_facts.read_node(SEEN, NODE, host_network=True)
    assert (node.name, node.gpu.count, node.gpu.model, node.gpu.pci_gen) == ("gpu-1", 8, "NVIDIA-H100-80GB-HBM3", 5)
    assert node.gpu.memory_gib == pytest.approx(79.6) and node.region == "eu-1" and node.kernel == "6.8.0-50"
    assert [item.address for item in node.addresses.lan] == ["10.42.1.9"] and len(node.nics) == 2


def test_a_pod_with_its_own_network_says_nothing_about_the_nodes() -> None:
    node = node_facts.read_node(SEEN, NODE, host_network=False)
    assert [item.address for item in node.addresses.lan] == ["10.0.0.7"] and node.interfaces == ()
    # RDMA devices are the node's whatever the network.
    assert [item.name for item in node.nics] == ["mlx5_0"] and node.boot_id == "b"


def test_a_node_without_labels_and_devices_is_a_node_without_gpus() -> None:
    node = Node.from_dict(node_facts.node_record({"metadata": {"name": "cpu-1"}}))
    assert (node.gpu.count, node.gpu.model, node.addresses.lan) == (0, None, ())
