# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes and claims a job may use, and the one line that says why not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import placement
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import CLAIM, plan

H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    "muster.training/island": "a",
    "muster.training/network-lan": "true",
}


def node(name: str, gpus: int = 8, ready: str = "True", **changes: t.Any) -> KubeObject:
    return {
        "metadata": {"name": name, "labels": {**H100, **changes.pop("labels", {})}},
        "spec": changes,
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


def test_a_node_that_has_what_is_asked_fits() -> None:
    wanted = plan(
        gpus_per_node=8,
        gpu={"model": "h100", "memory_gib_min": 80, "arch": "Hopper"},
        placement={"island": "a", "required_network_types": ["lan"]},
    ).job
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]
    verdicts = placement.judge_nodes(wanted, [node("b"), node("a", taints=taints)])
    assert [(item.node, item.reasons) for item in verdicts] == [("a", ()), ("b", ())]
    placement.require_placement(wanted, verdicts, one_a_node=True)
    assert placement.node_expressions(wanted, [node("b")]) == (
        {"key": "muster.training/island", "operator": "In", "values": ["a"]},
        {"key": "muster.training/network-lan", "operator": "In", "values": ["true"]},
        {"key": "muster.training/lane", "operator": "NotIn", "values": ["D", "E"]},
        {"key": "muster.training/fabric", "operator": "NotIn", "values": ["fail"]},
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]},
        {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["77823"]},
        {"key": "nvidia.com/gpu.family", "operator": "In", "values": ["hopper"]},
    )


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_what_a_queue_makes_pods_bear_is_no_obstacle(toleration: dict[str, str], fits: bool) -> None:
    tainted = node("a", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    (verdict,) = placement.judge_nodes(plan(gpus_per_node=8).job, [tainted], tolerations=[toleration])
    assert verdict.reasons == (() if fits else ("taint team",))


@pytest.mark.parametrize(
    ("wanted", "live", "reason"),
    [
        ({}, {"ready": "False"}, "not ready"),
        ({}, {"ready": "Unknown"}, "not ready"),
        ({}, {"unschedulable": True}, "cordoned"),
        ({}, {"taints": [{"key": "team", "effect": "NoSchedule"}]}, "taint team"),
        ({"placement": {"island": "b"}}, {}, "island a"),
        ({"placement": {"required_network_types": ["mesh"]}}, {}, "no mesh network"),
        ({"gpus_per_node": 8}, {"gpus": 4}, "4 GPUs"),
        ({"gpus_per_node": 8, "gpu": {"model": "B200"}}, {}, "NVIDIA-H100-80GB-HBM3"),
        ({"gpus_per_node": 8, "gpu": {"memory_gib_min": 96}}, {}, "79 GiB of GPU memory"),
        (
            {"gpus_per_node": 8, "gpu": {"memory_gib_min": 8}},
            {"labels": {"nvidia.com/gpu.memory": ""}},
            "GPU memory unknown",
        ),
        ({"gpus_per_node": 8, "gpu": {"arch": "ampere"}}, {}, "GPU family hopper"),
    ],
)
def test_a_node_that_has_not_is_named_with_the_reason(
    wanted: dict[str, t.Any], live: dict[str, t.Any], reason: str
) -> None:
    job = plan(**wanted).job
    verdicts = placement.judge_nodes(job, [node("n", **live)])
    assert verdicts[0].reasons == (reason,)
    with pytest.raises(RefusedError, match="0 of 1 nodes fit, at least one is needed: n") as caught:
        placement.require_placement(job, verdicts)
    assert reason in str(caught.value)


def test_a_gang_that_needs_a_node_each_needs_as_many() -> None:
    job = plan(nodes=3).job
    verdicts = placement.judge_nodes(job, [node("a"), node("b"), node("c", ready="False")])
    with pytest.raises(RefusedError, match=r"2 of 3 nodes fit, 3 are needed: a \(fits\); b \(fits\); c \(not ready\)"):
        placement.require_placement(job, verdicts, one_a_node=True)
    placement.require_placement(job, verdicts)
    many = placement.judge_nodes(job, [node(f"n{index:02}", ready="False") for index in range(20)])
    with pytest.raises(RefusedError, match="; and 8 more"):
        placement.require_placement(job, many)
    with pytest.raises(RefusedError, match="no nodes"):
        placement.require_placement(job, ())


def test_a_gang_needs_gpus_for_all_its_pods() -> None:
    job = plan(nodes=3, gpus_per_node=6).job
    words = r"2 of 2 nodes fit, with room for 2 of 3 pods: a \(room for 1\); b \(room for 1\)"
    with pytest.raises(RefusedError, match=words):
        placement.require_placement(job, placement.judge_nodes(job, [node("a"), node("b")]))
    small = plan(nodes=3, gpus_per_node=4).job
    placement.require_placement(small, placement.judge_nodes(small, [node("a"), node("b")]))
    elastic = plan(nodes=3, gpus_per_node=6, elastic={"min": 2, "max": 3}).job
    placement.require_placement(elastic, placement.judge_nodes(elastic, [node("a"), node("b")]))


def with_rdma(name: str, **offered: str) -> KubeObject:
    found = node(name)
    found["status"]["allocatable"] |= {f"rdma/{key}": value for key, value in offered.items()}
    return found


@pytest.mark.parametrize(
    ("wanted", "nodes", "resource"),
    [
        ({"gpus_per_node": 8}, [with_rdma("a", hca="1"), with_rdma("b", hca="1")], "rdma/hca"),
        ({"gpus_per_node": 8}, [with_rdma("a", hca="1"), node("b")], None),
        ({"gpus_per_node": 8}, [with_rdma("a", hca="1"), with_rdma("b", hca="0")], None),
        # The other node is none that the job may run on.
        ({"gpus_per_node": 8}, [with_rdma("a", hca="1"), node("b", ready="False")], "rdma/hca"),
        ({}, [with_rdma("a", hca="1"), with_rdma("b", hca="1")], None),
        ({"resources": {"rdma": True}}, [with_rdma("a", hca="1"), node("b")], "rdma/hca"),
        ({"gpus_per_node": 8, "resources": {"rdma": False}}, [with_rdma("a", hca="1")], None),
        ({"gpus_per_node": 8}, [], None),
    ],
)
def test_rdma_goes_to_whom_it_serves(wanted: dict[str, t.Any], nodes: list[KubeObject], resource: str | None) -> None:
    assert placement.rdma_resource(plan(**wanted).job, nodes) == resource


def test_a_node_without_rdma_does_not_fit_who_asks_for_it() -> None:
    job = plan(resources={"rdma": True}).job
    verdicts = placement.judge_nodes(job, [with_rdma("a", hca="1"), with_rdma("b", hca="0")])
    assert [item.reasons for item in verdicts] == [(), ("no RDMA device",)]


def claim(*modes: str, **changes: t.Any) -> dict[str, KubeObject]:
    return {
        "claim": {
            "metadata": {"name": "claim", **changes},
            "spec": {"accessModes": list(modes)},
            "status": {"phase": "Bound"},
        }
    }


@pytest.mark.parametrize(
    ("live", "mount", "nodes", "problem"),
    [
        ({}, CLAIM, 2, "PersistentVolumeClaim claim does not exist"),
        (
            claim("ReadWriteOnce"),
            CLAIM,
            2,
            "allows ReadWriteOnce, but 2 pods, possibly on several nodes, would mount it",
        ),
        (claim("ReadWriteOncePod"), CLAIM, 2, "allows ReadWriteOncePod"),
        (claim("ReadOnlyMany"), CLAIM, 2, "allows ReadOnlyMany"),
        (claim("ReadOnlyMany"), CLAIM, 1, "is read-only. Set read_only"),
        (claim("ReadWriteMany", deletionTimestamp="2026-11-21T00:00:00Z"), CLAIM, 2, "is being deleted or has lost"),
        (claim("ReadWriteMany"), CLAIM, 2, None),
        (claim("ReadWriteOnce"), CLAIM, 1, None),
        (claim("ReadOnlyMany"), {**CLAIM, "read_only": True}, 2, None),
    ],
)
def test_a_claim_that_several_nodes_cannot_use_is_refused(
    live: dict[str, KubeObject], mount: dict[str, t.Any], nodes: int, problem: str | None
) -> None:
    job = plan(nodes=nodes, mounts=[mount]).job
    if problem is None:
        placement.check_volumes(job, live, "team")
        return
    with pytest.raises(RefusedError, match=problem):
        placement.check_volumes(job, live, "team")


@pytest.mark.parametrize(
    ("phase", "wanted", "classes", "problem"),
    [
        ("Pending", "fast", ("slow", "local"), r"its StorageClass fast does not exist \(the cluster has local, slow\)"),
        ("Pending", "fast", (), r"its StorageClass fast does not exist \(the cluster has none\)"),
        ("Pending", "fast", ("fast",), None),
        ("Pending", "fast", None, None),
        ("Pending", "", (), None),
        # A volume that somebody made by hand needs no class of that name.
        ("Bound", "fast", (), None),
    ],
)
def test_a_claim_whose_class_is_not_there_will_get_no_volume(
    phase: str, wanted: str, classes: tuple[str, ...] | None, problem: str | None
) -> None:
    live = claim("ReadWriteMany")
    live["claim"]["spec"]["storageClassName"] = wanted
    live["claim"]["status"]["phase"] = phase
    job = plan(nodes=2, mounts=[CLAIM]).job
    if problem is None:
        placement.check_volumes(job, live, "team", classes)
        return
    with pytest.raises(RefusedError, match=problem):
        placement.check_volumes(job, live, "team", classes)


@pytest.mark.parametrize(
    ("labels", "reasons"),
    [
        ({"muster.training/fabric": "pass", "muster.training/lane": "A"}, ()),
        ({"muster.training/fabric": "warn", "muster.training/lane": "C"}, ()),
        ({"muster.training/fabric": "fail"}, ("fabric failed verification",)),
        ({"muster.training/fabric": "pass", "muster.training/lane": "D"}, ("lane D",)),
        ({"muster.training/fabric": "fail", "muster.training/lane": "E"}, ("lane E", "fabric failed verification")),
    ],
)
def test_a_gang_keeps_off_a_network_that_failed_or_is_slow(labels: dict[str, str], reasons: tuple[str, ...]) -> None:
    nodes = [node("a", labels=labels)]
    assert placement.judge_nodes(plan(gpus_per_node=8).job, nodes)[0].reasons == reasons
    slow = plan(gpus_per_node=8, placement={"allow_slow_network": True}).job
    assert placement.judge_nodes(slow, nodes)[0].reasons == tuple(reason for reason in reasons if reason == "lane E")
    relay = {"key": "muster.training/lane", "operator": "NotIn", "values": ["E"]}
    assert placement.node_expressions(slow, nodes) == (relay,)
    assert placement.node_expressions(slow, nodes, fabric=False) == ()
    alone = plan(nodes=1, gpus_per_node=8).job
    assert placement.judge_nodes(alone, nodes)[0].reasons == () and placement.node_expressions(alone, nodes) == ()
    # The next verification does not depend on what the last one said.
    assert placement.judge_nodes(plan(gpus_per_node=8).job, nodes, fabric=False)[0].reasons == ()


def test_a_node_outside_of_the_queues_flavor_does_not_fit() -> None:
    nodes = [node("a", labels={"pool": "rented"}), node("b")]
    found = placement.judge_nodes(plan(gpus_per_node=8).job, nodes, node_labels={"pool": "rented"})
    assert [item.reasons for item in found] == [(), ("not of the queue's flavor (pool=rented)",)]


def on_islands(**islands: int) -> list[KubeObject]:
    """Return nodes of these islands: so many of each."""
    return [
        node(f"{name}{number}", labels={"muster.training/island": name})
        for name, count in islands.items()
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("islands", "by_queue", "rooms", "problem"),
    [
        ({"a": 2}, False, {}, ""),
        ({"a": 2, "b": 1}, False, {"a": 2, "b": 1}, ""),
        ({"a": 2, "b": 3}, False, {"a": 2, "b": 3}, "several islands have room (a, b)"),
        (
            {"a": 1, "b": 1},
            False,
            {"a": 1, "b": 1},
            "no island has room for 2 pods (a has room for 1, b has room for 1)",
        ),
        ({"a": 2, "b": 3}, True, {"a": 2, "b": 3}, ""),
        ({"a": 1, "b": 1}, True, {"a": 1, "b": 1}, "no island has room for 2 pods"),
    ],
)
def test_a_gang_lies_on_one_island(
    islands: dict[str, int], by_queue: bool, rooms: dict[str, int], problem: str
) -> None:
    job = plan(nodes=2, gpus_per_node=8).job
    found = placement.island_capacity(job, placement.judge_nodes(job, on_islands(**islands)), True, by_queue=by_queue)
    assert found == rooms
    if not problem:
        placement.require_island(job, found, by_queue=by_queue)
        return
    with pytest.raises(RefusedError) as caught:
        placement.require_island(job, found, by_queue=by_queue)
    assert problem in caught.value.message
    slow = plan(nodes=2, gpus_per_node=8, placement={"allow_slow_network": True}).job
    assert (
        bool(
            placement.island_capacity(slow, placement.judge_nodes(slow, on_islands(**islands)), True, by_queue=by_queue)
        )
        is by_queue
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_queue_of_islands_wants_nodes_that_lie_on_one(count: int) -> None:
    job = plan(nodes=count, gpus_per_node=8).job
    nodes = [node("a"), node("b")]
    for item in nodes:
        del item["metadata"]["labels"]["muster.training/island"]
    rooms = placement.island_capacity(job, placement.judge_nodes(job, nodes), True, by_queue=True)
    with pytest.raises(RefusedError, match=f"room for {count} pods .no node has an island label.") as caught:
        placement.require_island(job, rooms, by_queue=True)
    assert "verify_fabric" in caught.value.fix
    alone = plan(nodes=1, gpus_per_node=8).job
    assert placement.island_capacity(alone, placement.judge_nodes(alone, nodes), True, by_queue=False) == {}


def test_nodes_that_were_never_verified_are_used() -> None:
    """What they are connected to nobody knows: as on hosts, the gang goes on."""
    job = plan(nodes=2, gpus_per_node=8).job
    bare = node("x")
    del bare["metadata"]["labels"]["muster.training/island"]
    nodes = [*on_islands(a=1, b=1), bare]
    assert placement.island_capacity(job, placement.judge_nodes(job, nodes), True, by_queue=False) == {}
    assert placement.island_capacity(job, placement.judge_nodes(job, nodes), True, by_queue=True) == {"a": 1, "b": 1}


def test_the_pod_beside_the_ranks_mounts_a_claim_too() -> None:
    """With one worker both may lie on the node to which the volume belongs; with two they cannot."""
    placement.check_volumes(plan(nodes=1, mounts=[CLAIM], launcher="mpi").job, claim("ReadWriteOnce"), "team")
    with pytest.raises(
        RefusedError, match="allows ReadWriteOnce, but 3 pods, possibly on several nodes, would mount it"
    ):
        placement.check_volumes(plan(nodes=2, mounts=[CLAIM], launcher="mpi").job, claim("ReadWriteOnce"), "team")


def test_a_taint_of_gpu_nodes_is_borne_by_jobs_with_gpus_alone() -> None:
    tainted = node("a", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    assert [item.reasons for item in placement.judge_nodes(plan(gpus_per_node=8).job, [tainted])] == [()]
    assert [item.reasons for item in placement.judge_nodes(plan().job, [tainted])] == [("taint nvidia.com/gpu",)]
    other = node("a", taints=[{"key": "nvidia.com/gpu", "effect": "NoExecute"}])
    assert [item.reasons for item in placement.judge_nodes(plan(gpus_per_node=8).job, [other])] == [
        ("taint nvidia.com/gpu",)
    ]


def test_a_ray_head_on_the_nodes_own_network_needs_a_node_more() -> None:
    job = plan(launcher="ray", placement={"network_mode": "host"}).job
    with pytest.raises(RefusedError, match="2 workers needs 3 nodes, one for its head, and there are 2"):
        placement.require_placement(job, placement.judge_nodes(job, [node("a"), node("b")]), one_a_node=True)
    placement.require_placement(job, placement.judge_nodes(job, [node("a"), node("b"), node("c")]), one_a_node=True)
