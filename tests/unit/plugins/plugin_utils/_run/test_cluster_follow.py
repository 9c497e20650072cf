# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the news of a cluster make of a run: told events, no cluster. The real one is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import queue
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node.pod_output import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.watch import Event
from ansible_collections.muster.training.plugins.plugin_utils._run import cluster_follow
from ansible_collections.muster.training.plugins.plugin_utils._run.cluster_follow import ClusterFollower
from ansible_collections.muster.training.plugins.plugin_utils._run.follow import Outcome

Dict = dict[str, t.Any]
MAIN: Dict = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "r", "uid": "main"}}


class Progress:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        del values


def stamped(number: int) -> tuple[str, int]:
    """Return the place of a line of a log."""
    return f"2026-11-21T10:00:{number:02}Z", 1


class Told:
    """News that a test tells instead of a cluster."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, t.Any]] = queue.Queue()
        self.main = MAIN
        self.plan = types.SimpleNamespace(name="r", namespace="n", run_id="r", queue="main")
        self.threads: dict[str, t.Any] = {}
        self.ended: list[str] = []
        self.deleted: list[str] = []
        self.dropped: list[str] = []
        self.outage, self.late = False, False
        silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        self.client = types.SimpleNamespace(
            delete=lambda _kind, name, *_a, **_k: self.deleted.append(name),
            get=lambda *_a: silent,
            apply=lambda *_a, **_k: None,
            line=types.SimpleNamespace(recovering=lambda: self.outage),
        )

    def start(self) -> None:
        return

    def close(self) -> None:
        return

    def deadline_passed(self) -> bool:
        return self.late

    def reading(self) -> bool:
        return False

    def follow_log(self, pod: Dict, after: t.Any) -> None:
        self.threads[f"log-{pod['metadata']['uid']}"] = after

    def container_ended(self, uid: str) -> None:
        self.ended.append(uid)

    def drop_log(self, uid: str) -> None:
        self.dropped.append(uid)

    def tell_main(self, condition: str | None = None, kind: t.Any = "MODIFIED", **status: t.Any) -> None:
        conditions = [{"type": condition, "status": "True", "reason": "Because"}] if condition else []
        self.heard.put(("main", Event(kind, {**MAIN, "status": {**status, "conditions": conditions}})))

    def tell_pod(
        self,
        uid: str,
        state: str = "running",
        node: str = "node-1",
        kind: t.Any = "MODIFIED",
        leaving: bool = False,
        **more: t.Any,
    ) -> None:
        status = {
            "phase": "Running",
            "containerStatuses": [{"name": "node", "imageID": "sha256:1", "state": {state: {}}}],
        }
        limits = {"name": "node", "resources": {"limits": {"memory": "2Gi"}}}
        spec = {"nodeName": node, "containers": [limits]}
        pod: Dict = {"metadata": {"name": f"r-{uid}", "namespace": "n", "uid": uid}, "spec": spec}
        if leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        self.heard.put(("pod", Event(kind, {**pod, "status": {**status, **more}})))

    def tell_rank(self, uid: str, number: int, rank: int, kind: str = "worker_started", **values: t.Any) -> None:
        data = {"at": time.time(), "kind": kind, "rank": rank, "node": "node-1", "attempt": 1, "gang": "1/a", **values}
        line = MARK + json.dumps({"stream": "events", "data": data})
        self.heard.put(("line", (uid, stamped(number), line.encode())))


def follow(tmp_path: pathlib.Path, told: Told, **job: t.Any) -> tuple[Outcome, ClusterFollower, Progress]:
    """Follow a run of two pods through what was told."""
    values: Dict = {
        "name": "r",
        "nodes": 2,
        "image": "i",
        "launcher": "command",
        "command": ["true"],
        "placement": {"backend": "kubernetes"},
        **job,
    }
    progress = Progress()
    follower = ClusterFollower(
        parse_job(values), "r", tmp_path, t.cast(t.Any, told), progress, lambda _follower: None, None
    )
    return follower.run(), follower, progress


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(cluster_follow, "_IDLE_S", 0.01)
    return Told()


def test_lines_of_pods_become_events_metrics_and_logs(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 1, world_size=2)
    told.heard.put(("line", ("a", stamped(3), b"hello \xff")))
    told.heard.put(
        ("line", ("a", stamped(4), (MARK + '{"stream": "metrics", "data": {"at": 1e10, "step": 7}}').encode()))
    )
    told.heard.put(("line", ("a", stamped(5), (MARK + "torn").encode())))
    told.tell_main("Completed")
    outcome, follower, _ = follow(tmp_path, told)
    assert outcome == Outcome("succeeded", 0, "succeeded", "all ranks ended with exit code 0")
    assert follower.story.ranks_seen() == 2 and follower.story.last["step"] == 7
    assert (tmp_path / "logs" / "node-1.log").read_text() == "hello \ufffd\n"
    assert json.loads((tmp_path / "offsets.json").read_text()) == {"a": {"stamp": "2026-11-21T10:00:05Z", "same": 1}}
    assert follower.image_ids == {"sha256:1"} and follower.admitted_at is not None


def test_a_log_is_taken_up_after_the_last_line_that_was_read(tmp_path: pathlib.Path, told: Told) -> None:
    (tmp_path / "offsets.json").write_text('{"a": {"stamp": "2026-11-21T10:00:12Z", "same": 2}}')
    told.tell_pod("a")
    told.tell_pod("b", "terminated")
    told.tell_main("Completed")
    follow(tmp_path, told)
    assert told.threads == {"log-a": ("2026-11-21T10:00:12Z", 2), "log-b": None} and told.ended == ["b"]


def test_a_pod_that_was_taken_away_is_a_lost_node(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "gone"}
    told.tell_pod("a", conditions=[taken])
    told.tell_pod("a", conditions=[taken])
    told.tell_main("Failed")
    outcome, follower, progress = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause, outcome.node) == ("lost", "node_lost", "node-1")
    assert [fault[1:] for fault in follower.story.faults] == [("node_lost", "node-1")]
    assert progress.said.count("node-1: r-a was taken away: DeletionByTaintManager") == 1


def test_a_pod_that_its_node_cannot_let_go_is_taken_off(tmp_path: pathlib.Path, told: Told) -> None:
    """The engine asked for its removal and the node is silent: the gang would wait for it for ever."""
    told.tell_pod("a")
    told.tell_pod("b", node="node-2")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_pod("a", leaving=True)
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, follower, progress = follow(tmp_path, told)
    assert told.deleted == ["r-a"] and told.dropped == ["a"]
    assert [fault[1:] for fault in follower.story.faults] == [("node_lost", "node-1")]
    assert "node-1: does not answer, r-a is taken off it" in progress.said


def test_lost_nodes_have_a_budget_of_their_own(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main(restarts=3, restartsCountTowardsMax=1)
    outcome, _, _ = follow(tmp_path, told, restart={"max_lost_nodes": 1})
    assert (outcome.outcome, outcome.cause) == ("lost", "node_lost")


def test_a_failed_rank_is_named_with_its_code(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=3)
    told.tell_main("Failed")
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.exit_code, outcome.cause, outcome.node) == ("failed", 3, "crash", "node-1")


def test_a_fatal_code_ends_the_run_whatever_the_engine_makes_of_it(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=42)
    outcome, _, _ = follow(tmp_path, told, restart={"fatal_exit_codes": [42]})
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 42, "fatal_exit_code")


def test_a_job_whose_time_to_live_is_over_has_ended_as_it_did(tmp_path: pathlib.Path, told: Told) -> None:
    """Its removal is no cancellation, whether its end was heard of before or comes with it."""
    told.tell_main("Completed")
    told.tell_main("Completed", kind="DELETED")
    assert follow(tmp_path, told)[0].outcome == "succeeded"
    told.tell_main("Failed", kind="DELETED")
    assert follow(tmp_path, told)[0].outcome == "failed"
    told.tell_main(kind="DELETED")
    assert follow(tmp_path, told)[0].outcome == "cancelled"


def test_a_container_that_was_killed_for_its_memory_is_named(tmp_path: pathlib.Path, told: Told) -> None:
    """It went with what records its ranks: nobody else says so."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    end = {"name": "node", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    for _ in range(2):
        told.tell_pod("a", "terminated", containerStatuses=[end], phase="Failed")
    told.tell_main("Failed")
    outcome, _, progress = follow(tmp_path, told)
    words = "the container on node-1 was killed for its memory (OOMKilled, limit 2Gi)"
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 137, "out_of_memory")
    assert outcome.detail.startswith(words) and outcome.node == "node-1"
    assert progress.said.count(words) == 1


