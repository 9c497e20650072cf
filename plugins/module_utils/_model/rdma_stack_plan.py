# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who offers the HCAs of a cluster to pods, and what is installed for it: a pure decision of the role rdma_stack.

A program of another tool that offers them on a node is bound: used, never changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from .device_host import Refusal, parse_version, require_choice
from .rdma_plugin_config import check_config
from .rdma_resources import HcaFacts, HcaMachine
from .wording import name_some

Provider = t.Literal["shared_device_plugin", "sriov", "network_operator", "bind"]
PROVIDERS: t.Final[tuple[Provider, ...]] = t.get_args(Provider)
Action = t.Literal["none", "bind", "install", "refuse"]
OwnerKind = t.Literal["shared", "sriov", "efa"]
UNKNOWN: t.Final = "a program that no DaemonSet names"
# Of the network operator from this version on there is a policy for a part of the nodes, NicNodePolicy.
_NODE_POLICIES: t.Final = (26, 7)
# What the operator's policy runs for networks of pods beside the cluster's own.
CNI_IMAGES: t.Final = ("multus-cni", "plugins")
_CHARTS: t.Final = ("sriov", "network_operator")
_VFS: t.Final = 1
# Before the names of resources; k8s-rdma-shared-dev-plugin's own is rdma/.
_PREFIXES: t.Final = {"sriov": "nvidia.com/rdma_"}


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaStackOptions:
    """What is asked for; the options of the role. ``images``: by name those of the network operator's policy.

    ``pinned_version``: of the network operator, the newest one whose images have known digests.
    """

    provider: str = "shared_device_plugin"
    operator_version: str = ""
    operator_values: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    policy: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    images: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    ipam: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    vfs: int = _VFS
    pinned_version: str = ""

    def __post_init__(self) -> None:
        require_choice("rdma_stack_provider", self.provider, PROVIDERS)


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaOwner:
    """A program that offers HCAs. ``title``: its object in words; ``own``: this collection installed it."""

    title: str
    kind: OwnerKind
    nodes: frozenset[str]
    own: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaNode:
    """A Node. ``machine``: what is known of it, read now or before.

    ``offered``: RDMA resources that its kubelet offers; ``is_own``: this role labelled it; ``kubelet``: its version.
    """

    name: str
    machine: HcaMachine = HcaMachine()
    offered: tuple[str, ...] = ()
    is_own: bool = False
    kubelet: str = ""

    @property
    def facts(self) -> HcaFacts | None:
        """Return its HCAs, None where none are known."""
        return self.machine.facts

    @property
    def has_hcas(self) -> bool:
        """Return whether jobs get some of its HCAs, or would if it were set up."""
        return bool(self.machine.refusals) or (self.facts is not None and self.facts.entry is not None)


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaCluster:
    """What was read of a cluster.

    ``has_helm_charts``: it installs HelmChart objects; ``foreign``: objects of the network operator of other tools.
    """

    nodes: tuple[RdmaNode, ...]
    owners: tuple[RdmaOwner, ...] = ()
    has_helm_charts: bool = False
    foreign: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaGroup:
    """Nodes whose HCAs one configuration of a device plugin offers; ``name`` is the value of their label.

    ``link``: ``ib`` or ``eth``; ``netdevs``: the interfaces of the ports that jobs get; ``exclusive``: RDMA devices
    belong to one network namespace each.
    """

    name: str
    resource: str
    entry: t.Mapping[str, t.Any]
    link: str
    netdevs: tuple[str, ...]
    exclusive: bool
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CniFolders:
    """Where a node's containerd looks for programs and configurations of networks."""

    programs: str = "/opt/cni/bin"
    networks: str = "/etc/cni/net.d"


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaStackPlan:
    """What the role does, and why.

    ``bound``: by owner of another tool the nodes that it has. ``labels``: by Node its group and its facts, None for
    one from which they are taken. ``node_policies``: the network operator gets a policy for each group.
    """

    action: Action
    reason: str
    groups: tuple[RdmaGroup, ...] = ()
    bound: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    labels: t.Mapping[str, tuple[str, HcaFacts] | None] = dataclasses.field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    cni: CniFolders = CniFolders()
    node_policies: bool = False


