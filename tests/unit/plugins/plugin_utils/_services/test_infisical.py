# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Infisical, against a fake from its public API."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import infisical
from ansible_collections.muster.training.tests.fakes.infisical import CLIENT_ID, CLIENT_SECRET, FakeInfisical, Handled

PLACE = ("p1", "prod", "team", "KEY")
VALUE = "canary-value-0001"


def access(url: str, secret: str = CLIENT_SECRET) -> infisical.InfisicalAccess:
    return infisical.InfisicalAccess(url, Secret(CLIENT_ID, "id"), Secret(secret, "secret"))


def test_an_identity_reads_one_secret_and_ends_its_token() -> None:
    with FakeInfisical({PLACE: VALUE}) as fake:
        found = infisical.read_values(access(fake.url), "p1/prod/team", ["KEY", "OTHER"], "job.x")
        assert found == {"KEY": VALUE.encode()} and not fake.live
        infisical.check_access(access(fake.url), "job.x")
        assert not fake.live
        own = infisical.InfisicalAccess(fake.url, token=Secret("somebodys-own-token", "token"))
        fake.live.add("somebodys-own-token")
        assert infisical.read_values(own, "/p1/prod/team/", ["KEY"], "job.x") == found
        assert fake.live == {"somebodys-own-token"}, "a token that was given is not ended"


@pytest.mark.parametrize(
    ("path", "secret", "hidden", "words"),
    [
        ("p1", CLIENT_SECRET, False, "must be PROJECT/ENVIRONMENT"),
        ("p2/prod/team", CLIENT_SECRET, False, "may not read p2/prod/team"),
        ("p1/prod/team", "another-client-secret", False, "the identity is refused"),
        ("p1/prod/team", CLIENT_SECRET, True, "may see KEY and not its value"),
    ],
)
def test_a_refusal_is_explained_without_a_secret(path: str, secret: str, hidden: bool, words: str) -> None:
    with FakeInfisical({PLACE: VALUE}, hidden=hidden) as fake, pytest.raises(MusterError, match=words) as caught:
        infisical.read_values(access(fake.url, secret), path, ["KEY"], "job.x")
    assert "job.x" in str(caught.value)
    assert not [value for value in (VALUE, CLIENT_SECRET, secret) if value in str(caught.value)]


def test_no_server_and_no_credential_are_named() -> None:
    with pytest.raises(RefusedError, match="does not answer"):
        infisical.check_access(access("http://127.0.0.1:9"), "job.x")
    with pytest.raises(InputError, match="needs the id and the secret"):
        infisical.check_access(infisical.InfisicalAccess("http://127.0.0.1:9"), "job.x")


def test_a_path_that_is_mended_is_read() -> None:
    class Strict(FakeInfisical):
        """It refuses an environment that it does not have with 400, as the service does."""

        def _reader(self, name: str) -> t.Callable[..., Handled]:
            read = super()._reader(name)

            def answer(query: t.Any, headers: t.Any, body: bytes) -> Handled:
                known = dict(query)["environment"] == "prod"
                return read(query, headers, body) if known else (400, {"message": "Environment not found"}, {})

            return answer

    with Strict({PLACE: VALUE}) as fake:
        with pytest.raises(RefusedError, match=r"gave no secret at p1/production/team \(HTTP 400\). Check the path"):
            infisical.read_values(access(fake.url), "p1/production/team", ["KEY"], "job.x")
        assert infisical.read_values(access(fake.url), "p1/prod/team", ["KEY"], "job.x")
