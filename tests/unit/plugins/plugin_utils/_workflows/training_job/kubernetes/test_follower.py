# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the news of a cluster make of a run: told events, no cluster. The real one is in tests/lab."""

from __future__ import annotations

import datetime
import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import run_attempt, run_history
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CANCELLED
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import movement
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import follower
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import (
    crash_budget,
    last_lines,
    run_end,
)
from ansible_collections.muster.training.tests.support.told_cluster import (
    MAIN,
    Told,
    follow,
    follower_of,
    stamped,
    warning,
)

Dict = dict[str, t.Any]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    return Told()


def test_lines_of_pods_become_events_metrics_and_logs(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 1, world_size=2)
    told.heard.put(("line", ("a", stamped(3), b"hello \xff")))
    metric = json.dumps({"stream": "metrics", "data": {"at": time.time() + 1, "step": 7}})
    told.heard.put(("line", ("a", stamped(4), (MARK + metric).encode())))
    told.heard.put(("line", ("a", stamped(5), (MARK + "torn").encode())))
    told.tell_main("Completed")
    outcome, follower, _ = follow(tmp_path, told)
    assert outcome == RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")
    assert follower.story.ranks_seen() == 2 and follower.story.last["step"] == 7
    assert (tmp_path / "logs" / "node-1.log").read_text() == "hello \ufffd\n"
    place = {"stamp": "2026-11-21T10:00:05Z", "same": 1, "node": "node-1", "counts": [0, 1]}
    known = json.loads((tmp_path / "offsets.json").read_text())
    sizes = {stream: (tmp_path / f"{stream}.jsonl").stat().st_size for stream in ("events", "metrics")}
    assert known == {"a": place, "": sizes}
    assert follower.image_ids == {"node-1": "sha256:1"} and follower.admitted_at is not None


@pytest.mark.parametrize("cut", ["events", "metrics"])
def test_a_file_that_was_cut_is_read_again_from_the_pods(tmp_path: pathlib.Path, told: Told, cut: str) -> None:
    """Its lines come once more from the logs of the pods; what those printed is not kept twice."""
    metrics = {"step_pattern": r"step (?P<step>\d+)"}
    now = time.time()

    def tell(news: Told) -> None:
        news.tell_pod("a")
        news.tell_rank("a", 1, 0, at=now - 9, world_size=2)
        news.tell_rank("a", 2, 1, at=now - 9, world_size=2)
        for number in range(3, 7):
            news.heard.put(("line", ("a", stamped(number), f"step {number}".encode())))

    tell(told)
    first, _ = follower_of(tmp_path, told, metrics=metrics)
    first.sources = told  # type: ignore[assignment]
    while not told.heard.empty():
        first._take_news()
    place = tmp_path / f"{cut}.jsonl"
    whole = place.read_bytes()
    place.write_bytes(whole[: len(whole) // 3])
    again = Told()
    tell(again)
    for number in (1, 2):
        again.tell_rank("a", 5 + 2 * number, number - 1, "worker_exit", exit_code=0)
    again.tell_main("Completed")
    outcome, follower, progress = follow(tmp_path, again, metrics=metrics)
    assert outcome.outcome == "succeeded" and again.threads == {"log-a": None}
    assert f"warning: {cut}.jsonl of run r was cut: reading it again from the nodes" in progress.lines
    assert (tmp_path / "logs" / "node-1.log").read_text() == "step 3\nstep 4\nstep 5\nstep 6\n"
    assert len(follower.story.attempts) == 1 and follower.story.ranks_seen() == 2
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines() if line[-1:] == "}"
    ]
    assert sorted(steps) == [3, 4, 5, 6]


def test_ranks_that_begin_at_different_steps_end_the_run_with_what_each_pod_had(
    tmp_path: pathlib.Path, told: Told
) -> None:
    """Each node has a folder of its own, and one that was replaced has none of the checkpoints."""
    now = time.time()

    def tell(uid: str, rank: int, gang: str, at: float, steps: t.Sequence[int], checkpoint: str | None) -> None:
        node = f"node-{rank + 1}"
        told.tell_pod(uid, node=node)
        seen = {"detail": checkpoint, "folder": "/local", "gang": None}
        told.tell_rank(uid, 1, rank, "pod_ready", at=at, node=node, **seen)
        told.tell_rank(uid, 2, rank, at=at, node=node, gang=gang, world_size=2, attempt=int(gang[0]))
        for number, step in enumerate(steps):
            metric = json.dumps({"stream": "metrics", "data": {"at": at + 0.1 * (number + 1), "step": step}})
            told.heard.put(("line", (uid, stamped(3 + number), (MARK + metric).encode())))

    for rank in (0, 1):
        tell(f"a{rank}", rank, "1/x", now - 20, range(1, 14), None)
    tell("b0", 0, "2/y", now - 5, [11], "step-10.pt")
    tell("b1", 1, "2/y", now - 5, [1], None)
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause, outcome.node) == ("failed", "uneven_resume", "node-2")
    words = "node-1 began at step 11, node-2 at step 1: node-2 has no checkpoint in /local, node-1 has step-10.pt"
    assert outcome.detail == words