def plan_rdma_stack(cluster: RdmaCluster, options: RdmaStackOptions) -> RdmaStackPlan:
    """Return the plan for a cluster."""
    refusals = list(_find_double_owners(cluster.owners))
    bound = _find_bound(cluster)
    covered = {name for names in bound.values() for name in names}
    able = [node for node in cluster.nodes if node.has_hcas]
    left = [node for node in able if node.name not in covered]
    groups = _make_groups(options.provider, left)
    cni = find_cni_folders(cluster.nodes)
    plan = RdmaStackPlan("install", "", groups, bound, cni=cni, warnings=tuple(_list_warnings(cluster, left)))
    if left and not refusals:
        refusals += [*_check_nodes(options.provider, left), *_check_options(cluster, options, groups, cni)]
    if refusals:
        return dataclasses.replace(plan, action="refuse", reason=refusals[0].problem, refusals=tuple(refusals))
    plan = dataclasses.replace(
        plan,
        labels=_make_labels(options.provider, cluster, groups),
        node_policies=_has_node_policies(options) and len(groups) > 1,
    )
    if not able:
        return dataclasses.replace(plan, action="none", reason="no Node is known to have an HCA for jobs")
    if not left:
        return dataclasses.replace(plan, action="bind", reason=f"RDMA is offered by {name_some(bound)}")
    names = ", ".join(sorted({group.resource for group in groups}))
    return dataclasses.replace(plan, reason=f"{names} is to be offered on {name_some(node.name for node in left)}")


def find_cni_folders(nodes: t.Sequence[RdmaNode]) -> CniFolders:
    """Return the folders of networks: K3s has its own (its documentation; the stable one since late 2024)."""
    versions = [parse_version(node.kubelet.partition("+")[0].lstrip("v")) for node in nodes if "+k3s" in node.kubelet]
    if not versions:
        return CniFolders()
    stable = {28: 15, 29: 10, 30: 6, 31: 2}
    old = any(item[:2] < (1, 28) or item[2:3] < (stable.get(item[1], 0),) for item in versions if len(item) > 2)
    programs = "/var/lib/rancher/k3s/data/current/bin" if old else "/var/lib/rancher/k3s/data/cni"
    return CniFolders(programs, "/var/lib/rancher/k3s/agent/etc/cni/net.d")


def _find_double_owners(owners: t.Sequence[RdmaOwner]) -> t.Iterator[Refusal]:
    """Yield one refusal for each pair of owners of one kind on the same nodes: each would claim every HCA."""
    for index, one in enumerate(owners):
        for other in owners[index + 1 :]:
            shared = sorted(one.nodes & other.nodes)
            if shared and one.kind == other.kind:
                problem = f"the HCAs of {name_some(shared)} are claimed by {one.title} and by {other.title}"
                yield Refusal(problem, f"Remove one of them, {other.title} for instance")


def _find_bound(cluster: RdmaCluster) -> dict[str, tuple[str, ...]]:
    """Return the nodes whose HCAs programs of others offer, by the title of the program."""
    bound = {owner.title: tuple(sorted(owner.nodes)) for owner in cluster.owners if owner.nodes and not owner.own}
    accounted = {name for owner in cluster.owners for name in owner.nodes}
    # The kubelet offers for a moment what the plugin of this role registered before it was restarted.
    unknown = tuple(
        node.name for node in cluster.nodes if node.offered and node.name not in accounted and not node.is_own
    )
    return {**bound, **({UNKNOWN: unknown} if unknown else {})}


