# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is repeated and waited for: 429, outages, webhooks that are down."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Object = dict[str, t.Any]


PODS = "/api/v1/namespaces/team/pods"


MAPS = "/api/v1/namespaces/team/configmaps"


def status(code: int, reason: str = "", message: str = "", causes: list[Object] | None = None) -> Object:
    details = {"causes": causes} if causes else {}
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def make(script: Script, clock: FakeClock | None = None, **options: t.Any) -> Client:
    given = {"host": "https://kube.example", "token": "token-0123456789", **options}
    exchange: t.Any = script
    return connect(given, environ={}, exchange=exchange, clock=clock or FakeClock())


def config_map(name: str = "a", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"}, "data": data}


def test_429_waits_as_long_as_it_is_told() -> None:
    clock = FakeClock()
    busy = Call("POST", MAPS, status=429, answer=status(429), answer_headers={"Retry-After": "3"})
    with Script(busy, busy, Call("POST", MAPS, status=201, answer=config_map())) as script:
        make(script, clock).create(config_map())
    assert len(clock.slept) == 2 and all(3 <= pause <= 3.3 for pause in clock.slept)


def test_the_servers_time_is_that_of_its_last_answer() -> None:
    clock = FakeClock()
    dates = ["Sun, 22 Nov 2026 10:00:00 GMT", "", "yesterday", "Sun, 99 Nov 2026 10:00:00 GMT"]
    calls = [Call("GET", f"{PODS}/p", answer={}, answer_headers={"Date": date}) for date in dates]
    with Script(*calls) as script:
        client = make(script, clock)
        assert client.transport.stats.server_time() is None
        client.get("Pod", "p", "team")
        clock.sleep(7)
        assert client.transport.stats.server_time() == 1795341607.0
        for _unused in dates[1:]:
            client.get("Pod", "p", "team")
            assert client.transport.stats.server_time() is None


def test_429_without_end_is_said_in_one_line() -> None:
    busy = [Call("GET", PODS, status=429, answer=status(429), answer_headers={"Retry-After": "5"}) for _ in range(40)]
    script = Script(*busy)
    with pytest.raises(KubeError, match="listing Pod in team: the API server is overloaded") as caught:
        make(script).list("Pod", "team")
    assert caught.value.status == 429


def test_a_lost_answer_is_asked_again_only_where_that_is_harmless() -> None:
    lost = ExchangeError("the connection was lost", transient=True)
    path = f"{MAPS}/a"
    with Script(Call("PATCH", path, failure=lost), Call("PATCH", path, answer=config_map())) as script:
        make(script).apply(config_map())
    with Script(Call("POST", MAPS, failure=lost)) as script, pytest.raises(TransportError) as caught:
        make(script).create(config_map())
    assert caught.value.ambiguous


def test_403_right_after_an_outage_is_asked_again() -> None:
    away = ExchangeError("no connection", sent=False, transient=True)
    refused = Call("GET", f"{PODS}/p", status=403, answer=status(403, "Forbidden", "not yet"))
    with Script(Call("GET", f"{PODS}/p", failure=away), refused, Call("GET", f"{PODS}/p", answer={})) as script:
        make(script).get("Pod", "p", "team")
    with Script(refused) as script, pytest.raises(KubeError, match="not yet"):
        make(script).get("Pod", "p", "team")


def test_an_outage_is_told_once_it_lasts_and_when_it_is_over() -> None:
    away = ExchangeError("no connection", sent=False, transient=True)
    get, good = Call("GET", f"{PODS}/p", failure=away), Call("GET", f"{PODS}/p", answer={})
    said: list[str] = []
    with Script(good, get, good, *[get] * 30, good, get, good) as script:
        client = make(script, FakeClock())
        client.transport.stats.report = said.append
        client.get("Pod", "p", "team")
        # A connection that broke is no outage.
        client.get("Pod", "p", "team")
        assert said == []
        client.get("Pod", "p", "team")
        client.get("Pod", "p", "team")
    assert len(said) == 2
    assert said[0] == "the API server does not answer: waiting for it"
    assert re.fullmatch(r"the API server answers again after \d+ s", said[1])


def test_a_clock_stands_still_in_outages() -> None:
    away = ExchangeError("no connection", sent=False, transient=True)
    get, good = Call("GET", f"{PODS}/p", failure=away), Call("GET", f"{PODS}/p", answer={})
    busy = Call("GET", f"{PODS}/p", status=503, raw=b"starting", answer_headers={"Retry-After": "4"})
    clock = FakeClock()
    with Script(good, *[get] * 10, good, busy, good) as script:
        client = make(script, clock)
        tally, lengths = client.transport.stats, []
        for _unused in range(3):
            began = clock.now
            client.get("Pod", "p", "team")
            lengths.append(clock.now - began)
            clock.sleep(100)
            assert tally.up_s() == pytest.approx(clock.now - sum(lengths))
    assert lengths[0] == 0 and lengths[1] > 5 and lengths[2] >= 4


def test_an_eviction_that_is_refused_right_after_an_outage_is_asked_again() -> None:
    away = ExchangeError("no connection", sent=False, transient=True)
    pod: Object = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}
    refused = Call("POST", f"{PODS}/p/eviction", status=403, answer=status(403, "Forbidden", "not yet"))
    done = Call("POST", f"{PODS}/p/eviction", status=201, answer={})
    with Script(Call("POST", f"{PODS}/p/eviction", failure=away), refused, refused, done) as script:
        assert make(script).evict(pod) == ""
    with Script(refused) as script, pytest.raises(KubeError, match="not yet"):
        make(script).evict(pod)


def test_a_webhook_that_an_outage_took_along_is_waited_for() -> None:
    """For as long as what stands behind it may need to start again, not longer, and only after an outage."""
    away = ExchangeError("no connection", sent=False, transient=True)
    outage = (Call("GET", f"{PODS}/p", failure=away), Call("GET", f"{PODS}/p", answer={}))
    lost = 'Internal error occurred: failed calling webhook "mjobset.kb.io": connect: connection refused'
    refused = Call("POST", MAPS, status=500, answer=status(500, "InternalError", lost))

    said: list[str] = []

    def create(script: Script) -> None:
        client = make(script, FakeClock())
        client.transport.stats.report = said.append
        client.get("Pod", "p", "team")
        assert client.transport.is_recovering()
        client.create(config_map())

    made = Call("POST", MAPS, status=201, answer=config_map())
    with Script(*outage, *[refused] * 300, made) as script:
        create(script)
    names = r"the admission webhook mjobset\.kb\.io does not answer"
    assert len(said) == 1 and re.search(
        rf"ConfigMap team/a: {names}.*: waiting for it, because the API server was", said[0]
    )
    with Script(refused) as script, pytest.raises(KubeError, match=names):
        make(script, FakeClock()).create(config_map())
    script = Script(*outage, *[refused] * 700)
    with pytest.raises(KubeError, match=names):
        create(script)
    other = Call("POST", MAPS, status=500, answer=status(500, "InternalError", "etcd has a fault"))
    with Script(*outage, other) as script, pytest.raises(KubeError, match="etcd has a fault"):
        create(script)


def test_what_a_budget_or_a_kubelet_says_is_no_outage() -> None:
    """Else nothing final would be taken for final, and the user would read that the server is away."""
    pod: Object = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}
    spent = Call("POST", f"{PODS}/p/eviction", status=429, answer=status(429, "TooManyRequests", "budget web is spent"))
    with Script(spent) as script:
        client = make(script)
        assert "budget web is spent" in client.evict(pod)
        assert not client.transport.is_recovering()
