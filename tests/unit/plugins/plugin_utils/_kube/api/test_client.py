# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the client sends, call by call."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

Object = dict[str, t.Any]


PODS = "/api/v1/namespaces/team/pods"


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
    expected = "listing Pod in team: https://kube.example returns the same page again and again. Check which"
    with pytest.raises(TransportError, match=expected):
        make(script).list("Pod", "team")
    assert len(script.done) == len(set(tokens)) + 1


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


def test_pods_of_a_namespace_that_goes_are_on_their_way() -> None:
    going = [{"reason": "NamespaceTerminating", "message": "namespace team is being terminated", "field": ""}]
    pod: Object = {"metadata": {"name": "p", "namespace": "team", "uid": "u"}}
    path = f"{PODS}/p/eviction"
    with Script(Call("POST", path, status=403, answer=status(403, "Forbidden", "not now", going))) as script:
        assert make(script).evict(pod) == ""
    refused = Call("POST", path, status=403, answer=status(403, "Forbidden", "you may not"))
    with Script(refused) as script, pytest.raises(KubeError, match="you may not"):
        make(script).evict(pod)
