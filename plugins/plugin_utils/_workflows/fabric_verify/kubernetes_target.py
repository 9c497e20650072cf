# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as the target of fabric tests: its nodes' facts, gangs of pods as tests, labels of nodes as the result."""

from __future__ import annotations

import dataclasses
import secrets
import time
import typing as t

from ....module_utils._model import job_templates
from ....module_utils._model.errors import InputError, MusterError, NodeError, RefusedError
from ....module_utils._model.island import PairPath
from ....module_utils._model.job import Job, parse_job
from ....module_utils._model.job_backends import Surroundings, choose_backend
from ....module_utils._model.node import Node
from ....module_utils._model.node_facts import merge_facts
from ....module_utils._model.rdma_resources import needs_node_network
from ..._fabric.bench.plan import BenchStage
from ..._fabric.topology import node_labels
from ..._fabric.topology.node_labels import NodePatch
from ..._fabric.topology.unreachable import AbsentNode
from ..._hosts import agent_package
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs.spec import RUN_LABEL
from ..._kube.nodes import node_facts
from ..._kube.nodes.gpu_claims import show_offered
from ..._kube.objects import events
from ..._kube.objects.apply import apply
from ..._kube.placement.decision import decide_network
from ..._kube.placement.node_fit import find_rdma_resource, gpu_count, judge_nodes
from ..shared import kube_connection
from ..training_job import run as training_job
from ..training_job.kubernetes import cluster_facts, network_preflight
from . import kubernetes_gang
from .bench_group import Bench, GroupRun
from .hosts_target import PublishResult, TargetNodes
from .kubernetes_gang import UserJob

_LIMIT_S = 300.0
_READ_S = 20.0
_ENDED = ("Succeeded", "Failed")
# The field manager of the labels: a label that the next verdict does not set is removed.
MANAGER = "muster-fabric"
_FIX = "Look at the node (kubectl describe node), then verify again"
_HOSTNAME = "kubernetes.io/hostname"


@dataclasses.dataclass(frozen=True, slots=True)
class FactsPod:
    """How a pod that gathers facts ended: its phase, the exit code of its container, why it cannot start."""

    phase: str = ""
    exit_code: int = 1
    problem: str = ""

    @classmethod
    def from_object(cls, pod: KubeObject) -> FactsPod:
        """Return the state of a Pod object."""
        status = pod.get("status") or {}
        states = [item.get("state", {}).get("terminated") or {} for item in status.get("containerStatuses") or []]
        cause = events.find_pod_problem(pod)
        code = next((int(state["exitCode"]) for state in states if "exitCode" in state), 1)
        return cls(str(status.get("phase") or ""), code, cause.text if cause else "")


def find_kubernetes_job(options: t.Mapping[str, t.Any], around: Surroundings) -> UserJob | None:
    """Return the job whose image and placement the tests use when it is for Kubernetes, None for plain hosts.

    :param around: by which ``placement.backend: auto`` is decided.

    :raises InputError: when the option is not a job.
    """
    value = options.get("job") or {}
    if not isinstance(value, dict):
        raise InputError("job", "must be a mapping", "Give the keys of a job: image, placement, mounts, resources")
    job = dict(job_templates.apply_template(value, job_templates.PRESETS))
    place = job.get("placement") or {}
    if not isinstance(place, dict):
        return None
    backend = str(place.get("backend") or "auto")
    if (choose_backend(bool(job.get("image")), around).backend if backend == "auto" else backend) != "kubernetes":
        return None
    return UserJob.from_dict(job)