@pytest.mark.parametrize(
    ("reason", "message", "ends"),
    [
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: i: not found', "image"),
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: 401 Unauthorized', "image"),
        ("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: 429: toomanyrequests', ""),
        ("ImagePullBackOff", 'Back-off pulling image "i": dial tcp 10.0.0.1:443: i/o timeout', ""),
        ("ErrImagePull", "i: not found", ""),
        ("CreateContainerError", "exec format error", "container"),
    ],
)
def test_what_no_waiting_mends_ends_a_run_that_never_started(
    tmp_path: pathlib.Path, told: Told, reason: str, message: str, ends: str
) -> None:
    waits = {"name": "node", "state": {"waiting": {"reason": reason, "message": message}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    if not ends:
        threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, _ = follow(tmp_path, told)
    assert outcome.cause == (ends or "succeeded") and (message in outcome.detail) == bool(ends)


def test_a_registry_that_stays_away_is_an_end(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_follow, "_IMAGE_AWAY_S", 0.2)
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "dial tcp: no such host"}}}
    news: Dict = {"containerStatuses": [waits], "phase": "Pending"}
    told.tell_pod("a", "waiting", **news)
    threading.Timer(0.4, lambda: told.tell_pod("a", "waiting", **news)).start()
    outcome = follow(tmp_path, told)[0]
    assert (outcome.outcome, outcome.cause) == ("failed", "image")


