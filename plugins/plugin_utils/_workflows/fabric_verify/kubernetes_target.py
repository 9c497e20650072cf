# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a Kubernetes cluster as the ground of a fabric test: facts by a short pod on each, tests by short gangs.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
import typing as t

from ....module_utils._model import job_templates
from ....module_utils._model.errors import InputError, MusterError, NodeError, RefusedError
from ....module_utils._model.island import PairPath
from ....module_utils._model.job import Job, merge, parse_job
from ....module_utils._model.node import Node
from ..._fabric.bench.plan import Stage
from ..._fabric.topology import node_labels
from ..._fabric.topology.unreachable import Absent
from ..._hosts import agent_package
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.jobs import placement
from ..._kube.jobs.spec import RUN_LABEL, Object
from ..._kube.nodes import node_facts
from ..._kube.objects import events
from ..._kube.objects.apply import apply
from ..shared import kube_connection
from ..training_job import run as training_job
from ..training_job.kubernetes import network_preflight
from . import kubernetes_gang
from .bench_group import Bench, GroupRun
from .hosts_target import Fleet, Published

Dict = dict[str, t.Any]
_LIMIT_S = 300.0
_READ_S = 20.0
_FORBIDDEN = (401, 403)
# Its fields of a Node are its own: what a verdict wrote goes when the next one does not say it.
MANAGER = "muster-fabric"
_FIX = "Look at the node (kubectl describe node), then verify again"
_HOSTNAME = "kubernetes.io/hostname"


def wanted(options: t.Mapping[str, t.Any]) -> Dict | None:
    """Return the job whose image and placement the tests use when it is for Kubernetes, None for plain hosts.

    :raises InputError: for what is no job.
    """
    given = options.get("job") or {}
    if not isinstance(given, dict):
        raise InputError("job", "must be a mapping", "Give the keys of a job: image, placement, mounts, resources")
    template = given.get("template")
    if template is not None and template not in job_templates.PRESETS:
        raise InputError("job.template", f"'{template}' is no preset of the collection", "Give the keys themselves")
    full = merge(job_templates.PRESETS[template], given) if template else dict(given)
    place = full.get("placement") or {}
    return full if isinstance(place, dict) and place.get("backend") == "kubernetes" else None


