# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that a run lost: each is recorded once, dated by the cluster. Followed runs are in test_follower.py."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending.pod_losses import (
    PodLosses,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.run_events import (
    SilentNodePod,
)
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
TAKEN = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "gone"}
ATTEMPT = Attempt(1, 1.0)


class World:
    """Losses of a run, and what they recorded as (kind, time, node)."""

    def __init__(
        self, known: t.Sequence[Dict] = (), places: t.Mapping[str, Dict] | None = None, lone: bool = True
    ) -> None:
        self.recorded: list[tuple[str, float | None, str | None]] = []
        self.said = Said()
        nodes = {"a": "node-1", "b": "node-2"}
        self.losses = PodLosses(
            nodes, self.record, lambda stamp: float(stamp or 0), self.said, known, places or {}, lone
        )

    def record(self, kind: str, at: float | None = None, **values: t.Any) -> None:
        self.recorded.append((kind, at, values.get("node")))


def pod(uid: str, phase: str = "Running", conditions: t.Sequence[Dict] = (), **meta: t.Any) -> Dict:
    about = {"name": f"r-{uid}", "uid": uid, **meta}
    return {"metadata": about, "spec": {"nodeName": "x"}, "status": {"phase": phase, "conditions": list(conditions)}}


def test_a_disruption_is_dated_by_the_cluster_and_recorded_once() -> None:
    world = World()
    for _time in range(2):
        world.losses.take_pod(pod("a", conditions=[{**TAKEN, "lastTransitionTime": "500"}]), None, ())
    world.losses.take_forced(pod("a"))
    assert world.recorded == [("node_lost", 500.0, "node-1")] and len(world.said.lines) == 1


def test_a_deletion_with_its_time_to_end_is_none_by_force() -> None:
    world, leaving = World(), {"deletionTimestamp": "x"}
    world.losses.take_pod(pod("a", **leaving, deletionGracePeriodSeconds=30), ATTEMPT, ())
    # The kubelet's own last request, once the containers have ended.
    world.losses.take_pod(pod("a", "Failed", **leaving, deletionGracePeriodSeconds=0), ATTEMPT, ())
    world.losses.take_pod(pod("b", **leaving, deletionGracePeriodSeconds=0), ATTEMPT, {"b"})
    assert world.recorded == []
    world.losses.take_pod(pod("b", **leaving, deletionGracePeriodSeconds=0), ATTEMPT, ())
    assert world.recorded == [("pod_deleted", None, "node-2")]


def test_a_deletion_by_force_after_another_fault_is_no_cause() -> None:
    world = World()
    gone = pod("a", deletionTimestamp="x", deletionGracePeriodSeconds=0)
    world.losses.take_pod(gone, Attempt(1, 1.0, fault=("drill", "node-1")), ())
    world.losses.take_pod(pod("b", deletionTimestamp="x", deletionGracePeriodSeconds=0), None, ())
    assert world.recorded == []


def test_a_silent_node_is_named_by_who_saw_its_pod_and_told_once() -> None:
    found = SilentNodePod("z", "r-node-0-1-x7k2p", "700", "Node is not ready")
    world = World(places={"z": {"node": "node-9"}})
    world.losses.take_silent_node(found)
    world.losses.take_silent_node(found)
    world.losses.take_silent_node(None)
    assert world.recorded == [("node_not_ready", 700.0, "node-9")]
    again = World(known=[{"kind": "node_not_ready", "pod": "r-node-0-1-x7k2p"}])
    again.losses.take_silent_node(found)
    assert again.recorded == []


LEAVES: Dict = {"deletionTimestamp": "x", "deletionGracePeriodSeconds": 30}
JOB = {"ownerReferences": [{"kind": "Job", "uid": "job-1", "controller": True}]}


def deletions(world: World) -> list[tuple[str, str | None]]:
    return [(kind, node) for kind, _at, node in world.recorded]


