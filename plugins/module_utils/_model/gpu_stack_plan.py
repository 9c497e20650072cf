# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who offers the GPUs of a cluster to pods, and what is installed for it: a pure decision of the role gpu_stack.

Exactly one program may offer ``nvidia.com/gpu`` on a node. Installations of other tools are bound: used, never changed.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .device_host import Refusal, parse_version, require_choice, write_version
from .node import Gpu
from .wording import name_some

GPU: t.Final = "nvidia.com/gpu"
# By which pods claim GPUs (DRA): the API, NVIDIA's driver and its class, and the kubelet that can.
CLAIMED_API, DRIVER = "resource.k8s.io/v1", "gpu.nvidia.com"
CLAIMED_SINCE: t.Final = (1, 34, 2)
# Selects the nodes of the program that this collection installs, by the provider.
OWN_LABEL = "muster.training/gpu"
OWN_VALUES: t.Final = {"device_plugin": "device-plugin", "dra": "dra"}
# Labels of GPU feature discovery, by which jobs choose GPUs.
PRODUCT, MEMORY, FAMILY, COUNT = f"{GPU}.product", f"{GPU}.memory", f"{GPU}.family", f"{GPU}.count"
REPLICAS, SHARING = f"{GPU}.replicas", f"{GPU}.sharing-strategy"
# What it or Node Feature Discovery sets where a GPU is.
_PRESENT: t.Final = (
    f"{GPU}.present",
    *(f"feature.node.kubernetes.io/pci-{name}.present" for name in ("10de", "0300_10de", "0302_10de")),
)
# What no DaemonSet, policy or class accounts for, such as a program on the machine itself.
UNKNOWN: t.Final = "a program that no DaemonSet, ClusterPolicy or DeviceClass names"
Provider = t.Literal["device_plugin", "gpu_operator", "dra", "bind"]
PROVIDERS: t.Final[tuple[Provider, ...]] = t.get_args(Provider)
Action = t.Literal["none", "bind", "install", "refuse"]


@dataclasses.dataclass(frozen=True, slots=True)
class GpuOwner:
    """A program that offers GPUs. ``title``: its object in words; ``own``: this collection installed it.

    ``claimed``: pods get its GPUs by claims (DRA). ``held``: who has them, read where it is to go.
    """

    title: str
    nodes: frozenset[str]
    own: bool = False
    claimed: bool = False
    held: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GpuNode:
    """A Node. ``facts``: its GPUs as they were read on the machine, None where none were; ``offered``: to pods.

    ``own_labels``: those of its labels that this role applied. ``named``: the user says that it has GPUs. ``version``:
    of its kubelet.
    """

    name: str
    facts: Gpu | None = None
    offered: int = 0
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_labels: frozenset[str] = frozenset()
    named: bool = False
    version: str = ""

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs: by what was read on it, else by what the user, labels or its kubelet say."""
        if self.facts is not None and self.facts.count is not None:
            return self.facts.count > 0
        marked = any(self.labels.get(key) == "true" for key in _PRESENT) or OWN_LABEL in self.own_labels
        return self.named or marked or self.offered > 0

    @property
    def sharing_mode(self) -> str:
        """How several pods share one of its GPUs, empty where none do."""
        return describe_sharing(self.labels)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuCluster:
    """What was read of a cluster. ``has_helm_charts``: it installs HelmChart objects; ``has_nfd``: it runs Node Feature
    Discovery; ``has_claims``: its API server serves the claims of DRA.
    """

    nodes: tuple[GpuNode, ...]
    owners: tuple[GpuOwner, ...] = ()
    has_helm_charts: bool = False
    has_nfd: bool = False
    has_claims: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class GpuStackPlan:
    """What the role does, and why.

    ``nodes``: those whose GPUs the installed program offers; ``bound``: by owner of another tool the nodes that it has.
    ``labels``: by Node all labels that this role applies, none to take away what it applied before.
    """

    action: Action
    reason: str
    nodes: tuple[str, ...] = ()
    bound: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    labels: t.Mapping[str, t.Mapping[str, str]] = dataclasses.field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    nfd: bool = False


def plan_gpu_stack(provider: str, cluster: GpuCluster) -> GpuStackPlan:
    """Return the plan for a cluster.

    :raises InputError: for a provider that is none.
    """
    require_choice("gpu_stack_provider", provider, PROVIDERS)
    refusals = tuple(_find_double_owners(cluster.owners))
    bound = _find_bound(cluster)
    covered = {name for names in bound.values() for name in names}
    able = [node for node in cluster.nodes if node.has_gpus]
    left = tuple(node.name for node in able if node.name not in covered)
    plan = GpuStackPlan("install", "", bound=bound, warnings=tuple(_list_warnings(cluster)), nfd=cluster.has_nfd)
    if not refusals and left:
        refusals = tuple(_check_provider(provider, cluster, left))
    if refusals:
        return dataclasses.replace(plan, action="refuse", reason=refusals[0].problem, refusals=refusals)
    plan = dataclasses.replace(plan, labels=_make_labels(provider, cluster, left))
    if not able:
        return dataclasses.replace(plan, action="none", reason="no Node has an NVIDIA GPU")
    if not left:
        return dataclasses.replace(plan, action="bind", reason=f"{GPU} is offered by {name_some(bound)}")
    return dataclasses.replace(plan, reason=f"{GPU} is to be offered on {name_some(left)}", nodes=left)


def describe_sharing(labels: t.Mapping[str, str]) -> str:
    """Return how the GPUs of a Node with these labels are shared between pods, empty where they are not."""
    strategy, replicas = labels.get(SHARING, "none"), labels.get(REPLICAS, "1")
    if strategy != "none":
        return f"{strategy}, {replicas} each" if replicas not in ("0", "1") else strategy
    return f"time-slicing, {replicas} each" if replicas.isdecimal() and int(replicas) > 1 else ""


def label_value(text: str) -> str:
    """Return a text as the value of a label, as GPU feature discovery writes it: dashes for spaces."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")


