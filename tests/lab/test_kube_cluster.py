# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of the lab is a real one: gangs wait for quota, pods find each other, nodes come and go, nothing is left."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.lab import kube_jobs, traces
from ansible_collections.muster.training.tests.lab.kube import kwok, plan
from ansible_collections.muster.training.tests.lab.kube.cluster import Cluster
from ansible_collections.muster.training.tests.lab.podman import Podman, cache_home
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team

LOST_S = 60
BACK_S = 90
# Ends when its rank has been alive for argv[1] seconds.
LIVE = "import sys, time; print('alive'); time.sleep(float(sys.argv[1]))"
# argv: name of rank 0. Rank 0 greets every other rank once; the others ask by name until it is there.
MEET = """
import os, socket, sys, time
began = time.monotonic()
if os.environ["JOB_COMPLETION_INDEX"] == "0":
    server = socket.create_server(("0.0.0.0", 29500))
    peer, address = server.accept()
    peer.sendall(b"welcome")
    print("from", address[0])
else:
    while True:
        try:
            peer = socket.create_connection((sys.argv[1], 29500), timeout=2)
            break
        except OSError:
            assert time.monotonic() - began < 40, "nobody there"
            time.sleep(0.2)
    assert peer.recv(7) == b"welcome"
    print(f"met after {time.monotonic() - began:.1f} s as", peer.getsockname()[0])
"""
ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["JOB_COMPLETION_INDEX"])
dist.init_process_group("gloo", init_method=f"tcp://{sys.argv[1]}:29500", rank=rank, world_size=2)
value = torch.full((1000,), float(rank + 1)); dist.all_reduce(value)
assert value.sum().item() == 3000.0; print("sum", value[0].item()); dist.destroy_process_group()
"""


@pytest.fixture
def repaired(kube_lab: KubeLab) -> t.Iterator[KubeLab]:
    """The cluster, in order again after the test."""
    yield kube_lab
    kube_lab.cluster.restore()


def ready(lab: KubeLab, node: str) -> bool:
    return bool(lab.api.nodes().get(node))


def test_cluster_is_what_it_says(kube_lab: KubeLab) -> None:
    listed = {item["metadata"]["name"]: item for item in kube_lab.items("/api/v1/nodes")}
    assert {plan.CONTROL, *kube_lab.nodes} <= set(listed)
    assert all(ready(kube_lab, name) for name in (plan.CONTROL, *kube_lab.nodes))
    assert [taint["effect"] for taint in listed[plan.CONTROL]["spec"]["taints"]] == ["NoSchedule"]
    for name in kube_lab.nodes:
        assert "taints" not in listed[name]["spec"]
        assert listed[name]["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.10"
    assert kube_lab.kubeconfig.stat().st_mode & 0o077 == 0
    assert json.loads(kube_lab.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == "v1.34.10"
    for path in ("/apis/kueue.x-k8s.io/v1beta2", "/apis/jobset.x-k8s.io/v1alpha2"):
        assert kube_lab.api.get(path)["resources"], path
    # Kueue serves this one itself, through the API server's front proxy.
    assert kube_lab.api.get("/apis/visibility.kueue.x-k8s.io")["versions"]
    system = [pod for pod in kube_lab.items("/api/v1/pods") if pod["metadata"]["namespace"].endswith("-system")]
    # What enforces policies runs on every node by its nature.
    controllers = [
        pod
        for pod in system
        if "DaemonSet" not in [owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])]
    ]
    assert {pod["spec"]["nodeName"] for pod in controllers} == {plan.CONTROL}, (
        "a drill on a node would hit a controller"
    )


@pytest.mark.parametrize("topology", [False, True], ids=["plain", "topology"])
def test_second_gang_has_no_pod_until_the_first_has_finished(kube_lab: KubeLab, topology: bool) -> None:
    with kube_lab.namespace(cpu="1", memory="1Gi", topology=topology) as team:
        for name in ("first", "second"):
            jobset = kube_jobs.gang(kube_lab, team, name, LIVE, "5")
            if topology:
                template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
                template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}}
            kube_jobs.submit(kube_lab, team, jobset)
            until(lambda n=name: n == "second" or kube_jobs.pods(kube_lab, team, n), "pods of the first gang")  # type: ignore[misc]
        seen: list[str] = []

        def first_ended() -> str:
            # In this order: what is seen of the second gang was so while the first one had not ended.
            others = kube_jobs.phases(kube_lab, team, "second")
            end = kube_jobs.ended(kube_lab, team, "first")
            if not end:
                seen.extend(others)
            return end

        assert until(first_ended, "the end of the first gang") == "Completed"
        assert seen == [], "the second gang had pods while the first held the quota"
        assert until(lambda: kube_jobs.ended(kube_lab, team, "second"), "the end of the second gang") == "Completed"
        assert kube_jobs.phases(kube_lab, team, "second") == ["Succeeded", "Succeeded"]


def test_pods_meet_by_name_across_nodes(kube_lab: KubeLab, team: Team) -> None:
    apart = {
        "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "meet"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    jobset = kube_jobs.gang(kube_lab, team, "meet", MEET, "meet-node-0-0.meet", spec=spec)
    kube_jobs.submit(kube_lab, team, jobset)
    assert until(lambda: kube_jobs.ended(kube_lab, team, "meet"), "the end of the gang") == "Completed"
    found = kube_jobs.pods(kube_lab, team, "meet")
    assert len({pod["spec"]["nodeName"] for pod in found}) == 2
    said = kube_jobs.logs(kube_lab, team, "meet")
    guest = next(pod for pod in found if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1")
    assert f"from {guest['status']['podIP']}" in said, "the addresses of pods must reach other nodes unchanged"
    assert float(said.split("met after ")[1].split()[0]) < 20


def test_torch_runs_in_pods(kube_lab: KubeLab, team: Team) -> None:
    if not kube_lab.torch:
        pytest.skip("no torch for Python 3.13 was found when the cluster was made (MUSTER_TORCH_PYTHON)")
    jobset = kube_jobs.gang(kube_lab, team, "sum", ALL_REDUCE, "sum-node-0-0.sum", torch=True)
    kube_jobs.submit(kube_lab, team, jobset)
    end = until(lambda: kube_jobs.ended(kube_lab, team, "sum"), "the end of the gang", 180)
    said = kube_jobs.logs(kube_lab, team, "sum")
    assert end == "Completed", said
    assert said.count("sum 3.0") == 2


@pytest.mark.parametrize(("fault", "cure"), [("kill", "start"), ("cut", "heal")])
def test_lost_node_is_noticed_and_comes_back(repaired: KubeLab, team: Team, fault: str, cure: str) -> None:
    node = repaired.nodes[-1]
    repaired.fault(fault, node)
    assert repaired.cluster.machines.state(repaired.cluster.machine(node)) == {"kill": "exited", "cut": "cut"}[fault]
    until(lambda: not ready(repaired, node), "the node to be NotReady", LOST_S)
    repaired.fault(cure, node)
    until(lambda: ready(repaired, node), "the node to be Ready again", BACK_S)
    pinned = {"nodeSelector": {"kubernetes.io/hostname": node}}
    kube_jobs.submit(repaired, team, kube_jobs.gang(repaired, team, "after", LIVE, "0", spec=pinned))
    assert until(lambda: kube_jobs.ended(repaired, team, "after"), "a gang on the node") == "Completed"


def test_api_server_can_be_away(repaired: KubeLab) -> None:
    repaired.cluster.control_plane("stop")
    assert repaired.api.ask("GET", "/readyz")[0] == 0
    repaired.cluster.control_plane("start")
    until(repaired.api.is_ready, "the API server")
    until(lambda: all(ready(repaired, name) for name in repaired.nodes), "the nodes", BACK_S)


def test_link_has_the_rate_that_it_is_given(repaired: KubeLab) -> None:
    sender, receiver = repaired.nodes[:2]
    address = repaired.cluster.machine(receiver).address
    listen = "import socket; s = socket.create_server(('', 29600)); c, _ = s.accept()\nwhile c.recv(1 << 16): pass"
    send = "import socket, sys, time; c = socket.create_connection((sys.argv[1], 29600)); t = time.monotonic()\n"
    send += "c.sendall(bytes(4 << 20)); c.shutdown(socket.SHUT_WR); c.recv(1); print(time.monotonic() - t)"

    def seconds() -> float:
        repaired.on_node(receiver, "systemd-run", "--quiet", "--collect", "python3", "-c", listen)
        until(lambda: "29600" in repaired.on_node(receiver, "ss", "-Hltn"), "the listener")
        return float(repaired.on_node(sender, "python3", "-c", send, address))

    before = seconds()
    repaired.cluster.machines.shape(repaired.cluster.machine(sender), 40)
    shaped = seconds()
    assert 0.7 < shaped < 3, "4 MiB take 0.84 s at 40 Mb/s"
    repaired.cluster.machines.unshape(repaired.cluster.machine(sender))
    assert max(before, seconds()) < shaped / 2


def test_node_is_added_used_and_gone(repaired: KubeLab, team: Team) -> None:
    name = "node-extra"
    made = repaired.cluster.add(name)
    try:
        pinned = {"nodeSelector": {"kubernetes.io/hostname": name}}
        kube_jobs.submit(repaired, team, kube_jobs.gang(repaired, team, "new", LIVE, "0", spec=pinned))
        assert until(lambda: kube_jobs.ended(repaired, team, "new"), "a gang on the new node") == "Completed"
        assert {pod["status"]["podIP"].rpartition(".")[0] for pod in kube_jobs.pods(repaired, team, "new")} == {
            made.pods.rpartition(".")[0]
        }
    finally:
        repaired.cluster.remove(name)
    until(lambda: not ready(repaired, name), "the Node of the lost machine to be NotReady", LOST_S)
    assert name in repaired.api.nodes(), "nobody but the one who owns the machine says that it is gone"
    repaired.kubectl("delete", "node", name)


def test_hundred_simulated_nodes_take_gangs_of_gpus(kube_lab: KubeLab) -> None:
    kwok.add(kube_lab.cluster, 100, 8)
    try:
        listed = [item for item in kube_lab.items("/api/v1/nodes") if item["metadata"]["labels"].get("type") == "kwok"]
        assert len(listed) == 100
        assert {item["status"]["allocatable"][kwok.GPU] for item in listed} == {"8"}
        # Seven gangs of four nodes' GPUs, room for five.
        with kube_lab.namespace(simulated=True, cpu="100", memory="100Gi", gpu=str(5 * 4 * 8)) as team:
            for index in range(7):
                jobset = kube_jobs.gang(kube_lab, team, f"g{index}", LIVE, "0", pods=4, cpu="1", gpus=8)
                template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
                template["metadata"] = {"annotations": {kwok.DELAY: "6s"}}
                kube_jobs.submit(kube_lab, team, jobset)
            until(lambda: len(kube_lab.pods(team.namespace)) == 20, "the pods of five gangs", 60)
            until(lambda: all(pod["spec"].get("nodeName") for pod in kube_lab.pods(team.namespace)), "their nodes", 60)
            found = kube_lab.pods(team.namespace)
            names = [pod["spec"]["nodeName"] for pod in found]
            assert len(set(names)) == len(names) == 20, "one pod takes all the GPUs of a node"
            assert all(name.startswith("kwok-") for name in names)
            ends = [f"g{index}" for index in range(7)]
            until(lambda: all(kube_jobs.ended(kube_lab, team, name) for name in ends), "the end of all gangs", 90)
    finally:
        kwok.remove(kube_lab.cluster)
    assert not any(name.startswith("kwok-") for name in kube_lab.api.nodes())


def test_second_cluster_beside_it_and_nothing_is_left(kube_lab: KubeLab) -> None:
    """A small cluster of its own comes up beside the other one, and takes everything with it."""
    tool = Podman(cache_home())
    before = count(tool)
    spare = Cluster(tool, "spare", lambda line: None)
    try:
        made = spare.up(1, standard=False)
        during = count(tool)
        assert (during["containers"], during["networks"]) == (before["containers"] + 2, before["networks"] + 1)
        assert during["volumes"] == before["volumes"] + 4
        own = traces.own(tool, made.id)
        kinds = {line.split()[0] for line in own}
        assert {"interface", "route", "mount", "process", "cgroup", "volume"} <= kinds
    finally:
        left = spare.down()
    assert left == []
    assert count(tool) == before
    assert not own & traces.take() and not spare.folder.exists()
    assert all(ready(kube_lab, name) for name in kube_lab.nodes)


def count(tool: Podman) -> dict[str, int]:
    """Count what podman has."""
    return {
        "containers": len(tool("ps", "--all", "--quiet").split()),
        "networks": len(tool("network", "ls", "--quiet").split()),
        "volumes": len(tool("volume", "ls", "--quiet").split()),
    }
