# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking by pods: answers from their logs, why one did not start, and nothing that is left."""

from __future__ import annotations

import json
import threading
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.host_agent import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import ListPage
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.visit_job import ANY_NODE, JOB_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import pod_visits

Dict = dict[str, t.Any]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}}
REQUEST = {"op": "s3", "step": "clean_up", "delete": []}


class Cluster:
    """A client of a cluster whose Jobs fare as the test says: the status of each pod, None for one that is refused."""

    def __init__(self, *ends: Dict | None, warning: str = "", readable: bool = True) -> None:
        self.ends, self.warning, self.readable = ends, warning, readable
        self.made: list[Dict] = []
        self.deleted: list[str] = []

    def resource(self, kind: str) -> str:
        return kind

    def list(self, kind: str, *_words: t.Any, **_how: t.Any) -> ListPage:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        if kind == "v1/Node" and not self.readable:
            raise KubeError("Node", "nodes is forbidden", status=403)
        refused = {"type": "Warning", "reason": "FailedCreate", "message": self.warning, "metadata": {"name": "e"}}
        listed: t.Any = {
            "v1/Node": [{"metadata": {"name": name}, "status": ready} for name in ("b", "a")],
            "v1/Pod": self.pods(),
            "v1/Event": [{**refused, "involvedObject": {"kind": "Job", "name": "j"}}] if self.warning else [],
        }.get(kind, [])
        return ListPage(listed, "1")

    def jobs(self) -> t.Any:
        return [item for item in self.made if item["kind"] == "Job"]

    def pods(self) -> t.Any:
        names = [item["metadata"]["name"] for item in self.jobs()]
        return [
            {"kind": "Pod", "metadata": {"name": f"{name}-x7", "labels": {JOB_LABEL: name}}, "status": end,
             "spec": {"nodeName": "gpu-7"}}
            for name, end in zip(names, self.ends, strict=False) if end is not None
        ]  # fmt: skip

    def wait(self, _client: t.Any, _targets: t.Any, *, rule: t.Any, timeout_s: float) -> None:
        """Ask the rule about everything until nothing more is waited for, as the real one does."""
        assert timeout_s > 0
        for _round in range(3):
            phases = [rule(item).phase for item in (*self.pods(), *self.jobs())]
        assert set(phases) == {"done"}, "it would wait on"

    def stream_log(self, _namespace: str, name: str, _container: str, **_how: t.Any) -> t.Iterable[bytes]:
        return [b"noise", (MARK + json.dumps({"said": name})).encode()]

    def delete(self, item: Dict, name: str, _namespace: str) -> None:
        self.deleted.append(f"{item['kind']} {name}")


def visits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> pod_visits.PodVisits:
    monkeypatch.setattr(pod_visits, "apply", lambda _client, objects: cluster.made.extend(objects))
    monkeypatch.setattr(pod_visits.wait, "wait", cluster.wait)
    client: t.Any = cluster
    return pod_visits.PodVisits(client, "team", "image")


def test_each_node_answers_and_all_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"phase": "Succeeded"}, {"phase": "Succeeded"})
    asked = visits(cluster, monkeypatch)
    assert asked.list_nodes() == ["a", "b"] and asked.find_gone({"a", "old"}) == {"old"}
    answers, errors = asked.ask(dict.fromkeys("ab", REQUEST))
    assert errors == {} and answers["b"]["said"].endswith("-1-x7")
    assert len(cluster.deleted) == len(cluster.made) == 5


