# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a follower says of pods that cannot start, and of a credential that is rejected: a real API server."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    pending,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import (
    RUN,
    Dict,
    home,
    job,
    request,
    started,
    unproven,
)
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import READER, reader, record_of, until
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.run_world import Said

__all__ = ["home", "reader", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
NO_PYTHON = 'OCI runtime create failed: exec: "python3": executable file not found in $PATH: unknown'
IMAGE = "registry.example:5000/team/train:1"


class Following:
    """The run and its follower in a thread; ``lines`` is what it has said so far."""

    def __init__(self, api: ApiServer, home: StateHome, namespace: str, base: pathlib.Path, **options: t.Any) -> None:
        self.request = request(api, base, wait=True, **options)
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._found = self._pool.submit(kubernetes_run.run, self.request, home, job(namespace))
        assert until(lambda: (home.run_folder(RUN) / "offsets.json").exists() or self._found.done())

    @property
    def lines(self) -> list[str]:
        return list(t.cast(Said, self.request.progress).lines)

    def says(self, text: str) -> bool:
        return until(lambda: any(text in line for line in self.lines) or self._found.done()) and any(
            text in line for line in self.lines
        )

    def result(self) -> Dict:
        return t.cast(Dict, self._found.result(60))


@contextlib.contextmanager
def followed(
    api: ApiServer, client: Client, home: StateHome, namespace: str, base: pathlib.Path, **options: t.Any
) -> t.Iterator[tuple[Dict, Following]]:
    """Start the run and follow it; what is left of it in the end is cancelled."""
    live = started(api, client, home, namespace, base)
    following = Following(api, home, namespace, base, **options)
    try:
        yield live, following
    finally:
        for pod in client.list("v1/Pod", namespace).items:
            client.delete("v1/Pod", pod["metadata"]["name"], namespace, grace_s=0)
        cancel.cancel(request(api, base), home, record_of(home))
        following.result()


def pod_of_run(client: Client, namespace: str, waiting: Dict | None = None) -> Dict:
    """Make a pod of the run that is on a node and does not run there; ``waiting``: why, by its container's status."""
    spec: t.Any = {"nodeName": f"{namespace}-1", "containers": [{"name": "node", "image": IMAGE}]}
    meta: t.Any = {"name": "r-0", "namespace": namespace, "labels": {RUN_LABEL: RUN}}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    state = {"waiting": waiting or {"reason": "ContainerCreating"}}
    container = {"name": "node", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": "Pending", "containerStatuses": [container]}
    client.patch("v1/Pod", "r-0", {"status": status}, namespace, subresource="status")
    return t.cast(Dict, client.get("v1/Pod", "r-0", namespace))


def event(client: Client, about: Dict, reason: str, message: str, kind: str = "Warning") -> None:
    """Write an event about an object, as a controller or a kubelet does."""
    meta = about["metadata"]
    named = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: t.Any = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e-{uuid.uuid4().hex}", "namespace": meta["namespace"]},
        "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], **named},
        "reason": reason,
        "message": message,
        "type": kind,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    client.create(body)


def test_an_image_without_python_is_the_end_of_its_run(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """The run's last words name the program; that its engine has restarted it often enough names nothing."""
    with followed(api, client, home, namespace, tmp_path) as (_live, following):
        pod_of_run(client, namespace, {"reason": "RunContainerError", "message": NO_PYTHON})
        assert following.says("lacks the program"), following.lines
        # No kubelet ends it here.
        client.delete("v1/Pod", "r-0", namespace, grace_s=0)
        found = following.result()
    record = record_of(home)
    assert found["failed"] and (record.outcome, record.cause, len(record.attempts)) == ("failed", "container", 0)
    assert "its image lacks the program that is to start" in str(record.detail)
    assert '"python3"' in str(record.detail)


def test_what_passes_within_seconds_is_not_said(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """A webhook or a kubelet that has not read the run's objects yet asks again; what is missing is another matter."""
    with followed(api, client, home, namespace, tmp_path) as (live, following):
        pod = pod_of_run(client, namespace)
        behind = 'admission webhook "mjob.kb.io" denied the request: JobSet.jobset.x-k8s.io "r" not found'
        event(client, live, "FailedCreate", behind)
        event(
            client,
            pod,
            "FailedMount",
            'MountVolume.SetUp failed for volume "p": failed to sync configmap cache: timed out',
        )
        event(
            client,
            pod,
            "FailedMount",
            f'MountVolume.SetUp failed for volume "p": object "{namespace}"/"p" not registered',
        )
        event(client, live, "FailedCreate", "pods is forbidden: exceeded quota: small")
        assert following.says("the namespace's quota is used up"), following.lines
        said = [
            line
            for line in following.lines
            if "mjob.kb.io" in line or "configmap cache" in line or "registered" in line
        ]
        assert said == []


def test_an_image_that_is_pulled_for_long_is_named_with_its_registry(
    api: ApiServer,
    client: Client,
    home: StateHome,
    namespace: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the pod's own events, which are no warnings."""
    monkeypatch.setattr(pending, "_PULLING_S", 1.0)
    with followed(api, client, home, namespace, tmp_path) as (_live, following):
        pod = pod_of_run(client, namespace)
        event(client, pod, "Pulling", f'Pulling image "{IMAGE}"', kind="Normal")
        said = f"{IMAGE}, from the registry registry.example:5000, for more than 1 s"
        assert following.says(said), following.lines


def test_a_rejected_credential_names_the_run_that_keeps_running(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, reader: Dict
) -> None:
    """Which run, that it is running, what follows it again, and where its record is."""
    tokens = api.root / "tokens.csv"
    before = tokens.read_text()
    with followed(api, client, home, namespace, tmp_path, **reader) as (live, following):
        tokens.write_text("".join(line for line in before.splitlines(keepends=True) if not line.startswith(READER)))
        api.stop_api()
        try:
            api.start_api()
            found = following.result()
        finally:
            api.stop_api()
            tokens.write_text(before)
            api.start_api()
        said = f"run {RUN} is no longer followed; it keeps running, and the same command follows it: "
        assert found["failed"] and str(found["msg"]).startswith(said) and "(401)" in str(found["msg"]), found["msg"]
        assert (found["run_id"], found["folder"]) == (RUN, str(home.run_folder(RUN)))
        assert not record_of(home).is_ended and client.get(t.cast(t.Any, live), RUN, namespace) is not None
