# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes of a cluster by a short Job each: the same requests that the agent of a host answers.

Who may not read Nodes, as a member of a team, asks from where the scheduler places the pod.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
import typing as t

from ....module_utils._model.errors import MusterError, NodeError
from ..._hosts import agent_package
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs import visit_job
from ..._kube.jobs.visit_job import ANY_NODE
from ..._kube.nodes.capacity import takes_jobs
from ..._kube.objects import events, status, wait
from ..._kube.objects.apply import apply
from . import cluster_identity

Answers = dict[str, dict[str, t.Any]]
# In an answer: the node on which the pod was.
PLACE: t.Final = "node_name"
_LIMIT_S = 300.0
_READ_S = 30.0
# How often the events of a Job without a pod are read, and how long a cause that may pass is waited for.
_LOOK_S = 2.0
_PATIENCE_S = 60.0
_ENDED = ("Succeeded", "Failed")


@dataclasses.dataclass(frozen=True, slots=True)
class PodVisits:
    """Where short pods are made, and from which image: one with Python, such as that of the jobs."""

    client: Client
    namespace: str
    image: str
    python: str | None = None
    pull_secrets: tuple[str, ...] = ()

    def list_nodes(self) -> list[str]:
        """Return the names of the Nodes that take pods of jobs; ``ANY_NODE`` alone where Nodes may not be read."""
        try:
            nodes = self.client.list("v1/Node").items
        except KubeError as error:
            if not error.is_forbidden:
                raise
            return [ANY_NODE]
        return sorted(str(item["metadata"]["name"]) for item in nodes if takes_jobs(item))

    def read_cluster_id(self) -> str:
        """Return the id of the cluster."""
        return cluster_identity.read_cluster_id(self.client)

    def ask(self, requests: t.Mapping[str, t.Mapping[str, t.Any]]) -> tuple[Answers, dict[str, MusterError]]:
        """Send a request to each node (by name) at once; return answers and errors by node. Nothing is left of it.

        Each answer has the node's real name under ``PLACE``.
        """
        command = agent_package.boot_command(self.python)
        name = f"muster-visit-{secrets.token_hex(3)}"
        texts = {node: agent_package.boot_input(self._complete(node, item)) for node, item in requests.items()}
        # The first line is the agent, the same for all.
        program = next(iter(texts.values())).partition(b"\n")[0].decode() + "\n"
        texts = {node: text.partition(b"\n")[2] for node, text in texts.items()}
        visit = visit_job.Visit(
            name, self.namespace, self.image, command, program, self.pull_secrets, self._list_ranges()
        )
        objects = visit_job.build_objects(visit, texts)
        starts = _Starts(self.client, self.namespace)
        try:
            apply(self.client, objects)
            self._wait(visit, len(texts), starts)
            return self._read(visit, list(texts), starts)
        finally:
            self._delete(objects)

    @staticmethod
    def _complete(node: str, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {"node": node, "state_root": None, **request}

    def _list_ranges(self) -> tuple[KubeObject, ...]:
        try:
            return tuple(self.client.list("v1/LimitRange", self.namespace).items)
        except KubeError as error:
            if not error.is_forbidden:
                raise
            return ()

    def _wait(self, visit: visit_job.Visit, count: int, starts: _Starts) -> None:
        jobs = wait.WaitTarget(
            self.client.resource("batch/v1/Job"), visit.namespace, labels=visit.selector, count=count
        )
        # A Job that may not make its pod has none.
        pods = wait.WaitTarget(self.client.resource("v1/Pod"), visit.namespace, labels=visit.selector, count=0)
        wait.wait(self.client, [jobs, pods], rule=starts.rule, timeout_s=_LIMIT_S)

    def _read(
        self, visit: visit_job.Visit, nodes: t.Sequence[str], starts: _Starts
    ) -> tuple[Answers, dict[str, MusterError]]:
        answers: Answers = {}
        errors: dict[str, MusterError] = {}
        listed = self.client.list("v1/Pod", self.namespace, labels=visit.selector).items
        pods = {_job_of(pod): pod for pod in listed}
        for index, node in enumerate(nodes):
            name = visit.job_name(index)
            try:
                answers[node] = self._read_one(node, pods.get(name), starts.causes.get(name))
            except MusterError as exc:
                errors[node] = exc
        return answers, errors

    def _read_one(self, node: str, pod: KubeObject | None, cause: events.StartProblem | None) -> dict[str, t.Any]:
        if pod is None or _phase(pod) not in _ENDED:
            problem = cause.text if cause is not None else f"its pod did not end within {_LIMIT_S:.0f} s"
            raise NodeError(node, problem, f"Look with kubectl get events -n {self.namespace}")
        name = str(pod["metadata"]["name"])
        lines = self.client.stream_log(self.namespace, name, visit_job.CONTAINER, follow=False, timeout_s=_READ_S)
        text = b"\n".join(lines).decode(errors="replace")
        answer = agent_package.parse_answer(node, 0 if _phase(pod) == "Succeeded" else 1, text, text)
        if answer.get("problem"):
            raise NodeError(node, str(answer["problem"]), str(answer.get("fix") or ""))
        return {**answer, PLACE: str((pod.get("spec") or {}).get("nodeName") or node)}

    def _delete(self, objects: t.Sequence[KubeObject]) -> None:
        for item in objects:
            meta = item["metadata"]
            with contextlib.suppress(KubeError):
                self.client.delete(item, str(meta["name"]), self.namespace)


class _Starts:
    """What keeps the pods of visits from starting, by the name of the Job: ``causes``."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self.causes: dict[str, events.StartProblem] = {}
        self._over: set[str] = set()
        self._since: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def rule(self, value: KubeObject) -> status.State:
        """Return whether there is nothing more to wait for, of a Job or of a pod. It is asked again and again."""
        if value.get("kind") == "Pod":
            name = _job_of(value)
            self._take(name, events.find_pod_problem(value))
            if _phase(value) in _ENDED:
                self._over.add(name)
        else:
            name = str(value["metadata"]["name"])
            if status.read_state(value).phase != "waiting":
                self._over.add(name)
            elif not (value.get("status") or {}).get("active"):
                self._read_refusal(name, str(value["metadata"].get("uid")))
        return status.State("done" if name in self._over or self._is_stuck(name) else "waiting", "")

    def _read_refusal(self, name: str, uid: str) -> None:
        """Read why a Job has no pod: the pod is refused, by a quota or an admission policy."""
        now = time.monotonic()
        if now < self._due.get(name, 0.0):
            return
        self._due[name] = now + _LOOK_S
        with contextlib.suppress(MusterError):
            about = f"involvedObject.uid={uid},type=Warning"
            listed = self._client.list("v1/Event", self._namespace, fields=about, patient=False).items
            self._take(name, next(events.parse_events(listed), None))

    def _take(self, name: str, cause: events.StartProblem | None) -> None:
        if cause is not None:
            self.causes[name] = cause
            self._since.setdefault(name, time.monotonic())

    def _is_stuck(self, name: str) -> bool:
        cause = self.causes.get(name)
        if cause is None or cause.transient:
            return False
        return cause.code != "quota" or time.monotonic() - self._since[name] > _PATIENCE_S


def _job_of(pod: KubeObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(visit_job.JOB_LABEL))


def _phase(pod: KubeObject) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
