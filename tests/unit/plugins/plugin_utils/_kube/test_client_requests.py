# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the client sends, repeats and refuses, call by call."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
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


def test_a_get_sends_the_credential_and_no_more() -> None:
    call = Call(
        "GET", f"{PODS}/p", answer={"kind": "Pod"}, query=[], headers={"Authorization": "Bearer token-0123456789"}
    )
    with Script(call) as script:
        assert make(script).get("Pod", "p", "team") == {"kind": "Pod"}


def test_names_are_encoded() -> None:
    with Script(Call("GET", "/api/v1/namespaces/team/pods/a%2F..%2Fb", status=404, answer=status(404))) as script:
        assert make(script).get("Pod", "a/../b", "team") is None


def test_pages_are_put_together_and_begun_again_when_forgotten() -> None:
    def page(names: str, token: str = "", left: int = 0) -> Object:
        meta = {"resourceVersion": "7", "continue": token, "remainingItemCount": left}
        return {"metadata": meta, "items": [{"metadata": {"name": name, "uid": name}} for name in names]}

    with Script(
        Call("GET", PODS, answer=page("ab", "t", 1), query=[("limit", "500")]),
        Call("GET", PODS, status=410, answer=status(410, "Expired"), query=[("limit", "500"), ("continue", "t")]),
        Call("GET", PODS, answer=page("bc"), query=[("limit", "0")]),
    ) as script:
        listing = make(script).list("Pod", "team")
    assert [item["metadata"]["name"] for item in listing.items] == ["b", "c"]
    assert listing.items[0]["kind"] == "Pod" and listing.resource_version == "7"


@pytest.mark.parametrize("tokens", ["tt", "abab", "abcabc"])
def test_pages_that_come_again_are_refused(tokens: str) -> None:
    calls = [Call("GET", PODS, answer={"metadata": {"continue": token}, "items": []}) for token in tokens]
    script = Script(*calls)
    expected = "listing Pod in team: https://kube.example gives the same page again, without end. Check what"
    with pytest.raises(TransportError, match=expected):
        make(script).list("Pod", "team")
    assert len(script.done) == len(set(tokens)) + 1


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
        assert client.line.tally.server_time() is None
        client.get("Pod", "p", "team")
        clock.sleep(7)
        assert client.line.tally.server_time() == 1795341607.0
        for _unused in dates[1:]:
            client.get("Pod", "p", "team")
            assert client.line.tally.server_time() is None


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


def test_a_401_reads_the_token_file_once_more(tmp_path: t.Any) -> None:
    path = tmp_path / "token"
    path.write_text("stale-token-0123")
    first = Call("GET", f"{PODS}/p", status=401, answer=status(401), effect=lambda: path.write_text("fresh-token-0123"))
    second = Call("GET", f"{PODS}/p", answer={"kind": "Pod"}, headers={"Authorization": "Bearer fresh-token-0123"})
    with Script(first, second) as script:
        make(script, token="", token_file=str(path)).get("Pod", "p", "team")
    refused = Call("GET", f"{PODS}/p", status=401, answer=status(401))
    expected = r"credential of user options .* was rejected \(401\)"
    with Script(refused) as script, pytest.raises(KubeError, match=expected) as caught:
        make(script).get("Pod", "p", "team")
    assert "token-0123456789" not in str(caught.value)


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
        client.line.tally.tell = said.append
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
        tally, lengths = client.line.tally, []
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
        client.line.tally.tell = said.append
        client.get("Pod", "p", "team")
        assert client.line.recovering()
        client.create(config_map())

    made = Call("POST", MAPS, status=201, answer=config_map())
    with Script(*outage, *[refused] * 300, made) as script:
        create(script)
    names = r"the admission webhook mjobset\.kb\.io does not answer"
    assert len(said) == 1 and re.search(rf"ConfigMap team/a: {names}.*: waiting for it, as the API server was", said[0])
    with Script(refused) as script, pytest.raises(KubeError, match=names):
        make(script, FakeClock()).create(config_map())
    script = Script(*outage, *[refused] * 700)
    with pytest.raises(KubeError, match=names):
        create(script)
    other = Call("POST", MAPS, status=500, answer=status(500, "InternalError", "etcd has a fault"))
    with Script(*outage, other) as script, pytest.raises(KubeError, match="etcd has a fault"):
        create(script)


