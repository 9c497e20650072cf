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
