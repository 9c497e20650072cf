# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting against a real API server: one watch per kind, how fast an event is seen, causes of failures."""

from __future__ import annotations

import statistics
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.status import condition_rule
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Object = dict[str, t.Any]


def job(name: str, namespace: str) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    meta = {"name": name, "namespace": namespace, "labels": {"set": "wait"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}}


def deployment(name: str, namespace: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": name}},
            "template": {
                "metadata": {"labels": {"a": name}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
    }


def finish(client: Client, name: str, namespace: str, kind: str = "Complete") -> None:
    """Do what the Job controller does when a job ends."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"status": "True", "reason": "Told", "message": "as the test says", "lastTransitionTime": now}
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
    end: Object = {"completionTime": now, "succeeded": 1} if kind == "Complete" else {"failed": 1}
    status = {"startTime": now, "conditions": [{"type": before, **said}, {"type": kind, **said}], **end}
    client.patch("Job", name, {"status": status}, namespace, subresource="status")


def roll_out(client: Client, name: str, namespace: str) -> None:
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    client.patch("Deployment", name, {"status": status}, namespace, subresource="status")


def test_two_hundred_objects_cost_two_requests_per_kind(client: Client, api: ApiServer, namespace: str) -> None:
    objects = [job(f"j{n}", namespace) for n in range(100)] + [deployment(f"d{n}", namespace) for n in range(100)]
    apply(client, objects)
    wishes = [WaitTarget(client.resource(item), namespace, item["metadata"]["name"]) for item in objects]
    results: list[t.Any] = []
    waiter = connect({"kubeconfig": str(api.kubeconfig)})
    worker = threading.Thread(target=lambda: results.append(wait(waiter, wishes, timeout_s=120)))
    worker.start()
    for item in objects:
        act = finish if item["kind"] == "Job" else roll_out
        act(client, item["metadata"]["name"], namespace)
    worker.join(60)
    assert results and results[0].end == "done" and len(results[0].states) == 200
    assert results[0].requests <= 2 * 2


def test_an_event_is_seen_within_a_fifth_of_a_second(client: Client, api: ApiServer, namespace: str) -> None:
    delays = []
    for number in range(7):
        name = f"seen-{number}"
        client.create(job(name, namespace))
        ended: list[float] = []
        waiter = connect({"kubeconfig": str(api.kubeconfig)})
        wish = WaitTarget(waiter.resource("batch/v1/Job"), namespace, name)

        def follow(waiter: Client = waiter, wish: WaitTarget = wish, ended: list[float] = ended) -> None:
            assert wait(waiter, [wish], timeout_s=30).end == "done"
            ended.append(time.monotonic())

        worker = threading.Thread(target=follow)
        worker.start()
        time.sleep(0.4)
        began = time.monotonic()
        finish(client, name, namespace)
        worker.join(20)
        delays.append(ended[0] - began)
    assert statistics.median(delays) <= 0.2, delays


def test_a_failed_job_ends_the_wait_with_its_cause(client: Client, namespace: str) -> None:
    apply(client, [job("good", namespace), job("bad", namespace)])
    finish(client, "bad", namespace, "Failed")
    wishes = [WaitTarget(client.resource("batch/v1/Job"), namespace, name) for name in ("good", "bad")]
    outcome = wait(client, wishes, timeout_s=20)
    assert outcome.end == "failed" and outcome.duration_s < 10
    assert outcome.summary() == f"Job {namespace}/bad Told: as the test says"


def test_what_is_missing_is_told_at_the_timeout(client: Client, namespace: str) -> None:
    client.create(job("there", namespace))
    wishes = [WaitTarget(client.resource("batch/v1/Job"), namespace, name) for name in ("there", "never")]
    outcome = wait(client, wishes, timeout_s=1)
    assert outcome.end == "timeout"
    assert outcome.summary() == f"Job {namespace}/there has no pods yet; Job {namespace}/never does not exist yet"


def test_labels_counts_conditions_and_absence(client: Client, namespace: str) -> None:
    kind = client.resource("batch/v1/Job")
    wish = WaitTarget(kind, namespace, labels="set=wait", count=2)
    client.create(job("one", namespace))
    assert wait(client, [wish], until="present", timeout_s=1).end == "timeout"
    client.create(job("two", namespace))
    assert wait(client, [wish], until="present", timeout_s=10).end == "done"
    finish(client, "one", namespace)
    rule = condition_rule("Complete")
    assert wait(client, [WaitTarget(kind, namespace, "one")], rule=rule, timeout_s=10).end == "done"
    gone = WaitTarget(kind, namespace, "two")
    held = wait(client, [gone], until="absent", timeout_s=1)
    assert held.end == "timeout" and "its deletion was not requested" in held.summary()
    threading.Timer(0.3, lambda: client.delete(kind, "two", namespace)).start()
    assert wait(client, [gone], until="absent", timeout_s=20).end == "done"


def test_several_namespaces_are_one_watch_or_one_each_where_rights_are_narrow(
    client: Client, api: ApiServer, namespace: str
) -> None:
    other = f"{namespace}-b"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    for place in (namespace, other):
        client.create(job("j", place))
        finish(client, "j", place)
    wishes = [WaitTarget(client.resource("batch/v1/Job"), place, "j") for place in (namespace, other)]
    assert wait(client, wishes, timeout_s=20).requests == 2
    limited = connect({"kubeconfig": api.config({"token": "reader-token-0123456789"})})
    with pytest.raises(MusterError, match='User "reader" cannot list'):
        wait(limited, wishes, timeout_s=5)
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]}]
    group = "rbac.authorization.k8s.io"
    for place in (namespace, other):
        meta = {"name": "watcher", "namespace": place}
        role: Object = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules}
        binding: Object = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "watcher"},
            "subjects": [{"kind": "User", "name": "reader"}],
        }
        apply(client, [role, binding])
    time.sleep(0.5)
    assert wait(limited, wishes, timeout_s=20).end == "done"