def test_what_was_said_of_a_run_of_this_name_before_is_old_news(tmp_path: pathlib.Path, told: Told) -> None:
    told.main = {**MAIN, "metadata": {**MAIN["metadata"], "creationTimestamp": "2026-11-21T10:00:00Z"}}
    said = warning("r-node-0", "FailedCreate", 'violates PodSecurity "restricted:latest"', "Job")
    told.heard.put(("event", Event("ADDED", {**said, "lastTimestamp": "2026-11-21T09:59:00Z"})))
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded" and not any("PodSecurity" in line for line in progress.said)


def test_a_run_that_was_gone_before_anybody_looked_is_cancelled(tmp_path: pathlib.Path, told: Told) -> None:
    """Then no watch tells that it was deleted: the first listing does, by leaving it out."""
    told.heard.put(("main", Event("SYNCED", {})))
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.detail) == ("cancelled", "the JobSet was deleted")


def test_what_is_refused_just_after_an_outage_is_no_end(tmp_path: pathlib.Path, told: Told) -> None:
    told.outage = True
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "i: not found"}}}
    told.tell_pod("a", "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.cause == "succeeded" and any("i: not found" in line for line in progress.said)


def test_a_gang_whose_time_is_over_has_not_crashed(tmp_path: pathlib.Path, told: Told) -> None:
    """Its Job ends it and its ranks say with what code they went; who restarts gangs says only that a Job failed."""
    told.late = True
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=143)
    told.tell_main("Failed")
    outcome, _, _ = follow(tmp_path, told, timeout_s=3600)
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 124, "timeout")
    assert outcome.detail.startswith("timeout_s (3600 s) has passed")


def test_a_claim_that_gets_no_volume_says_why(tmp_path: pathlib.Path, told: Told) -> None:
    """By events of its own, of which those of other claims are none of the run's."""
    for name in ("data", "foreign"):
        about = {"kind": "PersistentVolumeClaim", "namespace": "n", "name": name, "uid": name}
        value = {"type": "Warning", "reason": "ProvisioningFailed", "message": "no such class", "involvedObject": about}
        told.heard.put(("event", Event("ADDED", {"metadata": {"uid": name}, **value})))
    told.tell_main("Completed")
    _, _, progress = follow(tmp_path, told, mounts=[{"name": "d", "path": "/d", "pvc": "data"}])
    assert [line for line in progress.said if "no such class" in line] == [
        "PersistentVolumeClaim n/data: a volume is missing: ProvisioningFailed: no such class"
    ]


