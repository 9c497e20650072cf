# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vault and OpenBao: what is read, and every refusal in words; the real server is in the end-to-end tests."""

from __future__ import annotations

import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.tests.support.loopback import Api

TOKEN = "s.canary-token-0123456789"


def access(url: str) -> vault.VaultAccess:
    return vault.VaultAccess(url, Secret(TOKEN, "test"))


def routes(status: int, body: t.Any) -> dict[str, t.Any]:
    answer = lambda *_a, **_k: (status, body, {})  # noqa: E731
    return {"GET /v1/secret/data/team/x": answer, "GET /v1/auth/token/lookup-self": answer}


def test_a_secret_is_read_from_its_mount() -> None:
    with Api(routes(200, {"data": {"data": {"k": "v"}, "metadata": {}}})) as api:
        assert vault.read_secret(access(api.url), "secret/team/x", "job.x") == {"k": "v"}
        vault.check_access(access(api.url), "job.x")


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "may not read secret/team/x"), (404, "does not exist"), (503, "is sealed"), (500, "gave no secret at")],
)
def test_a_refusal_is_explained_without_the_token(status: int, words: str) -> None:
    with Api(routes(status, {"errors": [TOKEN]})) as api, pytest.raises(MusterError, match=words) as caught:
        vault.read_secret(access(api.url), "secret/team/x", "job.x")
    assert TOKEN not in str(caught.value) and "job.x" in str(caught.value)


def test_a_path_without_a_mount_an_address_without_a_server_and_no_package_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match="must be MOUNT/PATH"):
        vault.read_secret(access("http://127.0.0.1:9"), "secret", "job.x")
    with pytest.raises(RefusedError, match="no connection"):
        vault.read_secret(access("http://127.0.0.1:9"), "secret/x", "job.x")
    monkeypatch.setitem(sys.modules, "hvac", None)
    with pytest.raises(RefusedError, match="pip install hvac"):
        vault.read_secret(access("http://127.0.0.1:9"), "secret/x", "job.x")


MOUNTS = {
    "secret": {"type": "kv", "path": "secret/", "options": {"version": "2"}},
    "old": {"type": "kv", "path": "old/", "options": None},
    "database": {"type": "database", "path": "database/", "options": None},
}


def mounts(**more: t.Any) -> dict[str, t.Any]:
    """Return routes of a service that says what is mounted where."""
    paths = {"secret": "secret/team/x", "old": "old/team/x", "database": "database/creds/x"}
    known = {
        f"GET /v1/sys/internal/ui/mounts/{path}": lambda *_a, mount=mount: (200, {"data": MOUNTS[mount]}, {})
        for mount, path in paths.items()
    }
    return {**known, **{route: lambda *_a, answer=answer: (*answer, {}) for route, answer in more.items()}}


def test_what_is_mounted_decides_how_a_path_is_read() -> None:
    old = {"GET /v1/old/team/x": (200, {"data": {"k": "old"}})}
    with Api(mounts(**old)) as api:
        asked = access(api.url)
        paths = ("secret/team/x", "old/team/x", "database/creds/x", "auth/token/create/role")
        assert [vault.find_engine(asked, path, "x") for path in paths] == ["kv2", "kv1", "leased", "token"]
        assert vault.read_secret(asked, "old/team/x", "x") == {"k": "old"}
    refused = {"GET /v1/sys/internal/ui/mounts/secret/team/x": (403, {"errors": ["no"]})}
    with Api(mounts(**refused)) as api:
        assert vault.find_engine(access(api.url), "secret/team/x", "x") == "kv2", "not every token may ask"


def test_a_credential_is_made_renewed_and_revoked() -> None:
    made = {"lease_id": "database/creds/x/1", "lease_duration": 60, "renewable": True, "data": {"password": "pw"}}
    answers: dict[str, t.Any] = {
        "GET /v1/database/creds/x": (200, made),
        "PUT /v1/sys/leases/renew": (200, {"lease_duration": 30}),
        "PUT /v1/sys/leases/revoke": (204, b""),
        "POST /v1/sys/capabilities-self": (200, {"data": {"capabilities": ["read"]}, "capabilities": ["read"]}),
    }
    with Api(mounts(**answers)) as api:
        asked = access(api.url)
        vault.require_issue(asked, "database/creds/x", "job.x")
        with pytest.raises(InputError, match="may not read auth/token/create"):
            vault.require_issue(asked, "auth/token/create", "job.x")
        values, lease = vault.issue(asked, "database/creds/x", "job.x", {})
        assert values == {"password": "pw"} and lease == vault.VaultLease("lease", "database/creds/x/1", 60.0, True)
        assert vault.renew(asked, lease, "job.x") == 30.0
        vault.revoke(asked, lease, "job.x")
    answers["PUT /v1/sys/leases/renew"] = answers["PUT /v1/sys/leases/revoke"] = (400, {"errors": ["not found"]})
    answers["GET /v1/database/creds/x"] = (200, {"lease_id": "", "data": {}})
    with Api(mounts(**answers)) as api:
        asked = access(api.url)
        vault.revoke(asked, lease, "job.x")
        with pytest.raises(InputError, match="its lease has ended, or is as long as"):
            vault.renew(asked, lease, "job.x")
        with pytest.raises(RefusedError, match="gives no credential with a lease"):
            vault.issue(asked, "database/creds/x", "job.x", {})


def test_a_token_is_made_with_notes_and_its_accessor_ends_it() -> None:
    made = {"auth": {"client_token": "s.made-token-0123", "accessor": "a1", "lease_duration": 60, "renewable": True}}
    own = {"data": {"renewable": True}}
    answers: dict[str, t.Any] = {
        "POST /v1/auth/token/create/role": (200, made),
        "POST /v1/auth/token/renew-accessor": (200, {"auth": {"lease_duration": 40}}),
        "POST /v1/auth/token/revoke-accessor": (204, b""),
        "GET /v1/auth/token/lookup-self": (200, own),
        "POST /v1/auth/token/renew-self": (200, {"auth": {"lease_duration": 50}}),
    }
    with Api(mounts(**answers)) as api:
        asked = access(api.url)
        values, lease = vault.issue(asked, "auth/token/create/role", "job.x", {"muster_run": "r1"})
        assert values == {"token": "s.made-token-0123"} and lease.kind == "token" and lease.id == "a1"
        assert b'"muster_run"' in api.requests[0][4] or b'"muster_run"' in api.requests[-1][4]
        assert vault.renew(asked, lease, "job.x") == 40.0 and vault.renew_own(asked, "job.x") == 50.0
        own["data"]["renewable"] = False
        assert vault.renew_own(asked, "job.x") == 0.0
        vault.revoke(asked, lease, "job.x")
