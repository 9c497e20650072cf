# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who offers the GPUs of a cluster, and what is installed: one owner on each node, what others installed is bound."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import gpu_stack_plan as rules
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.gpu_stack_plan import GpuCluster, GpuNode, GpuOwner
from ansible_collections.muster.training.plugins.module_utils._model.node import Gpu

H100 = Gpu(model="NVIDIA H100 80GB HBM3", count=8, memory_gib=79.6, arch="hopper")
NONE = Gpu(count=0)
LABELS = {
    "muster.training/gpu": "device-plugin",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81510",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.count": "8",
}
OWN = frozenset(LABELS)
FOREIGN = "DaemonSet kube-system/nvidia-device-plugin-daemonset"
OPERATOR = "ClusterPolicy cluster-policy"


def owner(title: str, *nodes: str, own: bool = False) -> GpuOwner:
    return GpuOwner(title, frozenset(nodes), own)


def claims(*nodes: str, own: bool = False, held: tuple[str, ...] = ()) -> GpuOwner:
    return GpuOwner("DeviceClass gpu.nvidia.com", frozenset(nodes), own, claimed=True, held=held)


def plan(*nodes: GpuNode, provider: str = "device_plugin", **more: t.Any) -> rules.GpuStackPlan:
    return rules.plan_gpu_stack(provider, GpuCluster(nodes, **more))


def test_nodes_with_gpus_by_their_facts_get_the_plugin_and_its_labels() -> None:
    found = plan(GpuNode("a", H100), GpuNode("b", NONE), GpuNode("c"))
    assert (found.action, found.nodes, found.labels) == ("install", ("a",), {"a": LABELS})
    # What the cluster says afterwards leads to the same plan.
    after = GpuNode("a", H100, 8, LABELS, OWN)
    again = plan(after, owners=(owner("DaemonSet kube-system/muster-nvidia-device-plugin", "a", own=True),))
    assert (again.action, again.nodes, again.labels, again.bound) == ("install", ("a",), {"a": LABELS}, {})
    # Its pod is away for a moment, and the kubelet still offers what it registered.
    assert plan(after).bound == {}


@pytest.mark.parametrize(
    "node",
    [
        GpuNode("a", None, labels={"feature.node.kubernetes.io/pci-10de.present": "true"}),
        GpuNode("a", None, labels={"nvidia.com/gpu.present": "true"}),
        GpuNode("a", None, named=True),
        GpuNode("a", Gpu(), named=True),
    ],
)
def test_without_facts_labels_and_the_user_say_which_nodes_have_gpus(node: GpuNode) -> None:
    found = plan(node)
    assert found.labels == {"a": {"muster.training/gpu": "device-plugin"}} and found.action == "install"


def test_labels_that_another_program_has_set_stay_its_own() -> None:
    found = plan(GpuNode("a", H100, 0, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}))
    assert "nvidia.com/gpu.product" not in found.labels["a"] and found.labels["a"]["nvidia.com/gpu.count"] == "8"


def test_what_is_not_known_this_time_stays_as_it_was() -> None:
    found = plan(GpuNode("a", None, 8, LABELS, OWN), owners=(owner("DaemonSet x", "a", own=True),))
    assert found.labels == {"a": LABELS}


def test_a_node_without_gpus_any_more_loses_the_labels() -> None:
    found = plan(GpuNode("a", NONE, 0, LABELS, OWN))
    assert (found.action, found.labels) == ("none", {"a": {}})
    gone = plan(GpuNode("a", NONE, 0, LABELS, OWN), GpuNode("b", H100))
    assert gone.labels == {"a": {}, "b": LABELS}


@pytest.mark.parametrize("provider", rules.PROVIDERS)
def test_what_another_tool_installed_is_bound_and_not_changed(provider: str) -> None:
    found = plan(GpuNode("a", H100, 8), provider=provider, owners=(owner(FOREIGN, "a"),), has_helm_charts=True)
    assert (found.action, found.bound, found.labels) == ("bind", {FOREIGN: ("a",)}, {})
    assert found.reason == f"nvidia.com/gpu is offered by {FOREIGN}"


def test_a_program_that_nothing_names_is_bound_too() -> None:
    found = plan(GpuNode("a", H100, 8))
    assert (found.action, found.bound) == ("bind", {rules.UNKNOWN: ("a",)})


def test_nodes_that_a_foreign_plugin_leaves_out_get_this_one() -> None:
    found = plan(GpuNode("a", H100, 8), GpuNode("b", H100), owners=(owner(FOREIGN, "a"),))
    assert (found.action, found.nodes, found.bound) == ("install", ("b",), {FOREIGN: ("a",)})
    assert found.labels == {"b": LABELS}