def test_a_pod_that_leaves_alone_was_deleted_by_a_user() -> None:
    """Its node lets it end in its time; only then its gang is stopped because of it."""
    world = World()
    for uid in "ab":
        world.losses.take_pod(pod(uid, **JOB), ATTEMPT, ())
    world.losses.take_pod(pod("a", **JOB, **LEAVES), ATTEMPT, ())
    assert world.recorded == [], "the others may be told to end as well"
    world.losses.take_pod(pod("a", "Failed", **JOB, **LEAVES), ATTEMPT, ())
    world.losses.take_pod(pod("b", **JOB, **LEAVES), ATTEMPT, ())
    world.losses.take_end("a")
    world.losses.take_end("b")
    assert deletions(world) == [("pod_deleted", "node-1")]
    assert world.said.lines == ["node-1: r-a was deleted, and not by this collection"]


def test_pods_of_a_gang_that_is_stopped_were_deleted_by_its_engine() -> None:
    """All of them at once, or the others of one that has failed; an engine that is no Job deletes single pods."""
    for first, second in (("leaves", "leaves"), ("failed", "leaves")):
        world = World()
        for uid in "ab":
            world.losses.take_pod(pod(uid, **JOB), ATTEMPT, ())
        if first == "failed":
            world.losses.take_pod(pod("a", "Failed", **JOB), ATTEMPT, ())
        else:
            world.losses.take_pod(pod("a", **JOB, **LEAVES), ATTEMPT, ())
        world.losses.take_pod(pod("b", **JOB, **LEAVES), ATTEMPT, ())
        for uid in "ba":
            world.losses.take_end(uid)
        assert world.recorded == [], (first, second)
    world = World()
    ray = {"ownerReferences": [{"kind": "RayCluster", "uid": "ray", "controller": True}]}
    world.losses.take_pod(pod("a", **ray, **LEAVES), ATTEMPT, ())
    world.losses.take_end("a")
    assert world.recorded == []


def test_a_single_pod_with_a_time_limit_may_have_been_ended_by_it() -> None:
    for lone in (True, False):
        world = World(lone=lone)
        world.losses.take_pod(pod("a", **JOB, **LEAVES), ATTEMPT, ())
        world.losses.take_end("a")
        assert deletions(world) == ([("pod_deleted", "node-1")] if lone else [])


def test_a_pod_that_leaves_after_a_fault_or_an_end_tells_nothing() -> None:
    for attempt in (None, Attempt(1, 1.0, fault=("drill", "node-1"))):
        world = World()
        world.losses.take_pod(pod("a", **JOB, **LEAVES), attempt, ())
        world.losses.take_end("a")
        assert world.recorded == []


def test_a_gang_that_was_stopped_without_a_failure_was_deleted() -> None:
    """With its Job, for instance: all of its pods leave, and another attempt begins."""
    world = World()
    for uid in "ab":
        world.losses.take_pod(pod(uid, **JOB), ATTEMPT, ())
    world.losses.take_attempt(None)
    for uid in "ab":
        world.losses.take_pod(pod(uid, **JOB, **LEAVES), ATTEMPT, ())
    world.losses.take_attempt(ATTEMPT)
    world.losses.take_attempt(Attempt(2, 2.0))
    assert deletions(world) == [("pod_deleted", None)]
    assert world.said.lines == ["the pods of attempt 1 were deleted, and not by this collection"]


def test_a_gang_that_was_stopped_for_a_cause_was_not_deleted() -> None:
    """A pod of it has failed, of which the log may not be read yet; or its history tells a fault."""
    for failed in (True, False):
        world = World()
        world.losses.take_pod(pod("a", "Failed" if failed else "Running", **JOB), ATTEMPT, ())
        world.losses.take_pod(pod("b", **JOB, **LEAVES), ATTEMPT, ())
        world.losses.take_attempt(ATTEMPT if failed else Attempt(1, 1.0, fault=("preempted", None)))
        assert world.recorded == []