def _make_groups(provider: str, nodes: t.Sequence[RdmaNode]) -> tuple[RdmaGroup, ...]:
    """Return the groups of nodes that need the same configuration."""
    found: dict[str, list[RdmaNode]] = {}
    for node in nodes:
        if node.facts is None or node.facts.entry is None:
            continue
        found.setdefault(_name_group(provider, node.facts), []).append(node)
    groups = []
    for name, members in sorted(found.items()):
        facts = t.cast("HcaFacts", members[0].facts)
        entry = t.cast("t.Mapping[str, t.Any]", facts.entry)
        exclusive = any(_is_exclusive(item) for item in members)
        resource = f"{_PREFIXES.get(provider, 'rdma/')}{entry['resourceName']}"
        link = "ib" if facts.kind == "infiniband" else "eth"
        names = tuple(item.name for item in members)
        groups.append(RdmaGroup(name, resource, entry, link, facts.netdevs, exclusive, names))
    return tuple(groups)


def _name_group(provider: str, facts: HcaFacts) -> str:
    """Return the name of a node's group: with what it has to be configured, so that another one has another name."""
    entry = t.cast("t.Mapping[str, t.Any]", facts.entry)
    settings: list[t.Any] = [entry, *([facts.netdevs, facts.exclusive] if provider == "sriov" else [])]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return f"{entry['resourceName']}-{digest}"


def _is_exclusive(node: RdmaNode) -> bool:
    return node.facts is not None and node.facts.exclusive


def _check_nodes(provider: str, left: t.Sequence[RdmaNode]) -> t.Iterator[Refusal]:
    """Yield why pods of a node would get nothing of what is installed."""
    if provider == "bind":
        yield Refusal(
            f"nothing offers the HCAs of {name_some(node.name for node in left)}",
            "Set rdma_stack_provider: shared_device_plugin, or install what offers them first",
        )
        return
    for node in left:
        if _is_exclusive(node) and provider != "sriov":
            problem = "RDMA devices belong to one network namespace each (exclusive), and pods are to share them"
            fix = "Run rdma system set netns shared before pods run, or set rdma_stack_provider: sriov"
            yield Refusal(f"{node.name}: {problem}", fix)
        yield from (Refusal(f"{node.name}: {item.problem}", item.fix) for item in node.machine.refusals)
        if node.machine.missing:
            problem = (
                f"{node.name}: {', '.join(node.machine.missing)} not loaded: no device plugin would offer its HCAs"
            )
            yield Refusal(problem, "Run the role rdma on it (playbook devices)")
        if provider == "sriov" and node.facts and len(node.facts.netdevs) < len(node.facts.hcas):
            problem = f"{node.name}: an HCA of jobs has no network interface, by which SR-IOV policies choose it"
            yield Refusal(problem, "Load ib_ipoib on it, or set rdma_stack_provider: shared_device_plugin")


def _check_options(
    cluster: RdmaCluster, options: RdmaStackOptions, groups: t.Sequence[RdmaGroup], cni: CniFolders
) -> t.Iterator[Refusal]:
    """Yield what the options of an operator lack."""
    if options.provider not in _CHARTS:
        return
    if not cluster.has_helm_charts:
        yield Refusal(
            f"rdma_stack_provider: {options.provider} needs HelmChart (helm.cattle.io/v1), which K3s has and this "
            "cluster lacks",
            "Install the chart with helm and set rdma_stack_provider: bind, or use shared_device_plugin",
        )
    if cluster.foreign:
        problem = f"rdma_stack_provider: {options.provider} would change {name_some(cluster.foreign)}, of another tool"
        yield Refusal(problem, "Add the nodes to it and set rdma_stack_provider: bind, or use shared_device_plugin")
    yield from _check_folders(options, cni)
    plugin = options.policy.get("rdmaSharedDevicePlugin")
    problem = check_config(str(plugin["config"])) if isinstance(plugin, dict) and "config" in plugin else ""
    if problem:
        yield Refusal(f"rdma_stack_policy.rdmaSharedDevicePlugin.config: {problem}", "Leave it out, or correct it")
    if options.provider == "sriov":
        yield from _check_sriov(options, groups)
    elif len(groups) > 1 and not _has_node_policies(options):
        parts = "; ".join(f"{group.name}: {name_some(group.nodes)}" for group in groups)
        yield Refusal(
            f"nodes need different configurations ({parts}), and the operator's NicClusterPolicy has one for all",
            "Set rdma_stack_operator_version to 26.7.0 or newer, or rdma_stack_provider: shared_device_plugin",
        )


