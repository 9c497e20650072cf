# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that is down for seconds and for minutes, in virtual time."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.outage_server import FRONTS, LATE, Cluster

Object = dict[str, t.Any]


# A server that was away is up a moment before it serves.


@FRONTS
@pytest.mark.parametrize("seconds", [5, 60, 300])
def test_an_apply_outlives_an_outage(seconds: float, front: HttpResponse | None) -> None:
    cluster = Cluster(FakeClock(), seconds, front)
    result = apply(cluster.client(), {**LATE, "metadata": {"name": "late", "namespace": "team"}, "data": {"a": "1"}})
    assert [change.action for change in result.changes] == ["created"]
    assert cluster.stored is not None and cluster.stored["data"] == {"a": "1"}
    assert cluster.clock.now - cluster.end < 10 and cluster.asked <= seconds + 10


def test_longer_than_patience_is_told_in_one_line() -> None:
    cluster = Cluster(FakeClock(), 3600)
    client = cluster.client()
    with pytest.raises(TransportError, match="watching ConfigMap in team: no connection to kube.example") as caught:
        wait(client, [WaitTarget(client.resource("ConfigMap"), "team", "late")], until="present", timeout_s=7200)
    assert "\n" not in str(caught.value) and 300 < cluster.clock.now - cluster.begin < 420
    cluster = Cluster(FakeClock(), 3600)
    with pytest.raises(TransportError, match="no connection to kube.example"):
        apply(cluster.client(), {**LATE, "metadata": {"name": "late", "namespace": "team"}})
    assert 300 < cluster.clock.now - cluster.begin < 420


class Sick:
    """An API server that answers each request with the next status of ``answers``, with 200 after the last."""

    def __init__(self, *answers: int, message: str = "etcdserver: request timed out") -> None:
        self.answers = list(answers)
        self.message = message
        self.asked: list[str] = []
        self.clock = FakeClock()
        exchange: t.Any = self
        given = {"host": "https://kube.example", "token": "t-0123456789"}
        self.client = connect(given, environ={}, exchange=exchange, clock=self.clock)

    def __call__(self, origin: t.Any, request: t.Any, deadline: t.Any) -> HttpResponse:
        self.asked.append(request.method)
        if not self.answers:
            return HttpResponse(200, {}, json.dumps(LATE).encode())
        code = self.answers.pop(0)
        said = {"kind": "Status", "code": code, "reason": "InternalError", "message": self.message}
        return HttpResponse(code, {}, json.dumps(said if code != 200 else LATE).encode())


ELECTIONS = ["etcdserver: request timed out", "etcdserver: leader changed", "rpc error: leader changed"]


VALUE: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": "team"}}


@pytest.mark.parametrize("message", ELECTIONS)
def test_an_election_of_the_store_is_waited_for_where_repeating_is_harmless(message: str) -> None:
    sick = Sick(500, 500, message=message)
    assert sick.client.get("v1/ConfigMap", "late", "team") == LATE and sick.asked == ["GET"] * 3
    sick = Sick(200, 500, 500, message=message)
    sick.client.get("v1/ConfigMap", "late", "team")
    assert sick.client.apply(VALUE) == LATE and sick.asked[1:] == ["PATCH"] * 3
    sick = Sick(500, message=message)
    with pytest.raises(KubeError) as caught:
        sick.client.create(VALUE)
    assert caught.value.ambiguous and sick.asked == ["POST"]


def test_a_fault_that_stays_is_told_within_seconds() -> None:
    for ask in (lambda client: client.get("v1/ConfigMap", "late", "team"), lambda client: client.apply(VALUE)):
        sick = Sick(*[500] * 99)
        began = sick.clock.now
        with pytest.raises(KubeError, match="ConfigMap team/late: etcdserver: request timed out"):
            ask(sick.client)
        assert len(sick.asked) == 5 and sick.clock.now - began < 10


@pytest.mark.parametrize("message", ["etcdserver: request is too large", 'failed calling webhook "a.b": EOF', "a bug"])
def test_a_write_that_failed_for_another_cause_is_sent_once(message: str) -> None:
    sick = Sick(*[500] * 9, message=message)
    with pytest.raises(KubeError):
        sick.client.apply(VALUE)
    assert sick.asked == ["PATCH"]


@pytest.mark.parametrize("code", [502, 503, 504])
def test_an_address_that_never_served_is_not_waited_for_as_long(code: int) -> None:
    sick = Sick(*[code] * 999)
    for limit in (25, 65):
        began = sick.clock.now
        with pytest.raises(TransportError, match=f"{code}"):
            sick.client.get("v1/ConfigMap", "late", "team")
        assert sick.clock.now - began < limit
    sick = Sick(200, *[code] * 999)
    sick.client.get("v1/ConfigMap", "late", "team")
    began = sick.clock.now
    with pytest.raises(TransportError, match=f"{code}"):
        sick.client.get("v1/ConfigMap", "late", "team")
    assert 350 < sick.clock.now - began < 365 and len(sick.asked) < 365
