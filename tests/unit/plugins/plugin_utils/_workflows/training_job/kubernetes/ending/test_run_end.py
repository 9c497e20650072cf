# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run ended: by its object and its history."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt, RankExit
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CANCELLED
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import events
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.container_exits import (
    ContainerExits,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import (
    crash_budget,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending.run_end import (
    EndRules,
)

Dict = dict[str, t.Any]
NO_PYTHON = (
    "Failed: Error: failed to create containerd task: OCI runtime create failed: runc create failed: unable to start "
    'container process: error during container init: exec: "python3": executable file not found in $PATH'
)


def main(condition: str = "", reason: str = "", message: str = "", **meta: t.Any) -> Dict:
    found = [{"type": condition, "status": "True", "reason": reason, "message": message}] if condition else []
    about = {"name": "r", "namespace": "n", "uid": "u", **meta}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about, "status": {"conditions": found}
    }  # fmt: skip


def rules(late: bool = False, **job: t.Any) -> EndRules:
    value = parse_job(
        {"name": "r", "nodes": 2, "image": "i", "launcher": "command", "command": ["true"],
         "placement": {"backend": "kubernetes"}, **job}
    )  # fmt: skip
    return EndRules(value, ContainerExits("JobSet", 2), lambda: late)


def story(*attempts: Attempt) -> RunHistory:
    found = RunHistory()
    found.attempts = list(attempts)
    return found


def crashed(n: int = 1, **more: t.Any) -> Attempt:
    return Attempt(n, float(n), exits={0: RankExit(50.0, 1, "node-1")}, ranks={0: "node-1", 1: "node-2"}, **more)


FAILED = main("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")


def test_what_kept_its_containers_from_starting_is_the_end_of_a_run_without_attempts() -> None:
    """The engine says that it was restarted often enough, which names nothing."""
    judge = rules()
    judge.take_problem(events.StartProblem("container", "Pod n/r-a", NO_PYTHON, 1, False))
    found = judge.engine_end(FAILED, story())
    assert found is not None and (found.outcome, found.cause) == ("failed", "container")
    assert found.detail.startswith("Pod n/r-a: its image lacks the program that is to start: ")
    assert 'exec: "python3": executable file not found' in found.detail and "ReachedMaxRestarts" in found.detail
    judge.take_attempt()
    later = judge.engine_end(FAILED, story(Attempt(1, 1.0)))
    assert later is not None and later.cause == "crash" and "python3" not in later.detail, "an attempt has begun since"


@pytest.mark.parametrize("code", ["unschedulable", "queue", "node", "crash", "other"])
def test_what_passes_is_not_the_end_of_a_run(code: t.Any) -> None:
    judge = rules()
    judge.take_problem(events.StartProblem(code, "Pod n/r-a", "x", 1, True))
    found = judge.engine_end(FAILED, story())
    assert found is not None and found.cause == "crash" and found.detail.startswith("ReachedMaxRestarts")


@pytest.mark.parametrize(
    "lost", [{"fault": ("node_lost", "node-2")}, {"not_ready": (90.0, "node-2")}], ids=["disruption", "not ready"]
)
def test_a_node_that_was_lost_is_the_cause_whatever_was_heard_first(lost: Dict) -> None:
    found = rules().engine_end(FAILED, story(crashed(**lost)))
    assert found is not None and (found.outcome, found.cause, found.node) == ("lost", "node_lost", "node-2")
    other = rules().engine_end(FAILED, story(crashed(not_ready=(5000.0, "node-2"))))
    assert other is not None and other.cause == "crash", "that was long after it"


def test_lost_nodes_count_by_the_clusters_word_and_by_the_engines() -> None:
    judge = rules(restart={"max_lost_nodes": 1})
    lost = [crashed(n, fault=("node_lost", "node-2"), followed=True) for n in (1, 2)]
    found = judge.own_end(main(), story(*lost), None)
    words = "restart.max_lost_nodes (1) is exceeded after 2 lost nodes"
    assert found is not None and (found.cause, found.node) == ("node_lost", "node-2")
    assert found.detail == f"{words}, the last is node-2"
    counted = {**main(), "status": {"restarts": 3, "restartsCountTowardsMax": 1}}
    other = judge.own_end(counted, story(), None)
    assert other is not None and (other.cause, other.detail, other.node) == ("node_lost", words, None)
    assert judge.own_end(main(), story(lost[0], crashed(2)), None) is None


@pytest.mark.parametrize(
    ("meta", "attempt", "outcome"),
    [
        ({"annotations": {CANCELLED: "vm:/state"}}, {}, "cancelled"),
        ({}, {"cancelled_at": 60.0}, "cancelled"),
        ({"annotations": {"other": "x"}}, {}, "failed"),
        ({}, {}, "failed"),
    ],
)
def test_a_deletion_without_a_cancel_is_a_failure(meta: Dict, attempt: Dict, outcome: str) -> None:
    found = rules().deletion(main(**meta), story(Attempt(1, 1.0, **attempt)))
    assert found.outcome == outcome and "JobSet n/r was deleted" in found.detail and found.exit_code != 0


def test_a_pod_that_did_not_start_its_program_names_the_end() -> None:
    judge = rules()
    assert (
        judge.take_refusal("node-1", {"at": 10.0, "exit_code": 74, "detail": "/c has 0 MiB free"})
        == "/c has 0 MiB free"
    )
    found = judge.engine_end(FAILED, story(Attempt(1, 5.0)))
    assert found is not None and (found.exit_code, found.detail) == (74, "node-1: /c has 0 MiB free")
    later = judge.engine_end(FAILED, story(Attempt(1, 50.0)))
    assert later is not None and later.exit_code == 1


def test_a_pod_that_waited_for_another_does_not_hide_its_reason() -> None:
    """A failed pod has no name any more, which is all that mpirun's pod sees of it."""
    judge = rules()
    judge.take_refusal("node-1", {"at": 10.0, "attempt": 1, "exit_code": 78, "detail": "the pod has 0 GPUs"})
    judge.take_refusal("node-2", {"at": 70.0, "attempt": 1, "exit_code": 69, "detail": "Name or service not known"})
    found = judge.engine_end(FAILED, story())
    assert found is not None and (found.exit_code, found.detail) == (78, "node-1: the pod has 0 GPUs")
    judge.take_refusal("node-2", {"at": 90.0, "attempt": 2, "exit_code": 69, "detail": "port 1 is taken"})
    found = judge.engine_end(FAILED, story())
    assert found is not None and found.detail == "node-2: port 1 is taken", "that is another attempt"


@pytest.mark.parametrize(("kind", "code", "ends"), [("MPIJob", 78, True), ("JobSet", 78, False), ("MPIJob", 69, False)])
def test_a_worker_that_refused_ends_an_mpijob_whose_operator_keeps_it(kind: str, code: int, ends: bool) -> None:
    judge, running = rules(), {**main(), "kind": kind}
    assert judge.own_end(running, story(), None) is None
    judge.take_refusal("node-1", {"at": 10.0, "attempt": 1, "exit_code": code, "detail": "the pod has 0 GPUs"})
    found = judge.own_end(running, story(), None)
    assert (found is not None and found.detail == "node-1: the pod has 0 GPUs") is ends
    assert judge.own_end(running, story(Attempt(2, 50.0)), None) is None, "its ranks began since"


def test_a_rank_that_failed_is_the_reason_of_a_pod_that_was_stopped_while_it_waited() -> None:
    judge = rules()
    judge.take_refusal("node-1", {"at": 60.0, "attempt": 1, "exit_code": 143, "detail": "stopped while waiting"})
    found = judge.engine_end(FAILED, story(crashed()))
    assert found is not None and found.exit_code == 1 and found.detail.startswith("a rank on node-1 exited with code 1")


def test_the_crash_that_was_one_too_many_is_named_also_when_the_gang_was_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine may restart as often as both budgets allow together: a late loss is a crash to it."""
    monkeypatch.setattr(crash_budget, "_SETTLE_S", 0.0)
    judge = rules(restart={"max_crashes": 1, "max_lost_nodes": 2})
    running = {**main(), "status": {"restarts": 2, "restartsCountTowardsMax": 2}}
    late = crashed(1, not_ready=(60.0, "node-2"))
    assert judge.own_end(running, story(late, crashed(2)), None) is None, "one was a lost node"
    for attempts in ([crashed(1), crashed(2)], [crashed(1), crashed(2), Attempt(3, 70.0)]):
        found = judge.own_end(running, story(*attempts), None)
        assert found is not None and (found.outcome, found.cause, found.exit_code) == ("failed", "crash", 1)
        assert found.detail == "a rank on node-1 exited with code 1 (restart.max_crashes (1) is exceeded)"


def test_a_gang_that_ran_out_of_time_while_it_waited_says_so() -> None:
    """Its pods say that they were stopped, which is not why."""
    for judge, ended in (
        (rules(late=True), FAILED),
        (rules(), main("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")),
    ):
        judge.take_refusal("node-1", {"at": 60.0, "attempt": 1, "exit_code": 143, "detail": "stopped while waiting"})
        found = judge.engine_end(ended, story())
        assert found is not None and (found.exit_code, found.cause) == (124, "timeout"), found
