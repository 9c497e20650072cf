# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deleting a run from its cluster: what is deleted, what is waited for, and which objects are named when they stay."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.watch import WatchEvent
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import delete
from ansible_collections.muster.training.tests.support.run_world import Said

Dict = dict[str, t.Any]
REF = BackendRef("batch/v1", "Job", "r1", "team", "u1")
SYNCED = WatchEvent("SYNCED")


class Clock:
    """Time passes only while the code waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster:
    """A client: ``news`` is what a watch of the pods brings, ``live`` what each reading of the run's object returns."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.news: list[WatchEvent | None] = [SYNCED]
        self.live: list[Dict | None] = [None]
        self.listed: dict[str, list[Dict]] = {}
        self.forbidden: set[str] = set()
        self.exists = True
        self.deleted: list[tuple[str, str]] = []
        self.uids: list[str] = []
        self.selectors: list[str] = []

    def get(self, _kind: str, _name: str, _namespace: str) -> Dict | None:
        return self.live.pop(0) if len(self.live) > 1 else self.live[0]

    def delete(self, kind: str, name: str, _namespace: str, *, uid: str = "") -> bool:
        if kind in self.forbidden:
            raise KubeError(name, "forbidden", status=403)
        self.deleted.append((kind, name))
        self.uids.append(uid)
        return self.exists

    def list(self, kind: str, _namespace: str, *, labels: str) -> types.SimpleNamespace:
        self.selectors.append(labels)
        return types.SimpleNamespace(items=self.listed.get(kind, []))

    def watch(self, _kind: str, _namespace: str, *, labels: str) -> Cluster:
        self.selectors.append(labels)
        return self

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def next(self, timeout_s: float) -> WatchEvent | None:
        event = self.news.pop(0) if self.news else None
        self.clock.now += 0 if event else timeout_s
        return event


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    clock = Clock()
    monkeypatch.setattr(delete, "time", clock)
    return Cluster(clock)


def pod(kind: t.Any, name: str) -> WatchEvent:
    meta = {"name": name, "namespace": "team", "uid": f"u-{name}"}
    return WatchEvent(kind, t.cast(t.Any, {"metadata": meta, "spec": {"nodeName": "n"}}))


def live(uid: str = "u1", *finalizers: str) -> Dict:
    return {"metadata": {"name": "r1", "uid": uid, "finalizers": list(finalizers)}}


def delete_run(cluster: Cluster, ref: BackendRef = REF) -> bool:
    return delete.delete_run(t.cast(t.Any, cluster), ref, "r1", 60, Said())


@pytest.mark.parametrize("existed", [True, False])
def test_the_submitted_object_is_deleted_by_its_uid(cluster: Cluster, existed: bool) -> None:
    cluster.exists = existed
    assert delete_run(cluster) is existed
    assert cluster.deleted[0] == ("batch/v1/Job", "r1") and cluster.uids[0] == "u1"


def test_the_deletion_waits_for_the_last_pod(cluster: Cluster) -> None:
    cluster.news = [pod("ADDED", "a"), pod("ADDED", "b"), SYNCED, pod("DELETED", "a"), None, pod("DELETED", "b")]
    assert delete_run(cluster) and cluster.news == []


@pytest.mark.parametrize("waits", [2, 20])
def test_a_deletion_that_takes_long_says_once_what_it_waits_for(cluster: Cluster, waits: int) -> None:
    cluster.news = [pod("ADDED", "a"), SYNCED, *[None] * waits, pod("DELETED", "a")]
    progress = Said()
    assert delete.delete_run(t.cast(t.Any, cluster), REF, "r1", 60, progress)
    said = ["run r1: waiting for 1 pod on n to end, for 60 s at most"]
    assert progress.lines == (said if waits > delete._MOMENT_S else [])


def test_pods_that_stay_are_an_error_after_the_time_they_have(cluster: Cluster) -> None:
    cluster.news = [pod("ADDED", "a"), *[None] * 100, SYNCED]
    with pytest.raises(MusterError, match="pods of run r1 still exist after 60 s"):
        delete_run(cluster)
    assert 260 <= cluster.clock.now <= 263, "the time counts from when the pods are known"
    assert cluster.deleted == [("batch/v1/Job", "r1")], "what pods still use stays"


def test_an_object_that_stays_is_named_with_its_finalizers(cluster: Cluster) -> None:
    cluster.live = [live("u1", "example.com/keep")]
    with pytest.raises(MusterError, match="Job r1 still exists after 60 s.*example.com/keep"):
        delete_run(cluster)
    # What its controller removes does not hold it any more.
    cluster.news, cluster.live = [SYNCED], [None]
    assert delete_run(cluster)


def test_the_object_of_another_start_is_not_waited_for(cluster: Cluster) -> None:
    cluster.live = [live(), live("u2")]
    assert delete_run(cluster) and cluster.clock.now < 101


def test_supporting_objects_without_an_owner_are_deleted_too(cluster: Cluster) -> None:
    owned = {"metadata": {"name": "owned", "ownerReferences": [{"uid": "u1"}]}}
    cluster.listed = {"v1/ConfigMap": [{"metadata": {"name": "files"}}, owned], "v1/Service": [owned]}
    assert delete_run(cluster)
    assert cluster.deleted[1:] == [("v1/Secret", "r1-secrets"), ("v1/Secret", "r1-pull"), ("v1/ConfigMap", "files")]
    assert set(cluster.selectors) == {"muster.training/run-id=r1"}


def test_a_user_who_may_not_delete_secrets_can_delete_a_run(cluster: Cluster) -> None:
    cluster.forbidden, cluster.listed = {"v1/Secret"}, {"v1/Service": [{"metadata": {"name": "s"}}]}
    assert delete_run(cluster) and cluster.deleted[-1] == ("v1/Service", "s")


def test_a_new_start_waits_for_the_pods_of_the_former_one(cluster: Cluster) -> None:
    said = Said()
    delete.wait_for_pods(t.cast(t.Any, cluster), "team", "r1", 60, said)
    assert said.lines == [] and cluster.news == [SYNCED], "without such pods there is nothing to wait for"
    cluster.listed = {"v1/Pod": [{}]}
    cluster.news = [pod("ADDED", "a"), SYNCED, pod("DELETED", "a")]
    delete.wait_for_pods(t.cast(t.Any, cluster), "team", "r1", 60, said)
    assert [line.split(":")[0] for line in said.lines] == ["run r1"] and cluster.news == []
    assert all("notin" in labels for labels in cluster.selectors), "the log reader may stay"


@pytest.mark.parametrize(("secret", "forbidden", "lines"), [(None, False, 0), ("r1-secrets", False, 0), ("s", True, 1)])
def test_a_secret_that_stays_is_a_warning(cluster: Cluster, secret: str | None, forbidden: bool, lines: int) -> None:
    said = Said()
    cluster.forbidden = {"v1/Secret"} if forbidden else set()
    plan: t.Any = types.SimpleNamespace(namespace="team", job=types.SimpleNamespace(engine="jobset"))
    delete.delete_secret(t.cast(t.Any, cluster), plan, secret, said)
    assert cluster.deleted == ([("v1/Secret", secret)] if secret and not forbidden else [])
    assert len(said.lines) == lines and all(line.startswith("warning: ") for line in said.lines)
