# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run in pods: what its logs tell of ranks and steps, and which cause the pods' states are."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import live_pods
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live import RunDiagnosis, RunObservation
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import LIVE_CAUSES
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_pods import PodSnapshot
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_rules import diagnose_live

NOW = 1_800_000_000.0


def marked(stream: str, **data: t.Any) -> str:
    return MARK + json.dumps({"stream": stream, "pod": "x-0", "node": "n1", "rank": 0, "attempt": 1, "data": data})


def lines(rank: int, *, steps_at: t.Sequence[float] = (), ended: int | None = None, attempt: int = 1) -> list[str]:
    common = {"rank": rank, "attempt": attempt, "at": NOW - 1000, "node": "n"}
    found = [marked("events", kind="worker_started", world_size=2, pid=50 + rank, **common)]
    found += [marked("metrics", at=at, step=number, loss=1.0) for number, at in enumerate(steps_at, 1)]
    if ended is not None:
        found.append(marked("events", kind="worker_exit", exit_code=ended, signal=0, **common))
    return found


def pod(number: int, *log: str, **more: t.Any) -> PodSnapshot:
    values: dict[str, t.Any] = {"node": f"n{number}", "phase": "Running", **more}
    return PodSnapshot(f"run-node-0-{number}", lines=log, **values)


def diagnosed(*pods: PodSnapshot, size: int = 2, told: t.Sequence[tuple[str, str]] = ()) -> RunDiagnosis:
    live = RunObservation("run", live_pods.observe_pods(pods, MARK, NOW), size)
    return diagnose_live(live, [*live_pods.find_pod_causes(pods, MARK), *live_pods.find_cluster_causes(told, pods)])


def codes(found: RunDiagnosis) -> list[tuple[str, str | None]]:
    return [(item.code, item.node) for item in found.causes]


def test_a_run_that_moves_is_well() -> None:
    found = diagnosed(pod(1, *lines(0, steps_at=[NOW - 3, NOW - 2, NOW - 1])), pod(2, *lines(1)))
    assert (found.outcome, found.progress.state, found.causes) == ("pass", "moving", ())
    assert (found.ranks_expected, found.ranks_alive, found.progress.last_step) == (2, 2, 3)


def test_a_run_whose_steps_stopped_is_stalled() -> None:
    found = diagnosed(pod(1, *lines(0, steps_at=[NOW - 301, NOW - 300])), pod(2, *lines(1)))
    assert found.progress.state == "hanging" and codes(found) == [("stalled", None)]


def test_what_a_log_says_is_the_cause() -> None:
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    failed = pod(1, *lines(0, ended=1), f"[rank0]: {said}", phase="Failed", exit_code=1)
    found = diagnosed(failed, pod(2, *lines(1)))
    assert found.outcome == "fail"
    assert ("oom_gpu", "n1") in codes(found)
    ended = [item.evidence for item in found.also if item.code == "rank_ended"]
    assert ended == [f"rank 0 ended with exit code 1: {said}"], "once, not of its pod, too"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"waits": ("image", "Pod a/x: its image cannot be pulled: x")}, "pod_image"),
        (
            {"waits": ("unschedulable", "Pod a/x: no node has room for it: 0/3 nodes"), "node": None},
            "pod_unschedulable",
        ),
        ({"waits": ("volume", "Pod a/x: a volume is missing: claim")}, "pod_volume"),
        ({"waits": ("something new", "words")}, "pod_refused"),
        ({"evicted": "PreemptionByScheduler: preempted", "phase": "Failed", "exit_code": 143}, "pod_evicted"),
        ({"reason": "OOMKilled", "exit_code": 137, "phase": "Failed", "memory": "2Gi"}, "oom_host"),
        ({"exit_code": 3, "phase": "Failed"}, "rank_ended"),
    ],
)
def test_the_state_of_a_pod_is_a_cause(more: dict[str, t.Any], code: str) -> None:
    found = diagnosed(pod(1, *lines(0)), pod(2, **{"phase": "Pending", **more}))
    assert found.outcome == "fail"
    # A pod that never started also misses its rank; why is what decides.
    assert codes(found)[0] == (code, more.get("node", "n2"))


