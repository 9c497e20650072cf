# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis of a run in pods from the objects of a cluster, without an API server."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.known_run import KnownRun
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CONTAINER, RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import kubernetes
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose.run import summarise

RUN = "char-lm-0a1b2c3d"


class FakeLog:
    """Lines of a log, one a second before now, of which the last one is a second old."""

    def __init__(self, text: str) -> None:
        self.lines, self.position = text.encode().split(b"\n"), ("", 0)

    def __iter__(self) -> t.Iterator[bytes]:
        for left, line in zip(range(len(self.lines), 0, -1), self.lines, strict=True):
            at = datetime.datetime.fromtimestamp(time.time() - left, datetime.UTC)
            self.position = f"{at:%Y-%m-%dT%H:%M:%S.%f}Z", 1
            yield line


class FakeClient:
    """Lists the given objects by kind; a pod's log is its annotation."""

    def __init__(self, **objects: list[dict[str, t.Any]]) -> None:
        self.objects = objects

    def list(self, kind: str, _namespace: str | None = None, **_selectors: t.Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(items=self.objects.get(kind.rpartition("/")[2], []))

    def get(self, kind: str, name: str, *_args: t.Any) -> dict[str, t.Any] | None:
        return next((item for item in self.list(kind).items if item["metadata"]["name"] == name), None)

    def stream_log(self, _namespace: str, name: str, _container: str, **_options: t.Any) -> FakeLog:
        log = (self.get("v1/Pod", name) or {})["metadata"]["annotations"]["log"]
        if log is None:
            raise KubeError(f"log of Pod {name}", "dial tcp: no route to host", status=500)
        return FakeLog(log)


def pod(name: str, run_id: str = RUN, log: str = "", state: dict[str, t.Any] | None = None, **status: t.Any) -> dict:
    meta = {"name": name, "labels": {RUN_LABEL: run_id}, "annotations": {"log": log}}
    if state is not None:
        container = {"name": CONTAINER, "state": state, "containerID": "containerd://1", "restartCount": 0}
        status["containerStatuses"] = [container]
    spec = {"nodeName": "n1", "containers": [{"name": CONTAINER, "resources": {"limits": {"memory": "2Gi"}}}]}
    return {"metadata": meta, "spec": spec, "status": status}


def node(name: str, ready: str = "True") -> dict[str, t.Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "x"}]}}


def diagnose(client: FakeClient, **options: t.Any) -> list[tuple[str, str | None]]:
    _observation, diagnosis = kubernetes.diagnose_pods(t.cast(t.Any, client), "team", RUN, **options)
    return [(cause.code, cause.node) for cause in diagnosis.causes]


@pytest.mark.parametrize(("runs", "found"), [([], None), (["one"], "one"), (["one", "one"], "one"), (["a", "b"], None)])
def test_the_only_active_run_is_found(runs: list[str], found: str | None) -> None:
    pods = [pod(f"p{number}", run, phase="Running") for number, run in enumerate(runs)]
    pods.append(pod("ended", "other", phase="Succeeded"))
    assert kubernetes.find_run(t.cast(t.Any, FakeClient(Pod=pods)), "team") == found


def test_a_container_that_was_killed_for_its_memory_and_a_node_that_is_not_ready() -> None:
    end = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    client = FakeClient(Pod=[pod(f"{RUN}-0", state=end, phase="Running", log="step 1")], Node=[node("n1", "Unknown")])
    assert set(diagnose(client)) == {("oom_host", "n1"), ("node_unreachable", "n1")}


def test_an_evicted_pod_names_the_reason() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "Preempted", "message": "by other"}
    snapshot = kubernetes._snapshot_pod(
        t.cast(t.Any, FakeClient()), "team", pod(f"{RUN}-0", phase="Failed", conditions=[condition]), {}
    )
    assert snapshot.evicted == "Preempted: by other" and snapshot.memory == "2Gi"
    kubelet = pod(f"{RUN}-0", phase="Failed", reason="Evicted", message="low on disk")
    assert kubernetes._eviction(kubelet) == "low on disk" and kubernetes._eviction(pod("x", phase="Failed")) == ""