def test_ranks_that_print_that_they_resumed_from_different_steps_end_the_run(
    tmp_path: pathlib.Path, told: Told
) -> None:
    at = datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC).timestamp()
    for rank, step in enumerate((60, 80)):
        told.tell_pod("ab"[rank], node=f"node-{rank + 1}")
        told.tell_rank("ab"[rank], 1, rank, at=at + 1, node=f"node-{rank + 1}", world_size=2)
        told.heard.put(("line", ("ab"[rank], stamped(3), f"resumed from step {step}".encode())))
    outcome, _, _ = follow(tmp_path, told, metrics={"resume_pattern": r"resumed from step (?P<step>\d+)"})
    assert (outcome.outcome, outcome.cause, outcome.node) == ("failed", "uneven_resume", "node-1")
    assert outcome.detail == "node-2 resumed from step 80, node-1 from step 60"


def test_a_log_that_was_never_read_leaves_its_last_lines(tmp_path: pathlib.Path, told: Told) -> None:
    """The pod's status keeps them; what is the recorder's among them is no text."""
    end = {"exitCode": 1, "message": "ValueError: no such thing\n\x1emuster\x1e{}\n"}
    told.tell_pod("a", containerStatuses=[{"name": "node", "state": {"terminated": end}}])
    told.heard.put(("error", ("log-a", KubeError("log of Pod n/r-a", "not found", status=404))))
    told.tell_main("Failed")
    follow(tmp_path, told)
    said = (tmp_path / "logs" / "node-1.log").read_text()
    assert said == "the log's last lines, from the pod's status:\nValueError: no such thing\n"


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
    assert progress.lines.count("node-1: r-a was evicted: DeletionByTaintManager") == 1


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
    assert "node-1 does not answer: r-a was force-deleted" in progress.lines


