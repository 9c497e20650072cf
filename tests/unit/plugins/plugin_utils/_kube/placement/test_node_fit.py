# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes can take a pod of a job, and why the others cannot."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import decision
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.node_fit import (
    find_rdma_resource,
    judge_nodes,
    node_expressions,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.placement.nodes import node


def test_a_node_that_has_what_is_asked_fits() -> None:
    wanted = plan(
        gpus_per_node=8,
        gpu={"model": "h100", "memory_gib_min": 80, "arch": "Hopper"},
        placement={"island": "a", "required_network_types": ["lan"]},
    ).job
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]
    verdicts = judge_nodes(wanted, [node("b"), node("a", taints=taints)])
    assert [(item.node, item.reasons) for item in verdicts] == [("a", ()), ("b", ())]
    assert node_expressions(wanted, [node("b")]) == (
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
    (verdict,) = judge_nodes(plan(gpus_per_node=8).job, [tainted], tolerations=[toleration])
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
        ({"resources": {"rdma": True}}, {}, "no RDMA device"),
        ({"resources": {"rdma": "rdma/ib"}}, {}, "no rdma/ib"),
    ],
)
def test_a_node_that_has_not_is_named_with_the_reason(
    wanted: dict[str, t.Any], live: dict[str, t.Any], reason: str
) -> None:
    job = plan(**wanted).job
    verdicts = judge_nodes(job, [node("n", **live)])
    assert verdicts[0].reasons == (reason,)
    problem = decision.find_shortage(job, verdicts)
    assert problem is not None
    assert problem.message.startswith(f"job.placement: 0 of 1 nodes fit, at least one is needed: n ({reason})")


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
        # The named one, however many nodes offer others.
        ({"resources": {"rdma": "rdma/ib"}}, [with_rdma("a", hca="1", ib="63"), with_rdma("b", hca="1")], "rdma/ib"),
        ({"resources": {"rdma": "rdma/none"}}, [with_rdma("a", hca="1")], None),
        ({"gpus_per_node": 8}, [], None),
    ],
)
def test_rdma_goes_to_whom_it_serves(wanted: dict[str, t.Any], nodes: list[KubeObject], resource: str | None) -> None:
    job = plan(**wanted).job
    assert find_rdma_resource(job, judge_nodes(job, nodes)) == resource


def test_a_node_without_rdma_does_not_fit_who_asks_for_it() -> None:
    job = plan(resources={"rdma": True}).job
    verdicts = judge_nodes(job, [with_rdma("a", hca="1"), with_rdma("b", hca="0")])
    assert [item.reasons for item in verdicts] == [(), ("no RDMA device",)]


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
    assert judge_nodes(plan(gpus_per_node=8).job, nodes)[0].reasons == reasons
    slow = plan(gpus_per_node=8, placement={"allow_slow_network": True}).job
    assert judge_nodes(slow, nodes)[0].reasons == tuple(reason for reason in reasons if reason == "lane E")
    relay = {"key": "muster.training/lane", "operator": "NotIn", "values": ["E"]}
    assert node_expressions(slow, nodes) == (relay,)
    assert node_expressions(slow, nodes, fabric=False) == ()
    alone = plan(nodes=1, gpus_per_node=8).job
    assert judge_nodes(alone, nodes)[0].reasons == () and node_expressions(alone, nodes) == ()
    # The next verification does not depend on what the last one said.
    assert judge_nodes(plan(gpus_per_node=8).job, nodes, fabric=False)[0].reasons == ()


def test_a_node_outside_of_the_queues_flavor_does_not_fit() -> None:
    nodes = [node("a", labels={"pool": "rented"}), node("b")]
    found = judge_nodes(plan(gpus_per_node=8).job, nodes, node_labels={"pool": "rented"})
    assert [item.reasons for item in found] == [(), ("not of the queue's flavor (pool=rented)",)]


def test_a_taint_of_gpu_nodes_is_borne_by_jobs_with_gpus_alone() -> None:
    tainted = node("a", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    assert [item.reasons for item in judge_nodes(plan(gpus_per_node=8).job, [tainted])] == [()]
    assert [item.reasons for item in judge_nodes(plan().job, [tainted])] == [("taint nvidia.com/gpu",)]
    other = node("a", taints=[{"key": "nvidia.com/gpu", "effect": "NoExecute"}])
    assert [item.reasons for item in judge_nodes(plan(gpus_per_node=8).job, [other])] == [("taint nvidia.com/gpu",)]


SHARED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (SHARED, ["nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"]),
        ({"nvidia.com/gpu.replicas": "4"}, ["nvidia.com/gpu.replicas"]),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, ["nvidia.com/gpu.sharing-strategy"]),
    ],
)
def test_a_gang_is_not_placed_on_gpus_that_pods_share(labels: dict[str, str], keys: list[str]) -> None:
    nodes = [node("a"), node("b", labels=labels)]
    gang = plan(gpus_per_node=2).job
    alone, shared = judge_nodes(gang, nodes)
    assert alone.reasons == () and len(shared.reasons) == 1 and "GPUs shared between pods (" in shared.reasons[0]
    assert [item["key"] for item in node_expressions(gang, nodes) if item["key"] in SHARED] == keys
    assert not [item for item in node_expressions(gang, nodes[:1]) if item["key"] in SHARED]
    single = plan(nodes=1, gpus_per_node=1).job
    assert [item.reasons for item in judge_nodes(single, nodes)] == [(), ()]
    assert not [item for item in node_expressions(single, nodes) if item["key"] in SHARED]


def test_a_pod_of_several_ranks_is_not_placed_on_slices() -> None:
    product = "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    nodes = [node("a"), node("b", labels={"nvidia.com/gpu.product": product})]
    several, one = plan(gpus_per_node=2).job, plan(nodes=1, gpus_per_node=1).job
    assert [item.reasons for item in judge_nodes(several, nodes)] == [
        (),
        (f"MIG slices ({product}), of which a pod's program can use one",),
    ]
    assert {"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": [product]} in node_expressions(
        several, nodes
    )
    assert [item.reasons for item in judge_nodes(one, nodes)] == [(), ()]