def test_pods_of_the_network_test_are_not_part_of_the_run() -> None:
    client = FakeClient(Pod=[pod(f"{RUN}-probe-0", state={"terminated": {"exitCode": 1}}, phase="Failed")])
    with pytest.raises(RefusedError, match=f"namespace team has no pod of run {RUN}"):
        diagnose(client)


def test_saved_logs_stand_in_for_pods_that_no_longer_exist(tmp_path: pathlib.Path) -> None:
    (tmp_path / "gpu-1.log").write_text("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n")
    assert ("oom_gpu", "gpu-1") in diagnose(FakeClient(), saved_logs=tmp_path)


@pytest.mark.parametrize(
    ("name", "about"),
    [(f"Job team/{RUN}", True), (f"Pod team/{RUN}-0", True), (f"Pod team/{RUN}-probe-0", False), ("Pod team/x", False)],
)
def test_warnings_about_the_run(name: str, about: bool) -> None:
    assert kubernetes._is_about_run(name, RUN) is about


KEPT = pathlib.Path(__file__).parents[5] / "fixtures" / "known_runs"


def known_of(name: str, record: dict[str, t.Any], *, over: bool | None) -> KnownRun:
    """Return what a follower has recorded of a run on a cluster, at a time of it."""
    read = [list(files.parse_json_lines((KEPT / f"{name}-{kind}.jsonl").read_text())) for kind in ("events", "metrics")]
    known = KnownRun.build({"hosts": ["node-1", "node-2"], **record}, *read, time.time())
    return dataclasses.replace(known, over=over)


def on_node(name: str, place: str, **values: t.Any) -> dict[str, t.Any]:
    made = pod(name, **values)
    return {**made, "spec": {**made["spec"], "nodeName": place}}


def marked(kind: str, **data: t.Any) -> str:
    return MARK + json.dumps({"stream": "events", "data": {"kind": kind, **data}})


def lost_node() -> FakeClient:
    """A gang whose node lost its power: one pod's log is away with the node, the other one's rank failed for that."""
    taken = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
    }
    rank = {"rank": 1, "attempt": 1, "gang": "1/10.42.2.23:22704", "world_size": 2, "pid": 16}
    said = [
        marked("worker_started", at=1795964046.0, **rank),
        marked("worker_exit", at=1795964085.8, exit_code=1, **rank),
    ]
    ended = {"terminated": {"exitCode": 1}}
    away = on_node(
        f"{RUN}-node-0-0-bqt8f", "node-2", log=None, state={"running": {}}, phase="Running", conditions=[taken]
    )
    failed = on_node(f"{RUN}-node-0-1-x8qqb", "node-1", log="\n".join(said), state=ended, phase="Failed")
    subject = {"kind": "Pod", "namespace": "team", "name": f"{RUN}-node-0-0-bqt8f", "uid": "a"}
    silent = {"involvedObject": subject, "type": "Warning", "reason": "NodeNotReady", "message": "Node is not ready"}
    nodes = [node("node-1"), node("node-2")]
    return FakeClient(Pod=[away, failed], Node=nodes, Event=[{**silent, "metadata": {"name": "e"}}])


def test_a_gang_that_starts_again_after_its_node_lost_power() -> None:
    """It is not over, its rank there did start, and the loss of the node is said once and by its own name."""
    known = known_of("lost-node", {"state": "restarting"}, over=False)
    _seen, found = kubernetes.diagnose_pods(t.cast(t.Any, lost_node()), "team", RUN, world_size=2, nodes=2, known=known)
    assert (found.progress.state, found.progress.last_step, found.outcome) == ("restarting", 53, "warn")
    assert [(cause.code, cause.node) for cause in found.causes] == [("node_unreachable", "node-2")]
    codes = [cause.code for cause in (*found.causes, *found.also)]
    assert "ranks_missing" not in codes and codes.count("rank_ended") == 1, codes
    said = summarise(found)
    assert said[0].startswith(f"run {RUN}: WARN · restarting, step 53") and "disk" not in "\n".join(said)