def test_lost_nodes_have_a_budget_of_their_own(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main(restarts=3, restartsCountTowardsMax=1)
    outcome, _, _ = follow(tmp_path, told, restart={"max_lost_nodes": 1})
    assert (outcome.outcome, outcome.cause) == ("lost", "node_lost")


@pytest.mark.parametrize("late_loss", [False, True], ids=["crash", "late loss"])
def test_crashes_have_a_budget_that_a_loss_noticed_late_does_not_use(
    tmp_path: pathlib.Path, told: Told, late_loss: bool
) -> None:
    """The engine counts both, and may restart for both: the follower ends what crashed too often."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=3)
    if late_loss:
        told.tell_pod("b", node="node-2", leaving=True)
    told.tell_main(restarts=1, restartsCountTowardsMax=1)
    done = threading.Timer(2.5, lambda: told.tell_main("Completed", restarts=1, restartsCountTowardsMax=1))
    done.start()
    outcome, follower, _ = follow(tmp_path, told, restart={"max_crashes": 0, "max_lost_nodes": 2})
    done.cancel()
    if late_loss:
        assert outcome.outcome == "succeeded" and follower.story.lost_nodes == 1, outcome
        return
    assert (outcome.outcome, outcome.cause, outcome.exit_code) == ("failed", "crash", 3), outcome
    assert outcome.detail == "a rank on node-1 exited with code 3 (restart.max_crashes (0) is exceeded)"
    assert told.deleted == ["r"], "the engine would start it once more"


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
    assert follow(tmp_path, told)[0].cause == "deleted"


def test_a_container_that_was_killed_for_its_memory_is_named(tmp_path: pathlib.Path, told: Told) -> None:
    """It went with what records its ranks: nobody else says so."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    end = {"name": "node", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    for _ in range(2):
        told.tell_pod("a", "terminated", containerStatuses=[end], phase="Failed")
    told.tell_main("Failed")
    outcome, _, progress = follow(tmp_path, told)
    words = "the container on node-1 exceeded its memory (OOMKilled, limit 2Gi)"
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 137, "out_of_memory")
    assert outcome.detail.startswith(words) and outcome.node == "node-1"
    assert progress.lines.count(words) == 1
    kills = [line for line in (tmp_path / "events.jsonl").read_text().splitlines() if "container_killed" in line]
    assert len(kills) == 1 and '"exit_code": 137' in kills[0].replace('":137', '": 137')


def test_a_run_that_was_gone_before_anybody_looked_was_deleted(tmp_path: pathlib.Path, told: Told) -> None:
    """Then no watch tells that it was deleted: the first listing does, by leaving it out."""
    told.heard.put(("main", WatchEvent("SYNCED", {})))
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.detail) == ("failed", "JobSet r was deleted, and not by cancel")


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
    assert any("did not start its program: /c has 0 MiB free" in line for line in progress.lines)


def test_a_pod_that_is_stopped_for_another_ones_refusal_does_not_hide_it(tmp_path: pathlib.Path, told: Told) -> None:
    """The engine ends the first pod, which waits for the gang, as the second one has refused."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, "pod_refused", exit_code=78, detail="does not see in /c what node-2 wrote there")
    told.tell_rank("a", 2, 0, "pod_refused", exit_code=143, detail="the gang could not form")
    told.tell_main("Failed")
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.exit_code) == ("failed", 78)
    assert outcome.detail == "node-1: does not see in /c what node-2 wrote there"


def test_the_time_limit_counts_over_restarts(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_end, "_OWN_DEADLINE_S", -1.5)
    told.tell_pod("a")
    outcome, _, _ = follow(tmp_path, told, timeout_s=1)
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 124, "timeout")


@pytest.mark.parametrize("wanted", [False, True])
def test_a_run_whose_object_is_deleted_was_cancelled_only_by_cancel(
    tmp_path: pathlib.Path, told: Told, wanted: bool
) -> None:
    """Whoever cancels says so at the object, which another controller may follow."""
    meta = {**MAIN["metadata"], "annotations": {CANCELLED: "someone"}} if wanted else MAIN["metadata"]
    told.heard.put(("main", WatchEvent("DELETED", {**MAIN, "metadata": meta})))
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause) == (("cancelled", "cancelled") if wanted else ("failed", "deleted"))


class _Ended(Told):
    """A run that ended while nobody followed it: its object says so before its pods are listed and their logs read."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines, self.open = lines, 0
        self.reading = lambda: self.open > 0

    def start(self) -> None:
        self.tell_main("Completed")
        threading.Timer(0.2, self._list).start()

    def _list(self) -> None:
        for uid in "ab":
            self.tell_pod(uid, "terminated", phase="Succeeded")
        self.heard.put(("pod", WatchEvent("SYNCED")))

    def follow_log(self, pod: Dict, after: t.Any) -> None:
        self.open += 1
        super().follow_log(pod, after)
        threading.Thread(target=self._read, args=(pod["metadata"]["uid"],)).start()

    def _read(self, uid: str) -> None:
        for number in range(self.lines):
            if number == self.lines // 2:
                time.sleep(0.3)
            self.heard.put(("line", (uid, stamped(number), f"step={number}".encode())))
        self.tell_rank(uid, 0, "ab".index(uid), world_size=2)
        self.heard.put(("end", (uid, True)))
        self.open -= 1