class KubernetesTarget:
    """The nodes of a cluster that can take the job's pods."""

    def __init__(self, request: training_job.RunRequest, user_job: UserJob) -> None:
        self._request, self._user_job = request, user_job
        stage = BenchStage("island", (), 1, (1 << 20,), 0.1, 60.0)
        bench = Bench("gloo", "all_reduce", request.options.get("bench") or "torch")
        self._job = parse_job(kubernetes_gang.build_gang_job(user_job, ("x",), stage, bench, request.options))
        self.own_network = self._job.placement.network_mode == "host"
        context = self._job.placement.cluster
        self.client: Client = kube_connection.open_client(
            request.options, request.base, request.progress.say, context=context
        )
        self.cluster_id = self.client.cluster_id()
        cluster_facts.require_engine(self.client, self._job)
        self.namespace = self._job.placement.namespace or self.client.namespace
        self._nodes: dict[str, KubeObject] = {}
        self._excluded: list[str] = []

    def find_nodes(self) -> TargetNodes:
        """Return the nodes that can take a pod of the job; nodes that are not ready are listed as absent.

        In check mode no pod is created, so that the facts are those of the Node objects.
        """
        names, absent = self._usable_nodes()
        facts: dict[str, dict[str, object]] = {name: {} for name in names}
        host_network = False
        if names and not self._request.check:
            facts, problems, host_network = self._gather_facts(names)
            absent += [self._absent_node(name, problem) for name, problem in problems.items()]
        nodes = []
        for name in names:
            if name in facts:
                measured = node_facts.read_node(facts[name], self._nodes[name], host_network=host_network)
                nodes.append(merge_facts(self._request.node(name), measured))
        if not nodes:
            reasons = "; ".join([*self._excluded, *(item.problem for item in absent)]) or "it has none"
            raise RefusedError(
                f"no node of the cluster could be tested: {reasons}", "Mend that, or request what its nodes have"
            )
        if self._job.placement.network_mode == "auto":
            job, listed = self._placement_job(names), [self._nodes[name] for name in names]
            resource = find_rdma_resource(job, judge_nodes(job, listed))
            networks = cluster_facts.read_networks(self.client, self.namespace).get(resource or "", ())
            shared = resource is not None and needs_node_network(resource, networks)
            level = cluster_facts.read_security_level(self.client, self.namespace) if shared else None
            settled, _note = decide_network(job, resource, level, networks)
            self.own_network = settled.placement.network_mode == "host"
        return TargetNodes(tuple(nodes), frozenset(self._busy_nodes()), tuple(absent))

    def names(self) -> t.Collection[str]:
        """Return the nodes to test, and those that are not ready: an earlier verdict does not stand for them."""
        usable, absent = self._usable_nodes()
        return [*usable, *(f"{node.name} is not ready" for node in absent)]

    def find_paths(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return nothing: pods reach each other by the cluster's rules, and the tests show how fast."""
        return []

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return nothing: the cluster knows its nodes' addresses."""
        return {}

    def all_names(self) -> t.Container[str]:
        """Return the names of all nodes of the cluster."""
        return self._nodes

    def run_group(self, group: tuple[str, ...], stage: BenchStage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench as a gang of pods on exactly these nodes."""
        labels = {name: self._nodes[name]["metadata"].get("labels") or {} for name in group}
        hostnames = {name: str(labels[name].get(_HOSTNAME) or name) for name in group}
        options = self._request.options
        gangs = kubernetes_gang.BenchGangs(self.client, self.namespace, self._user_job, hostnames, options)
        return gangs.run(group, stage, bench, run_id)

    def publish(self, patches: t.Mapping[str, NodePatch], check: bool) -> PublishResult:
        """Write island, lane and outcome as labels of the nodes; without the permission, return a note about it."""
        objects = node_labels.build_node_objects(patches, self._nodes)
        if not objects:
            return PublishResult()
        try:
            result = apply(self.client, objects, MANAGER, force=True, check=check)
        except KubeError as exc:
            if not exc.is_forbidden:
                raise
            return PublishResult(note="node labels were not written: this kubeconfig may not patch nodes")
        return PublishResult(result.changed, tuple(result.diff()))

    def _usable_nodes(self) -> tuple[list[str], list[AbsentNode]]:
        """Return the names of the nodes to test, and the nodes that should be tested and are not ready."""
        self._nodes = self._list_nodes()
        names = self._requested_names()
        verdicts = judge_nodes(self._placement_job(names), [self._nodes[name] for name in names], fabric=False)
        usable = [verdict.node for verdict in verdicts if not verdict.reasons]
        not_ready = [verdict.node for verdict in verdicts if verdict.reasons == ("not ready",)]
        self._excluded = [
            f"{verdict.node} ({'; '.join(verdict.reasons)})"
            for verdict in verdicts
            if verdict.reasons and verdict.node not in not_ready
        ]
        if self._excluded:
            self._request.progress.say(f"not tested: {', '.join(self._excluded[:8])}")
        return usable, [self._absent_node(name, "the node is not ready") for name in not_ready]

    def _list_nodes(self) -> dict[str, KubeObject]:
        try:
            listed = show_offered(self.client, self.client.list("v1/Node").items)
        except KubeError as exc:
            if not exc.is_forbidden:
                raise
            raise RefusedError(
                "this kubeconfig may not list nodes", "Use a kubeconfig with permission to read nodes"
            ) from exc
        return {node["metadata"]["name"]: node for node in listed}

    def _requested_names(self) -> list[str]:
        """Return the nodes that the option ``hosts`` names, all of the cluster without it."""
        requested = self._request.options.get("hosts") or []
        unknown = [name for name in requested if name not in self._nodes]
        if unknown:
            fix = f"Name nodes of the cluster: {_join_names(self._nodes)}"
            raise InputError("hosts", f"'{unknown[0]}' is not a node of the cluster", fix)
        return [name for name in self._nodes if not requested or name in requested]

    def _placement_job(self, names: t.Sequence[str]) -> Job:
        """Return the job by which nodes are chosen: where there are GPUs, nodes without one are excluded."""
        any_gpu = any(gpu_count(self._nodes[name]) for name in names)
        gpus = self._user_job.gpus_per_node or int(any_gpu and self._request.options.get("backend") != "gloo")
        return dataclasses.replace(self._job, gpus_per_node=gpus)

    def _busy_nodes(self) -> set[str]:
        """Return the nodes with a pod of a training run, as far as pods may be listed."""
        for namespace in (None, self.namespace):
            try:
                pods = self.client.list("v1/Pod", namespace, labels=RUN_LABEL).items
            except KubeError as exc:
                if exc.is_forbidden:
                    continue
                raise
            active = [pod for pod in pods if (pod.get("status") or {}).get("phase") in ("Pending", "Running")]
            return {str(pod["spec"]["nodeName"]) for pod in active if pod["spec"].get("nodeName")}
        return set()

    def _gather_facts(self, names: t.Sequence[str]) -> tuple[dict[str, dict[str, object]], dict[str, str], bool]:
        """Return facts and problems by node, and whether the pods saw the nodes' own network."""
        refs = (ref for ref in self._job.secret_refs if ref.deliver == "registry")
        request = agent_package.boot_input({"op": "info", "node": "", "state_root": None, "facts": True})
        pods = node_facts.NodeFactsRequest(
            name=f"fabric-facts-{secrets.token_hex(3)}",
            namespace=self.namespace,
            image=str(self._job.image),
            command=agent_package.boot_command(self._job.python),
            request=request.decode(),
            pull_secrets=tuple(str(ref.path) for ref in refs),
        )
        pods = self._permitted_network(pods, names)
        objects = node_facts.build_objects(pods, names)
        self._request.progress.say(f"gathering the facts of {len(names)} nodes")
        try:
            apply(self.client, objects)
            states = self._wait_for_pods(pods, len(names))
            facts, problems = self._read_facts(pods, names, states)
        finally:
            network_preflight.delete_objects(self.client, objects)
        return facts, problems, pods.host_network

    def _permitted_network(
        self, pods: node_facts.NodeFactsRequest, names: t.Sequence[str]
    ) -> node_facts.NodeFactsRequest:
        """Return the pods to create: with the nodes' own network unless the namespace forbids it."""
        _unused, first, *_rest = node_facts.build_objects(pods, names)
        try:
            self.client.create(first, dry_run=True)
        except KubeError as exc:
            if not exc.is_forbidden:
                raise
            self._request.progress.say(
                f"namespace {self.namespace} does not allow hostNetwork: the nodes' interfaces are not read, "
                "and only Ethernet islands that you declare are found"
            )
            return dataclasses.replace(pods, host_network=False)
        return pods

    def _wait_for_pods(self, pods: node_facts.NodeFactsRequest, count: int) -> dict[str, FactsPod]:
        """Return the pods' states by name when all have ended or cannot start, or the time is over."""
        states: dict[str, FactsPod] = {}
        finished: set[str] = set()
        end = time.monotonic() + _LIMIT_S
        with self.client.watch("v1/Pod", self.namespace, labels=pods.selector, timeout_s=_LIMIT_S) as stream:
            for event in stream:
                if event.type not in ("SYNCED", "BOOKMARK"):
                    name = event.object["metadata"]["name"]
                    states[name] = FactsPod.from_object(event.object)
                    cause = events.find_pod_problem(event.object)
                    stuck = cause is not None and not cause.transient
                    if states[name].phase in _ENDED or event.type == "DELETED" or stuck:
                        finished.add(name)
                if len(finished) >= count or time.monotonic() > end:
                    break
        return states

    def _read_facts(
        self, pods: node_facts.NodeFactsRequest, names: t.Sequence[str], states: t.Mapping[str, FactsPod]
    ) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
        facts: dict[str, dict[str, object]] = {}
        problems: dict[str, str] = {}
        for index, node in enumerate(names):
            name = node_facts.pod_name(pods, index)
            try:
                facts[node] = self._node_facts(node, name, states.get(name, FactsPod()))
            except NodeError as exc:
                problems[node] = exc.message.removeprefix(f"{node}: ")
            except MusterError as exc:
                problems[node] = exc.message
        return facts, problems

    def _node_facts(self, node: str, name: str, state: FactsPod) -> dict[str, object]:
        if state.phase not in _ENDED:
            raise NodeError(node, state.problem or f"its pod did not end within {_LIMIT_S:.0f} s")
        lines = self.client.stream_log(self.namespace, name, node_facts.CONTAINER, follow=False, timeout_s=_READ_S)
        text = b"\n".join(lines).decode(errors="replace")
        answer = agent_package.parse_answer(node, state.exit_code, text, text)
        if answer.get("problem"):
            raise NodeError(node, str(answer["problem"]))
        return dict(answer["facts"])

    def _absent_node(self, name: str, problem: str) -> AbsentNode:
        node = node_facts.read_node({}, self._nodes[name], host_network=False)
        return AbsentNode(merge_facts(self._request.node(name), node), f"{name}: {problem}", _FIX)


def _join_names(names: t.Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:8]) + ("…" if len(ordered) > 8 else "")
