# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which answers are those of a registry, and which credentials it takes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import http_check
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.check import (
    build_request,
    check_access,
    judge,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import RegistryAccess
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry, Fault
from ansible_collections.muster.training.tests.support.loopback import Api

HARBOR = {"www-authenticate": 'Bearer realm="https://h/service/token",service="harbor-registry"'}


def binding(endpoint: str = "http://registry.mesh:5000", *refs: str) -> Binding:
    resources = [{"purpose": "images", "ref": ref, "type": "repository"} for ref in refs]
    about = {"name": "images", "component": "registry", "mode": "bind", "endpoint": endpoint}
    return Binding.from_dict({**about, "resources": resources})


@pytest.mark.parametrize(
    ("status", "kind", "text", "headers", "words"),
    [
        (200, "application/json", "{}", {}, ""),
        (401, "application/json", "{}", HARBOR, ""),
        (401, "application/json", "{}", {"www-authenticate": 'Basic realm="x"'}, ""),
        (401, "application/json", "{}", {}, "does not say how to log in"),
        (401, "application/json", "{}", {"www-authenticate": 'Bearer service="x"'}, "does not say how to log in"),
        (401, "application/json", "{}", {"www-authenticate": "Negotiate"}, "does not say how to log in"),
        (429, "application/json", "{}", {"retry-after": "7"}, "its rate limit is used up, again after 7 s"),
        (400, "text/plain", "Client sent an HTTP request to an HTTPS server.", {}, "speaks HTTPS"),
        (200, "text/html", "<html>", {}, "a web page"),
        (302, "", "", {}, "answers 302, not as a registry"),
        (404, "text/plain", "404 page not found", {}, "answers 404, not as a registry"),
        (503, "application/json", "{}", {}, "answers 503"),
    ],
)
def test_an_answer_is_judged(status: int, kind: str, text: str, headers: dict[str, str], words: str) -> None:
    found = judge(binding(), {"status": status, "kind": kind, "text": text, "headers": headers})
    assert (found is None) == (not words)
    if found:
        assert words in found[0] and found[1]


@pytest.mark.parametrize("auth", ["", "basic", "bearer"])
def test_a_node_asks_without_a_credential_and_the_token_service_too(auth: str) -> None:
    with FakeRegistry(auth) as server:
        answer = http_check.ask(build_request(binding(server.url)))
        assert judge(binding(server.url), answer) is None
        assert server.calls == ["GET /v2/", *(["GET /token"] if auth == "bearer" else [])]
        assert not any("authorization" in request[3] for request in server.requests)


def test_a_token_service_that_a_node_cannot_reach_is_named() -> None:
    routes: dict[str, t.Any] = {
        "GET /v2/": lambda *_a: (401, b"", {"WWW-Authenticate": 'Bearer realm="http://nowhere.invalid/token"'})
    }
    with Api(routes) as server:
        found = http_check.ask(build_request(binding(server.url)))
    assert found == {"failed": "the name nowhere.invalid is not known here", "fix": found["fix"]}


def access(server: Api, password: str = PASSWORD) -> RegistryAccess:
    return RegistryAccess(server.url, None, USER, Secret(password, "test"))


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_credentials_are_tried_on_each_repository(auth: str) -> None:
    with FakeRegistry(auth) as server:
        server.add_image("team/train", "1")
        # A repository that is not there yet is made by the first push.
        assert check_access(binding(server.url, "team/train", "team/new"), access(server), "o") == ""
        assert check_access(binding(server.url), access(server), "o") == ""
        with pytest.raises(InputError, match=r"o.secret_ref: the registry at .* refuses the credentials") as caught:
            check_access(binding(server.url), access(server, "canary-wrong-0002"), "o")
        assert "canary" not in str(caught.value)
        with pytest.raises(InputError, match="refuses who has no credentials"):
            check_access(binding(server.url), RegistryAccess(server.url), "o")
        server.rights = ()
        with pytest.raises(InputError, match="repository team/train at .* refuses the credentials"):
            check_access(binding(server.url, "team/train"), access(server), "o")


def test_what_could_not_be_tried_is_said_and_another_server_refused() -> None:
    with FakeRegistry() as server:
        server.faults["GET /v2/"] = [Fault(429, b"{}"), Fault(500)]
        assert "HTTP Error 429" in check_access(binding(server.url), access(server), "o")
        with pytest.raises(RefusedError, match="o: .*HTTP Error 500"):
            check_access(binding(server.url), access(server), "o")
    assert "cannot be read" in check_access(binding(server.url), access(server), "o")