def test_a_run_that_ended_unseen_is_read_to_its_end(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the time of silence after which what is left is given up; steps are of the time they were made at."""
    monkeypatch.setattr(last_lines, "_QUIET_S", 0.4)
    outcome, follower, _ = follow(tmp_path, _Ended(40), metrics={"step_pattern": r"step=(?P<step>\d+)"})
    assert outcome.outcome == "succeeded" and follower.story.ranks_seen() == 2
    assert (tmp_path / "logs" / "node-1.log").read_text().count("step=") == 80
    steps = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    began = datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC).timestamp()
    assert {line["step"]: line["at"] - began for line in steps} == {number: number for number in range(40)}


def silent(told: Told, uid: str) -> None:
    told.tell_pod(uid, node="node-2", leaving=True)


def test_a_node_that_is_noticed_after_its_ranks_errors_is_lost(tmp_path: pathlib.Path, told: Told) -> None:
    """The engine ends the run at once by a failed rank elsewhere; the lost node's pod stays, and is asked about."""
    answers = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    lost, found = told.client.get, threading.Event()
    told.client.get = lambda *about: lost(*about) if found.is_set() else answers
    for uid, node in (("a", "node-1"), ("b", "node-2")):
        told.tell_pod(uid, node=node)
    for rank, uid in enumerate("ab"):
        told.tell_rank(uid, 1, rank, world_size=2, node=f"node-{rank + 1}")
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=1)
    silent(told, "b")
    told.tell_main("Failed", restarts=1, restartsCountTowardsMax=1)
    threading.Timer(0.5, found.set).start()
    outcome, follower, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.cause, outcome.node) == ("lost", "node_lost", "node-2")
    assert [(item.cause, item.failed_node) for item in follower.story.attempts] == [("node_lost", "node-2")]


def test_a_silent_pod_is_not_waited_for_without_end(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_lines, "_SILENT_S", 0.3)
    told.client.get = lambda *_about: {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=1)
    silent(told, "b")
    told.tell_main("Failed")
    assert follow(tmp_path, told)[0].cause == "crash"