def test_two_owners_of_the_gpus_of_one_node_are_refused_in_one_line() -> None:
    for provider in rules.PROVIDERS:
        nodes = (GpuNode("a", H100, 8), GpuNode("b", H100, 8))
        found = plan(*nodes, provider=provider, owners=(owner(FOREIGN, "a", "b"), owner(OPERATOR, "b")))
        assert (found.action, found.labels) == ("refuse", {})
        assert found.reason == f"nvidia.com/gpu of b is offered by {FOREIGN} and by {OPERATOR}"
        assert len(found.refusals) == 1 and OPERATOR in found.refusals[0].fix
    apart = plan(*nodes, owners=(owner(FOREIGN, "a"), owner(OPERATOR, "b")))
    assert apart.action == "bind" and apart.bound == {FOREIGN: ("a",), OPERATOR: ("b",)}


def test_bind_refuses_where_nothing_offers_them_and_the_operator_without_helm_charts() -> None:
    bare = plan(GpuNode("a", H100), provider="bind")
    assert bare.action == "refuse" and "nothing offers nvidia.com/gpu of a" in bare.reason
    without = plan(GpuNode("a", H100), provider="gpu_operator")
    assert without.action == "refuse" and "HelmChart" in without.reason and "bind" in without.refusals[0].fix
    with_charts = plan(GpuNode("a", H100, 0, LABELS, OWN), provider="gpu_operator", has_helm_charts=True)
    # The operator labels its nodes itself; labels of the plugin go.
    assert (with_charts.action, with_charts.labels) == ("install", {"a": {}})
    with pytest.raises(InputError, match="gpu_stack_provider: is 'operator'"):
        plan(provider="operator")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({}, ""),
        ({rules.REPLICAS: "1"}, ""),
        ({rules.REPLICAS: "0"}, ""),
        ({rules.REPLICAS: "x"}, ""),
        ({rules.REPLICAS: "4"}, "time-slicing, 4 each"),
        ({rules.SHARING: "none", rules.REPLICAS: "1"}, ""),
        ({rules.SHARING: "mps"}, "mps"),
        ({rules.SHARING: "time-slicing", rules.REPLICAS: "2"}, "time-slicing, 2 each"),
    ],
)
def test_sharing_is_told_by_name(labels: dict[str, str], said: str) -> None:
    assert rules.describe_sharing(labels) == said
    warnings = plan(GpuNode("a", H100, 8, labels)).warnings
    assert warnings == ((f"a: pods share its GPUs ({said}): gangs are not placed on it",) if said else ())


@given(st.text(max_size=90))
def test_a_label_value_is_one_that_kubernetes_takes(text: str) -> None:
    import re

    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?", rules.label_value(text))


NEW = GpuNode("a", H100, version="v1.36.4+k3s1")


def test_pods_claim_gpus_where_the_cluster_can() -> None:
    found = plan(NEW, provider="dra", has_claims=True)
    assert (found.action, found.nodes) == ("install", ("a",)) and found.labels["a"]["muster.training/gpu"] == "dra"
    again = plan(NEW, provider="dra", has_claims=True, owners=(claims("a", own=True),))
    assert (again.action, again.labels, again.bound) == ("install", found.labels, {})
    bound = plan(NEW, owners=(claims("a"),))
    assert (bound.action, bound.reason) == ("bind", "nvidia.com/gpu is offered by DeviceClass gpu.nvidia.com")


@pytest.mark.parametrize(
    ("node", "served", "said"),
    [
        (NEW, False, "dra needs resource.k8s.io/v1, which the API server does not serve"),
        (
            GpuNode("a", H100, version="v1.34.1"),
            True,
            "dra needs kubelets of 1.34.2 or newer, older ones are on a (v1.34.1)",
        ),
        (GpuNode("a", H100), True, "older ones are on a (unknown)"),
    ],
)
def test_a_cluster_that_cannot_is_refused_with_the_way_on(node: GpuNode, served: bool, said: str) -> None:
    found = plan(node, provider="dra", has_claims=served)
    assert found.action == "refuse" and said in found.reason
    assert found.refusals[0].fix.startswith("Upgrade Kubernetes to 1.34.2 or newer, or set gpu_stack_provider: ")


def test_a_cluster_has_one_way_to_get_gpus() -> None:
    other = GpuNode("b", H100, version="v1.36.4")
    mixed = plan(NEW, other, provider="dra", has_claims=True, owners=(owner(FOREIGN, "b"),))
    assert mixed.refusals[0].problem == (
        f"gpu_stack_provider: dra beside {FOREIGN}, which offers the GPUs of b: a job requests GPUs in one way"
    )
    reverse = plan(NEW, other, owners=(claims("b"),))
    assert "device_plugin beside DeviceClass" in reverse.reason and "provider: dra" in reverse.refusals[0].fix


def test_an_own_program_is_not_replaced_while_pods_hold_its_gpus() -> None:
    plugin = GpuOwner("DaemonSet own", frozenset({"a"}), own=True, held=("team/job-0",))
    found = plan(NEW, provider="dra", has_claims=True, owners=(plugin,))
    assert found.reason.startswith("DaemonSet own offers GPUs that team/job-0 hold")
    assert plan(NEW, owners=(claims("a", own=True, held=("team/job-0",)),)).action == "refuse"
    free = dataclasses.replace(plugin, held=())
    assert plan(NEW, provider="dra", has_claims=True, owners=(free,)).action == "install"
