# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a job from starting reaches the user within seconds, with its cause, on a real cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.kube_plays import Controller, Dict, command
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, KubeLab, Team

LIMIT_S = 10
MINE = "muster.training/run-id"


@dataclasses.dataclass(frozen=True)
class Case:
    """The words of a cause, what puts it in the way, the job that meets it; ``probed``: its probe meets it already."""

    said: str
    obstacle: t.Callable[[KubeLab, Team], contextlib.AbstractContextManager[None]]
    job: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    probed: bool = False


@contextlib.contextmanager
def nothing(_lab: KubeLab, _team: Team) -> t.Iterator[None]:
    """The job itself is what cannot start."""
    yield


@contextlib.contextmanager
def full_queue(lab: KubeLab, team: Team) -> t.Iterator[None]:
    """Kueue's quota is too small for the job."""
    body = {"spec": {"resourceGroups": [_group(team, "50m")]}}
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{team.namespace}"
    assert lab.api.ask("PATCH", path, body, "application/merge-patch+json")[0] == 200
    yield


def _group(team: Team, cpu: str) -> Dict:
    resources = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "8Gi"}]
    return {"coveredResources": ["cpu", "memory"], "flavors": [{"name": team.namespace, "resources": resources}]}


@contextlib.contextmanager
def pod_quota(lab: KubeLab, team: Team) -> t.Iterator[None]:
    """The namespace may have no pods."""
    meta = {"name": "none", "namespace": team.namespace}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}}
    assert lab.api.ask("POST", f"/api/v1/namespaces/{team.namespace}/resourcequotas", body)[0] == 201
    time.sleep(1)
    yield


@contextlib.contextmanager
def restricted(lab: KubeLab, team: Team) -> t.Iterator[None]:
    """The namespace admits no pod with a folder of its node."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    body = {"metadata": {"labels": labels}}
    path = f"/api/v1/namespaces/{team.namespace}"
    assert lab.api.ask("PATCH", path, body, "application/merge-patch+json")[0] == 200
    yield


@contextlib.contextmanager
def broken_webhook(lab: KubeLab, team: Team) -> t.Iterator[None]:
    """A webhook that pods of the namespace have to pass does not answer."""
    name, path = f"broken-{team.namespace}", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {
        "name": "broken.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    assert lab.api.ask("POST", path, {**body, "metadata": {"name": name}, "webhooks": [hook]})[0] == 201
    time.sleep(1)
    try:
        yield
    finally:
        lab.api.ask("DELETE", f"{path}/{name}")


HOST_PATH = {"mounts": [{"name": "here", "path": "/here", "host_path": "/tmp"}]}
NO_IMAGE = {"image": "localhost/muster-lab/no-such-image:1"}
CASES = {
    "image": Case("its image cannot be pulled", nothing, NO_IMAGE, probed=True),
    "unschedulable": Case("no node has room for it", nothing, {"resources": {"cpu": 3, "memory": "64Mi"}}),
    "queue": Case("will never fit: 0.2 CPU asked, the queue has 0.05", full_queue),
    "quota": Case("the namespace's quota is used up", pod_quota, probed=True),
    "admission": Case("refused by an admission rule of the cluster", restricted, HOST_PATH),
    "webhook": Case("an admission webhook of the cluster does not answer", broken_webhook, probed=True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_reaches_the_user_in_time(name: str, kube_lab: KubeLab, tmp_path: pathlib.Path) -> None:
    """From the moment that the cluster has the object that cannot start to the line that the user reads."""
    case = CASES[name]
    with kube_lab.namespace(cpu="20", memory="8Gi") as team, case.obstacle(kube_lab, team):
        play = Controller(kube_lab, team, tmp_path).start("train", command("true", **case.job))
        try:
            assert until(lambda: made(kube_lab, team, case) or play.ended, 60, 0.1), play.output
            began = time.monotonic()
            until(lambda: case.said in play.output or play.ended, 60, 0.1)
            took = time.monotonic() - began
            assert case.said in play.output, play.output
            NOTES.append(f"cause {name}: told {took:.1f} s after its object was there")
            assert took <= LIMIT_S, f"{took:.1f} s: {play.output}"
            assert "Traceback" not in play.output
        finally:
            play.stop()


def made(lab: KubeLab, team: Team, case: Case) -> bool:
    """Return whether the cluster has what cannot start: the probe's Job or the JobSet."""
    kind = (
        "/apis/batch/v1/namespaces/{}/jobs" if case.probed else "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
    )
    return bool(lab.items(kind.format(team.namespace)))


def test_a_claim_that_is_not_there_is_refused_before_anything_is_made(
    kube_lab: KubeLab, team: Team, tmp_path: pathlib.Path
) -> None:
    controller = Controller(kube_lab, team, tmp_path)
    mounts = [{"name": "data", "path": "/data", "pvc": "missing"}]
    code, output = controller.play("train", command("true", mounts=mounts))
    assert code != 0 and "PersistentVolumeClaim missing does not exist in the namespace" in output
    assert kube_lab.pods(team.namespace) == []
