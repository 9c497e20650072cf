# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake of Infisical, from the shape of its public API: a machine identity logs in, reads one secret, ends its token."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ansible_collections.muster.training.tests.support.loopback import Api

CLIENT_ID, CLIENT_SECRET = "canary-infisical-client-id-1", "canary-infisical-client-secret-1"
Handled = tuple[int, t.Any, Mapping[str, str]]


class FakeInfisical(Api):
    """Secrets by ``(project, environment, folder, name)``; ``live`` are the tokens that were not ended."""

    def __init__(self, secrets: Mapping[tuple[str, str, str, str], str], *, hidden: bool = False) -> None:
        self.live: set[str] = set()
        self._secrets, self._hidden, self._made = secrets, hidden, 0
        routes = {
            "POST /api/v1/auth/universal-auth/login": self._log_in,
            "POST /api/v1/auth/token/revoke": self._revoke,
            **{f"GET /api/v4/secrets/{name}": self._reader(name) for *_place, name in secrets},
        }
        super().__init__(routes)

    def _log_in(self, _query: t.Any, _headers: t.Any, body: bytes) -> Handled:
        given = json.loads(body)
        if (given["clientId"], given["clientSecret"]) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"statusCode": 401, "message": f"Invalid credentials {CLIENT_SECRET}"}, {}
        self._made += 1
        token = f"canary.infisical.token-{self._made}"
        self.live.add(token)
        answer = {"accessToken": token, "expiresIn": 7200, "accessTokenMaxTTL": 43244, "tokenType": "Bearer"}
        return 200, answer, {}

    def _revoke(self, _query: t.Any, _headers: t.Any, body: bytes) -> Handled:
        self.live.discard(json.loads(body)["accessToken"])
        return 200, {"message": "Successfully revoked access token"}, {}

    def _reader(self, name: str) -> t.Callable[..., Handled]:
        def read(query: t.Any, headers: t.Any, _body: bytes) -> Handled:
            asked = dict(query)
            if headers.get("authorization", "").removeprefix("Bearer ") not in self.live:
                return 401, {"statusCode": 401, "message": "Token missing"}, {}
            place = (asked["projectId"], asked["environment"], asked["secretPath"].strip("/"), name)
            if place[0] not in {known[0] for known in self._secrets}:
                return 403, {"statusCode": 403, "message": "You are not a member of this project"}, {}
            if place not in self._secrets:
                return 404, {"statusCode": 404, "message": "Secret not found"}, {}
            value = "<hidden-by-infisical>" if self._hidden else self._secrets[place]
            item = {"secretKey": name, "secretValue": value, "secretValueHidden": self._hidden}
            return 200, {"secret": item}, {}

        return read