def test_a_delete_of_another_object_of_the_same_name_is_none() -> None:
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
    }
    with Script(Call("DELETE", f"{PODS}/p", status=409, answer=status(409, "Conflict"), body=body)) as script:
        assert make(script).delete("Pod", "p", "team", uid="u") is False


def test_an_answer_that_is_no_object_is_refused() -> None:
    for raw in (b"<html>login</html>", b"[]", b'{"kind"', b""):
        with (
            Script(Call("GET", f"{PODS}/p", raw=raw)) as script,
            pytest.raises(TransportError, match="unexpected answer"),
        ):
            make(script).get("Pod", "p", "team")


REFUSALS: list[tuple[int, Object, str]] = [
    (
        409,
        status(
            409,
            "Conflict",
            "Apply failed",
            [
                {"reason": "FieldManagerConflict", "field": ".spec.a", "message": 'conflict with "helm" using v1'},
                {"reason": "FieldManagerConflict", "field": ".spec.b", "message": 'conflict with "helm" using v1'},
            ],
        ),
        "conflicts with other field managers: helm owns .spec.a, .spec.b",
    ),
    (
        403,
        status(
            403,
            "Forbidden",
            "it is being terminated",
            [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}],
        ),
        "its namespace is being deleted",
    ),
    (
        422,
        status(
            422, "Invalid", "x", [{"reason": "FieldValueInvalid", "field": "spec.a", "message": "field is immutable"}]
        ),
        "is not valid: spec.a: field is immutable. An immutable field needs a new object",
    ),
    (410, status(410, "Gone", "too old\nresource version"), "too old resource version"),
    (400, status(400, "BadRequest", 'strict decoding error: unknown field "spec.x"'), 'unknown field "spec.x"'),
    (
        500,
        status(500, "InternalError", 'failed calling webhook "a.b": Post "https://x": EOF'),
        "the admission webhook a.b does not answer",
    ),
]


@pytest.mark.parametrize(("code", "said", "expected"), REFUSALS, ids=[str(entry[0]) for entry in REFUSALS])
def test_refusals_are_one_line_with_object_and_reason(code: int, said: Object, expected: str) -> None:
    with Script(Call("POST", MAPS, status=code, answer=said)) as script, pytest.raises(KubeError) as caught:
        make(script).create(config_map())
    text = str(caught.value)
    assert text.startswith("ConfigMap team/a: ") and expected in text and "\n" not in text


def applied(value: Object, **fields: Object) -> Object:
    entry = {"manager": "muster", "operation": "Apply", "apiVersion": value["apiVersion"], "fieldsV1": fields}
    return {**value, "metadata": {**value["metadata"], "uid": value["metadata"]["name"], "managedFields": [entry]}}


def test_apply_reads_each_kind_once_and_sends_what_differs() -> None:
    same, other, new = config_map("same", x="1"), config_map("other", x="1"), config_map("new", x="1")
    owned = {"f:data": {"f:x": {}}}
    there = [applied(same, **owned), applied(config_map("other", x="0"), **owned)]
    sent = {"query": [("fieldManager", "muster"), ("fieldValidation", "Ignore"), ("force", "false")]}
    with Script(
        Call("GET", MAPS, answer={"items": there, "metadata": {}}),
        Call("PATCH", f"{MAPS}/other", answer=applied(other, **owned), **sent),
    ) as script:
        result = apply(make(script), [same, other])
    assert [change.action for change in result.changes] == ["unchanged", "configured"]
    assert (result.requests, result.writes) == (2, 1)
    with Script(
        Call("GET", f"{MAPS}/new", status=404, answer=status(404)),
        Call("PATCH", f"{MAPS}/new", status=201, answer=applied(new, **owned), body=new),
    ) as script:
        assert [change.action for change in apply(make(script), new).changes] == ["created"]


def test_apply_in_check_mode_sends_dry_runs_only() -> None:
    with Script(
        Call("GET", f"{MAPS}/a", status=404, answer=status(404)),
        Call(
            "PATCH",
            f"{MAPS}/a",
            answer=config_map(),
            query=[("fieldManager", "muster"), ("fieldValidation", "Ignore"), ("dryRun", "All"), ("force", "true")],
        ),
    ) as script:
        assert apply(make(script), config_map(), "muster", True, True).changed


def test_apply_stops_before_the_next_stage_when_something_is_refused() -> None:
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": {}}
    script = Script(
        Call("GET", f"{MAPS}/a", status=404, answer=status(404)),
        Call("GET", f"{PODS}/p", status=404, answer=status(404)),
        Call("PATCH", f"{MAPS}/a", status=403, answer=status(403, "Forbidden", "no right")),
    )
    unordered: t.Any = _AnyOrder(script)
    with script, pytest.raises(KubeError, match=r"ConfigMap team/a: no right \(nothing was changed\)"):
        apply(make(unordered), [pod, config_map()])


