# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the news of a cluster make of a run: told events, no cluster. The real one is in tests/lab."""

from __future__ import annotations

import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import follower
from ansible_collections.muster.training.tests.support.told_cluster import Told, follow, stamped

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
    assert json.loads((tmp_path / "offsets.json").read_text()) == {"a": {"stamp": "2026-11-21T10:00:05Z", "same": 1}}
    assert follower.image_ids == {"node-1": "sha256:1"} and follower.admitted_at is not None


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
    words = "the container on node-1 exceeded its memory (OOMKilled, limit 2Gi)"
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 137, "out_of_memory")
    assert outcome.detail.startswith(words) and outcome.node == "node-1"
    assert progress.lines.count(words) == 1


def test_a_run_that_was_gone_before_anybody_looked_is_cancelled(tmp_path: pathlib.Path, told: Told) -> None:
    """Then no watch tells that it was deleted: the first listing does, by leaving it out."""
    told.heard.put(("main", WatchEvent("SYNCED", {})))
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.detail) == ("cancelled", "the JobSet was deleted")


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


def test_the_time_limit_counts_over_restarts(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_OWN_DEADLINE_S", -1.5)
    told.tell_pod("a")
    outcome, _, _ = follow(tmp_path, told, timeout_s=1)
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("failed", 124, "timeout")


def test_a_run_that_somebody_deleted_is_cancelled(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_main(kind="DELETED")
    outcome, _, _ = follow(tmp_path, told)
    assert (outcome.outcome, outcome.detail) == ("cancelled", "the JobSet was deleted")


def test_a_broken_source_ends_following_with_its_reason(tmp_path: pathlib.Path, told: Told) -> None:
    told.heard.put(("error", ("event", RuntimeError("x"))))
    with pytest.raises(RuntimeError):
        follow(tmp_path, told)