def lost_unseen(tmp_path: pathlib.Path, told: Told) -> None:
    """Two attempts of which nobody followed the end of the first: the pods are gone, the cluster's events are not."""
    now = time.time()
    ranks = [
        {"kind": "worker_started", "rank": rank, "node": f"node-{rank + 1}", "attempt": n, "gang": str(n)}
        for n in (1, 2)
        for rank in (0, 1)
    ]
    failed: Dict = {**ranks[0], "kind": "worker_exit", "exit_code": 1, "at": now - 500}
    lines = [{**item, "at": now - 1000 + 600 * (item["attempt"] - 1)} for item in ranks]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, failed]))
    kept = {"a": {"stamp": "2026-11-21T10:00:00Z", "same": 1, "node": "node-2"}}
    (tmp_path / "offsets.json").write_text(json.dumps(kept))
    noticed = datetime.datetime.fromtimestamp(now - 460, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = warning("r-node-0-1-x7k2p", "NodeNotReady", "Node is not ready")
    said["involvedObject"]["uid"] = "a"
    told.heard.put(("event", WatchEvent("ADDED", {**said, "lastTimestamp": noticed})))


def test_a_lost_node_that_nobody_saw_is_known_by_the_clusters_events(tmp_path: pathlib.Path, told: Told) -> None:
    """Its budget is that of lost nodes, whatever the engine counted; who follows next says it no second time."""
    lost_unseen(tmp_path, told)
    for _time in range(2):
        told.tell_main(restarts=1, restartsCountTowardsMax=1)
        threading.Timer(0.3, lambda: told.tell_main("Completed", restarts=1, restartsCountTowardsMax=1)).start()
        outcome, follower, _ = follow(tmp_path, told)
        assert outcome.outcome == "succeeded"
        assert [(item.cause, item.failed_node) for item in follower.story.attempts] == [
            ("node_lost", "node-2"),
            (None, None),
        ]
        assert (follower.story.lost_nodes, follower.story.crashes) == (1, 0)
        said = warning("r-node-0-1-x7k2p", "NodeNotReady", "Node is not ready")
        told.heard.put(("event", WatchEvent("ADDED", said)))
    assert (tmp_path / "events.jsonl").read_text().count("node_not_ready") == 1


def test_lost_nodes_that_the_engine_took_for_crashes_use_their_own_budget(tmp_path: pathlib.Path, told: Told) -> None:
    rules = follower_of(tmp_path, told, restart={"max_lost_nodes": 2})[0].rules
    main = {**MAIN, "status": {"restarts": 1, "restartsCountTowardsMax": 1}}
    attempts = [run_attempt.Attempt(n, float(n), fault=("node_lost", "node-2"), followed=n < 3) for n in (1, 2, 3)]
    story = run_history.RunHistory()
    story.attempts = attempts
    found = rules.own_end(main, story, None)
    assert found is not None and (found.outcome, found.cause) == ("lost", "node_lost")


def test_a_pod_that_was_deleted_by_force_is_the_cause_of_its_attempts_end(tmp_path: pathlib.Path, told: Told) -> None:
    """Its node confirms no end and its ranks tell none; pods that an engine takes away end by their nodes' word."""
    for uid in "ab":
        told.tell_pod(uid)
        told.tell_rank(uid, 1, "ab".index(uid), world_size=2)
    # What counts a Job's pods keeps it for a moment, and its kubelet ends it meanwhile.
    told.tell_pod("a", leaving=True, grace_s=0)
    told.tell_pod("a", leaving=True, grace_s=0, kind="DELETED", phase="Failed")
    told.tell_rank("b", 2, 1, "worker_exit", exit_code=1)
    told.tell_pod("b", leaving=True, grace_s=30)
    told.tell_pod("b", leaving=True, grace_s=0, kind="DELETED", phase="Failed")
    told.tell_main("Completed")
    _, follower, progress = follow(tmp_path, told)
    assert [(item.cause, item.failed_node) for item in follower.story.attempts] == [("pod_deleted", "node-1")]
    assert [line for line in progress.lines if "by force" in line] == [
        "node-1: r-a was deleted by force, and not by this collection"
    ]


def test_a_broken_source_ends_following_with_its_reason(tmp_path: pathlib.Path, told: Told) -> None:
    told.heard.put(("error", ("event", RuntimeError("x"))))
    with pytest.raises(RuntimeError):
        follow(tmp_path, told)


def test_ranks_of_an_attempt_that_is_over_are_not_shown(tmp_path: pathlib.Path, told: Told) -> None:
    """Its pods are gone and no others may come for long: its ranks do not run."""
    follower, _ = follower_of(tmp_path, told)
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    shown: list[Dict] = []

    def end() -> None:
        shown.append(follower.state())
        told.tell_main("Completed")

    threading.Timer(0.3, lambda: (shown.append(follower.state()), told.tell_pod("a", kind="DELETED"))).start()
    threading.Timer(0.6, end).start()
    follower.run()
    assert [(state["nodes"], state["ranks"]) for state in shown] == [(1, 1), (0, 0)]
    assert follower.story.ranks_seen() == 1


UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are "
    "available: 2 Preemption is not helpful for scheduling.",
}