class _AnyOrder:
    """Lets reads of different kinds, which go out together, come in any order."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __call__(self, origin: t.Any, request: t.Any, deadline: t.Any) -> t.Any:
        calls = self._script._calls
        calls.sort(key=lambda call: (call.method, call.path) != (request.method, request.path))
        return self._script(origin, request, deadline)


def test_a_secret_in_a_refusal_is_not_shown() -> None:
    from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import scrub

    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "team"},
        "stringData": {"password": "correct-horse-7"},
    }
    path = "/api/v1/namespaces/team/secrets/s"
    with (
        Script(
            Call("GET", path, status=404, answer=status(404)),
            Call("PATCH", path, status=422, answer=status(422, "Invalid", "correct-horse-7 and Y29ycmVjdC1ob3JzZS03")),
        ) as script,
        pytest.raises(MusterError) as caught,
    ):
        apply(make(script), [secret])
    assert "horse" not in scrub(str(caught.value)) and "Y29ycmVjdC1ob3J" not in scrub(str(caught.value))


AGGREGATED = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": "jobset.x-k8s.io"},
            "versions": [
                {
                    "version": "v1alpha2",
                    "resources": [
                        {
                            "resource": "jobsets",
                            "singularResource": "jobset",
                            "responseKind": {"kind": "JobSet"},
                            "scope": "Namespaced",
                            "shortNames": ["js"],
                        }
                    ],
                }
            ],
        }
    ],
}


def test_discovery_takes_two_requests_and_is_kept() -> None:
    empty = {"kind": "APIGroupDiscoveryList", "items": []}
    with Script(Call("GET", "/api", answer=empty), Call("GET", "/apis", answer=AGGREGATED)) as script:
        client = make(script)
        for word in ("js", "jobsets", "JobSet", "jobset.jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha2/JobSet"):
            assert client.resource(word).path("n", "x") == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/n/jobsets/x"


def test_discovery_of_an_older_server_goes_group_by_group() -> None:
    group = {
        "name": "ray.io",
        "preferredVersion": {"version": "v1"},
        "versions": [{"version": "v1alpha1"}, {"version": "v1"}],
    }
    kinds = [{"name": "rayjobs", "kind": "RayJob", "namespaced": True}, {"name": "rayjobs/status", "kind": "RayJob"}]
    with Script(
        Call("GET", "/api", answer={"kind": "APIVersions", "versions": ["v1"]}),
        Call("GET", "/api/v1", answer={"resources": []}),
        Call("GET", "/apis", answer={"kind": "APIGroupList", "groups": [group]}),
        Call("GET", "/apis/ray.io/v1", answer={"resources": kinds}),
        Call("GET", "/apis/ray.io/v1alpha1", answer={"resources": kinds}),
    ) as script:
        assert make(script).resource("rayjobs").api_version == "ray.io/v1"


def test_built_in_kinds_need_no_discovery() -> None:
    with Script() as script:
        client = make(script)
        for word in ("Pod", "pods", "networkpolicies", "storageclass", "batch/v1/Job", "customresourcedefinitions"):
            assert client.resource(word).plural.endswith("s")


def test_what_a_budget_or_a_kubelet_says_is_no_outage() -> None:
    """Else nothing final would be taken for final, and the user would read that the server is away."""
    pod: Object = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}
    spent = Call("POST", f"{PODS}/p/eviction", status=429, answer=status(429, "TooManyRequests", "budget web is spent"))
    with Script(spent) as script:
        client = make(script)
        assert "budget web is spent" in client.evict(pod)
        assert not client.line.recovering()


def test_pods_of_a_namespace_that_goes_are_on_their_way() -> None:
    going = [{"reason": "NamespaceTerminating", "message": "namespace team is being terminated", "field": ""}]
    pod: Object = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}
    path = f"{PODS}/p/eviction"
    with Script(Call("POST", path, status=403, answer=status(403, "Forbidden", "not now", going))) as script:
        assert make(script).evict(pod) == ""
    refused = Call("POST", path, status=403, answer=status(403, "Forbidden", "you may not"))
    with Script(refused) as script, pytest.raises(KubeError, match="you may not"):
        make(script).evict(pod)