class Cluster:
    """A cluster's nodes that can take the job's pods."""

    def __init__(self, request: training_job.Request, given: Dict) -> None:
        self._request, self._given = request, given
        if request.options.get("bench") == "nccl_tests":
            raise InputError("bench", "nccl_tests runs on hosts only", "Use bench: torch on a cluster")
        stage = Stage("island", (), 1, (1 << 20,), 0.1, 60.0)
        self._job = parse_job(
            kubernetes_gang.job_of(given, ("x",), stage, Bench("gloo", "all_reduce"), request.options)
        )
        self._gpus = int(given.get("gpus_per_node") or 0)
        self.own_network = self._job.placement.network_mode == "host"
        context = self._job.placement.cluster
        self.client: Client = kube_connection.open_client(
            request.options, request.base, request.progress.say, context=context
        )
        self.namespace = self._job.placement.namespace or self.client.namespace
        self._nodes: dict[str, Object] = {}

    def fleet(self) -> Fleet:
        """Return the nodes that can take a pod of the job; what is not ready is named, what is not for it is left out.

        In check mode no pod is made: what the Node objects say is all that is known then.
        """
        fitting, gone = self._fitting()
        facts: dict[str, Dict] = {name: {} for name in fitting}
        host = False
        if not self._request.check:
            facts, problems, host = self._ask(fitting)
            gone += [self._absent(name, problem) for name, problem in problems.items()]
        nodes = [
            Node.from_dict(node_facts.merged(facts[name], self._nodes[name], host_network=host), f"node {name}")
            for name in fitting
            if name in facts
        ]
        if not nodes:
            raise RefusedError("no node of the cluster could be tested: " + "; ".join(item.problem for item in gone))
        return Fleet(tuple(nodes), frozenset(self._busy()), tuple(gone))

    def reached(self, nodes: t.Sequence[Node]) -> list[PairPath]:
        """Return nothing: pods reach each other by the cluster's rules, and the tests show how fast."""
        return []

    def addresses(self, names: t.Iterable[str]) -> dict[str, str]:
        """Return nothing: the cluster knows its nodes' addresses."""
        return {}

    def known(self) -> t.Container[str]:
        """Return the names of all nodes of the cluster."""
        return self._nodes

    def run_group(self, group: tuple[str, ...], stage: Stage, bench: Bench, run_id: str) -> GroupRun:
        """Run the bench as a gang of pods on exactly these nodes."""
        hostnames = {name: str(_labels(self._nodes[name]).get(_HOSTNAME) or name) for name in group}
        gangs = kubernetes_gang.Gangs(self.client, self.namespace, self._given, hostnames, self._request.options)
        return gangs.run(group, stage, bench, run_id)

    def publish(self, patches: t.Mapping[str, Dict], check: bool) -> Published:
        """Write island, lane and outcome as labels of the nodes; a user who may not do so is told."""
        wanted_ = node_labels.node_objects(patches, self._nodes)
        if not wanted_:
            return Published()
        try:
            result = apply(self.client, wanted_, MANAGER, force=True, check=check)
        except KubeError as exc:
            if exc.status not in _FORBIDDEN:
                raise
            return Published(note="the labels of the nodes were not written: this kubeconfig may not change nodes")
        return Published(result.changed, tuple(result.diff()))

    def _fitting(self) -> tuple[list[str], list[Absent]]:
        """Return the names of the nodes to test, and those that should be tested and cannot."""
        try:
            listed = self.client.list("v1/Node").items
        except KubeError as exc:
            if exc.status not in _FORBIDDEN:
                raise
            raise RefusedError(
                "the nodes of the cluster cannot be read with this kubeconfig", "Use an admin's"
            ) from exc
        self._nodes = {item["metadata"]["name"]: item for item in listed}
        asked = self._request.options.get("hosts") or []
        unknown = [name for name in asked if name not in self._nodes]
        if unknown:
            raise InputError("hosts", f"'{unknown[0]}' is no node of the cluster", f"There are: {_some(self._nodes)}")
        candidates = [item for item in listed if not asked or item["metadata"]["name"] in asked]
        verdicts = placement.judge(self._judged_as(candidates), candidates, fabric=False)
        fitting = [item.node for item in verdicts if not item.reasons]
        down = [item.node for item in verdicts if item.reasons == ("not ready",)]
        out = {item.node: item.reasons for item in verdicts if item.reasons and item.node not in down}
        if out:
            told = ", ".join(f"{name} ({'; '.join(reasons)})" for name, reasons in list(out.items())[:8])
            self._request.progress.say(f"left out: {told}")
        return fitting, [self._absent(name, "the node is not ready") for name in down]

    def _judged_as(self, candidates: t.Sequence[Object]) -> Job:
        """Return the job by which nodes are chosen: where there are GPUs, nodes without one are not for it."""
        some = any(node_facts.record(item)["gpu"]["count"] for item in candidates)
        wants = self._gpus or int(some and self._request.options.get("backend") != "gloo")
        return dataclasses.replace(self._job, gpus_per_node=wants)

    def _busy(self) -> set[str]:
        """Return the nodes on which a run of ours lives."""
        for namespace in (None, self.namespace):
            try:
                pods = self.client.list("v1/Pod", namespace, labels=RUN_LABEL).items
            except KubeError as exc:
                if exc.status in _FORBIDDEN:
                    continue
                raise
            living = [item for item in pods if (item.get("status") or {}).get("phase") in ("Pending", "Running")]
            return {str(item["spec"]["nodeName"]) for item in living if item["spec"].get("nodeName")}
        return set()

    def _ask(self, names: t.Sequence[str]) -> tuple[dict[str, Dict], dict[str, str], bool]:
        """Return facts and problems by node, and whether the pods saw the nodes' own network."""
        refs = (ref for ref in self._job.secret_refs if ref.deliver == "registry")
        request = agent_package.boot_input({"op": "info", "node": "", "state_root": None, "facts": True})
        asked = node_facts.Asked(
            name=f"fabric-facts-{secrets.token_hex(3)}",
            namespace=self.namespace,
            image=str(self._job.image),
            command=agent_package.boot_command(self._job.python),
            request=request.decode(),
            pull_secrets=tuple(str(ref.path) for ref in refs),
        )
        asked = self._allowed(asked, names)
        made = node_facts.objects(asked, names)
        self._request.progress.say(f"asking {len(names)} nodes for their facts")
        try:
            apply(self.client, made)
            pods = self._ended(asked, len(names))
            facts, problems = self._read(asked, names, pods)
        finally:
            network_preflight.clear(self.client, made)
        return facts, problems, asked.host_network

    def _allowed(self, asked: node_facts.Asked, names: t.Sequence[str]) -> node_facts.Asked:
        """Return what to make: with the nodes' own network unless the namespace forbids it."""
        _unused, *pods = node_facts.objects(asked, names)
        try:
            self.client.create(pods[0], dry_run=True)
        except KubeError as exc:
            if exc.status not in _FORBIDDEN:
                raise
            self._request.progress.say(
                f"the namespace {self.namespace} does not allow the nodes' own network: their interfaces stay unknown, "
                "and islands of Ethernet are those that you declare"
            )
            return dataclasses.replace(asked, host_network=False)
        return asked

    def _ended(self, asked: node_facts.Asked, count: int) -> dict[str, Object]:
        """Return the pods by name as they are when all have ended, cannot start, or the time is over."""
        seen: dict[str, Object] = {}
        stuck: set[str] = set()
        end = time.monotonic() + _LIMIT_S
        with self.client.watch("v1/Pod", self.namespace, labels=asked.selector, timeout_s=_LIMIT_S) as stream:
            for event in stream:
                if event.type not in ("SYNCED", "BOOKMARK"):
                    name = event.object["metadata"]["name"]
                    seen[name] = event.object
                    cause = events.of_pod(event.object)
                    over = (event.object.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                    if over or event.type == "DELETED" or (cause is not None and not cause.passing):
                        stuck.add(name)
                if len(stuck) >= count or time.monotonic() > end:
                    break
        return seen

    def _read(
        self, asked: node_facts.Asked, names: t.Sequence[str], pods: t.Mapping[str, Object]
    ) -> tuple[dict[str, Dict], dict[str, str]]:
        facts: dict[str, Dict] = {}
        problems: dict[str, str] = {}
        for index, node in enumerate(names):
            name = node_facts.pod_name(asked, index)
            try:
                facts[node] = self._facts(node, name, pods.get(name) or {})
            except NodeError as exc:
                problems[node] = exc.message.removeprefix(f"{node}: ")
            except MusterError as exc:
                problems[node] = exc.message
        return facts, problems

    def _facts(self, node: str, name: str, pod: Object) -> Dict:
        status = pod.get("status") or {}
        if status.get("phase") not in ("Succeeded", "Failed"):
            cause = events.of_pod(pod) if pod else None
            raise NodeError(node, cause.text if cause else f"its pod did not end within {_LIMIT_S:.0f} s")
        lines = self.client.stream_log(self.namespace, name, node_facts.CONTAINER, follow=False, timeout_s=_READ_S)
        text = b"\n".join(lines).decode(errors="replace")
        states = [item.get("state", {}).get("terminated") or {} for item in status.get("containerStatuses") or []]
        code = next((int(item["exitCode"]) for item in states if "exitCode" in item), 1)
        answer = agent_package.parse_answer(node, code, text, text)
        if answer.get("problem"):
            raise NodeError(node, str(answer["problem"]))
        return t.cast(Dict, answer["facts"])

    def _absent(self, name: str, problem: str) -> Absent:
        node = Node.from_dict(node_facts.record(self._nodes[name]), f"node {name}")
        return Absent(node, f"{name}: {problem}", _FIX)


def _labels(node: Object) -> Dict:
    return node["metadata"].get("labels") or {}


def _some(names: t.Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:8]) + ("…" if len(listed) > 8 else "")