def test_a_pod_whose_log_is_away_has_not_missed_its_start() -> None:
    """Without a record nothing is known of that rank: neither that it started nor that it did not."""
    _seen, found = kubernetes.diagnose_pods(t.cast(t.Any, lost_node()), "team", RUN, world_size=2, nodes=2)
    codes = {(cause.code, cause.node) for cause in (*found.causes, *found.also)}
    assert ("node_unreachable", "node-2") in codes and not {"ranks_missing", "pod_evicted"} & {
        code for code, _ in codes
    }


def test_a_run_that_a_full_disk_ended() -> None:
    """Its newest pods started no rank: that of before they did is in the events, as is why the run ended."""
    detail = "node-2: /small/r cannot be written: No space left on device (user 0)"
    ended = {"state": "ended", "outcome": "failed", "cause": "crash", "exit_code": 74, "detail": detail}
    known = known_of("full-disk", ended, over=True)
    refused = marked("pod_refused", exit_code=74, detail=detail.partition(": ")[2], attempt=5)
    pods = [
        on_node(f"{RUN}-node-0-0-x", "node-2", log=refused, state={"terminated": {"exitCode": 74}}, phase="Failed"),
        on_node(f"{RUN}-node-0-1-y", "node-1", log=marked("agent_exit"), state={"terminated": {"exitCode": 143}}),
    ]
    nodes = [node("node-1"), node("node-2")]
    for there in (pods, []):
        client = t.cast(t.Any, FakeClient(Pod=there, Node=nodes))
        _seen, found = kubernetes.diagnose_pods(client, "team", RUN, world_size=2, nodes=2, known=known)
        assert (found.progress.state, found.progress.last_step, found.outcome) == ("ended", 120, "fail")
        assert [(cause.code, cause.node) for cause in found.causes] == [("disk_full", "node-2")], found.causes
        assert "No space left on device" in found.causes[0].evidence
        assert "ranks_missing" not in [cause.code for cause in found.also]


def test_steps_that_a_program_prints_are_read_from_its_pods() -> None:
    """A run that nothing follows trains all the same, and its pods say where it is."""
    rank = {"attempt": 1, "gang": "1/x", "world_size": 2, "pid": 1}
    printed = [f"[fit] it={step} err=0.1" for step in range(30, 66)]
    pods = [
        on_node(
            f"{RUN}-{number}",
            f"node-{number + 1}",
            log="\n".join([marked("worker_started", at=time.time() - 99, rank=number, **rank), *printed]),
            state={"running": {}},
            phase="Running",
        )
        for number in (0, 1)
    ]
    client = t.cast(t.Any, FakeClient(Pod=pods, Node=[node("node-1"), node("node-2")]))
    forms = {"": {"step": r"\[fit\] it=(?P<step>\d+)"}}
    _seen, found = kubernetes.diagnose_pods(client, "team", RUN, world_size=2, nodes=2, forms=forms)
    assert (found.progress.state, found.progress.last_step, found.outcome) == ("moving", 65, "pass"), found


@pytest.mark.parametrize(("word", "over"), [("Completed", True), ("Failed", True), ("", False), ("gone", True)])
def test_the_cluster_says_whether_a_run_that_nothing_follows_has_ended(word: str, over: bool) -> None:
    """As ``status`` asks it."""
    name = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "metadata": {"name": RUN, "uid": "u"}}
    conditions = [{"type": word, "status": "True", "reason": "x"}] if word else []
    made = [] if word == "gone" else [{**name, "kind": "JobSet", "status": {"conditions": conditions}}]
    ref = {"api_version": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "namespace": "team", "name": RUN, "uid": "u"}
    assert kubernetes.is_over(t.cast(t.Any, FakeClient(JobSet=made)), RUN, ref) is over
    assert kubernetes.is_over(t.cast(t.Any, FakeClient(JobSet=made)), RUN, {}) is None
