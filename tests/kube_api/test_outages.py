# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that goes away and comes back: during apply, watch, wait and logs; forgotten versions; 429.

``MUSTER_OUTAGE_S=300`` makes the outages of a wait and of an apply as long as what is promised; by default they are
short, and the five minutes are those of a clock of the tests (test_transport_outages).
"""

from __future__ import annotations

import os
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes import drain
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.kubelet import Kubelet

Object = dict[str, t.Any]
AWAY_S = float(os.environ.get("MUSTER_OUTAGE_S") or 3.0)


def config_map(name: str, namespace: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


class Outage:
    """Stops the API server at once and starts it again after some seconds, beside the test."""

    def __init__(self, api: ApiServer, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._api.stop_api()
        time.sleep(self._seconds)
        self._api.start_api()

    def __enter__(self) -> Outage:
        self._thread.start()
        return self

    def __exit__(self, *_args: object) -> None:
        self._thread.join()


def test_apply_goes_on_after_an_outage(client: Client, api: ApiServer, namespace: str) -> None:
    objects = [config_map(f"c{n}", namespace, a=str(n)) for n in range(150)]
    done: list[t.Any] = []
    worker = threading.Thread(target=lambda: done.append(apply(client, objects)))
    worker.start()
    while not client.writes:
        time.sleep(0.001)
    with Outage(api, AWAY_S):
        worker.join(90 + AWAY_S)
    assert done and len(done[0].changes) == 150 and client.transport.stats.outage_at > 0
    assert len(client.list("ConfigMap", namespace).items) == 150
    assert apply(client, objects).writes == 0


def test_a_server_that_never_answered_is_known_to_be_away_in_seconds() -> None:
    began = time.monotonic()
    with pytest.raises(TransportError, match="no connection to 127.0.0.1 port 1"):
        connect({"host": "https://127.0.0.1:1", "token": "x" * 20}).list("Pod")
    assert time.monotonic() - began < 25


def test_patience_has_an_end(api: ApiServer, namespace: str) -> None:
    client = connect({"kubeconfig": str(api.kubeconfig), "patience_s": 2})
    watch = client.watch("ConfigMap", namespace)
    assert next(watch).type == "SYNCED"
    api.stop_api()
    began = time.monotonic()
    try:
        with pytest.raises(TransportError, match=r"watching ConfigMap in test-\d+: "):
            list(watch)
        with pytest.raises(TransportError):
            client.list("ConfigMap", namespace)
        assert time.monotonic() - began < 20
    finally:
        api.start_api()


def test_a_watch_loses_nothing_over_an_outage(client: Client, api: ApiServer, namespace: str) -> None:
    kept = client.create(config_map("kept", namespace))
    client.create(config_map("doomed", namespace))
    watch = client.watch("ConfigMap", namespace, timeout_s=90)
    seen = [next(watch) for _ in range(3)]
    assert [event.type for event in seen] == ["ADDED", "ADDED", "SYNCED"]
    with Outage(api, 2.0):
        pass
    other = connect({"kubeconfig": str(api.kubeconfig)})
    other.delete("ConfigMap", "doomed", namespace)
    other.create(config_map("new", namespace))
    events = []
    while {"doomed", "new"} - {event.object["metadata"]["name"] for event in events}:
        events.append(next(watch))
    assert ("DELETED", "doomed") in [(event.type, event.object["metadata"]["name"]) for event in events]
    assert kept["metadata"]["name"] not in [event.object["metadata"]["name"] for event in events]
    watch.close()


def test_a_forgotten_version_is_listed_again(client: Client, namespace: str) -> None:
    client.create(config_map("there", namespace))
    watch = client.watch("ConfigMap", namespace, since="1", timeout_s=30)
    events = []
    while not events or events[-1].type != "SYNCED":
        events.append(next(watch))
    assert "there" in [event.object.get("metadata", {}).get("name") for event in events]
    watch.close()


def test_a_watch_is_ended_by_another_thread(client: Client, namespace: str) -> None:
    watch = client.watch("ConfigMap", namespace)
    assert next(watch).type == "SYNCED"
    threading.Timer(0.3, watch.close).start()
    began = time.monotonic()
    assert list(watch) == [] and time.monotonic() - began < 3


def test_a_wait_survives_an_outage(client: Client, api: ApiServer, namespace: str) -> None:
    wish = WaitTarget(client.resource("ConfigMap"), namespace, "late")
    results: list[t.Any] = []
    worker = threading.Thread(
        target=lambda: results.append(wait(client, [wish], until="present", timeout_s=120 + AWAY_S))
    )
    worker.start()
    time.sleep(0.5)
    with Outage(api, AWAY_S):
        pass
    connect({"kubeconfig": str(api.kubeconfig)}).create(config_map("late", namespace))
    worker.join(60)
    assert results and results[0].end == "done" and results[0].outages >= 1


@pytest.fixture
def pod(client: Client, api: ApiServer, namespace: str) -> t.Iterator[tuple[Kubelet, str]]:
    kubelet = Kubelet(api.root)
    node = f"node-{namespace}"
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    client.patch("Node", node, {"status": status}, subresource="status")
    client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
        }
    )
    yield kubelet, namespace
    kubelet.close()
    client.delete("Node", node)


def finish(client: Client, kubelet: Kubelet, namespace: str) -> None:
    """End the container: its kubelet ends the log, and says so."""
    kubelet.finish()
    client.patch("Pod", "p", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")


def test_logs_go_on_after_a_kubelet_that_went_away(client: Client, pod: tuple[Kubelet, str]) -> None:
    """The API server ends its answers then as if the container had ended."""
    kubelet, namespace = pod
    log = client.stream_log(namespace, "p", "c")
    got = []
    for number in range(5):
        kubelet.say(f"step {number}")
        got.append(next(log))
        kubelet.cut()
    kubelet.say("last step")
    kubelet.cut()
    finish(client, kubelet, namespace)
    assert [*got, *log] == [*(f"step {number}".encode() for number in range(5)), b"last step"]
    assert log.is_whole


def test_logs_follow_to_the_end(client: Client, pod: tuple[Kubelet, str]) -> None:
    kubelet, namespace = pod
    for number in range(3):
        kubelet.say(f"early {number}")
    assert list(client.stream_log(namespace, "p", follow=False)) == [b"early 0", b"early 1", b"early 2"]
    assert list(client.stream_log(namespace, "p", follow=False, tail=1)) == [b"early 2"]
    stamped = next(client.stream_log(namespace, "p", follow=False, timestamps=True))
    assert stamped.endswith(b"Z early 0")
    log = client.stream_log(namespace, "p", "c")
    got = [next(log) for _ in range(3)]
    began = time.monotonic()
    kubelet.say("late")
    got.append(next(log))
    assert time.monotonic() - began < 1.0
    finish(client, kubelet, namespace)
    assert got + list(log) == [b"early 0", b"early 1", b"early 2", b"late"]


def test_logs_go_on_after_an_outage_without_loss_or_repetition(
    client: Client, api: ApiServer, pod: tuple[Kubelet, str]
) -> None:
    kubelet, namespace = pod
    log = client.stream_log(namespace, "p")
    said: list[str] = []

    def say(count: int) -> None:
        for _ in range(count):
            said.append(f"line {len(said)}")
            kubelet.say(said[-1])

    say(20)
    got = [next(log) for _ in range(20)]
    with Outage(api, 2.0):
        for _ in range(10):
            say(3)
            time.sleep(0.2)
    say(10)
    finish(client, kubelet, namespace)
    got += list(log)
    assert [line.decode() for line in got] == said
    assert len(kubelet.asked) >= 2 and kubelet.asked[-1].get("sinceTime")


def test_a_log_that_is_not_there(client: Client, namespace: str) -> None:
    with pytest.raises(MusterError, match=r'log of Pod test-\d+/none: pods "none" not found'):
        next(client.stream_log(namespace, "none"))


def test_a_drain_is_given_its_whole_time_beside_an_outage(client: Client, api: ApiServer, namespace: str) -> None:
    """The pod ends after the server came back; without the outage's length it would be forced off by then."""
    node, limit_s = f"node-{namespace}", 12.0
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    client.patch("Node", node, {"status": ready}, subresource="status")
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 300}
    client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec})
    said: list[str] = []
    done: list[drain.NodeRemoval] = []
    began = time.monotonic()
    worker = threading.Thread(target=lambda: done.append(drain.remove_node(client, node, limit_s, said.append)))
    worker.start()
    other = connect({"kubeconfig": str(api.kubeconfig)})
    while not t.cast(Object, other.get("v1/Pod", "p", namespace))["metadata"].get("deletionTimestamp"):
        time.sleep(0.1)
    with Outage(api, limit_s):
        pass
    other.delete("v1/Pod", "p", namespace, grace_s=0)
    worker.join(60)
    assert time.monotonic() - began > limit_s
    (left,) = done
    assert left.evicted == [f"{namespace}/p"] and left.forced == [] and left.deleted
    assert client.get("v1/Node", node) is None