def _find_double_owners(owners: t.Sequence[GpuOwner]) -> t.Iterator[Refusal]:
    """Yield one refusal for each pair of owners that offer the GPUs of the same nodes."""
    for index, one in enumerate(owners):
        for other in owners[index + 1 :]:
            shared = sorted(one.nodes & other.nodes)
            if shared:
                problem = f"{GPU} of {name_some(shared)} is offered by {one.title} and by {other.title}"
                yield Refusal(problem, f"Remove one of them, {other.title} for instance")


def _find_bound(cluster: GpuCluster) -> dict[str, tuple[str, ...]]:
    """Return the nodes whose GPUs programs of others offer, by the title of the program."""
    bound = {owner.title: tuple(sorted(owner.nodes)) for owner in cluster.owners if owner.nodes and not owner.own}
    accounted = {name for owner in cluster.owners for name in owner.nodes}
    # The kubelet offers for a moment what the plugin of this role registered before it was restarted.
    unknown = tuple(
        node.name
        for node in cluster.nodes
        if node.offered and node.name not in accounted and OWN_LABEL not in node.own_labels
    )
    return {**bound, **({UNKNOWN: unknown} if unknown else {})}


def _check_provider(provider: str, cluster: GpuCluster, left: t.Sequence[str]) -> t.Iterator[Refusal]:
    if provider != "bind":
        yield from _find_other_way(provider, cluster.owners)
    if provider == "dra":
        yield from _check_claims(cluster, left)
    if provider == "bind":
        yield Refusal(
            f"nothing offers {GPU} of {name_some(left)}",
            "Set gpu_stack_provider: device_plugin, or install what offers it first",
        )
    if provider == "gpu_operator" and not cluster.has_helm_charts:
        yield Refusal(
            f"gpu_stack_provider: {provider} needs HelmChart (helm.cattle.io/v1), which K3s has and this cluster lacks",
            "Install the chart with helm and set gpu_stack_provider: bind, or use device_plugin",
        )


def _find_other_way(provider: str, owners: t.Sequence[GpuOwner]) -> t.Iterator[Refusal]:
    """Yield the owners by which pods get GPUs in another way: a job requests them in one way on all nodes."""
    for owner in owners:
        if owner.claimed == (provider == "dra") or not owner.nodes:
            continue
        if not owner.own:
            yield Refusal(
                f"gpu_stack_provider: {provider} beside {owner.title}, which offers the GPUs of "
                f"{name_some(sorted(owner.nodes))}: a job requests GPUs in one way",
                f"Remove {owner.title}, or set gpu_stack_provider: {'dra' if owner.claimed else 'device_plugin'}",
            )
        elif owner.held:
            yield Refusal(
                f"{owner.title} offers GPUs that {name_some(owner.held)} hold: the next owner would give them away "
                "again",
                "End these runs (playbook cancel), then run this again",
            )


def _check_claims(cluster: GpuCluster, left: t.Collection[str]) -> t.Iterator[Refusal]:
    """Yield why pods of a cluster cannot claim GPUs."""
    fix = f"Upgrade Kubernetes to {write_version(CLAIMED_SINCE)} or newer, or set gpu_stack_provider: device_plugin"
    if not cluster.has_claims:
        yield Refusal(f"gpu_stack_provider: dra needs {CLAIMED_API}, which the API server does not serve", fix)
        return
    versions = {node.name: node.version for node in cluster.nodes if node.name in left}
    old = [f"{name} ({version or 'unknown'})" for name, version in versions.items() if not _is_new_enough(version)]
    if old:
        problem = (
            f"gpu_stack_provider: dra needs kubelets of {write_version(CLAIMED_SINCE)} or newer, older ones are on"
        )
        yield Refusal(f"{problem} {name_some(old)}", fix)


def _is_new_enough(version: str) -> bool:
    return parse_version(version.removeprefix("v"))[:3] >= CLAIMED_SINCE


def _make_labels(provider: str, cluster: GpuCluster, left: t.Collection[str]) -> dict[str, dict[str, str]]:
    """Return by Node the labels to apply: of nodes with GPUs, and of those that had labels of this role."""
    value = OWN_VALUES.get(provider)
    found = {}
    for node in cluster.nodes:
        if value and node.name in left:
            found[node.name] = {OWN_LABEL: value, **_describe_gpus(node)}
        elif node.own_labels:
            found[node.name] = {}
    return found


def _describe_gpus(node: GpuNode) -> dict[str, str]:
    """Return the labels that say which GPUs a node has; those that another program has set stay its own."""
    gpu = node.facts or Gpu()
    wanted = {
        PRODUCT: label_value(gpu.model or ""),
        MEMORY: str(round(gpu.memory_gib * 1024)) if gpu.memory_gib else "",
        FAMILY: label_value((gpu.arch or "").lower()),
        COUNT: str(gpu.count or ""),
    }
    # What is not known of a machine this time stays as it was.
    known = {
        key: value or (node.labels.get(key, "") if key in node.own_labels else "") for key, value in wanted.items()
    }
    return {key: value for key, value in known.items() if value and (key not in node.labels or key in node.own_labels)}


def _list_warnings(cluster: GpuCluster) -> t.Iterator[str]:
    for node in cluster.nodes:
        if node.sharing_mode:
            yield f"{node.name}: pods share its GPUs ({node.sharing_mode}): gangs are not placed on it"