def test_an_image_that_is_gone_does_not_end_a_run_that_has_worked(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    waits = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    told.tell_pod("b", "waiting", containerStatuses=[waits], phase="Pending")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    assert follow(tmp_path, told)[0].outcome == "succeeded"


def test_a_pod_that_did_not_start_its_program_says_why(tmp_path: pathlib.Path, told: Told) -> None:
    """No rank tells it: the run's end does, unless ranks started after it."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=1)
    told.tell_rank("a", 3, 0, "pod_refused", exit_code=74, detail="/c has 0 MiB free, 64 MiB are needed")
    told.tell_main("Failed")
    outcome, _, progress = follow(tmp_path, told)
    assert (outcome.outcome, outcome.exit_code) == ("failed", 74)
    assert outcome.detail == "node-1: /c has 0 MiB free, 64 MiB are needed"
    assert any("did not start its program: /c has 0 MiB free" in line for line in progress.said)


def test_the_time_limit_counts_over_restarts(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_follow, "_OWN_DEADLINE_S", -1.5)
    told.tell_pod("a")
    outcome, _, _ = follow(tmp_path, told, timeout_s=1)
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 124, "timeout")


def test_a_run_that_somebody_deleted_is_cancelled(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main(kind="DELETED")
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.detail) == ("cancelled", "the JobSet was deleted")


def warning(name: str, reason: str, message: str, kind: str = "Pod") -> Dict:
    """An event of the cluster."""
    return {
        "type": "Warning",
        "involvedObject": {"kind": kind, "name": name, "namespace": "n"},
        "reason": reason,
        "message": message,
    }


def test_what_keeps_it_from_starting_is_said_once(tmp_path: pathlib.Path, told: Told) -> None:
    """Once for each thing, whether its event or the pod itself says it, and nothing of other runs or of the probe."""
    pull = warning("r-a", "Failed", "Failed to pull image")
    told.heard.put(("event", Event("ADDED", pull)))
    told.heard.put(("event", Event("ADDED", warning("r-a", "BackOff", "Back-off pulling image"))))
    told.heard.put(("event", Event("ADDED", warning("r-node-0", "FailedCreate", "exceeded quota: q", "Job"))))
    for name in ("other", "r2-node-0", "r-probe-0"):
        told.heard.put(("event", Event("ADDED", warning(name, "FailedMount", "not ours"))))
    told.heard.put(("event", Event("ADDED", warning("r-a", "Unhealthy", "in every run"))))
    waits = [{"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "again"}}}]
    told.tell_pod("a", "waiting", phase="Pending", containerStatuses=waits)
    told.tell_pod("b", "waiting", phase="Pending", containerStatuses=[], conditions=[])
    owner = {
        "kind": "Workload",
        "metadata": {"name": "jobset-r", "namespace": "n", "ownerReferences": [{"uid": "main"}]},
    }
    pending = {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no room"}]}
    value = {"apiVersion": "kueue.x-k8s.io/v1beta2", **owner, "status": pending}
    told.heard.put(("workload", Event("ADDED", value)))
    told.tell_main("Completed")
    _, follower, progress = follow(tmp_path, told)
    causes = [line for line in progress.said if not line.startswith("ranks")]
    assert causes == [
        "Pod n/r-a: its image cannot be pulled: Failed: Failed to pull image",
        "Job n/r-node-0: the namespace's quota is used up: FailedCreate: exceeded quota: q",
        "Workload n/jobset-r: it waits in its queue: is queued: Pending: no room",
    ]
    kept = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["detail"] for line in kept if line["kind"] == "cluster"] == causes
    assert follower.run_id == "r"


def test_a_suspended_job_that_no_queue_knows_is_named(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_follow, "_UNQUEUED_S", -1.0)
    told.tell_main("Suspended")
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, _, progress = follow(tmp_path, told)
    found = [line for line in progress.said if line.startswith("JobSet r: it waits in its queue: is suspended")]
    assert len(found) == 1 and "Kueue has made no Workload of it" in found[0]


def test_a_broken_source_ends_following_with_its_reason(tmp_path: pathlib.Path, told: Told) -> None:
    told.heard.put(("error", ("event", RuntimeError("x"))))
    with pytest.raises(RuntimeError):
        follow(tmp_path, told)
