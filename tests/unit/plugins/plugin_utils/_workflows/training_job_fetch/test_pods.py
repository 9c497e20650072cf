# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of a run's mount: which pods are started, what keeps them from starting, and that none of them stays."""

from __future__ import annotations

import contextlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    MusterError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef, RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._kube.api import pod_exec
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import pods
from ansible_collections.muster.training.tests.support.run_world import Said

RUNNING: t.Any = {"status": {"phase": "Running"}, "spec": {"nodeName": "gpu-1"}}
WAITING = {"reason": "ImagePullBackOff", "message": "no such image"}
STUCK: t.Any = {
    "status": {"phase": "Pending", "containerStatuses": [{"name": "node", "state": {"waiting": WAITING}}]},
}
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
LEFT_OUT: t.Any = {"status": {"phase": "Pending", "conditions": [UNPLACED]}}
SILENT = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


class Clock:
    """Time passes only while the code waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Cluster:
    """An API server that starts the pod of each Job as it is told, in the order of the Jobs."""

    namespace = "default"
    clock: Clock

    def __init__(self, *pods: t.Any, **nodes: t.Any) -> None:
        self.pods, self.jobs, self.made, self.nodes = pods, list[str](), list[t.Any](), nodes

    def list(self, kind: str, namespace: str) -> t.Any:
        assert (kind, namespace) == ("v1/LimitRange", "team")
        return types.SimpleNamespace(items=[])

    def get(self, kind: str, name: str) -> t.Any:
        assert kind == "v1/Node"
        if name not in self.nodes:
            raise KubeError(name, "forbidden", status=403)
        return self.nodes[name]

    def create(self, value: t.Any) -> t.Any:
        self.jobs.append(value["metadata"]["name"])
        self.made.append(value)
        return value

    def delete(self, _kind: t.Any, name: str, namespace: str) -> None:
        assert namespace == "team"
        self.jobs.remove(name)

    def watch(self, kind: str, namespace: str, *, labels: str, timeout_s: float) -> t.Any:
        assert kind == "v1/Pod" and labels == f"batch.kubernetes.io/job-name in ({','.join(self.jobs)})"
        news = [(self.jobs[number], pod) for number, pod in enumerate(self.pods)]

        def take(seconds: float) -> t.Any:
            if not news:
                self.clock.now += seconds
                return None
            name, pod = news.pop(0)
            meta = {"name": "reader-x", "namespace": "team", "labels": {"batch.kubernetes.io/job-name": name}}
            return types.SimpleNamespace(type="ADDED", object={"metadata": meta, **pod})

        return contextlib.nullcontext(types.SimpleNamespace(next=take))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = Clock()
    monkeypatch.setattr(pods, "time", now)
    monkeypatch.setattr(Cluster, "clock", now, raising=False)
    return now


def job(**values: t.Any) -> Job:
    about = {"name": "j", "image": "i", "script": "/t.py", "nodes": 2, "placement": {"backend": "kubernetes"}}
    claim = {"mounts": [{"name": "c", "path": "/c", "pvc": "p"}], "checkpoints": {"path": "/c/x"}}
    return parse_job({**about, **claim, **values})


def record(*hosts: str) -> RunRecord:
    return t.cast(RunRecord, types.SimpleNamespace(
        run_id="r", hosts=hosts, image=None, backend_ref=BackendRef("jobset.x-k8s.io/v1alpha2", "JobSet", "r", "team")))  # fmt: skip


def test_one_pod_has_the_claim_and_its_agent_is_asked_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: t.Any = Cluster(RUNNING)
    asked: list[t.Any] = []

    def answer(_client: t.Any, container: pod_exec.Container, argv: t.Sequence[str], *_: t.Any) -> tuple[int, str, str]:
        asked.append((container, list(argv)))
        return 0, "@@MUSTER-ANSWER@@", ""

    monkeypatch.setattr(pods, "exec_in_pod", answer)
    with pods.open_readers(cluster, record("gpu-1", "gpu-2"), job(), Said()) as (remote,):
        assert remote.name == "gpu-1" and len(cluster.jobs) == 1
        remote.run("true", b"four")
    assert asked == [(("team", "reader-x", "node"), ["sh", "-c", "head -c 4 | (true)"])] and cluster.jobs == []


def test_each_node_is_asked_where_its_own_disk_has_its_part() -> None:
    cluster: t.Any = Cluster(RUNNING, RUNNING)
    local = job(mounts=[{"name": "c", "path": "/c", "host_path": "/var/c"}])
    with pods.open_readers(cluster, record("gpu-1", "gpu-2"), local, Said()) as remotes:
        assert len(remotes) == 2 and ["gpu-1" in str(cluster.made[0]), "gpu-2" in str(cluster.made[1])] == [True] * 2
    assert cluster.jobs == []


def test_a_pod_that_does_not_start_is_explained_and_goes() -> None:
    cluster: t.Any = Cluster(STUCK)
    with pytest.raises(MusterError, match="no such image"), pods.open_readers(cluster, record("a"), job(), Said()):
        pass
    assert cluster.jobs == []


def test_checkpoints_that_nothing_holds_are_refused() -> None:
    cluster: t.Any = Cluster()
    nowhere = job(mounts=[], checkpoints={})
    with (
        pytest.raises(RefusedError, match="its checkpoints were in its pods, and are gone"),
        pods.open_readers(cluster, record("a"), nowhere, Said()),
    ):
        pass
    assert cluster.made == []


def test_a_pod_without_a_mount_reads_a_bucket() -> None:
    cluster: t.Any = Cluster(RUNNING)
    said = Said()
    stored = job(mounts=[], checkpoints={"binding": "store"})
    with pods.open_readers(cluster, record("gpu-1", "gpu-2"), stored, said) as (remote,):
        assert remote.name == "gpu-1" and said.lines == ["starting a pod that reads the object store store"]
    assert cluster.jobs == []


@pytest.mark.parametrize(
    ("cluster", "made", "problem"),
    [
        (Cluster(RUNNING, **{"gpu-2": SILENT}), 1, "the node does not answer"),
        (Cluster(RUNNING, **{"gpu-2": None}), 1, "the node no longer exists"),
        # A member of a team may not read nodes.
        (Cluster(RUNNING, LEFT_OUT), 2, "0/2 nodes are available"),
        (Cluster(RUNNING, STUCK), 2, "no such image"),
    ],
    ids=["silent", "gone", "unplaced", "refused"],
)
def test_a_node_that_is_not_there_is_named_and_the_others_are_read(
    cluster: t.Any, made: int, problem: str, clock: Clock
) -> None:
    local, said = job(mounts=[{"name": "c", "path": "/c", "host_path": "/var/c"}]), Said()
    with pods.open_readers(cluster, record("gpu-1", "gpu-2"), local, said) as remotes:
        assert [item.name for item in remotes] == ["gpu-1", "gpu-2"] and len(cluster.made) == made
        with pytest.raises(UnreachableError, match=problem):
            remotes[1].call("info")
    (words,) = [line for line in said.lines if line.startswith("warning: gpu-2: ")]
    assert problem in words and clock.now < 100.0 + 60.0 and cluster.jobs == []


def test_a_wait_for_pods_is_said_with_what_keeps_them(clock: Clock) -> None:
    cluster: t.Any = Cluster(LEFT_OUT)
    said = Said()
    with (
        pytest.raises(MusterError, match="0/2 nodes are available"),
        pods.open_readers(cluster, record("gpu-1"), job(), said),
    ):
        pass
    waits = [line for line in said.lines if line.startswith("waiting ")]
    assert len(waits) >= 10 and "0/2 nodes are available" in waits[0] and clock.now <= 100.0 + 302.0
    assert cluster.jobs == []