def _check_folders(options: RdmaStackOptions, cni: CniFolders) -> t.Iterator[Refusal]:
    """Yield folders of networks at which no containerd looks: nodes would be NotReady, or pods have no network."""
    given = options.operator_values.get("operator")
    for key, folder in (("cniBinDirectory", cni.programs), ("cniNetworkDirectory", cni.networks)):
        if isinstance(given, dict) and given.get(key, folder) != folder:
            problem = f"rdma_stack_operator_values.operator.{key} is {given[key]}, and the nodes have {folder}"
            yield Refusal(problem, "Leave it out")


def _check_sriov(options: RdmaStackOptions, groups: t.Sequence[RdmaGroup]) -> t.Iterator[Refusal]:
    for name in CNI_IMAGES:
        if "@sha256:" not in options.images.get(name, ""):
            problem = f"rdma_stack_images.{name}: its digest is not in the collection's list of downloads"
            known = f"Set rdma_stack_operator_version: '{options.pinned_version}', whose digests it has, or name"
            given = known if options.pinned_version not in ("", options.operator_version) else "Name"
            yield Refusal(problem, f"{given} it as REPOSITORY/{name}@sha256:DIGEST, as the operator's release lists it")
    if not options.ipam and any(group.link == "eth" for group in groups):
        problem = "rdma_stack_ipam is empty: a virtual function of RoCE without an address has no GID"
        yield Refusal(problem, "Name the addresses of the network, such as {type: host-local, subnet: 10.56.0.0/16}")
    if options.vfs < 1:
        yield Refusal(f"rdma_stack_vfs is {options.vfs}", "Set it to the virtual functions of each HCA, 1 or more")


def _has_node_policies(options: RdmaStackOptions) -> bool:
    return options.provider == "network_operator" and parse_version(options.operator_version) >= _NODE_POLICIES


def _make_labels(
    provider: str, cluster: RdmaCluster, groups: t.Sequence[RdmaGroup]
) -> dict[str, tuple[str, HcaFacts] | None]:
    """Return by Node its group and facts: of nodes with HCAs, and of those that had labels of this role."""
    group_of = {name: group.name for group in groups for name in group.nodes} if provider != "bind" else {}
    found: dict[str, tuple[str, HcaFacts] | None] = {}
    for node in cluster.nodes:
        if node.name in group_of:
            found[node.name] = (group_of[node.name], t.cast("HcaFacts", node.facts))
        elif node.is_own:
            found[node.name] = None
    return found


def _list_warnings(cluster: RdmaCluster, left: t.Sequence[RdmaNode]) -> t.Iterator[str]:
    for node in cluster.nodes:
        kinds = {owner.kind for owner in cluster.owners if node.name in owner.nodes}
        if node.facts and node.facts.kind == "efa" and "efa" not in kinds:
            yield f"{node.name}: EFA is offered by AWS' device plugin (aws-efa-k8s-device-plugin), which does not run"
        if kinds >= {"shared", "sriov"}:
            problem = "a shared RDMA device plugin runs beside one of SR-IOV"
            yield f"{node.name}: {problem}: see that they choose different HCAs"
    sizes = {node.name: node.facts.mtu for node in left if node.facts and node.facts.kind == "roce" and node.facts.mtu}
    largest = max(sizes.values(), default=0)
    for name, size in sizes.items():
        if size < largest:
            yield f"{name}: the MTU of its HCAs is {size}, and {largest} on others: set rdma_mtu on all, or on none"
