# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run waits for: its place, taken away and given back; pods that end before any rank began."""

from __future__ import annotations

import json
import pathlib
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    follower as kubernetes_follower,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    pending,
    timestamps,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import run_end
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.timestamps import (
    admission_time,
)
from ansible_collections.muster.training.tests.support.told_cluster import MAIN, Told, follow, follower_of

Dict = dict[str, t.Any]
ROOM = "couldn't assign flavors to pod set node"
PUSHED = "Preempted to accommodate a workload (UID: 1) due to prioritization in the ClusterQueue"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(kubernetes_follower, "_IDLE_S", 0.01)
    return Told()


def workload(told: Told, *conditions: Dict) -> None:
    meta = {"name": "jobset-r", "namespace": "n", "ownerReferences": [{"uid": "main"}]}
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": meta}
    told.heard.put(("workload", WatchEvent("MODIFIED", {**value, "status": {"conditions": list(conditions)}})))


def queued(message: str) -> Dict:
    return {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}


def preempt(told: Told) -> None:
    """A run that has queued and run loses its place to another one."""
    workload(told, queued(ROOM))
    workload(told, {"type": "Admitted", "status": "True"})
    told.tell_main()
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    workload(told, queued(PUSHED), {"type": "Evicted", "status": "True", "reason": "Preempted"})
    told.tell_main("Suspended")


def test_a_run_that_loses_its_place_says_so_and_waits(tmp_path: pathlib.Path, told: Told) -> None:
    preempt(told)
    follower, progress = follower_of(tmp_path, told)
    states: list[Dict] = []

    def resume() -> None:
        states.append(follower.state())
        told.tell_main("Completed")

    threading.Timer(0.3, resume).start()
    follower.run()
    assert [line.rpartition("queue: ")[2] for line in progress.lines if line.startswith("Workload")] == [
        f"is queued: Pending: {ROOM}",
        f"is queued: Pending: {PUSHED}",
    ]
    assert "the run was preempted: it is queued again" in progress.lines
    assert (states[0]["waiting"], states[0]["ranks"]) == ("queued", 0)
    assert follower.story.attempts[0].fault == ("preempted", None)
    kept = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["cause"] for line in kept if line["kind"] == "set_back"] == ["preempted"]


def test_the_time_limit_does_not_count_while_a_run_has_no_place(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "_OWN_DEADLINE_S", -0.5)
    preempt(told)
    threading.Timer(1.0, lambda: told.tell_main("Completed")).start()
    outcome, follower, _ = follow(tmp_path, told, timeout_s=1)
    assert outcome.outcome == "succeeded" and follower.admitted_at is None


