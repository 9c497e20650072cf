# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many objects in one burst: each asked once; what the burst cannot settle is settled with patience."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.connect import connect
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

Object = dict[str, t.Any]
READER = "reader-token-0123456789"


def config_maps(namespace: str, number: int, size: int = 1) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"c{n}", "namespace": namespace},
            "data": {"a": "x" * size},
        }
        for n in range(number)
    ]


@pytest.fixture
def no_single_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: t.Any, **_values: t.Any) -> None:
        raise AssertionError("an object was applied by itself")

    monkeypatch.setattr(Client, "apply", fail)


@pytest.mark.usefixtures("no_single_applies")
@pytest.mark.parametrize("size", [1, 5_000, 400_000], ids=["announced length", "chunked", "many records"])
def test_all_are_applied_in_one_burst(client: Client, namespace: str, size: int) -> None:
    objects = config_maps(namespace, 12, size)
    result = apply(client, objects)
    assert {change.action for change in result.changes} == {"created"} and result.requests == 13
    live = {item["metadata"]["name"]: item["data"] for item in client.list("ConfigMap", namespace).items}
    assert live == {item["metadata"]["name"]: item["data"] for item in objects}
    assert apply(client, objects).writes == 0


@pytest.mark.usefixtures("no_single_applies")
def test_refused_objects_are_asked_once_and_named(client: Client, namespace: str) -> None:
    objects = config_maps(namespace, 6)
    for item in objects[:2]:
        item["data"] = {"a": 1}
    before = client.requests
    with pytest.raises(MusterError, match=r"2 objects were refused \(4 of 6 were applied\).*ConfigMap test-\d+/c0: "):
        apply(client, objects)
    assert client.requests - before == 7


def test_connections_that_died_meanwhile_cost_nothing_but_a_second_try(
    client: Client, api: ApiServer, namespace: str
) -> None:
    client.list("ConfigMap", namespace)
    api.stop_api()
    api.start_api()
    result = apply(client, config_maps(namespace, 30))
    assert {change.action for change in result.changes} == {"created"}


def rights(client: Client, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch", "create"]}
    meta = {"name": "reader-writes", "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
    binding: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader-writes"},
        "subjects": [{"kind": "User", "name": "reader"}],
    }
    apply(client, [role, binding])


def no_seats(name: str) -> list[Object]:
    """A priority level that lets nobody in, and a rule that sends the reader's writes there."""
    group = "flowcontrol.apiserver.k8s.io"
    level: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}},
        },
    }
    rule = {"verbs": ["patch"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    flow: Object = {
        "apiVersion": f"{group}/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": name},
            "matchingPrecedence": 100,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "reader"}}], "resourceRules": [rule]}],
        },
    }
    return [level, flow]


def test_an_overloaded_server_is_waited_for(client: Client, api: ApiServer, namespace: str) -> None:
    rights(client, namespace)
    limited = connect({"kubeconfig": api.config({"token": READER})})
    probe = config_maps(namespace, 1)[0]
    apply(client, no_seats(namespace))
    statuses: list[tuple[int, str]] = []
    inner = limited.line.tally.inner

    class Heard:
        """Notes what the server answers."""

        def __call__(self, *args: t.Any) -> t.Any:
            answer = inner(*args)
            statuses.append((answer.status, answer.headers.get("retry-after", "")))
            return answer

    t.cast(t.Any, limited.line.tally).inner = Heard()

    def clear() -> None:
        # Once it has refused: the server takes the rule in a moment after it was made.
        end = time.monotonic() + 20
        while not any(status == 429 for status, _ in statuses) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)
        client.delete("flowcontrol.apiserver.k8s.io/v1/FlowSchema", namespace)

    def refused() -> bool:
        raw = connect({"kubeconfig": api.config({"token": READER}), "patience_s": 1})
        try:
            raw.apply(probe, dry_run=True)
        except MusterError as error:
            return "429" in str(error) or "overloaded" in str(error)
        return False

    for _ in range(100):
        if refused():
            break
        time.sleep(0.1)
    worker = threading.Thread(target=clear)
    worker.start()
    began = time.monotonic()
    result = apply(limited, config_maps(namespace, 12))
    took = time.monotonic() - began
    worker.join()
    assert {change.action for change in result.changes} == {"created"} and 1.0 <= took < 30
    told = [after for status, after in statuses if status == 429]
    assert told and all(after == "1" for after in told), "the server said when to come back"
    # Eight at once, a second apart: nobody hammers a server that asks for peace.
    assert len(told) <= 12 * (took + 2)
