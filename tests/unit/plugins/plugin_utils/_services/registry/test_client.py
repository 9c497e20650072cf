# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A repository over real HTTP, from a strict registry: who logs in how, and what is said of refusals."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    ApiError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import (
    ImageName,
    Registry,
    RegistryAccess,
    digest_of,
)
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry, Fault
from ansible_collections.muster.training.tests.support.loopback import Api

MANIFEST = "/v2/team/train/manifests/1"


def access(server: Api, password: str = PASSWORD) -> RegistryAccess:
    return RegistryAccess(server.url, None, USER, Secret(password, "test"))


def registry(server: Api, who: RegistryAccess | None = None) -> Registry:
    return Registry(ImageName("registry.mesh:5000", "team/train", "1"), who or access(server))


@pytest.mark.parametrize("auth", ["", "basic", "bearer"])
def test_a_manifest_is_read_however_the_registry_logs_in(auth: str) -> None:
    with FakeRegistry(auth) as server:
        digest = server.add_image("team/train", "1", ("amd64", "arm64"))
        content, kind = registry(server).manifest("1")
        assert digest_of(content) == digest and kind.endswith("image.index.v1+json")
        assert registry(server).manifest(digest)[0] == content


@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_wrong_password_is_refused_and_never_shown(auth: str) -> None:
    with FakeRegistry(auth) as server:
        server.add_image("team/train", "1")
        for who in (access(server, "canary-wrong-0002"), RegistryAccess(server.url)):
            with pytest.raises(ApiError, match="HTTP Error 401") as caught:
                registry(server, who).manifest("1")
            assert "secret_ref" in caught.value.fix and "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "words", "fix"),
    [
        (Fault(429, b"{}", {"Retry-After": "60"}), "HTTP Error 429: Too Many Requests, again after 60 s", "mirror"),
        (Fault(403, b'{"errors": [{"code": "DENIED"}]}'), "HTTP Error 403: DENIED", "may do this"),
        (Fault(401, b""), "HTTP Error 401", "credentials"),
        (Fault(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'), "404: MANIFEST_UNKNOWN", "repository and tag"),
        (Fault(500, b"<html>"), "HTTP Error 500", "archive"),
        (Fault(200, b"<html>"), "is not JSON", "endpoint"),
        (Fault(401, b"", {"WWW-Authenticate": 'Bearer service="x"'}), r"names no token service \(realm\)", "endpoint"),
    ],
)
def test_a_refusal_says_what_to_do(fault: Fault, words: str, fix: str) -> None:
    with FakeRegistry() as server:
        server.add_image("team/train", "1")
        server.faults[f"GET {MANIFEST}"] = [fault]
        with pytest.raises(TransportError, match=words) as caught:
            registry(server).manifest("1")
        assert fix in caught.value.fix


def test_bytes_that_are_not_of_their_digest_are_refused() -> None:
    with FakeRegistry() as server:
        digest = server.add_image("team/train", "1")
        server.manifests["team/train", digest] = (b"{}", "application/vnd.oci.image.manifest.v1+json")
        with pytest.raises(RefusedError, match="arrived as sha256:"):
            registry(server).manifest(digest)


def test_a_password_goes_to_no_token_service_without_tls_of_a_registry_with_it() -> None:
    who = RegistryAccess("https://registry.example.com", None, USER, Secret(PASSWORD, "test"))
    with pytest.raises(RefusedError, match="speaks HTTP, where a password is not sent"):
        Registry(ImageName("r", "a", "1"), who)._fetch_token({"realm": "http://tokens.example.com/token"})


def test_nothing_that_answers_is_named() -> None:
    with Api({}) as server:
        gone = server.url
    with pytest.raises(TransportError, match="cannot be read: .*refused"):
        Registry(ImageName("r", "a", "1"), RegistryAccess(gone)).manifest("1")


def test_a_redirect_gets_no_credential() -> None:
    with Api({"GET /blob": lambda *_a: (200, b"data", {})}) as store, FakeRegistry("basic") as server:
        place = f"/v2/team/train/blobs/{digest_of(b'data')}"
        challenge = {"WWW-Authenticate": 'Basic realm="r"'}
        server.faults[f"GET {place}"] = [Fault(401, b"", challenge), Fault(307, b"", {"Location": f"{store.url}/blob"})]
        with registry(server).send("GET", f"blobs/{digest_of(b'data')}") as answer:
            assert answer.read() == b"data"
        assert server.requests[-1][3]["authorization"].startswith("Basic ")
        assert "authorization" not in store.requests[-1][3]
