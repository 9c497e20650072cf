# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many objects in one burst: each asked once; what the burst cannot settle is settled with patience."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http import connection_pool
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
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


def one_of_each(namespace: str) -> list[Object]:
    meta = {"name": "a", "namespace": namespace}
    kinds: list[Object] = [{"kind": "Secret"}, {"kind": "ServiceAccount"}, {"kind": "Service"}, {"kind": "ConfigMap"}]
    kinds[2]["spec"] = {"clusterIP": "None", "ports": [{"port": 80}]}
    return [{"apiVersion": "v1", "metadata": meta, **kind} for kind in kinds]


def test_what_is_there_is_asked_over_one_connection(
    api: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single objects and lists, those that are there and those that are not."""
    opened: list[t.Any] = []
    real = connection_pool.connect
    monkeypatch.setattr(connection_pool, "connect", lambda *given: opened.append(given) or real(*given))
    objects = [*one_of_each(namespace), *config_maps(namespace, 3)]
    for actions, writes in (({"created"}, 7), ({"unchanged"}, 0)):
        opened.clear()
        result = apply(connect({"kubeconfig": str(api.kubeconfig)}), objects)
        assert {change.action for change in result.changes} == actions and result.writes == writes
        assert (result.requests, len(opened)) == (4 + writes, 1)


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
    _level, flow = apply(client, no_seats(namespace)).objects()
    rule = str((flow or {})["metadata"]["uid"])
    heard: list[HttpResponse] = []
    inner = limited.line.tally.inner

    class Heard:
        """Notes what the server answers."""

        def __call__(self, *args: t.Any) -> t.Any:
            heard.append(inner(*args))
            return heard[-1]

    t.cast(t.Any, limited.line.tally).inner = Heard()
    end = time.monotonic() + 30
    while not heard or heard[-1].headers.get("x-kubernetes-pf-flowschema-uid") != rule:
        # The server takes the rule in a moment after it was made. One request at a time it lets pass even so.
        assert time.monotonic() < end, "the rule does not govern the writes"
        limited.apply(config_maps(namespace, 1)[0], dry_run=True)

    def clear() -> None:
        while not any(answer.status == 429 for answer in heard) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)
        client.delete("flowcontrol.apiserver.k8s.io/v1/FlowSchema", namespace)

    worker = threading.Thread(target=clear)
    worker.start()
    began = time.monotonic()
    # So many that each connection is in use.
    result = apply(limited, config_maps(namespace, 80))
    took = time.monotonic() - began
    worker.join()
    assert {change.action for change in result.changes} == {"created"} and 1.0 <= took < 30
    told = [answer.headers.get("retry-after", "") for answer in heard if answer.status == 429]
    # It says so for longer, the more it had to refuse.
    assert told and all(after.isdigit() and int(after) >= 1 for after in told), "the server said when to come back"
    # Eight at once, a second apart or more: nobody hammers a server that asks for peace.
    assert len(told) <= 12 * (took + 2)
