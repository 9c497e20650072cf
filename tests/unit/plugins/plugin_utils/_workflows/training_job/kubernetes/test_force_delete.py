# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods are taken off their nodes by force, and which are not."""

from __future__ import annotations

import datetime
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import force_delete
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.force_delete import (
    ForcedDeletions,
)

Dict = dict[str, t.Any]
DEADLINE = "2026-11-21T10:00:00Z"
AT = 1795255200.0


class Cluster:
    """Nodes by the status of their condition Ready; None: they may not be read."""

    def __init__(self, **nodes: str | None) -> None:
        self.nodes = nodes
        self.server_time: float | None = None
        self.transport = types.SimpleNamespace(stats=types.SimpleNamespace(server_time=lambda: self.server_time))
        self.asked: list[str] = []
        self.deleted: list[tuple[str, str, int]] = []
        self.patched: list[tuple[str, Dict]] = []
        self.may_patch = True

    def get(self, _kind: str, name: str) -> Dict | None:
        self.asked.append(name)
        if self.nodes.get(name, "") is None:
            raise KubeError(name, "forbidden", status=403)
        if name not in self.nodes:
            return None
        return {"status": {"conditions": [{"type": "Ready", "status": self.nodes[name]}]}}

    def patch(self, _kind: str, _name: str, body: Dict, _space: str, *, how: str, subresource: str) -> None:
        if not self.may_patch:
            raise KubeError("x", "forbidden", status=403)
        uid = body["metadata"]["uid"]
        assert (how, subresource) == ("strategic", "status") and uid not in {uid for _, uid, _ in self.deleted}
        self.patched.append((uid, body["status"]))

    def delete(self, _kind: str, name: str, _space: str, *, uid: str, grace_s: int) -> bool:
        self.deleted.append((name, uid, grace_s))
        return True


class Said:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.say = self.lines.append


def pod(name: str, node: str, leaving: bool = True, ready: str = "False") -> Dict:
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}"}
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "node", "state": {"running": {}}}],
    }
    return {
        "metadata": {**meta, **({"deletionTimestamp": DEADLINE} if leaving else {})},
        "spec": {"nodeName": node},
        "status": status,
    }


def look(cluster: Cluster, *pods: Dict) -> list[str]:
    return ForcedDeletions(t.cast(t.Any, cluster), t.cast(t.Any, Said())).force_delete(pods)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(force_delete.time, "time", lambda: AT + 10)


def test_a_leaving_pod_goes_when_its_node_is_silent_or_gone() -> None:
    cluster = Cluster(up="True", ill="False", silent="Unknown")
    pods = [pod(name, name) for name in ("up", "ill", "silent", "gone")]
    assert look(cluster, *pods) == ["u-silent", "u-gone"]
    assert cluster.deleted == [("silent", "u-silent", 0), ("gone", "u-gone", 0)]


def test_a_leaving_pod_that_has_no_node_is_no_lost_node() -> None:
    """The controller that counts it holds it for a moment."""
    cluster = Cluster(up="True")
    pending = pod("pending", "")
    assert look(cluster, pending) == [] and cluster.deleted == [] and cluster.asked == []
    del pending["spec"]["nodeName"]
    assert look(cluster, pending) == []


def test_a_pod_that_is_taken_off_has_failed_first_where_one_may_say_so() -> None:
    """The engine's policy looks at failed pods only: a loss would else count as a crash."""
    cluster = Cluster(silent="Unknown")
    assert look(cluster, pod("a", "silent")) == ["u-a"]
    ((uid, status),) = cluster.patched
    assert (uid, status["phase"], status["conditions"][0]["type"]) == ("u-a", "Failed", "DisruptionTarget")
    limited = Cluster(silent="Unknown")
    limited.may_patch = False
    assert look(limited, pod("a", "silent")) == ["u-a"] and limited.deleted


def test_a_pod_that_nobody_asked_to_go_stays() -> None:
    cluster = Cluster(silent="Unknown")
    assert look(cluster, pod("a", "silent", leaving=False)) == []
    assert cluster.asked == [] and cluster.deleted == []


def test_without_a_word_on_the_node_the_pods_own_deadline_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(Cluster(x=None), pod("a", "x")) == []
    monkeypatch.setattr(force_delete.time, "time", lambda: AT + 31)
    assert look(Cluster(x=None), pod("a", "x")) == ["u-a"]
    assert look(Cluster(x=None), pod("a", "x", ready="True")) == []


