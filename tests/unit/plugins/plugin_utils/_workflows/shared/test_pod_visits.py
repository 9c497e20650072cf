# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking by pods: answers from their logs, why one did not start, and nothing that is left."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.host_agent import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import ListPage
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import pod_visits

Dict = dict[str, t.Any]


class Cluster:
    """A client of a cluster whose pods end as the test says."""

    def __init__(self, *ends: Dict) -> None:
        self.ends, self.made, self.deleted = ends, t.cast("list[Dict]", []), t.cast("list[str]", [])

    def list(self, _kind: str) -> ListPage:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        nodes: t.Any = [{"metadata": {"name": name}, "status": ready} for name in ("b", "a")]
        return ListPage(nodes, "1")

    @contextlib.contextmanager
    def watch(self, *_words: t.Any, **_how: t.Any) -> t.Iterator[t.Any]:
        pods = [item for item in self.made if item["kind"] == "Pod"]
        told: list[t.Any] = [{**pod, "status": end} for pod, end in zip(pods, self.ends, strict=True)]
        yield iter([WatchEvent("SYNCED"), *(WatchEvent("MODIFIED", pod) for pod in told)])

    def stream_log(self, _namespace: str, name: str, _container: str, **_how: t.Any) -> t.Iterable[bytes]:
        return [b"noise", (MARK + json.dumps({"said": name})).encode()]

    def delete(self, kind: str, name: str, _namespace: str) -> None:
        self.deleted.append(f"{kind} {name}")


def visits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> pod_visits.PodVisits:
    monkeypatch.setattr(pod_visits, "apply", lambda _client, objects: cluster.made.extend(objects))
    client: t.Any = cluster
    return pod_visits.PodVisits(client, "team", "image")


def test_each_node_answers_and_all_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"phase": "Succeeded"}, {"phase": "Succeeded"})
    asked = visits(cluster, monkeypatch)
    assert asked.list_nodes() == ["a", "b"]
    answers, errors = asked.ask({name: {"op": "s3", "step": "clean_up", "delete": []} for name in "ab"})
    assert errors == {} and answers["b"]["said"].endswith("-1")
    assert len(cluster.deleted) == len(cluster.made) == 5


def test_a_pod_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "image is not there"}}
    stuck = {"phase": "Pending", "containerStatuses": [{"name": "visit", "state": waiting}]}
    cluster = Cluster({"phase": "Succeeded"}, stuck)
    answers, errors = visits(cluster, monkeypatch).ask({name: {"op": "s3", "step": "clean_up"} for name in "ab"})
    assert list(answers) == ["a"] and "image is not there" in errors["b"].message
    assert len(cluster.deleted) == 5
