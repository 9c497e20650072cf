# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a fabric test writes reaches the ranks of the next job: on hosts by whole runs, in pods by the pod's own code."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import Job, Mount, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.network_plan import (
    NetworkPlan,
    plan_cluster_network,
)
from ansible_collections.muster.training.plugins.module_utils._model.pod_spec import PodSpec
from ansible_collections.muster.training.plugins.module_utils._node import pod_environment, pod_preflight
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.decision import PlacementDecision
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.node_fit import NodeFit
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    ClusterFacts,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.source import CodeSource
from ansible_collections.muster.training.tests.support.run_world import RunWorld
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fabric_verify.test_run import (
    nccl_tests,
    sshd_works,
    world,
)

__all__ = ["sshd_works", "world"]
Dict = dict[str, t.Any]
SHOW = 'import json, os; print("ENV " + json.dumps({k: v for k, v in os.environ.items() if "CCL" in k or "GLOO" in k}))'


def port(name: str, rate: float) -> Dict:
    return {"name": name, "link_layer": "infiniband", "rate_gbps": rate, "state": "active", "rdma": True}


def verify(world: RunWorld, topology: str | None = None, **options: t.Any) -> Dict:
    """Verify the network of two nodes with one storage port on the first; return the entry of fabric.json.

    :param topology: the file that the first node's image brings for NCCL.
    """
    nics = {"a": [port("mlx5_0", 400), port("mlx5_9", 100)], "b": [port("mlx5_0", 400)]}

    class WithPorts(NodeClient):
        """A node with RDMA ports, of which this machine has none; everything else is measured."""

        def call(self, op: str, **values: t.Any) -> Dict:
            answer = super().call(op, **values)
            if "facts" in answer:
                answer["facts"].update(nics=nics[self.name], addresses={"lan": [ADDRESSES[self.name]]})
                answer["facts"]["topology_file"] = topology if self.name == "a" else None
            return answer

    for name in "ab":
        made = world.lab.remote(name)
        world.nodes[name] = WithPorts(name, made.shell, python=made.python, state_root=made.state_root)
    nccl_tests(world, **options)
    document = json.loads((world.home() / "fabric.json").read_text())
    return t.cast(Dict, document["islands"][0])


ADDRESSES = {name: {"address": f"127.0.0.{number}", "interface": "ib0"} for number, name in enumerate("ab", 1)}


def interface(entry: Dict) -> str:
    """Return the interface that the test found for the first node, else that of the node's address."""
    classes = [item["variables"] for item in entry["environment"] if "a" in item["nodes"]]
    return str(next((values["GLOO_SOCKET_IFNAME"] for values in classes if "GLOO_SOCKET_IFNAME" in values), "lo"))


def environment(world: RunWorld, node: str) -> Dict:
    """Return what a rank on a node printed of its environment."""
    text = (world.folder() / "logs" / f"{node}.log").read_text()
    return t.cast(Dict, json.loads(next(line[4:] for line in text.splitlines() if line.startswith("ENV "))))


@pytest.mark.usefixtures("sshd_works")
def test_a_job_on_hosts_gets_what_the_verdict_found_for_each_node(world: RunWorld) -> None:
    entry = verify(world)
    assert entry["transport"]["verdict"] == "rdma_gdr"
    done = world.play(world.job("python3", "-c", SHOW, env={"NCCL_P2P_DISABLE": "1"}))
    assert done["run"]["outcome"] == "succeeded", world.said.lines
    first, second = environment(world, "a"), environment(world, "b")
    assert first["NCCL_IB_HCA"] == "=mlx5_0" and "NCCL_IB_HCA" not in second
    for values in (first, second):
        assert values["NCCL_NET"] == "IB" and values["NCCL_SOCKET_IFNAME"] == f"={interface(entry)}", values
        assert values["GLOO_SOCKET_IFNAME"] == interface(entry) and values["NCCL_P2P_DISABLE"] == "1"
    said = "\n".join(world.said.lines)
    assert f"network variables of a: GLOO_SOCKET_IFNAME={interface(entry)} NCCL_IB_HCA==mlx5_0 NCCL_NET=IB" in said
    assert "warning: job.env sets NCCL_P2P_DISABLE=1: GPUs of one node then copy through host memory" in said


@pytest.mark.usefixtures("sshd_works")
def test_the_test_itself_ran_with_the_same_variables_and_was_not_pinned(world: RunWorld) -> None:
    place = world.root / "seen.json"
    act = f"pathlib.Path({str(place)!r} + node).write_text(json.dumps(dict(os.environ)))"
    entry = verify(world, act=f"import json; {act}")
    seen = json.loads(pathlib.Path(f"{place}a").read_text())
    assert seen["NCCL_IB_HCA"] == "=mlx5_0" and "NCCL_NET" not in seen
    assert seen["NCCL_SOCKET_IFNAME"] == f"={interface(entry)}"