def test_a_log_that_cannot_be_read_is_told_and_decides_nothing() -> None:
    found = diagnosed(pod(1, *lines(0, steps_at=[NOW - 2, NOW - 1])), pod(2, *lines(1), problem="timed out"))
    assert found.outcome == "warn" and codes(found) == [("log_unreadable", "n2")]


def test_pods_that_were_never_made_are_explained_by_what_the_cluster_says_of_the_job() -> None:
    told = [("quota", "Job a/run: the namespace's quota is used up: exceeded quota: team"), ("quota", "again")]
    found = diagnosed(told=told)
    assert found.progress.state == "not_started" and found.outcome == "fail"
    assert [(item.code, item.evidence) for item in found.causes if item.code == "pod_refused"] == [
        ("pod_refused", told[0][1])
    ]


def test_a_job_in_its_queue_is_not_broken() -> None:
    found = diagnosed(told=[("queue", "Workload a/run: waiting in its queue: is queued")], size=0)
    assert found.outcome == "unproven" and codes(found) == [("job_queued", None)]


def test_the_containers_last_words_stand_in_for_a_log() -> None:
    found = diagnosed(
        pod(1, phase="Failed", exit_code=1, message="Traceback\nValueError: no such column", problem="gone"), size=1
    )
    ended = next(item for item in found.causes if item.code == "rank_ended")
    assert "ValueError: no such column" in ended.evidence


def test_two_pods_on_one_node_are_told_apart_by_their_names() -> None:
    found = live_pods.observe_pods([pod(1), PodSnapshot("b", "n1"), PodSnapshot("c", None)], MARK, NOW)
    assert [look.name for look in found] == ["run-node-0-1", "b", "c"]


def test_every_code_of_the_cluster_has_its_cause() -> None:
    assert set(live_pods.CODES.values()) <= set(LIVE_CAUSES)


@given(st.lists(st.text(max_size=80) | st.builds(lambda s: MARK + s, st.text(max_size=80)), max_size=20), st.booleans())
def test_any_log_gives_a_typed_result(log: list[str], running: bool) -> None:
    found = diagnosed(pod(1, *log, phase="Running" if running else "Failed"))
    assert found.outcome in ("pass", "warn", "fail", "unproven") and found.to_dict()


@given(st.lists(st.dictionaries(st.sampled_from(["kind", "rank", "at", "exit_code"]), st.integers() | st.text())))
def test_any_events_give_ranks(events: list[dict[str, t.Any]]) -> None:
    assert isinstance(live_pods.read_ranks(events, True), list)


def test_a_rank_does_not_outlive_its_pod() -> None:
    found = diagnosed(pod(1, *lines(0), phase="Failed", exit_code=137), pod(2, *lines(1)))
    assert found.ranks_alive == 1 and ("rank_ended", "n1") in codes(found)


def test_a_pod_without_a_node_is_none_of_the_nodes_on_which_no_rank_started() -> None:
    words = "Pod n/run-node-0-2: no node has room for it: FailedScheduling: 0/2 nodes are available."
    left = pod(2, node=None, phase="Pending", waits=("unschedulable", words))
    found = diagnosed(pod(1), left)
    said = {item.code: item.evidence for item in (*found.causes, *found.also)}
    assert said["ranks_missing"] == "0 of 2 ranks started, rank 0, 1 did not; no rank started on n1; 1 pod has no node"
    assert "GPU" not in LIVE_CAUSES["pod_unschedulable"].fix


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Workload n/r: will never fit: 20 CPU asked, the queue has 3: insufficient quota for cpu", "never_fits"),
        ("Workload n/r: waiting in its queue: insufficient unused quota for cpu", "job_queued"),
    ],
)
def test_what_never_fits_is_not_advised_to_wait(words: str, code: str) -> None:
    assert live_pods.find_code("queue", words) == code and ("Wait" in LIVE_CAUSES[code].fix) is (code == "job_queued")
