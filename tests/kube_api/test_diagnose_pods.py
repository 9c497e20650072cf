# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis of a run in pods against a real API server, by a controller that has no record of the run."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose import run as diagnose_run
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

RUN = "char-lm-0a1b2c3d"
Dict = dict[str, t.Any]


def pod(client: Client, namespace: str, name: str, run_id: str = RUN, **status: t.Any) -> None:
    """Make a pod that no kubelet will take, with a status as one would have written it."""
    meta = {"name": name, "namespace": namespace, "labels": {"muster.training/run-id": run_id}}
    container = {"name": "node", "image": "x", "resources": {"limits": {"memory": "2Gi"}}}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    client.patch("v1/Pod", name, {"status": status}, namespace, subresource="status")


def warning(client: Client, namespace: str, about: str, reason: str, message: str) -> None:
    meta = {"name": f"{about}.1", "namespace": namespace}
    subject = {"apiVersion": "batch/v1", "kind": "Job", "name": about, "namespace": namespace}
    value = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": subject}
    client.create({**value, "type": "Warning", "reason": reason, "message": message})


def look(api: ApiServer, namespace: str, folder: pathlib.Path, **changes: t.Any) -> Dict:
    request = diagnose_run.DiagnoseRequest(
        home=StateHome({"path": str(folder)}, "default"),
        hosts=["localhost"],
        hostvars={},
        connect=lambda _names: pytest.fail("no host is asked"),
        progress=Said(),
        cluster={"kubeconfig": str(api.kubeconfig), "namespace": namespace},
        **{"run_id": RUN, **changes},
    )
    return diagnose_run.run(request)


def causes(found: Dict) -> list[tuple[str, str]]:
    return [(item["code"], item["evidence"]) for item in found["diagnosis"]["causes"]]


def test_a_pod_that_finds_no_node_is_named(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod(client, namespace, f"{RUN}-node-0-0", conditions=[unplaced])
    dest = tmp_path / "out.json"
    found = look(api, namespace, tmp_path / "state", dest=str(dest))
    assert found["diagnosis"]["state"] == "not_started" and found["diagnosis"]["outcome"] == "fail"
    code, evidence = causes(found)[0]
    assert code == "pod_unschedulable" and "Insufficient nvidia.com/gpu" in evidence
    assert json.loads(dest.read_text())["run_id"] == RUN and not (tmp_path / "state").exists()
    assert found["summary"][0].startswith(f"run {RUN}: FAIL · not_started")


def test_a_container_that_was_killed_for_its_memory_is_named_without_its_log(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "containerID": "containerd://1"}
    status = {"name": "node", "state": {"terminated": ended}, "image": "x", "imageID": "y", "ready": False}
    pod(client, namespace, f"{RUN}-0", phase="Failed", containerStatuses=[{**status, "restartCount": 0}])
    found = look(api, namespace, tmp_path)
    assert ("oom_host", f"{RUN}-0 was killed: OOMKilled, exit code 137, its memory limit is 2Gi") in causes(found)
    assert "log_unreadable" in [item["code"] for item in found["diagnosis"]["also"]]


def test_a_job_whose_pods_were_never_let_in_is_explained_by_its_warnings(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    said = f'pods "{RUN}-0-x" is forbidden: exceeded quota: team, requested: cpu=2'
    warning(client, namespace, RUN, "FailedCreate", said)
    warning(client, namespace, f"{RUN}-probe", "FailedCreate", "violates PodSecurity")
    warning(client, namespace, "somebody-else", "FailedCreate", "exceeded quota")
    found = look(api, namespace, tmp_path)
    assert [(code, "exceeded quota: team" in text) for code, text in causes(found)] == [("pod_refused", True)]


def test_the_one_run_that_lives_is_found_and_two_are_not_guessed(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    pod(client, namespace, "one-0", "one")
    assert look(api, namespace, tmp_path, run_id=None)["run_id"] == "one"
    pod(client, namespace, "two-0", "two")
    with pytest.raises(RefusedError, match="does not hold exactly one active run"):
        look(api, namespace, tmp_path, run_id=None)
    with pytest.raises(RefusedError, match="namespace .* has no pod of run three"):
        look(api, namespace, tmp_path, run_id="three")


def test_a_recorded_run_whose_pods_are_gone_is_judged_by_the_kept_logs(
    api: ApiServer, namespace: str, tmp_path: pathlib.Path
) -> None:
    folder = StateHome({"path": str(tmp_path)}, "default").run_folder(RUN)
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "gpu-1.log").write_text("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n")
    ref = BackendRef("batch/v1", "Job", RUN, namespace)
    job = to_yaml_names(parse_job({"name": "char-lm", "nodes": 2, "script": "/train.py"}))
    value = run_record.new_record(RUN, job, 1.0, backend="kubernetes", backend_ref=ref)
    run_record.write_record(folder, run_record.end_record(value, 2.0, outcome="failed", cause="crash", exit_code=1))
    found = look(api, namespace, tmp_path)
    assert "oom_gpu" in [code for code, _ in causes(found)]
