# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis of a run in pods from the objects of a cluster, without an API server."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import CONTAINER, RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import kubernetes

RUN = "char-lm-0a1b2c3d"


class FakeClient:
    """Lists the given objects by kind; a pod's log is its annotation."""

    def __init__(self, **objects: list[dict[str, t.Any]]) -> None:
        self.objects = objects

    def list(self, kind: str, _namespace: str | None = None, **_selectors: t.Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(items=self.objects.get(kind.rpartition("/")[2], []))

    def get(self, kind: str, name: str, *_args: t.Any) -> dict[str, t.Any] | None:
        return next((item for item in self.list(kind).items if item["metadata"]["name"] == name), None)

    def stream_log(self, _namespace: str, name: str, _container: str, **_options: t.Any) -> t.Iterator[bytes]:
        pod = self.get("v1/Pod", name)
        return iter(str((pod or {})["metadata"]["annotations"]["log"]).encode().splitlines())


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
        t.cast(t.Any, FakeClient()), "team", pod(f"{RUN}-0", phase="Failed", conditions=[condition])
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