@pytest.mark.usefixtures("sshd_works")
def test_the_jobs_own_variables_win_and_that_is_said(world: RunWorld) -> None:
    entry = verify(world)
    done = world.play(world.job("python3", "-c", SHOW, env={"NCCL_SOCKET_IFNAME": "=eth7", "NCCL_NET": "Socket"}))
    assert done["run"]["outcome"] == "succeeded", world.said.lines
    values = environment(world, "a")
    assert values["NCCL_SOCKET_IFNAME"] == "=eth7" and values["NCCL_NET"] == "Socket"
    said = "\n".join(world.said.lines)
    found = f"={interface(entry)}"
    assert f"job.env sets NCCL_SOCKET_IFNAME==eth7, and the verdict on the network {found}: the job's" in said
    assert "job.env sets NCCL_NET=Socket: NCCL then uses TCP instead of RDMA" in said


def pod_job(**placement: t.Any) -> Job:
    batch = {"parameters": 10**9}
    place = {"backend": "kubernetes", **placement}
    return parse_job({"name": "x", "nodes": 2, "image": "i", "script": "/t.py", "placement": place, "batch": batch})


def plan_pods(job: Job, entries: list[Dict], rdma: str | None = "rdma/ib", extra: str = "") -> NetworkPlan:
    results = tuple(NodeFit(name, (), 8, "lab") for name in (*"ab", *extra))
    decided = PlacementDecision(results, (), frozenset(), EligibleNodes(rdma_resource=rdma))
    return plan_cluster_network(job, decided.possible_nodes, (), entries, rdma=rdma is not None, one_island=False)


def variables_in_pod(job: Job, planned: NetworkPlan, node: str) -> Dict:
    """Return what the pod's program hands to the launcher on a node, from the specification as it is mounted."""
    decided = PlacementDecision((), (), frozenset(), EligibleNodes())
    facts = ClusterFacts([], (), None, {}, [])
    decision = kubernetes_plan.ClusterDecision(job, "n", facts, decided, planned)
    made = kubernetes_plan.build_plan(decision, CodeSource((), None, None), "r-1", "c", 1)
    spec = json.loads(t.cast(PodSpec, made.pods["node"]).to_json())
    identity = pod_preflight.PodIdentity(0, node, "p", 1, "127.0.0.1")
    return pod_environment.build_environment(spec, identity, {}, {}, "127.0.0.1")


@pytest.mark.usefixtures("sshd_works")
def test_pods_get_the_same_as_far_as_their_network_is_the_nodes(world: RunWorld) -> None:
    entry = verify(world)
    host, pod = pod_job(network_mode="host"), pod_job(network_mode="pod")
    values = variables_in_pod(host, plan_pods(host, [entry]), "a")
    assert values["NCCL_IB_HCA"] == "=mlx5_0" and values["NCCL_NET"] == "IB"
    name = interface(entry)
    assert values["NCCL_SOCKET_IFNAME"] == f"={name}" and values["GLOO_SOCKET_IFNAME"] == name
    # A pod with a network of its own has its own interface; without RDMA devices a pinned network would not start.
    values = variables_in_pod(pod, plan_pods(pod, [entry]), "a")
    assert values["NCCL_SOCKET_IFNAME"] == "=lo" and values["NCCL_IB_HCA"] == "=mlx5_0"
    values = variables_in_pod(host, plan_pods(host, [entry], rdma=None), "a")
    assert "NCCL_IB_HCA" not in values and "NCCL_NET" not in values and values["GLOO_SOCKET_IFNAME"] == name
    # The scheduler may take a node of another island: RDMA between them was not proven.
    values = variables_in_pod(host, plan_pods(host, [entry], extra="c"), "a")
    assert "NCCL_NET" not in values and values["NCCL_IB_HCA"] == "=mlx5_0"


@pytest.mark.usefixtures("sshd_works")
def test_the_topology_file_of_a_node_reaches_ranks_where_they_find_it(world: RunWorld) -> None:
    """On hosts by its path; in pods by the mount that holds it, and without one the job is told what to mount."""
    place = world.root / "ndv4" / "topo.xml"
    place.parent.mkdir()
    place.touch()
    entry = verify(world, topology=str(place))
    done = world.play(world.job("python3", "-c", SHOW))
    assert done["run"]["outcome"] == "succeeded", world.said.lines
    assert environment(world, "a")["NCCL_TOPO_FILE"] == str(place)
    assert "NCCL_TOPO_FILE" not in environment(world, "b")
    planned = plan_pods(pod_job(), [entry])
    assert "NCCL_TOPO_FILE" not in variables_in_pod(pod_job(), planned, "a")
    (line,) = [line for line in planned.warnings if "topology file" in line]
    assert line.startswith(f"pods on a do not have {place}") and f"host_path: {place.parent}" in line
    job = dataclasses.replace(pod_job(), mounts=(Mount("topology", "/ndv4", host_path=str(place.parent)),))
    planned = plan_pods(job, [entry])
    assert planned.environment["a"]["NCCL_TOPO_FILE"] == "/ndv4/topo.xml"
    assert not [line for line in planned.warnings if "topology file" in line]


@pytest.mark.usefixtures("sshd_works")
def test_the_time_of_an_all_reduce_is_predicted_on_clusters_too(world: RunWorld) -> None:
    entry = verify(world)
    planned = plan_pods(pod_job(), [entry])
    assert planned.bandwidth_gb_s == entry["bandwidth"]["busbw_gb_s"] == 386.56
    assert planned.reference == {"island": "lab", "outcome": "pass", "lane": "A"}