def take_all(follower: follower.ClusterFollower, told: Told) -> None:
    follower.sources = told  # type: ignore[assignment]
    while not told.heard.empty():
        follower._take_news()


def test_a_gang_that_lost_a_machine_waits_for_one_and_none_of_its_ranks_runs(
    tmp_path: pathlib.Path, told: Told
) -> None:
    """The pods of the attempt that ended are gone; one of the next is placed, and waits for the other one."""
    following, _ = follower_of(tmp_path, told)
    for uid in "ab":
        told.tell_pod(uid, node=f"node-{uid}")
        told.tell_rank(uid, 1, "ab".index(uid), node=f"node-{uid}", world_size=2)
    take_all(following, told)
    assert (following.state()["ranks"], following.state()["waiting"], following.is_between) == (2, "", False)
    for uid in "ab":
        told.tell_pod(uid, kind="DELETED")
    told.tell_pod("c", node="node-a")
    told.tell_pod("d", node="", phase="Pending", containerStatuses=[], conditions=[UNPLACED])
    take_all(following, told)
    state = following.state()
    assert (state["nodes"], state["ranks"], following.is_between) == (1, 0, True)
    waits = "waiting for a machine: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)"
    assert state["waiting"] == waits and f" · {waits} · ranks 0/2" in movement.describe_state(state)


def test_a_run_that_is_ending_says_so_and_the_wait_for_its_pods_is_no_time_of_it(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its budget is used up, and the engine has started the gang once more: those pods need their time to end."""
    monkeypatch.setattr(last_lines, "_MOMENT_S", 0.0)
    monkeypatch.setattr(crash_budget, "_SETTLE_S", 0.0)
    following, progress = follower_of(tmp_path, told, restart={"max_crashes": 0, "max_lost_nodes": 2})
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=3)
    told.tell_main(restarts=1, restartsCountTowardsMax=1)
    reads = [True] * 5
    told.reading = lambda: bool(reads and reads.pop())
    states: list[t.Any] = []
    following.save = lambda found: states.append(t.cast(follower.ClusterFollower, found).is_ending)
    outcome = following.run()
    (said,) = [line for line in progress.lines if "is ending" in line]
    why = "a rank on node-1 exited with code 3 (restart.max_crashes (0) is exceeded)"
    assert outcome.detail == why and said == f"run r is ending ({why}): waiting for 1 pod on node-1 to end"
    assert following.state()["waiting"] == "ending" and states[-1] is True
    found = following._ending
    assert found is not None and following.ended_at() == found.at
    found.at -= 100.0
    ends = [end.at for end in following.story.attempts[-1].exits.values()]
    assert following.ended_at() == max(ends), "a rank that saved after that ended later"


@pytest.mark.parametrize(("codes", "state"), [((0, 0), "ending"), ((0, 3), "restarting"), ((0,), "running")])
def test_a_gang_whose_ranks_have_all_ended_well_is_ending_and_not_started_again(
    tmp_path: pathlib.Path, told: Told, codes: tuple[int, ...], state: str
) -> None:
    """Its engine has not said its end yet, and counts its Job as active."""
    following, _ = follower_of(tmp_path, told)
    for uid in "ab":
        told.tell_pod(uid, node=f"node-{uid}")
        told.tell_rank(uid, 1, "ab".index(uid), node=f"node-{uid}", world_size=2)
    for rank, code in enumerate(codes):
        told.tell_rank("ab"[rank], 2, rank, "worker_exit", exit_code=code)
    take_all(following, told)
    record = run_record.update_record(run_record.new_record("r", {"nodes": 2}, 1.0), following.story, {}, time.time())
    assert kubernetes_run._state_now(following, record) == state
