# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes of a cluster by a short Job each: the same requests that the agent of a host answers.

Who may not read Nodes, as a member of a team, asks from where the scheduler places the pod.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import time
import typing as t

from ....module_utils._model.errors import MusterError, NodeError
from ....module_utils._model.wording import name_some
from ..._hosts import agent_package
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs import visit_job
from ..._kube.jobs.visit_job import ANY_NODE
from ..._kube.nodes.capacity import takes_jobs
from ..._kube.objects import events, status, wait
from ..._kube.objects.apply import apply
from ..._kube.objects.apply_plan import run_parallel

Answers = dict[str, dict[str, t.Any]]
# In an answer: the node on which the pod was.
PLACE: t.Final = "node_name"
_LIMIT_S = 300.0
_READ_S = 30.0
# How often the events of a Job without a pod are read, and how long a cause that may pass is waited for.
_LOOK_S = 2.0
_PATIENCE_S = 60.0
# A sandbox that fails once may come at the next try: a network plugin that has just started, for instance.
_SANDBOX, _SANDBOX_S = "FailedCreatePodSandBox", 20.0
# A driver that refuses a claim may have been restarted.
_NO_VOLUME = "ProvisioningFailed"
_ENDED = ("Succeeded", "Failed")
# Pods that take longer are told of, and what they wait for.
_SILENCE_S = 15.0
_SHOWN = 5
Say = t.Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class PodVisits:
    """Where short pods are made, and from which image: one with Python, such as that of the jobs."""

    client: Client
    namespace: str
    image: str
    python: str | None = None
    pull_secrets: tuple[str, ...] = ()
    say: Say | None = None

    def list_nodes(self) -> list[str]:
        """Return the names of the Nodes that take pods of jobs; ``ANY_NODE`` alone where Nodes may not be read."""
        try:
            nodes = self.client.list("v1/Node").items
        except KubeError as error:
            if not error.is_forbidden:
                raise
            return [ANY_NODE]
        return sorted(str(item["metadata"]["name"]) for item in nodes if takes_jobs(item))

    def find_gone(self, names: t.Collection[str]) -> frozenset[str]:
        """Return which of these Nodes the cluster does not have any more; none where Nodes may not be read."""
        try:
            nodes = self.client.list("v1/Node").items
        except KubeError as error:
            if not error.is_forbidden:
                raise
            return frozenset()
        return frozenset(names) - {str(item["metadata"]["name"]) for item in nodes}

    def read_cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self.client.cluster_id()

    def ask(
        self,
        requests: t.Mapping[str, t.Mapping[str, t.Any]],
        folders: t.Sequence[str] = (),
        claim: KubeObject | None = None,
        limit_s: float = _LIMIT_S,
    ) -> tuple[Answers, dict[str, MusterError]]:
        """Send a request to each node (by name) at once; return answers and errors by node. Nothing is left of it.

        Each answer has the node's real name under ``PLACE``. ``folders`` of the node are in its pod at the same path;
        with ``claim`` the one folder is its volume.
        """
        command = agent_package.boot_command(self.python)
        name = f"muster-visit-{secrets.token_hex(3)}"
        texts = {node: agent_package.boot_input(self._complete(node, item)) for node, item in requests.items()}
        # The first line is the agent, the same for all.
        program = next(iter(texts.values())).partition(b"\n")[0].decode() + "\n"
        texts = {node: text.partition(b"\n")[2] for node, text in texts.items()}
        visit = visit_job.Visit(
            name,
            self.namespace,
            self.image,
            command,
            program,
            self.pull_secrets,
            list_ranges(self.client, self.namespace),
            tuple(folders),
            str(claim["metadata"]["name"]) if claim else "",
        )
        objects = visit_job.build_objects(visit, texts)
        jobs = {node: visit.job_name(index) for index, node in enumerate(texts)}
        uid = str(claim["metadata"].get("uid")) if claim else ""
        return run_jobs(
            self.client, self.namespace, objects, visit.selector, jobs, self._read_answer, limit_s, uid, self.say
        )

    @staticmethod
    def _complete(node: str, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {"node": node, "state_root": None, **request}

    def _read_answer(self, node: str, pod: KubeObject) -> dict[str, t.Any]:
        text = read_log(self.client, self.namespace, pod, visit_job.CONTAINER)
        answer = agent_package.parse_answer(node, 0 if _phase(pod) == "Succeeded" else 1, text, text)
        if answer.get("problem"):
            raise NodeError(node, str(answer["problem"]), str(answer.get("fix") or ""))
        return {**answer, PLACE: str((pod.get("spec") or {}).get("nodeName") or node)}


def list_ranges(client: Client, namespace: str) -> tuple[KubeObject, ...]:
    """Return the LimitRanges of a namespace; none where this user may not read them."""
    try:
        return tuple(client.list("v1/LimitRange", namespace).items)
    except KubeError as error:
        if not error.is_forbidden:
            raise
        return ()


def run_jobs[T](
    client: Client,
    namespace: str,
    objects: t.Sequence[KubeObject],
    selector: str,
    jobs: t.Mapping[str, str],
    read: t.Callable[[str, KubeObject], T],
    limit_s: float = _LIMIT_S,
    claim: str = "",
    say: Say | None = None,
) -> tuple[dict[str, T], dict[str, MusterError]]:
    """Run short Jobs of one pod each to their ends; return what ``read`` makes of each pod, and errors.

    :param objects: the Jobs and what they need; nothing of it is left.
    :param selector: the labels of the Jobs and of their pods.
    :param jobs: by node the name of its Job.
    :param read: is called with the node and its pod, which has ended, for several nodes at once.
    :param limit_s: how long they are waited for; what keeps a pod from starting ends the wait for it.
    :param claim: the uid of a claim that they mount and that may have no volume yet.
    :param say: takes a line now and then while pods are waited for: which, and what keeps them.
    """
    starts = _Starts(client, namespace, claim)
    rule = _Spoken(starts, jobs, limit_s, say).rule if say else starts.rule
    try:
        apply(client, objects)
        wanted = wait.WaitTarget(client.resource("batch/v1/Job"), namespace, labels=selector, count=len(jobs))
        # A Job that may not make its pod has none.
        pods = wait.WaitTarget(client.resource("v1/Pod"), namespace, labels=selector, count=0)
        wait.wait(client, [wanted, pods], rule=rule, timeout_s=limit_s)
        listed = {_job_of(pod): pod for pod in client.list("v1/Pod", namespace, labels=selector).items}
        look = f"Look with kubectl get events -n {namespace}"

        def read_one(node: str) -> T | MusterError:
            pod, cause = listed.get(jobs[node]), starts.causes.get(jobs[node])
            try:
                return read(node, _require_end(node, pod, cause, look, limit_s))
            except MusterError as exc:
                return exc

        # Each is a request of its own: one after the other they would take longer than the pods.
        found = dict(zip(jobs, run_parallel(read_one, list(jobs)), strict=True))
        answers = {node: item for node, item in found.items() if not isinstance(item, MusterError)}
        return answers, {node: item for node, item in found.items() if isinstance(item, MusterError)}
    finally:
        run_parallel(functools.partial(_delete, client, namespace), objects)


def _delete(client: Client, namespace: str, item: KubeObject) -> None:
    with contextlib.suppress(KubeError):
        client.delete(item, str(item["metadata"]["name"]), namespace)


def read_log(client: Client, namespace: str, pod: KubeObject, container: str) -> str:
    """Return what a container of a pod that has ended printed."""
    lines = client.stream_log(namespace, str(pod["metadata"]["name"]), container, follow=False, timeout_s=_READ_S)
    return b"\n".join(lines).decode(errors="replace")


def _require_end(
    node: str, pod: KubeObject | None, cause: events.StartProblem | None, fix: str, limit_s: float
) -> KubeObject:
    """Return the pod of a node, which has ended.

    :raises NodeError: saying why it has not.
    """
    if pod is not None and _phase(pod) in _ENDED:
        return pod
    problem = cause.text if cause is not None else f"its pod did not end within {limit_s:.0f} s"
    raise NodeError(node, problem, fix)


class _Starts:
    """What keeps the pods of visits from starting, by the name of the Job: ``causes``."""

    def __init__(self, client: Client, namespace: str, claim: str = "") -> None:
        self._client, self._namespace, self._claim = client, namespace, claim
        self.causes: dict[str, events.StartProblem] = {}
        self._over: set[str] = set()
        self._since: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def rule(self, value: KubeObject) -> status.State:
        """Return whether there is nothing more to wait for, of a Job or of a pod. It is asked again and again."""
        if value.get("kind") == "Pod":
            name = _job_of(value)
            problem = events.find_pod_problem(value)
            self._take(name, problem)
            if _phase(value) in _ENDED:
                self._over.add(name)
            elif (problem is None or self._claim) and _phase(value) == "Pending":
                # A sandbox that cannot be made is in the pod's events alone; its containers wait without a reason.
                self._due.setdefault(name, time.monotonic() + _LOOK_S)
                self._read_refusal(name, str(value["metadata"].get("uid")))
        else:
            name = str(value["metadata"]["name"])
            if status.read_state(value).phase != "waiting":
                self._over.add(name)
            elif not (value.get("status") or {}).get("active"):
                self._read_refusal(name, str(value["metadata"].get("uid")))
        return status.State("done" if name in self._over or self._is_stuck(name) else "waiting", "")

    def list_late(self, jobs: t.Mapping[str, str]) -> list[str]:
        """Return the nodes (node -> name of its Job) that are still waited for."""
        return [node for node, name in jobs.items() if name not in self._over and not self._is_stuck(name)]

    def _read_refusal(self, name: str, uid: str) -> None:
        """Read the warnings about a Job without a pod, which a quota or an admission policy refuses, or about a pod."""
        now = time.monotonic()
        if now < self._due.get(name, 0.0):
            return
        self._due[name] = now + _LOOK_S
        # Why a claim has no volume is in its own events; its pods wait without a reason.
        for about in filter(None, (self._claim, uid)):
            with contextlib.suppress(MusterError):
                fields = f"involvedObject.uid={about},type=Warning"
                listed = self._client.list("v1/Event", self._namespace, fields=fields, patient=False).items
                cause = next(events.parse_events(listed), None)
                self._take(name, cause)
                if cause is not None:
                    return

    def _take(self, name: str, cause: events.StartProblem | None) -> None:
        if cause is not None:
            self.causes[name] = cause
            self._since.setdefault(name, time.monotonic())

    def _is_stuck(self, name: str) -> bool:
        cause = self.causes.get(name)
        if cause is None or (cause.transient and not cause.line.startswith(_NO_VOLUME)):
            return False
        again = cause.line.startswith((_SANDBOX, _NO_VOLUME))
        patience = _PATIENCE_S if cause.code == "quota" else _SANDBOX_S if again else 0.0
        return time.monotonic() - self._since[name] >= patience


class _Spoken:
    """The rule of visits that says now and then which pods are waited for, and why."""

    def __init__(self, starts: _Starts, jobs: t.Mapping[str, str], limit_s: float, say: Say) -> None:
        self._starts, self._jobs, self._limit_s, self._say = starts, jobs, limit_s, say
        self._began = time.monotonic()
        self._due = self._began + _SILENCE_S

    def rule(self, value: KubeObject) -> status.State:
        """Return what the rule of the visits returns."""
        found = self._starts.rule(value)
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _SILENCE_S
            late = self._starts.list_late(self._jobs)
            if late:
                self._say(self._describe(late, now - self._began))
        return found

    def _describe(self, late: t.Sequence[str], past_s: float) -> str:
        names = ["the node that the scheduler chooses" if node == ANY_NODE else node for node in late]
        causes = [cause.text for node in late if (cause := self._starts.causes.get(self._jobs[node]))]
        why = f": {causes[0]}" if causes else ""
        return f"waiting for the pods on {name_some(names, _SHOWN)} ({past_s:.0f} of {self._limit_s:.0f} s){why}"


def _job_of(pod: KubeObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(visit_job.JOB_LABEL))


def _phase(pod: KubeObject) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