def test_pods_that_are_leaving_bring_no_place_back(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that follows again sees them for the first time."""
    monkeypatch.setattr(run_end, "_OWN_DEADLINE_S", -0.5)
    told.tell_main("Suspended")
    old = [{"name": "node", "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}}]
    told.tell_pod("a", containerStatuses=old, leaving=True)
    threading.Timer(0.8, lambda: told.tell_main("Completed")).start()
    outcome, follower, _ = follow(tmp_path, told, timeout_s=1)
    assert outcome.outcome == "succeeded" and follower.admitted_at is None and follower.story.set_back == []


@pytest.mark.parametrize("queue", [None, "main"])
def test_a_run_that_is_suspended_out_of_sight_says_so(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch, queue: str | None
) -> None:
    """By a queue that this user may not see, or by somebody's hand."""
    monkeypatch.setattr(pending, "_UNQUEUED_S", -1.0)
    told.plan.queue = queue
    meta = dict(MAIN["metadata"])
    if queue:
        meta["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        told.heard.put(("error", ("workload", kubernetes_follower.MusterError("may not be read"))))
    suspended = {**MAIN, "metadata": meta, "spec": {"suspend": True}, "status": {}}
    told.heard.put(("main", WatchEvent("MODIFIED", suspended)))
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, _, progress = follow(tmp_path, told)
    found = [line for line in progress.lines if "JobSet r" in line]
    assert len(found) == 1
    assert ("or a user has suspended it" if queue else "stopped by a user or another program") in found[0]


def test_what_ranks_say_when_they_are_told_to_end_is_heard(tmp_path: pathlib.Path, told: Told) -> None:
    """A limit of the run's ends it: its ranks save first."""
    reads = iter([True, True, False])
    told.reading = lambda: next(reads, False)
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.client.delete = lambda *_given, **_named: told.tell_checkpoint("a", 2, 40)
    follower, _ = follower_of(tmp_path, told, lambda: "max_cost_usd is reached")
    assert follower.run().cause == "cost"
    assert follower.story.checkpoint == (40, "/c/40")


def ray(told: Told) -> None:
    told.main = {**MAIN, "apiVersion": "ray.io/v1", "kind": "RayJob", "status": {}}


def ends(told: Told, uid: str, role: str = "head", code: int = 127, **more: t.Any) -> None:
    ended = [{"name": "node", "state": {"terminated": {"exitCode": code}}}]
    told.tell_pod(uid, role=role, containerStatuses=ended, **more)


def test_a_ray_cluster_that_never_comes_up_ends(tmp_path: pathlib.Path, told: Told) -> None:
    """KubeRay makes its head again and again, and warns of nothing."""
    ray(told)
    for name in "abc":
        ends(told, name)
    outcome, _, progress = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == ("failed", "crash")
    assert outcome.detail == "r-c ended before the program began: exit code 127"
    assert [line for line in progress.lines if line.startswith("r-a ended")] and told.deleted == ["r"]


def test_a_ray_cluster_that_loses_its_place_has_not_failed(tmp_path: pathlib.Path, told: Told) -> None:
    """Its pods are told to end; nor has one whose workers went with one lost head."""
    ray(told)
    ends(told, "w1", "worker")
    ends(told, "w2", "worker")
    ends(told, "h1")
    ends(told, "h2", code=143)
    for name in "abc":
        ends(told, name, leaving=True)
    threading.Timer(0.3, lambda: told.heard.put(("main", gone))).start()
    gone = WatchEvent("DELETED", {**told.main})
    outcome, _, _ = follow(tmp_path, told)
    assert outcome.cause == "deleted" and "r" not in told.deleted


def test_an_init_container_that_fails_is_named(tmp_path: pathlib.Path, told: Told) -> None:
    ended = {"name": "code", "state": {"terminated": {"exitCode": 78, "reason": "Error", "message": "no room"}}}
    waits = [{"name": "node", "state": {"waiting": {"reason": "PodInitializing"}}}]
    told.tell_pod("a", containerStatuses=waits, initContainerStatuses=[ended])
    threading.Timer(0.3, lambda: told.tell_main("Failed")).start()
    _, _, progress = follow(tmp_path, told)
    said = "Pod n/r-a: its container cannot be started: code exited with code 78 (Error: no room)"
    assert progress.lines.count(said) == 1


def test_a_run_that_is_taken_up_again_knows_since_when_it_has_its_place(tmp_path: pathlib.Path, told: Told) -> None:
    """Its limit counts from the start of the attempt after it lost its place, not from the first one."""
    begun = time.time() - 1000
    lines: list[Dict] = [
        {"at": begun, "kind": "worker_started", "rank": 0, "node": "n", "attempt": 1, "gang": "1/a"},
        {"at": begun + 100, "kind": "set_back", "cause": "preempted"},
        {"at": begun + 900, "kind": "worker_started", "rank": 0, "node": "n", "attempt": 1, "gang": "1/b"},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert admission_time(follower_of(tmp_path, told)[0].story, begun) == pytest.approx(begun + 900)
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    assert admission_time(follower_of(tmp_path, told)[0].story, begun) is None, "it waits"
    # Another start of the run, which has not lost its place.
    assert admission_time(follower_of(tmp_path, told)[0].story, begun + 500) == begun + 500
    (tmp_path / "events.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert admission_time(follower_of(tmp_path, told)[0].story, begun) == begun


def test_what_the_cluster_dates_is_of_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ended at night and is looked at in the morning ended at night."""
    monkeypatch.setattr(timestamps.time, "time", lambda: 10_000.0)
    assert timestamps.local_time("1970-01-01T02:00:00Z", None) == 7200.0
    assert timestamps.local_time("1970-01-01T02:00:00Z", 9_700.0) == 7500.0, "that clock is five minutes behind ours"
    assert timestamps.local_time("1970-01-01T02:46:30Z", None) == 10_000.0, "just now"
    assert timestamps.local_time(None, None) == timestamps.local_time("soon", 1.0) == 10_000.0


class Listing:
    """A client whose namespace has these events."""

    def __init__(self, *events: tuple[str, str, str]) -> None:
        self.events, self.asked = events, 0

    def list(self, _kind: str, _namespace: str, **_how: t.Any) -> t.Any:
        self.asked += 1
        items = [{"reason": reason, "message": message, "lastTimestamp": at} for at, reason, message in self.events]
        return types.SimpleNamespace(items=items)


def pulling_pod(uid: str = "a", node: str = "node-1", **status: t.Any) -> Dict:
    return {"metadata": {"name": f"r-{uid}", "uid": uid}, "spec": {"nodeName": node},
            "status": {"phase": "Pending", **status}}  # fmt: skip


PULLS = ("2026-11-21T10:00:02Z", "Pulling", 'Pulling image "registry.example:5000/team/train:1"')
WAITS = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}


def test_a_registry_that_does_not_answer_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "_PULLING_S", 0.0)
    pulls = pending.SlowPulls(t.cast(t.Any, Listing(PULLS)), "n")
    found = pulls.find(pulling_pod())
    assert (
        found is not None
        and not found.final
        and found.text
        == (
            "Pod n/r-a: its image is still being pulled: "
            "registry.example:5000/team/train:1, from the registry registry.example:5000, for more than 0 s"
        )
    )
    assert pulls.find(pulling_pod()) is None and pulls.find(pulling_pod("b")) is None


@pytest.mark.parametrize(
    ("pod", "events"),
    [
        (pulling_pod(), [PULLS, ("2026-11-21T10:00:09Z", "Pulled", "Successfully pulled image")]),
        (pulling_pod(), []),
        (pulling_pod(node=""), [PULLS]),
        (pulling_pod(containerStatuses=[WAITS]), [PULLS]),
        (pulling_pod(phase="Running"), [PULLS]),
    ],
    ids=["pulled", "no events", "not placed", "failed", "runs"],
)
def test_only_what_is_being_pulled_is_named(
    pod: Dict, events: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_PULLING_S", 0.0)
    assert pending.SlowPulls(t.cast(t.Any, Listing(*events)), "n").find(pod) is None


def test_events_are_read_when_a_pull_has_lasted() -> None:
    client = Listing(PULLS)
    assert pending.SlowPulls(t.cast(t.Any, client), "n").find(pulling_pod()) is None and client.asked == 0