def test_answers_are_read_and_objects_deleted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for all others: one after the other, none would ever go on."""
    cluster = Cluster({"phase": "Succeeded"}, {"phase": "Succeeded"})
    reads, deletes = threading.Barrier(2, timeout=30), threading.Barrier(5, timeout=30)
    read, delete = cluster.stream_log, cluster.delete
    monkeypatch.setattr(cluster, "stream_log", lambda *words, **how: (reads.wait(), read(*words, **how))[1])
    monkeypatch.setattr(cluster, "delete", lambda *words: (deletes.wait(), delete(*words))[1])
    answers, errors = visits(cluster, monkeypatch).ask(dict.fromkeys("ab", REQUEST))
    assert list(answers) == ["a", "b"] and errors == {} and len(cluster.deleted) == 5


def test_who_may_not_read_nodes_asks_from_where_the_pod_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"phase": "Succeeded"}, readable=False)
    asked = visits(cluster, monkeypatch)
    assert asked.list_nodes() == [ANY_NODE] and asked.find_gone({"old"}) == set()
    answers, errors = asked.ask({ANY_NODE: REQUEST})
    assert errors == {} and answers[ANY_NODE][pod_visits.PLACE] == "gpu-7"


def test_a_pod_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "image is not there"}}
    stuck = {"phase": "Pending", "containerStatuses": [{"name": "visit", "state": waiting}]}
    cluster = Cluster({"phase": "Succeeded"}, stuck)
    answers, errors = visits(cluster, monkeypatch).ask(dict.fromkeys("ab", REQUEST))
    assert list(answers) == ["a"] and "image is not there" in errors["b"].message
    assert len(cluster.deleted) == 5


@pytest.mark.parametrize(
    ("warning", "words"),
    [
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "refused by an admission rule"),
        ('pods "x" is forbidden: exceeded quota: small, requested: pods=1', "the namespace's quota is used up"),
    ],
)
def test_a_job_that_may_make_no_pod_says_why(monkeypatch: pytest.MonkeyPatch, warning: str, words: str) -> None:
    """A quota may have room again: that is waited for, a little."""
    monkeypatch.setattr(pod_visits, "_PATIENCE_S", -1.0)
    monkeypatch.setattr(pod_visits, "_LOOK_S", 0.0)
    answers, errors = visits(Cluster(None, warning=warning), monkeypatch).ask({"a": REQUEST})
    assert answers == {} and words in errors["a"].message and warning in errors["a"].message


def test_a_quota_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = pod_visits._Starts(t.cast("t.Any", Cluster(warning="exceeded quota: small")), "team")
    assert starts.rule(t.cast("t.Any", JOB)).phase == "waiting"
    monkeypatch.setattr(pod_visits, "time", types.SimpleNamespace(monotonic=lambda: 1e9))
    assert starts.rule(t.cast("t.Any", JOB)).phase == "done"


def test_a_sandbox_that_cannot_be_made_is_read_from_the_events_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containers wait without a reason, and would for ever."""
    cluster = Cluster(warning='no runtime for "nvidia" is configured')
    pod = {
        "kind": "Pod",
        "metadata": {"name": "x", "uid": "u", "labels": {JOB_LABEL: "j"}},
        "status": {"phase": "Pending"},
    }
    sandbox = {"type": "Warning", "reason": "FailedCreatePodSandBox", "message": cluster.warning}
    event = {**sandbox, "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "x"}}
    monkeypatch.setattr(cluster, "list", lambda *_words, **_how: ListPage([event], "1"))
    now = [0.0]
    monkeypatch.setattr(pod_visits, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    starts = pod_visits._Starts(t.cast("t.Any", cluster), "team")
    phases = []
    for now[0] in (0.0, 1.0, 3.0, 15.0, 24.0):
        phases.append(starts.rule(t.cast("t.Any", pod)).phase)
    assert phases == ["waiting", "waiting", "waiting", "waiting", "done"]
    assert 'no runtime for "nvidia"' in starts.causes["j"].text


def test_pods_that_are_waited_for_are_told_of_with_what_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(warning="exceeded quota: small")
    now, said = [0.0], []
    monkeypatch.setattr(pod_visits, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    starts = pod_visits._Starts(t.cast("t.Any", cluster), "team")
    spoken = pod_visits._Spoken(starts, {"a": "j", ANY_NODE: "k"}, 300, said.append)
    for now[0] in (1.0, 14.0, 16.0, 20.0, 31.0):
        spoken.rule(t.cast("t.Any", JOB))
    where = "waiting for the pods on a, the node that the scheduler chooses"
    assert [line.partition(" s): ")[0] for line in said] == [f"{where} (16 of 300", f"{where} (31 of 300"]
    assert all("the namespace's quota is used up" in line for line in said)


def test_what_is_read_of_each_pod_and_its_error_are_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"phase": "Succeeded"}, {"phase": "Pending"})
    monkeypatch.setattr(pod_visits, "apply", lambda _client, objects: cluster.made.extend(objects))
    monkeypatch.setattr(pod_visits.wait, "wait", lambda *_words, **_how: None)
    objects: t.Any = [{"kind": "Job", "metadata": {"name": name}} for name in ("j-0", "j-1")]
    jobs = {"a": "j-0", "b": "j-1"}
    client = t.cast("t.Any", cluster)
    answers, errors = pod_visits.run_jobs(client, "x", objects, "s=1", jobs, lambda node, _pod: node.upper(), 7)
    assert answers == {"a": "A"} and errors["b"].message.endswith("its pod did not end within 7 s")
    assert cluster.deleted == ["Job j-0", "Job j-1"]