def test_a_server_that_does_not_answer_proves_nothing() -> None:
    class Away(Cluster):
        def get(self, _kind: str, name: str) -> Dict | None:
            raise KubeError(name, "away", status=503)

    assert look(Away(), pod("a", "x")) == []


def test_each_pod_is_forced_once_and_nodes_are_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said, clock = Cluster(silent="Unknown"), Said(), [100.0]
    monkeypatch.setattr(force_delete.time, "monotonic", lambda: clock[0])
    evictions = ForcedDeletions(t.cast(t.Any, cluster), t.cast(t.Any, said))
    assert evictions.force_delete([pod("a", "silent")]) == ["u-a"]
    assert evictions.force_delete([pod("a", "silent"), pod("b", "silent")]) == []
    clock[0] += 3
    assert evictions.force_delete([pod("a", "silent"), pod("b", "silent")]) == ["u-b"]
    assert cluster.asked == ["silent", "silent"]
    assert said.lines[0] == "silent does not answer: a was force-deleted"


def test_a_controller_whose_clock_is_ahead_takes_no_pod_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of pods are of the cluster's clock."""
    monkeypatch.setattr(force_delete.time, "time", lambda: AT + 7200)
    cluster = Cluster(x=None)
    cluster.server_time = AT + 10
    assert look(cluster, pod("a", "x")) == []
    cluster.server_time = AT + 31
    assert look(cluster, pod("a", "x")) == ["u-a"]


def test_a_pod_that_finalizers_keep_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], Said()
    monkeypatch.setattr(force_delete.time, "monotonic", lambda: clock[0])
    forced = ForcedDeletions(t.cast(t.Any, Cluster(up="True")), t.cast(t.Any, said))
    kept, own = pod("a", "up", ready="True"), pod("b", "up", ready="True")
    kept["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "example.org/held"]
    own["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    for at in (AT + 10, AT + 31, AT + 40):
        monkeypatch.setattr(force_delete.time, "time", lambda at=at: at)
        assert forced.force_delete([kept, own]) == []
        clock[0] += 3
    words = "a was deleted and still exists, finalizers: example.org/held; check the controller that removes them"
    assert said.lines == [words]


def running(asked_s: float, begun_s: float, grace_s: int = 60) -> Dict:
    """A pod that was asked to end at a time, and whose program began at another one."""

    def stamp(seconds: float) -> str:
        return datetime.datetime.fromtimestamp(AT + seconds, datetime.UTC).isoformat()

    found = pod("a", "up", ready="True")
    found["metadata"] |= {"deletionTimestamp": stamp(asked_s + grace_s), "deletionGracePeriodSeconds": grace_s}
    found["status"]["containerStatuses"] = [{"name": "node", "state": {"running": {"startedAt": stamp(begun_s)}}}]
    return found


@pytest.mark.parametrize(
    ("value", "now", "is_deaf"),
    [
        (running(0.0, -0.5), 6.0, True),
        # Asked while its image was pulled.
        (running(0.0, 20.0), 26.0, True),
        # It may still end by itself.
        (running(0.0, -0.5), 3.0, False),
        (running(0.0, 20.0), 22.0, False),
        # It was reached, and saves.
        (running(0.0, -30.0), 40.0, False),
        # Its time is over already.
        (running(0.0, -0.5, grace_s=1), 6.0, False),
        (pod("a", "up"), 6.0, False),
    ],
)
def test_a_program_that_was_asked_to_end_as_it_began_did_not_hear_it(value: Dict, now: float, is_deaf: bool) -> None:
    """Linux drops a signal to a container's first process that has no handler yet."""
    assert force_delete.is_deaf(t.cast(t.Any, value), AT + now) is is_deaf


def test_such_a_pod_is_given_no_more_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(up="True")
    monkeypatch.setattr(force_delete, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(force_delete, "cluster_time", lambda *_: AT + 8.0)
    said = Said()
    deletions = ForcedDeletions(t.cast(t.Any, cluster), t.cast(t.Any, said))
    for _turn in range(2):
        assert deletions.force_delete([t.cast(t.Any, running(0.0, 0.0))]) == []
    assert cluster.deleted == [("a", "u-a", 1)] and said.lines == [] and deletions.forced == set()
