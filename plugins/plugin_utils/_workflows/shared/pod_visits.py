# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks nodes of a cluster by a short pod each: the same requests that the agent of a host answers.

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
from ..._kube.nodes import visit_pods
from ..._kube.objects import events
from ..._kube.objects.apply import apply

Answers = dict[str, dict[str, t.Any]]
_LIMIT_S = 300.0
_READ_S = 30.0
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
        """Return the names of the Nodes that take pods of jobs."""
        return sorted(str(item["metadata"]["name"]) for item in self.client.list("v1/Node").items
                      if visit_pods.takes_jobs(item))  # fmt: skip

    def ask(self, requests: t.Mapping[str, t.Mapping[str, t.Any]]) -> tuple[Answers, dict[str, MusterError]]:
        """Send a request to each node (by name) at once; return answers and errors by node. Nothing is left of it."""
        command = agent_package.boot_command(self.python)
        name = f"muster-visit-{secrets.token_hex(3)}"
        texts = {node: agent_package.boot_input(self._complete(node, item)) for node, item in requests.items()}
        # The first line is the agent, the same for all.
        program = next(iter(texts.values())).partition(b"\n")[0].decode() + "\n"
        texts = {node: text.partition(b"\n")[2] for node, text in texts.items()}
        visit = visit_pods.Visit(name, self.namespace, self.image, command, program, self.pull_secrets)
        objects = visit_pods.build_objects(visit, texts)
        try:
            apply(self.client, objects)
            states = self._wait(visit, len(texts))
            return self._read(visit, list(texts), states)
        finally:
            self._delete(objects)

    @staticmethod
    def _complete(node: str, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {"node": node, "state_root": None, **request}

    def _wait(self, visit: visit_pods.Visit, count: int) -> dict[str, KubeObject]:
        states: dict[str, KubeObject] = {}
        finished: set[str] = set()
        end = time.monotonic() + _LIMIT_S
        with self.client.watch("v1/Pod", visit.namespace, labels=visit.selector, timeout_s=_LIMIT_S) as stream:
            for event in stream:
                if event.type not in ("SYNCED", "BOOKMARK"):
                    name = str(event.object["metadata"]["name"])
                    states[name] = event.object
                    cause = events.find_pod_problem(event.object)
                    is_stuck = cause is not None and not cause.transient
                    if _phase(event.object) in _ENDED or event.type == "DELETED" or is_stuck:
                        finished.add(name)
                if len(finished) >= count or time.monotonic() > end:
                    break
        return states

    def _read(
        self, visit: visit_pods.Visit, nodes: t.Sequence[str], states: t.Mapping[str, KubeObject]
    ) -> tuple[Answers, dict[str, MusterError]]:
        answers: Answers = {}
        errors: dict[str, MusterError] = {}
        for index, node in enumerate(nodes):
            name = visit.pod_name(index)
            try:
                answers[node] = self._read_one(node, name, states.get(name))
            except MusterError as exc:
                errors[node] = exc
        return answers, errors

    def _read_one(self, node: str, name: str, pod: KubeObject | None) -> dict[str, t.Any]:
        if pod is None or _phase(pod) not in _ENDED:
            cause = events.find_pod_problem(pod) if pod is not None else None
            problem = cause.text if cause is not None else f"its pod did not end within {_LIMIT_S:.0f} s"
            raise NodeError(node, problem, f"Look with kubectl get events -n {self.namespace}")
        lines = self.client.stream_log(self.namespace, name, visit_pods.CONTAINER, follow=False, timeout_s=_READ_S)
        text = b"\n".join(lines).decode(errors="replace")
        answer = agent_package.parse_answer(node, 0 if _phase(pod) == "Succeeded" else 1, text, text)
        if answer.get("problem"):
            raise NodeError(node, str(answer["problem"]), str(answer.get("fix") or ""))
        return answer

    def _delete(self, objects: t.Sequence[KubeObject]) -> None:
        for item in objects:
            meta = item["metadata"]
            with contextlib.suppress(KubeError):
                self.client.delete(f"v1/{item['kind']}", str(meta["name"]), self.namespace)


def _phase(pod: KubeObject) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
